"""Real programs whose optional parts break: the time goes on; status, metrics, doctor say so."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.local_broker import Mosquitto, free_port, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("mosquitto"),
]
STEPS_IN_S = 30
# Modes hold root back, too, without these two rights.
MODES_COUNT = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
MODES_COUNT = MODES_COUNT if os.geteuid() == 0 else []


class Host:
    """A broker, a time server and a client, with processes of their own."""

    def __init__(self, folder: Path, broker: str, stack: ExitStack) -> None:
        self.folder, self.broker, self._stack = folder, broker, stack
        self.state = folder / "client"

    def start(self, room: str, state: Path, *words: str, config: str = "") -> subprocess.Popen[str]:
        """Run one of our programs."""
        file = self.folder / f"{room}.toml"
        file.write_text(config)
        process = subprocess.Popen(
            [
                *MODES_COUNT,
                *(sys.executable, "-m", f"mqtick.{room}.cli", "run", "--config", str(file)),
                *("--broker", self.broker, "--state-folder", str(state), *words),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(process.communicate)
        self._stack.callback(process.terminate)
        return process

    def client(self, config: str = "", *words: str) -> subprocess.Popen[str]:
        """Run a client."""
        return self.start("client", self.state, "--name", "pi7", *words, config=config)

    def ask(self, *words: str) -> str:
        """Return what another command of the client says, errors included."""
        done = subprocess.run(
            [
                *(*MODES_COUNT, sys.executable, "-m", "mqtick.client.cli", *words),
                *("--state-folder", str(self.state)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def doctor(self) -> str:
        """Return the doctor's lines."""
        return self.ask("doctor", "--broker", self.broker, "--name", "pi7")

    def until(self, is_true: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
        """Wait until something is true of the client's status."""
        deadline_s, values = time.monotonic() + STEPS_IN_S, dict[str, Any]()
        while not values or not is_true(values):
            assert time.monotonic() < deadline_s, values
            time.sleep(0.1)
            try:
                values = json.loads((self.state / "status.json").read_text())["status"]
            except OSError:
                values = {}
        return values


def knows_time(values: Mapping[str, Any]) -> bool:
    return bool(values["state"] == "synchronised")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(tmp_path)))
        made = Host(tmp_path, broker.url, stack)
        made.start("timeserver", tmp_path / "server", "--trust-system-clock", "--interval-s", "0.5")
        yield made


def test_pins_that_do_not_open_and_a_log_without_a_folder_do_not_stop_the_time(host: Host) -> None:
    nowhere = host.folder / "nowhere"
    hanging = host._stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # accepts nobody
    process = host.client(
        f'sample_log = "{nowhere}/samples"\nmetrics_listen = "127.0.0.1:{(port := free_port())}"\n'
        '[pin]\nbackend = "gpiod"\nchip_label = "/dev/no-such-chip"\n[pps]\nbackend = "pigpio"\n'
        f'host = "127.0.0.1"\nport = {hanging.getsockname()[1]}\n'
    )
    values = host.until(knows_time)
    assert set(values["troubles"]) == {"pin arrival", "pin pps", "sample log"}
    assert "no-such-chip" in values["troubles"]["pin arrival"]
    assert "has not answered yet" in values["troubles"]["pin pps"]
    assert "pin arrival       does not work: " in host.ask("status")
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert 'mqtick_client_trouble{part="pin arrival"} 1' in page
    assert "WARN pin arrival: " in host.doctor()
    nowhere.mkdir()
    host.until(lambda values: "sample log" not in values["troubles"])
    assert process.poll() is None


def test_a_time_server_without_its_pin_serves(host: Host, tmp_path: Path) -> None:
    host.start(
        *("timeserver", tmp_path / "second", "--trust-system-clock", "--number", "7"),
        config='[pin]\nbackend = "gpiod"\nchip_label = "/dev/no-such-chip"\n',
    )
    host.client()
    values = host.until(lambda values: any(row["server"] == 7 for row in values["servers"]))
    assert values["connected"]


def test_a_taken_port_of_the_metrics_is_tried_again(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        host.client("", "--metrics-listen", f"127.0.0.1:{port}")
        values = host.until(lambda values: knows_time(values) and values["troubles"])
        assert "Address already in use" in values["troubles"]["metrics"]
    host.until(lambda values: not values["troubles"])
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
    assert b"mqtick_client_synchronised 1" in page


def test_a_deleted_state_folder_is_made_again(host: Host) -> None:
    host.client()
    host.until(knows_time)
    shutil.rmtree(host.state)
    host.until(knows_time)


@contextmanager
def read_only(host: Host) -> Iterator[str]:
    """A folder of others: it can be read, no more."""
    host.state.chmod(0o555)
    yield "has mode 0555"
    host.state.chmod(0o755)


@contextmanager
def closed(host: Host) -> Iterator[str]:
    """A folder that cannot even be looked into."""
    host.state.chmod(0o000)
    yield "has mode 0000"
    host.state.chmod(0o755)


@contextmanager
def foreign(host: Host) -> Iterator[str]:
    """A folder of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    host.state.chmod(0o700)
    os.chown(host.state, 65534, 65534)
    yield "only its user may read: use sudo"
    os.chown(host.state, 0, 0)


@contextmanager
def full(host: Host) -> Iterator[str]:
    """A full file system."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    filler = host.state / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"0" * 1024):
                pass
        except OSError:
            pass
    yield "is full"
    filler.unlink()


@pytest.mark.parametrize("broken", [read_only, closed, foreign, full])
def test_a_folder_that_takes_no_status_is_named_and_heals(
    host: Host, broken: Callable[[Host], Any]
) -> None:
    host.state.mkdir()
    if os.geteuid() == 0:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", host.state]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no file system can be mounted here")
        host._stack.callback(subprocess.run, ["umount", "-l", host.state], check=False)
    process = host.client()
    host.until(knows_time)
    with broken(host) as says:
        deadline_s = time.monotonic() + STEPS_IN_S
        while says not in (said := host.ask("status")):
            assert time.monotonic() < deadline_s, said
            time.sleep(0.5)
        for words in (["status"], ["wait", "--timeout", "0s"]):
            said = host.ask(*words)
            assert f"mqtick-client runs (process {process.pid})" in said
            assert says in said
        found = host.doctor()
        assert says in found
        assert ("WARN disk: no room in" in found) is (says == "is full")
    host.until(knows_time)
    deadline_s = time.monotonic() + STEPS_IN_S
    while says in host.ask("status"):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def test_no_doctor_leaves_a_trace_in_the_counters_of_others(host: Host) -> None:
    host.client()
    # A busy machine may hold an echo back, whoever else is there.
    before = {**host.until(knows_time)["refused"], "held": 0}
    assert "result" in host.doctor()
    other = [sys.executable, "-m", "mqtick.client.cli", "doctor", "--broker", host.broker]
    subprocess.run([*other, "--name", "pi8"], capture_output=True, timeout=60, check=False)
    servers = [sys.executable, "-m", "mqtick.timeserver.cli", "doctor", "--broker", host.broker]
    state = ["--state-folder", str(host.folder / "server"), "--trust-system-clock"]
    subprocess.run([*servers, *state], capture_output=True, timeout=60, check=False)
    time.sleep(2.5)  # two more statuses
    assert {**host.until(knows_time)["refused"], "held": 0} == before
    text = (host.folder / "server/status.json").read_text()
    values = json.loads(text)["status"]
    assert (values["refused"], values["conflicts"]) == ({}, 0)
