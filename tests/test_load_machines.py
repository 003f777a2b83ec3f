"""mqtick-load on several machines: over a real sshd on loopback, and over a stand-in for ssh that
runs the command here. Clocks are stand-ins, too: what they answer is part of each test.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_load import program, values

from demo.local_broker import Mosquitto, running
from demo.local_programs import wait_until
from mqtick.analysis.cli import main as report

pytestmark = [pytest.mark.broker, pytest.mark.needs("mosquitto")]
# Fewer messages than Mosquitto takes at once: a busy machine may send them together.
GROUPS = """
seconds = 60
ramp_up_s = 0
ramp_down_s = 0
[[group]]
publishers = 3
subscribers = 4
qos = {qos}
interval_us = 5000
messages = 15
[[group]]
name = "l"
kind = "latency"
publishers = 2
subscribers = 4
qos = {qos}
interval_us = 5000
messages = 15
retain = true
[[group]]
name = "far"
kind = "latency"
subscribers = 1
qos = {qos}
interval_us = 5000
messages = 15
publisher_machines = ["a"]
subscriber_machines = ["b"]
"""
# Of each machine: half of the first two groups, and one end of the third.
_CONNECTIONS = 7
CLOCK = """#!/bin/sh
echo asked >>"$0.asked"
now=$(date +%s%N)
earliest=$((now - {high})) latest=$((now - {low}))
echo "{\\"earliest_ns\\": $earliest, \\"latest_ns\\": $latest, \\"clock_ns\\": $now}"
"""
STAND_IN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec sh -c "$3"
"""
SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PasswordAuthentication no
UsePAM no
PermitRootLogin yes
PidFile none
"""
CLIENT = """
Host far
HostName 127.0.0.1
Port {port}
User {user}
IdentityFile {folder}/key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile {folder}/known
"""


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


class Rig:
    """A broker, and two machines behind a program called ssh."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.load = folder / "mqtick-load"
        self.load.symlink_to(program())
        self.machines = {"a": self.machine("a"), "b": self.machine("b")}

    def clock(self, name: str, low: int, high: int) -> str:
        """A clock that says by how many ns, at least and at most, it is fast."""
        text = CLOCK.replace("{low}", str(low)).replace("{high}", str(high))
        return executable(self.folder / f"clock-{name}", text)

    def machine(self, name: str, **keys: str) -> dict[str, str]:
        clock = self.clock(name, -100_000, 150_000)
        return {"name": name, "ssh": "far", "program": str(self.load), "clock": clock, **keys}

    def command(self, groups: str = "") -> list[str]:
        tables = [
            "[[machine]]\n" + "".join(f"{key} = '{value}'\n" for key, value in one.items())
            for one in self.machines.values()
        ]
        file = self.folder / "scenario.toml"
        file.write_text((groups or GROUPS.format(qos=0)) + "".join(tables))
        return [program(), "run", str(file), "--broker", self.url, "--json"]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def run(self, groups: str = "", code: int = 0) -> tuple[dict[str, Any], str]:
        done = subprocess.run(
            self.command(groups), capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == code, done.stderr
        assert not self.agents()
        return json.loads(done.stdout or "{}"), done.stderr

    def agents(self) -> list[int]:
        """The processes that run on the machines."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().startswith(f"{self.load}\0agent".encode()):
                    found.append(int(path.parent.name))
        return found

    def agents_connected(self) -> list[int]:
        """Those of them with all their connections, and an answer of their clock."""
        return [
            one
            for one in self.agents()
            if sum("socket:" in link for link in links(one)) >= _CONNECTIONS
        ]


def links(process: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(path.readlink()))
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[None]:
    """A real one, of this user, and a program `ssh` that finds it."""
    server, client = shutil.which("sshd"), shutil.which("ssh")
    if server is None or client is None:
        pytest.skip("openssh-server is not installed (make setup-test brings it)")
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-qN", "", "-f", str(folder / name)], check=True)
    port = free_port()
    (folder / "sshd.conf").write_text(SSHD.format(port=port, folder=folder))
    (folder / "ssh.conf").write_text(
        CLIENT.format(port=port, folder=folder, user=getpass.getuser())
    )
    executable(folder / "ssh", f'#!/bin/sh\nexec {client} -F {folder}/ssh.conf "$@"\n')
    command = [server, "-D", "-e", "-f", str(folder / "sshd.conf")]
    if os.geteuid() == 0:
        # As root it wants an account and a folder of its own: it gets them in a mount namespace.
        (folder / "passwd").write_text(
            "root:x:0:0::/root:/bin/sh\nsshd:x:65533:65534::/run/sshd:/bin/false\n"
        )
        (folder / "shadow").write_text("root:*:19000:0:99999:7:::\n")
        inside = (
            'mount -t tmpfs none /run && mkdir /run/sshd && cd "$1" && shift && '
            "mount --bind passwd /etc/passwd && mount --bind shadow /etc/shadow && "
            'exec "$@"'
        )
        command = ["unshare", "-m", "sh", "-c", inside, "sh", str(folder), *command]
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:

        def is_there() -> bool:
            if process.poll() is not None:
                pytest.skip(f"sshd does not run here: {(folder / 'sshd.log').read_text()}")
            return "Server listening" in (folder / "sshd.log").read_text()

        wait_until(is_there, "sshd listens")
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Rig]:
    executable(tmp_path / "ssh", STAND_IN)
    with running(Mosquitto(tmp_path)) as broker:
        yield Rig(tmp_path, broker.url)


@pytest.fixture(params=["sshd", "stand-in"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    if request.param == "stand-in":
        yield request.getfixturevalue("stand_in")
        return
    with sshd(tmp_path), running(Mosquitto(tmp_path)) as broker:
        yield Rig(tmp_path, broker.url)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_copy_comes_once_and_its_latency_is_an_interval(rig: Rig, qos: int) -> None:
    result, _ = rig.run(GROUPS.format(qos=qos))
    found = values(result)
    for key in ("lost", "duplicates", "disorder", "refused", "unstamped"):
        assert found[key] == 0, key
    rows = {(row["key"], row["who"]): row["median"] for row in result["rows"]}
    for one in "ab":
        # Both have this machine's clock: their true errors are the same, within the interval.
        assert rows["clock_low_us", one] < -100 < 150 < rows["clock_high_us", one]
        assert rows["wire_p50_us", f"{one} to {one}"] > 0
    assert rows["clocks_within_us", "a to b"] >= 250
    for pair in ("a to b", "b to a"):
        assert rows["wire_low_p50_us", pair] < rows["wire_high_p50_us", pair]
        assert rows["wire_high_p50_us", pair] > 250
        assert ("wire_p50_us", pair) not in rows
    skews = [rows[f"skew_{end}_p50_us", "at any machine"] for end in ("low", "high")]
    assert max(rows["skew_p50_us", "at a"], rows["skew_p50_us", "at b"]) <= skews[1]
    assert skews[0] < skews[1]
    # It left nothing retained behind.
    again, _ = rig.run(GROUPS.format(qos=qos))
    assert values(again)["lost"] == 0


def test_a_clock_that_nobody_knows_leaves_the_latency_between_machines_unknown(
    stand_in: Rig,
) -> None:
    for clock, why in (("none", 'clock = "none"'), ("/nowhere now", "No such file")):
        stand_in.machines["b"]["clock"] = clock
        result, _ = stand_in.run()
        assert values(result)["lost"] == 0
        who = {row["who"] for row in result["rows"]}
        assert {"a", "b", "a to a", "b to b", "at a", "at b"} <= who
        assert not who & {"a to b", "b to a", "at any machine"}
        notes = [note for note in result["notes"] if "between b and other machines" in note]
        assert len(notes) == 1
        assert why in notes[0]


def test_a_machine_may_be_this_one(stand_in: Rig) -> None:
    del stand_in.machines["a"]["ssh"]
    assert values(stand_in.run()[0])["lost"] == 0


def test_clocks_outside_their_intervals_are_caught(stand_in: Rig) -> None:
    # b says that it is a second fast: by that, copies come before they leave.
    stand_in.machines["b"]["clock"] = stand_in.clock("b", 999_000_000, 1_001_000_000)
    _, error = stand_in.run(code=1)
    assert "before it can have left a: one of the two clocks is outside its interval" in error
    moving = '#!/bin/sh\n[ -e "$0.once" ] && exec "$0-2"\n: >"$0.once"\nexec "$0-1"\n'
    clock = executable(stand_in.folder / "clock-moving", moving)
    stand_in.clock("moving-1", -1000, 1000)
    stand_in.clock("moving-2", 499_000_000, 501_000_000)
    stand_in.machines["b"]["clock"] = clock
    _, error = stand_in.run(code=1)
    assert "machine b: the interval of its clock moved by 49" in error
    assert "more than a crystal can" in error


HELLO = """echo '{"Hello":"0.1.0"}'"""


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("program", "echo Welcome!; cat >/dev/null", 'said "Welcome!", which mqtick-load agent'),
        ("program", """echo '{"Hello":"9.9.9"}'; cat""", "has mqtick-load 9.9.9, and here is"),
        ("program", "echo 'agent is no command' >&2; exit 2", r"status: 2\): agent is no command"),
        ("program", "kill -9 $$", r"ended \(exit status: 137\): Killed"),
        ("program", f"{HELLO}; read task; echo '\"Ready\"'; exit 3", r"status: 3\)"),
        ("program", f"{HELLO}; {HELLO}; cat", "spoke out of turn|which mqtick-load agent does not"),
        ("program", "head -c 200 /dev/urandom; echo; cat >/dev/null", "mqtick-load agent does not"),
        ("clock", "echo 12", "its answer is not that of mqtick-client"),
        ("clock", "head -c 200 /dev/urandom", "its answer is not that of mqtick-client"),
    ],
)
def test_a_machine_that_talks_nonsense_or_ends_is_told(
    stand_in: Rig, key: str, text: str, expected: str
) -> None:
    path = executable(stand_in.folder / "other", f"#!/bin/sh\n{text}\n")
    stand_in.machines["b"][key] = path
    _, error = stand_in.run(code=1)
    assert "machine b: " in error
    assert re.search(expected, error)
    assert "panicked" not in error


def test_a_machine_that_cannot_be_reached_is_told(rig: Rig) -> None:
    rig.machines["b"]["program"] = "/nowhere/mqtick-load"
    _, error = rig.run(code=1)
    assert "machine b: ended (exit status: 127): " in error
    if (rig.folder / "ssh.conf").exists():
        rig.machines["b"]["ssh"] = f"127.0.0.1:{free_port()}"
        _, error = rig.run(code=1)
        assert "machine b: ended (exit status: 255): ssh: " in error


LONG = GROUPS.format(qos=0).replace("messages = 15\n", "").replace("seconds = 60", "seconds = 600")


def begin(rig: Rig) -> subprocess.Popen[str]:
    """Start a long run; return when both machines have their clients."""
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        rig.command(LONG), stdout=pipe, stderr=pipe, text=True, env=rig.environment
    )
    wait_until(lambda: len(rig.agents_connected()) == 2, "both machines are connected")
    return started


def test_a_machine_that_dies_ends_the_run(rig: Rig) -> None:
    with begin(rig) as load:
        os.kill(rig.agents()[1], signal.SIGKILL)
        _, error = load.communicate(timeout=60)
    assert load.returncode == 1
    assert "machine" in error
    assert "ended (" in error
    wait_until(lambda: not rig.agents(), "the machines are left alone")


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running_on_a_machine(rig: Rig, by: signal.Signals) -> None:
    with begin(rig) as load:
        load.send_signal(by)
        load.communicate(timeout=60)
    assert load.returncode == (130 if by is signal.SIGINT else -by)
    if by is signal.SIGINT:
        assert not rig.agents()
    wait_until(lambda: not rig.agents(), "the machines are left alone")


VARIED = """
[[group]]
subscribers = 100
interval_us = 2000
[[group]]
name = "l"
kind = "latency"
subscribers = 2
interval_us = 5000
"""


def test_limit_drives_several_machines_from_trial_to_trial(stand_in: Rig, tmp_path: Path) -> None:
    scenario = stand_in.command(VARIED)[2]
    command = [program(), "limit", stand_in.url, "--scenario", scenario, "--json"]
    short = ["--trial", "0.4", "--repeats", "2", "--resolution", "20"]
    done = subprocess.run(
        [*command, *short], capture_output=True, text=True, check=False, env=stand_in.environment
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {(row["key"], row["who"]): row["median"] for row in result["rows"]}
    tried, ratios = result["lists"]["trial_ingress"], result["lists"]["trial_ratio"]
    held = [rate for rate, ratio in zip(tried, ratios, strict=True) if ratio >= 0.99]
    assert 0 < rows["limit_ingress", "broker"] < 3 * max(held)
    # The clocks' intervals are asked for where times are told, and enter them.
    for level in ("at 50 %", "at 90 %", "at the limit"):
        pair = f"{level}: a to b"
        assert rows["clocks_within_us", pair] >= 250
        assert rows["wire_low_p50_us", pair] < rows["wire_high_p50_us", pair]
    assert not stand_in.agents()
    page = tmp_path / "limit.html"
    (tmp_path / "limit.json").write_text(done.stdout)
    assert report(["limit", str(tmp_path / "limit.json")]) == 0
    assert "several machines measured" in page.read_text()
    command += ["--broker-pid", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "are of one machine" in done.stderr
