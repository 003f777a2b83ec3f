"""The repository itself: what must not be in it, and what its parts say about each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# Spelled in two halves, so that this file does not hold them itself.
INDEX_HOSTS = (
    "py" + "pi.org",
    "python" + "hosted.org",
    "pi" + "wheels.org",
    "npm" + "js.org",
    "crates" + ".io",
    "proxy.golang" + ".org",
)
INDEX_OPTION = re.compile("index" + r"-url|INDEX" + "_URL")
LOCK_FILE = re.compile(r"(^|/)[^/]*(\.lock|[-.]lock\.\w+)$")
HOME = re.compile("/ho" + r"me/\w|/Us" + r"ers/\w")


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this is no git checkout: {done.stderr.strip()}")
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[str, str]]:
    """Every tracked text file: its name, what is in it."""
    contents = ((name, (ROOT / name).read_bytes()) for name in tracked())
    return [
        (name, octets.decode("utf-8", "replace"))
        for name, octets in contents
        if b"\0" not in octets[:4096]
    ]


# ---- what must not be there ---------------------------------------------------------------------


def test_no_package_index_is_named() -> None:
    found = [(name, host) for name, text in texts() for host in INDEX_HOSTS if host in text]
    assert found == []
    assert [name for name, text in texts() if INDEX_OPTION.search(text)] == []


def test_no_lock_file_is_kept() -> None:
    assert [name for name in tracked() if LOCK_FILE.search(name)] == []


def test_no_path_of_a_machine_is_named() -> None:
    # a checkout at /mqtick would find itself in every path that ends so
    here = f"{ROOT}/" if len(ROOT.parts) > 2 else "\0"
    assert [name for name, text in texts() if HOME.search(text) or here in text] == []


def test_nothing_that_the_set_up_makes_is_tracked() -> None:
    made = (".venv", "__pycache__", "build", "dist", ".hypothesis")
    assert [name for name in tracked() if set(Path(name).parts) & set(made)] == []


# ---- the versions -------------------------------------------------------------------------------


def pins() -> dict[str, str]:
    """Every package of constraints.txt with its version."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert canonicalize_name(name) not in found, f"{name} is pinned twice"
            found[str(canonicalize_name(name))] = version
    return found


def needed_for(names: list[str]) -> set[str]:
    """The packages, what they need, what that needs: as far as it is installed here."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    done: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = str(canonicalize_name(requirement.name))
        for extra in requirement.extras | {""}:
            if (name, extra) in done:
                continue
            done.add((name, extra))
            try:
                lines = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                lines = []
            wanted = [Requirement(line) for line in lines]
            waiting += [
                one for one in wanted if not one.marker or one.marker.evaluate({"extra": extra})
            ]
        found.add(name)
    return found - {"mqtick"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_that_is_used_has_an_exact_version() -> None:
    about = project()
    extras = about["project"]["optional-dependencies"].values()
    asked = [*about["project"]["dependencies"], *about["build-system"]["requires"]]
    needed = needed_for([*asked, *(line for extra in extras for line in extra)])
    assert {"paho-mqtt", "gpiod", "pytest", "pluggy", "hatchling"} <= needed  # it has looked
    assert sorted(needed - pins().keys()) == []


def test_what_runs_as_a_service_is_taken_by_the_hashes_of_the_versions_that_are_pinned() -> None:
    lists: dict[str, dict[str, str]] = {}
    for file in (ROOT / "requirements").glob("*.txt"):
        lines = file.read_text().replace("\\\n", "").splitlines()[1:]
        found = [re.fullmatch(r"([\w-]+)==(\S+)(\s+--hash=sha256:[0-9a-f]{64})+", x) for x in lines]
        lists[file.stem] = {one[1]: one[2] for one in found if one}
        assert len(lists[file.stem]) == len(lines), file
    for listed in lists.values():
        assert listed.items() <= pins().items()
    about = project()
    assert lists["service"].keys() == needed_for(about["project"]["dependencies"])
    assert needed_for(about["build-system"]["requires"]) <= lists["build"].keys()
    assert lists["gpiod"].keys() == needed_for(["gpiod"])
    assert lists["pip"].keys() == {"pip"}


def test_what_is_installed_here_is_what_is_pinned() -> None:
    found = {}
    for name, version in pins().items():
        if name in ("pip", "setuptools"):
            continue  # of other machines; those here came with the interpreter
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of the build or of fuzzing, or not for this machine
        if installed != version:
            found[name] = f"{installed} instead of {version}"
    assert found == {}


def test_the_programs_need_nothing_but_paho() -> None:
    assert [Requirement(line).name for line in project()["project"]["dependencies"]] == [
        "paho-mqtt"
    ]


# ---- make ---------------------------------------------------------------------------------------


def dry_run(*arguments: str, **environment: str) -> str:
    """What make would do; apart from the make that may be running this test."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.needs("make")
@pytest.mark.parametrize("target", ["help", "demo", "test", "check", "bench", "install-client"])
def test_make_understands_its_targets(target: str) -> None:
    dry_run(target)


@pytest.mark.needs("make")
def test_values_for_the_installation_come_from_makes_command_line_only() -> None:
    # desktops export USERNAME
    words = dry_run(
        "install-client", "BROKER=mqtt://a'b c", "PASSWORD_FILE=x", USERNAME="desktop", NUMBER="7"
    ).split()
    assert words[-4:] == ["--broker", '"$BROKER"', "--password-file", '"$PASSWORD_FILE"']


# ---- scripts ------------------------------------------------------------------------------------


def scripts() -> list[str]:
    return [name for name in tracked() if name.endswith(".sh") or name == ".ci/run"]


def test_only_the_slow_tests_and_make_setup_bring_a_browser() -> None:
    found = re.search(
        r"^missing_packages\(\) \{$.*?^\}$", (ROOT / "scripts/setup.sh").read_text(), re.M | re.S
    )
    assert found
    brought = {
        level: subprocess.run(
            ["bash", "-c", f"level={level} PATH=; {found[0]}; missing_packages"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for level in ("demo", "test", "slow")
    }
    assert brought["demo"] == ["mosquitto", "chrony"]
    assert "nats-server" in brought["test"]
    assert "chromium" not in brought["test"]
    assert brought["slow"] == [*brought["test"], "chromium", "chromium-driver"]


def test_what_is_run_may_be_run() -> None:
    for name in scripts():
        is_program = (ROOT / name).read_text().startswith("#!")
        assert os.access(ROOT / name, os.X_OK) == is_program, name


@pytest.mark.needs("shellcheck")
def test_the_scripts_are_clean() -> None:
    done = subprocess.run(
        ["shellcheck", "-x", *scripts()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0
