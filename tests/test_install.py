"""scripts/install.sh: what it puts where, what it keeps, what it refuses, what it leaves behind."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts/install.sh"
BROKER = ("--broker", "mqtt://broker.lan")
CHRONYD = shutil.which("chronyd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
needs_chronyd = pytest.mark.skipif(CHRONYD is None, reason="chronyd is not installed")


def install(
    destination: Path | str, *arguments: str, script: Path = SCRIPT, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "DESTDIR"}
    if destination:
        environment["DESTDIR"] = str(destination)
    return subprocess.run(
        [str(script), *arguments],
        env=environment,
        user=user,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def files(destination: Path) -> set[str]:
    """Every file and link outside the virtual environment, as paths on the installed machine."""
    found = {"/" + str(path.relative_to(destination)) for path in destination.rglob("*")}
    return {
        path
        for path in found
        if not path.startswith(("/opt/mqtick/lib", "/opt/mqtick/bin/", "/opt/mqtick/include"))
        and ((destination / path[1:]).is_symlink() or (destination / path[1:]).is_file())
    }


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "usage: scripts/install.sh server|client"),
        (("gardener", *BROKER), "usage: scripts/install.sh server|client"),
        (("client",), "BROKER is missing"),
        (("client", "--broker"), "--broker needs a value"),
        (("server", "--broker", "mqtt://"), "'mqtt://' names no host"),
        (("server", "--broker", "mqtt://a b"), "'mqtt://a b' holds a space"),
        (("server", "--broker", "mqtt://a\n"), "holds a space or a control character"),
        (("server", "--broker", "http://a"), "'http://a' has the scheme 'http': use one of"),
        (("server", "--broker", "mqtt://a:0"), "has the port 0"),
        (("server", *BROKER, "--number", "256"), "from 0 to 255, but '256' is not"),
        (("server", *BROKER, "--number", "-1"), "from 0 to 255, but '-1' is not"),
        (("server", *BROKER, "--number", "1,2"), "a time server has one"),
        (("client", *BROKER, "--number", "1,x"), "from 0 to 255, but 'x' is not"),
        (("client", *BROKER, "--chrony", "perhaps"), "CHRONY=perhaps is not understood"),
        (("client", *BROKER, "--keys", "/no/such/file"), "KEYS=/no/such/file is not a file"),
        (("client", *BROKER, "--ca", "/"), "CA=/ is not a file"),
        (("client", *BROKER, "--colour", "red"), "unknown word '--colour'"),
    ],
)
def test_a_wrong_word_is_answered_by_a_sentence_and_nothing_is_done(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    done = install(tmp_path, *arguments)
    assert sentence in done.stderr
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("role", ["server", "client"])
@pytest.mark.parametrize(
    "address",
    ["mqtt://a:hunter2@host", "a:hunter2@host", "wss://a:hunter2@host/x", "mqtt://a:h/unter2@b"],
)
def test_an_address_with_a_password_is_refused_before_anything_is_written(
    role: str, address: str, tmp_path: Path
) -> None:
    done = install(tmp_path, role, "--broker", address)
    assert "BROKER= cannot be used, and nothing was written" in done.stderr
    assert "give that as PASSWORD_FILE" in done.stderr or "/" in address.partition("//")[2][:6]
    assert "unter2" not in done.stdout + done.stderr
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_the_folder_to_install_below_is_an_absolute_path() -> None:
    done = install("here", "client", *BROKER)
    assert "DESTDIR=here must begin with a slash" in done.stderr
    assert done.returncode == 2


def test_without_root_it_says_so() -> None:
    # the checkout may lie where nobody else can read it
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        scripts = shutil.copytree(SCRIPT.parent, Path(folder) / "scripts")
        nobody = 65534 if os.geteuid() == 0 else None
        done = install("", "server", *BROKER, script=scripts / "install.sh", user=nobody)
    assert "this needs root" in done.stderr
    assert done.returncode == 2


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "opt/mqtick").mkdir(parents=True)
    (tmp_path / "opt/mqtick/precious").touch()
    done = install(tmp_path, "server", *BROKER)
    assert "but not from an installation like this one" in done.stderr
    assert done.returncode == 1
    assert (tmp_path / "opt/mqtick/precious").exists()


def test_uninstalling_nothing_says_so(tmp_path: Path) -> None:
    done = install(tmp_path, "uninstall")
    assert "nothing to remove" in done.stdout
    assert done.returncode == 0


@pytest.mark.slow
def test_a_package_that_somebody_has_exchanged_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels, pip = tmp_path / "wheels", [sys.executable, "-m", "pip", "download", "--quiet"]
    lists = [f"--requirement={ROOT / 'requirements' / name}.txt" for name in ("build", "service")]
    subprocess.run([*pip, "--only-binary=:all:", f"--dest={wheels}", *lists], check=True)
    (paho,) = wheels.glob("paho_mqtt-*.whl")
    with zipfile.ZipFile(paho, "a") as archive:
        archive.writestr("paho/extra.py", "print('hello')\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    done = install(tmp_path / "machine", "server", *BROKER)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert f"A file that is not in {ROOT}/requirements is refused" in done.stderr
    assert not list(tmp_path.rglob("machine/**/paho"))
    assert files(tmp_path / "machine") == {"/opt/mqtick/manifest", "/opt/mqtick/pyvenv.cfg"}


# ---- a whole installation -----------------------------------------------------------------------
# One virtual environment for all of these: they run in the order in which they stand here.

PROGRAMS = {
    "/opt/mqtick/manifest",
    "/opt/mqtick/pyvenv.cfg",
    "/opt/mqtick/doc/operations.md",
    "/opt/mqtick/scripts/install.sh",
    "/opt/mqtick/scripts/manifest.sh",
    "/opt/mqtick/scripts/chrony.sh",
    "/opt/mqtick/scripts/say.sh",
}
SERVER = {
    "/usr/local/bin/mqtick-timeserver",
    "/etc/mqtick/timeserver.toml",
    "/etc/mqtick/timeserver.keys",
    "/etc/systemd/system/mqtick-timeserver.service",
}
CLIENT = {
    "/usr/local/bin/mqtick-client",
    "/etc/mqtick/client.toml",
    "/etc/mqtick/client.password",
    "/etc/systemd/system/mqtick-client.service",
    "/etc/systemd/system/mqtick-wait-sync.service",
    "/etc/chrony/conf.d/mqtick.conf",
    "/etc/systemd/system/chrony.service.d/mqtick.conf",
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a server and a client in it, and a file that was there before."""
    place = tmp_path_factory.mktemp("machine")
    before = place / "etc/chrony/conf.d/mqtick.conf"
    before.parent.mkdir(parents=True)
    before.write_text("# somebody else's\n")
    before.chmod(0o644)
    keys = place.parent / "keys given"
    keys.write_text("fleet " + "00" * 32 + "\n")
    password = place.parent / "password given"
    password.write_text("secret\n")
    done = install(place, "server", *BROKER, "--keys", str(keys), "--number", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    account = ("--username", "kitchen-1", "--password-file", str(password))
    done = install(
        place, "client", "--broker", "mqtts://broker.lan:8884", "--number", "3,4", *account
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield place
    # not left to pytest, which keeps the last three: a virtual environment is large
    shutil.rmtree(place)


def installed(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """Mark a test of a whole installation."""
    return pytest.mark.slow(needs_chronyd(test))


def values(machine: Path, name: str) -> dict[str, object]:
    return tomllib.loads((machine / "etc/mqtick" / name).read_text())


@installed
def test_every_file_is_at_its_place_and_nothing_else(machine: Path) -> None:
    saved = {"/opt/mqtick/saved/etc/chrony/conf.d/mqtick.conf"}
    assert files(machine) == PROGRAMS | SERVER | CLIENT | saved


@installed
def test_both_programs_run(machine: Path) -> None:
    for program in ("mqtick-timeserver", "mqtick-client"):
        link = machine / "usr/local/bin" / program
        assert str(link.readlink()) == f"/opt/mqtick/bin/{program}"
        done = subprocess.run(
            [machine / "opt/mqtick/bin" / program, "--version"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(program)


@installed
def test_the_configuration_is_the_commented_example_with_the_given_values(machine: Path) -> None:
    assert values(machine, "timeserver.toml") == {
        "broker": "mqtt://broker.lan",
        "keys_file": "/etc/mqtick/timeserver.keys",
        "number": 3,
        "pin": {},
        "pps": {},
        "realtime": {"expect_fifo": True},
    }
    found = values(machine, "client.toml")
    assert {key: value for key, value in found.items() if not isinstance(value, dict)} == {
        "broker": "mqtts://broker.lan:8884",
        "username": "kitchen-1",
        "name": "kitchen-1",
        "password_file": "/etc/mqtick/client.password",
        "discipline": "chrony",
    }
    for name in ("timeserver.toml", "client.toml"):
        text = (machine / "etc/mqtick" / name).read_text()
        assert '#mqtt_version = "5"' in text
    # nothing without tags unless somebody asks for it
    assert '#formats = ["precise"]' in (machine / "etc/mqtick/timeserver.toml").read_text()


@installed
def test_secrets_are_closed_to_others_and_the_rest_is_open(machine: Path) -> None:
    assert mode(machine / "etc/mqtick/timeserver.keys") == 0o640
    assert mode(machine / "etc/mqtick/client.password") == 0o640
    for path in files(machine) - {"/etc/mqtick/timeserver.keys", "/etc/mqtick/client.password"}:
        if not (machine / path[1:]).is_symlink():
            assert mode(machine / path[1:]) & 0o444 == 0o444, path
    for path in (machine / "opt/mqtick").rglob("*"):
        if path.is_dir():
            assert mode(path) & 0o555 == 0o555, path


@installed
def test_chrony_is_told_of_each_server_in_words_it_takes(machine: Path) -> None:
    lines = machine / "etc/chrony/conf.d/mqtick.conf"
    assert lines.read_text().count("refclock SOCK ") == 2 * 4  # one for each delay
    assert "/run/chrony.mqtick3.sock" in lines.read_text()
    assert CHRONYD is not None
    subprocess.run([CHRONYD, "-p", "-f", lines], check=True, stdout=subprocess.DEVNULL)


@installed
def test_an_upgrade_needs_no_values_and_keeps_an_edited_configuration(machine: Path) -> None:
    config = machine / "etc/mqtick/client.toml"
    config.write_text(config.read_text() + "\n# mine\n")
    # an upgrade must bring the program back too
    module = next((machine / "opt/mqtick/lib").rglob("mqtick/client/cli.py"))
    module.unlink()
    chrony = (machine / "etc/chrony/conf.d/mqtick.conf").read_text()
    before = files(machine)
    done = install(machine, "client")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept: " in done.stdout
    assert config.read_text().endswith("# mine\n")
    assert module.exists()
    assert files(machine) == before
    assert (machine / "etc/chrony/conf.d/mqtick.conf").read_text() == chrony


@installed
def test_an_upgrade_does_not_bring_in_chrony_where_it_was_left_alone(machine: Path) -> None:
    config = machine / "etc/mqtick/client.toml"
    lines = machine / "etc/chrony/conf.d/mqtick.conf"
    kept = config.read_text(), lines.read_text()
    config.write_text(kept[0].replace('discipline = "chrony"', '#discipline = "none"'))
    lines.unlink()
    done = install(machine, "client")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not lines.exists()
    config.write_text(kept[0])
    lines.write_text(kept[1])


@installed
def test_other_values_are_put_beside_an_existing_configuration(machine: Path) -> None:
    done = install(machine, "client", "--broker", "mqtt://elsewhere")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "client.toml.new" in done.stderr
    assert values(machine, "client.toml")["broker"] == "mqtts://broker.lan:8884"
    assert values(machine, "client.toml.new")["broker"] == "mqtt://elsewhere"


@installed
def test_uninstalling_takes_everything_away_and_brings_back_what_was_there(machine: Path) -> None:
    script = machine / "opt/mqtick/scripts/install.sh"
    done = subprocess.run(
        [str(script), "uninstall"],
        env={**os.environ, "DESTDIR": str(machine)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert files(machine) == {"/etc/chrony/conf.d/mqtick.conf"}
    assert (machine / "etc/chrony/conf.d/mqtick.conf").read_text() == "# somebody else's\n"
    assert not (machine / "opt/mqtick").exists()
    assert not (machine / "etc/mqtick").exists()
