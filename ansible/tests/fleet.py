"""A fleet as a user has one: a folder with an inventory, the collection installed, hosts by ssh."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blank_tree import CACHE
from hosts import Host, Rig
from playbook import ANSIBLE, PROJECT, Run, play, write_inventory

from demo.local_programs import Chronyd

PYTHON = PROJECT / ".venv/bin/python"
ON_HOST = Path(__file__).parent / "on_host"
LIMIT_US = 1500
"""A client whose clock may be wrong by more is marked."""
EARLIER = "0.0.9"
RELEASE = os.environ.get("MQTICK_FLEET_RELEASE", "bookworm")

# What each client's clock is wrong by; h4's is over the limit.
CLOCKS = {
    "h1": "offset_s=-0.00015,frequency_ppm=-0.2",
    "h3": "offset_s=0.0004,frequency_ppm=0.5",
    "h4": "offset_s=0.0025,frequency_ppm=2",
}


@contextlib.contextmanager
def ntp_server(rig: Rig, folder: Path) -> Iterator[None]:
    """The upstream of the fleet's time server: this machine's clock, which it cannot touch (-x)."""
    lines = (f"bindaddress {rig.control}", f"allow {rig.control}/24", "local stratum 2")
    with Chronyd(folder / "chronyd", lines, port=123) as chronyd:
        yield
        assert chronyd.process.poll() is None, chronyd.log.read_text()


class Fleet:
    """The folder of the user, and the hosts."""

    def __init__(self, folder: Path, rig: Rig) -> None:
        self.folder, self.rig = folder, rig
        upstream = {"kind": "server", "host": rig.control, "options": "minpoll 0 maxpoll 2"}
        self.inventory = write_inventory(
            folder,
            rig,
            {
                "mqtick_broker": ["h1"],
                "mqtick_timeservers": {
                    "h2": {"timeserver_number": 0, "timeserver_upstream": [upstream]}
                },
                "mqtick_clients": {
                    name: {**wrong_clock(clock), "client_wait_sync": name == "h1"}
                    for name, clock in CLOCKS.items()
                },
            },
            fleet_offline=True,
            fleet_limit_us=LIMIT_US,
        )

    @property
    def hosts(self) -> list[Host]:
        """All of them."""
        return self.rig.hosts

    @property
    def clients(self) -> list[Host]:
        """Those that follow the time."""
        return [self.rig.host(name) for name in CLOCKS]

    def install_collection(self) -> None:
        """Build the collection and install it from its file, as somebody without a checkout."""
        galaxy = str(ANSIBLE / "bin/ansible-galaxy")
        _run(galaxy, "collection", "build", "--output-path", self.folder, PROJECT / "ansible")
        (file,) = self.folder.glob("mqtick-fleet-*.tar.gz")
        _run(galaxy, "collection", "install", "-p", self.folder / "collections", file)

    def use_wheelhouse(self, wheelhouse: Path) -> None:
        """Put a wheelhouse where the playbooks look for it."""
        link = self.folder / "wheelhouse"
        link.unlink(missing_ok=True)
        link.symlink_to(wheelhouse)

    def play(
        self, playbook: str, *arguments: str, on_line: Callable[[str], None] = lambda line: None
    ) -> Run:
        """Run a playbook of the installed collection; it has to end well."""
        collections = self.folder / "collections"
        run = play(self.inventory, playbook, *arguments, collections=collections, on_line=on_line)
        assert run.status == 0, run.said
        return run

    def refused(self, playbook: str, *arguments: str) -> Run:
        """Run a playbook that has to fail."""
        collections = self.folder / "collections"
        run = play(self.inventory, playbook, *arguments, collections=collections)
        assert run.status != 0, run.said
        return run

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the clients in the fleet's table, worst first: host -> row."""
        page = ("-e", "status_html=fleet-status.html")
        self.play("status", "-e", "status_json=fleet-status.json", *page)
        rows = json.loads((self.folder / "fleet-status.json").read_text())["hosts"]
        return {row["host"]: row for row in rows if row["role"] == "client"}


def wrong_clock(clock: str) -> dict[str, Any]:
    """Return the variables of a client whose clock is wrong by intention."""
    # So written, the socket is one of a chronyd that runs with -x to the client, which otherwise
    # refuses to give chronyd the measurements of a clock that is wrong by intention.
    socket = "/var/run/chrony.mqtick{server}.sock"
    return {"client_settings": {"virtual_clock": clock, "chrony": {"socket": socket}}}


def client_status(host: Host) -> dict[str, Any]:
    """Return what the client there says about itself."""
    text = host.run("/opt/mqtick/bin/mqtick-client status --json", check=False)
    return dict(json.loads(text or "{}"))


def refused_for_its_tag(host: Host) -> int:
    """How many messages the client there refused because of their tag."""
    return int(client_status(host)["refused"].get("tag", 0))


def on_host(host: Host, script: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a script of `on_host` there, with the program's own Python."""
    with (ON_HOST / script).open() as text:
        return subprocess.Popen(
            host.ssh("/opt/mqtick/bin/python3", "-", *arguments, user="root"),
            stdin=text,
            stdout=subprocess.PIPE,
            text=True,
        )


def look(host: Host) -> dict[str, Any]:
    """Return what the client there says of the time, and how wrong that is (see look.py)."""
    words, _ = on_host(host, "look.py", "1").communicate(timeout=20)
    return dict(json.loads(words or '{"state": "no answer"}'))


def knows_the_time(seen: dict[str, Any]) -> bool:
    """Whether a client says what time it is, and the truth lies within what it states."""
    return seen["state"] in ("synchronised", "holdover") and seen["is_inside"]


def is_right(seen: dict[str, Any]) -> bool:
    """Whether it is synchronised too: not only from what it heard earlier."""
    return seen["state"] == "synchronised" and knows_the_time(seen)


def snapshot(host: Host) -> set[str]:
    """Return what `remove` has to bring back: files, packages, units, users; a line each."""
    return set(host.run((ON_HOST / "snapshot.sh").read_text()).splitlines())


@functools.cache
def wheelhouse(release: str) -> Path:
    """Build the wheelhouse of this checkout; Debian packages are fetched the first time only."""
    folder = CACHE / "wheelhouse"
    builder = (PYTHON, PROJECT / "scripts/wheelhouse.py")
    _once_a_run("wheelhouse", *builder, f"--targets={release}-amd64", "--folder", folder)
    return folder


@functools.cache
def broker_package() -> Path:
    """Build the Debian package of mqtick-broker; cargo compiles only what has changed."""
    if not shutil.which("cargo"):
        pytest.skip("cargo is not installed, so mqtick-broker cannot be built: make setup-broker")
    _once_a_run("broker-package", PROJECT / "scripts/broker-package.sh")
    (made,) = (PROJECT / "build").glob("mqtick-broker_*_amd64.deb")
    return made


def _once_a_run(what: str, *command: str | Path) -> None:
    """Let the first of the files of tests that run beside each other make what all use."""
    made_for = CACHE / f"{what}-made-for"
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not run or not made_for.exists() or made_for.read_text() != run:
            _run(*command)
            made_for.write_text(run)


def other_wheelhouse(now: Path, version: str, change: Callable[[Path], None]) -> Path:
    """Make of a wheelhouse that of another version: all is the same but the changed program."""
    folder, source = CACHE / f"version-{version}", CACHE / f"source-{version}"
    for old in (folder, source):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(now, folder, copy_function=os.link)
    # What is built is left out: others build while this copies.
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "target")
    shutil.copytree(PROJECT, source, symlinks=True, ignore=ignored)
    project = source / "pyproject.toml"
    project.write_text(
        re.sub('^version = ".*"', f'version = "{version}"', project.read_text(), flags=re.MULTILINE)
    )
    change(source)
    program = json.loads((now / "index.json").read_text())["program"]
    (folder / "wheels" / program).unlink()
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps")
    _run(PYTHON, *build, f"--wheel-dir={folder}/wheels", source)
    (wheel,) = (folder / "wheels").glob(f"mqtick-{version}-*")
    index = json.loads((now / "index.json").read_text().replace(program, wheel.name))
    octets = wheel.read_bytes()
    index["wheels"][wheel.name] = {
        "sha256": hashlib.sha256(octets).hexdigest(),
        "size": len(octets),
    }
    (folder / "index.json").unlink()  # its name only: the file is that of the other one too
    (folder / "index.json").write_text(json.dumps(index))
    _run(PYTHON, PROJECT / "scripts/wheelhouse.py", "--verify", "--folder", folder)
    return folder


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
