"""What is missing or broken in the wheelhouse stops on the control machine, not on a host."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.wheelhouse_index import (
    INDEX,
    WheelhouseError,
    check_all,
    debs,
    sha256_of,
    wheels,
)

from scripts import wheelhouse as script

ROOT = Path(__file__).parents[2]
TARGET = "bookworm-arm64"


def make_wheel(folder: Path, name: str, version: str, inside: str = "") -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {inside or version}\n"
        )
    return path


def rewrite(folder: Path, change: Any) -> None:
    path = folder / INDEX
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A wheelhouse that is good: three wheels and a Debian package."""
    folder = tmp_path / "wheelhouse"
    (folder / "wheels").mkdir(parents=True)
    (folder / "debs" / TARGET).mkdir(parents=True)
    files = [
        make_wheel(folder / "wheels", name, version)
        for name, version in (("mqtick", "0.1.0"), ("paho_mqtt", "2.2.0"), ("pip", "26.3"))
    ]
    deb = folder / "debs" / TARGET / "chrony_4.3-2_arm64.deb"
    deb.write_bytes(b"a package")
    entry = {
        "python": "3.11",
        "sets": {"program": [files[0].name, files[1].name]},
        "missing": {"gpiod": "there is no wheel of gpiod"},
        "debs": [
            {"package": "chrony", "version": "4.3-2", "architecture": "arm64", "file": deb.name,
             "depends": "", "pre_depends": "", "provides": "", "sha256": sha256_of(deb), "size": 9}
        ],
    }  # fmt: skip
    described = {
        path.name: {"sha256": sha256_of(path), "size": path.stat().st_size} for path in files
    }
    index = {"format": 1, "program": files[0].name, "pip": files[2].name, "wheels": described}
    (folder / INDEX).write_text(json.dumps(index | {"targets": {TARGET: entry}}))
    return folder


def test_a_good_one_gives_the_program_and_pip(house: Path) -> None:
    check_all(house)
    found = wheels(house, TARGET, ["program"], ["gpiod"])
    assert Path(found["pip"]).name == "pip-26.3-py3-none-any.whl"
    assert [Path(path).name.split("-")[0] for path in found["files"]] == ["mqtick", "paho_mqtt"]
    assert found["stamp"].keys() == {Path(path).name for path in found["files"]}
    assert found["left_out"] == {"gpiod": "there is no wheel of gpiod"}


@pytest.mark.parametrize(
    ("name", "octets", "sentence"),
    [
        ("wheels/paho_mqtt-2.2.0-py3-none-any.whl", None, "is missing.*make wheelhouse"),
        ("wheels/mqtick-0.1.0-py3-none-any.whl", 100, r"has 100 bytes, not \d+"),
        ("wheels/mqtick-0.1.0-py3-none-any.whl", -1, "SHA-256 differs"),
        (f"debs/{TARGET}/chrony_4.3-2_arm64.deb", -1, "SHA-256 differs"),
    ],
)
def test_a_file_that_is_damaged_is_named(
    house: Path, name: str, octets: int | None, sentence: str
) -> None:
    text = (house / name).read_bytes()
    (house / name).unlink()
    if octets is not None:
        whole = text[:octets] if octets > 0 else bytes([text[0] ^ 1]) + text[1:]
        (house / name).write_bytes(whole)
    with pytest.raises(WheelhouseError, match=rf"{re.escape(Path(name).name)}.*{sentence}"):
        check_all(house)


def test_a_wheel_of_another_version_inside_is_refused(house: Path) -> None:
    path = make_wheel(house / "wheels", "mqtick", "0.1.0", inside="0.0.9")

    def describe(index: dict[str, Any]) -> None:
        index["wheels"][path.name] = {"sha256": sha256_of(path), "size": path.stat().st_size}

    rewrite(house, describe)
    with pytest.raises(WheelhouseError, match=r"not of version 0\.1\.0 inside"):
        check_all(house)


def test_what_cannot_be_had_says_why(house: Path) -> None:
    with pytest.raises(WheelhouseError, match="there is no wheel of gpiod"):
        wheels(house, TARGET, ["program", "gpiod"])
    with pytest.raises(WheelhouseError, match=r"no wheels of 'lab'.*BENCH=1"):
        wheels(house, TARGET, ["lab"])
    with pytest.raises(WheelhouseError, match="nothing for noble-armhf, only for bookworm-arm64"):
        debs(house, "noble-armhf")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read"),
        ("\0\xff", "cannot be read"),
        ("[]", "is of another version"),
        ('{"format": 99}', "is of another version"),
        ('{"format": 1}', "is broken"),
        ('{"format": 1, "targets": [], "wheels": {}, "pip": "x"}', "is broken"),
        ('{"format": 1, "targets": {"a": {"sets": 5}}, "wheels": {}, "pip": "x"}', "is broken"),
    ],
)
def test_a_hostile_index_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(WheelhouseError, match=sentence):
        check_all(tmp_path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "a b.whl", "-x.whl", ""])
def test_the_index_names_no_file_elsewhere(house: Path, name: str) -> None:
    def lead_away(index: dict[str, Any]) -> None:
        index["pip"] = name
        index["wheels"][name] = {"sha256": "", "size": 0}

    rewrite(house, lead_away)
    with pytest.raises(WheelhouseError, match="names a file"):
        wheels(house, TARGET, ["program"])


def test_no_wheelhouse_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match=r"index\.json is not there: .*make wheelhouse"):
        check_all(tmp_path)


# ---- building -----------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("reason", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_build_that_ends_early_leaves_the_old_one_whole(
    house: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: BaseException,
) -> None:
    before = contents(house)

    def half(folder: Path, *_: object) -> None:
        (folder / "wheels").mkdir()
        (folder / "wheels/half").write_text("half")
        raise reason

    monkeypatch.setattr(script, "build", half)
    assert script.main(["--folder", str(house)]) == 1
    assert contents(house) == before
    assert [path.name for path in house.parent.iterdir()] == ["wheelhouse"]
    assert "is as it was before" in capsys.readouterr().err


def test_a_good_build_takes_the_place_of_the_old_one(
    house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = tmp_path / "made"
    shutil.copytree(house, fresh)
    (fresh / "new").touch()
    monkeypatch.setattr(
        script, "build", lambda folder, *_: shutil.copytree(fresh, folder, dirs_exist_ok=True)
    )
    assert script.main(["--folder", str(house)]) == 0
    assert (house / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "wheelhouse"]


def test_one_that_was_put_aside_by_a_killed_run_comes_back(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(house)
    house.rename(house.with_name("wheelhouse.old"))

    def fail(*_: object) -> None:
        raise script.WheelhouseError("no network")

    monkeypatch.setattr(script, "build", fail)
    assert script.main(["--folder", str(house)]) == 1
    assert contents(house) == before


def test_a_package_that_pip_does_not_find_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pip(*_: str) -> str:
        raise script.WheelhouseError("ERROR: No matching distribution found for paho-mqtt==2.2.0")

    monkeypatch.setattr(script, "pip", no_pip)
    with pytest.raises(
        script.WheelhouseError, match=r"^trixie-arm64: no wheels for .*paho-mqtt==2\.2\.0"
    ):
        script.fetch_wheels("trixie-arm64", {"program": "mqtick"}, tmp_path / "mqtick-1-x.whl")


@pytest.mark.slow
def test_a_wheel_of_a_service_that_has_another_hash_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    version = re.search(r"paho-mqtt==(\S+)", (ROOT / "requirements/service.txt").read_text())
    assert version
    make_wheel(served, "paho_mqtt", version[1])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(served))
    with pytest.raises(script.WheelhouseError, match="DO NOT MATCH THE HASHES"):
        script.fetch_set("bookworm-arm64", "program", ["mqtick"], tmp_path / "wheels")


def test_verify_tells_a_good_one_from_a_broken_one(
    house: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--verify", "--folder", str(house)]) == 0
    assert "bookworm-arm64     1 .deb" in " ".join(capsys.readouterr().out.split("\n"))
    (house / "wheels/pip-26.3-py3-none-any.whl").unlink()
    assert script.main(["--verify", "--folder", str(house)]) == 1
    assert "pip-26.3" in capsys.readouterr().err


def test_an_unknown_target_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main(["--targets", "buster-amd64"])
    assert ended.value.code == 2
    assert "unknown target buster-amd64; known are bookworm-amd64" in capsys.readouterr().err


# ---- a mirror whose lists do not fit together ---------------------------------------------------


def make_mirror(folder: Path, suites: dict[str, bool]) -> str:
    """A mirror with one package per suite; a suite that is not whole has another list than it says.

    Returns the lines for apt.
    """
    for suite, is_whole in suites.items():
        packages = folder / f"dists/{suite}/main/binary-armhf/Packages"
        packages.parent.mkdir(parents=True)
        text = (
            f"Package: of-{suite}\nVersion: 1\nArchitecture: armhf\n"
            f"Filename: x.deb\nSize: 1\nSHA256: {'0' * 64}\n\n"
        )
        packages.write_text(text if is_whole else text * 2)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (folder / f"dists/{suite}/Release").write_text(
            f"Suite: {suite}\nCodename: {suite}\nArchitectures: armhf\nComponents: main\n"
            "Date: Fri, 20 Nov 2026 00:00:00 UTC\n"
            f"SHA256:\n {digest} {len(text)} main/binary-armhf/Packages\n"
        )
    return "".join(f"deb [trusted=yes] file:{folder} {suite} main\n" for suite in suites)


def lists_of(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    more: str = "",
    **suites: bool,
) -> tuple[dict[str, str], set[str], list[str]]:
    """Fetch lists from such a mirror; returns what was left out, which packages apt knows, what
    was said."""
    deb_cache = script.deb_cache
    lines = make_mirror(
        folder / "mirror", {key.replace("_", "-"): one for key, one in suites.items()}
    )
    monkeypatch.setattr(deb_cache, "sources", lambda *_: lines + more)
    monkeypatch.setattr(deb_cache, "PAUSES_S", (0.01,))
    configuration = deb_cache.make_root(folder / "root", "bookworm-armhf")
    with configuration.open("a") as text:
        text.write('Acquire::Retries "0";\n')  # with a pause before each
    said: list[str] = []
    left_out = deb_cache.update(configuration, "bookworm", said.append)
    known = deb_cache.run("apt-cache", "pkgnames", APT_CONFIG=str(configuration))
    return left_out, set(known.split()), said


@pytest.mark.needs("apt-get")
def test_updates_whose_list_is_not_the_one_that_was_signed_are_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out, known, said = lists_of(
        monkeypatch, tmp_path, bookworm=True, bookworm_updates=True, bookworm_security=False
    )
    assert known == {"of-bookworm", "of-bookworm-updates"}
    assert left_out.keys() == {"bookworm-security"}
    assert said[0].startswith("trying again in 0.01 s")
    assert said[1].startswith("no updates of bookworm-security, whose package lists the mirror")
    assert "run the same again on another day" in left_out["bookworm-security"]


@pytest.mark.needs("apt-get")
def test_a_release_whose_own_list_is_not_the_one_that_was_signed_is_no_wheelhouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        script.WheelhouseError, match=r"the package lists cannot be fetched.*/dists/bookworm/"
    ):
        lists_of(monkeypatch, tmp_path, bookworm=False, bookworm_updates=True)


@pytest.mark.needs("apt-get")
@pytest.mark.parametrize("address", ["http://127.0.0.1:1/debian", "file:/nowhere"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_updates_that_cannot_be_reached_are_never_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    is_whole: bool,
) -> None:
    line = f"deb [trusted=yes] {address} bookworm-security main\n"
    with pytest.raises(script.WheelhouseError, match=r"cannot be fetched.*/dists/bookworm-sec"):
        lists_of(monkeypatch, tmp_path, line, bookworm=True, bookworm_updates=is_whole)


def test_an_ubuntu_of_another_architecture_is_somewhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deb_cache = script.deb_cache
    monkeypatch.setattr(deb_cache.shutil, "which", lambda _: "/usr/bin/apt-get")
    monkeypatch.setattr(
        deb_cache,
        "release_of_this_machine",
        lambda: {"ID": "ubuntu", "VERSION_CODENAME": "noble"},
    )
    monkeypatch.setattr(deb_cache, "run", lambda *_: "amd64\n")
    with pytest.raises(deb_cache.NoDebsError, match=r"those for arm64 on other mirrors.*amd64"):
        deb_cache.sources("noble", "arm64")
