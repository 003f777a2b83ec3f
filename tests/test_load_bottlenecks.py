"""mqtick-load says what else was at its end: segments that TCP sent again, a stepped clock.

Its processor, its lateness and its receive queues are provoked in broker/server/load/tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_load import program

from broker.tests.harness.clock import stepped_clock
from demo.local_broker import Mosquitto, running

pytestmark = [pytest.mark.broker, pytest.mark.needs("mosquitto")]
HERE, THERE = "10.214.7.1", "10.214.7.2"
_TUN, _TUNSETIFF, _NO_INFORMATION = 0x0001, 0x400454CA, 0x1000
SCENARIO = """
seconds = 3
ramp_up_s = 0
ramp_down_s = 0
[[group]]
interval_us = 10000
"""


@contextlib.contextmanager
def lossy_link(every: int) -> Iterator[None]:
    """A link to this machine at another address; of each `every` long packets it loses one."""
    try:
        link = os.open("/dev/net/tun", os.O_RDWR)
        name = b"mqtick-lossy"
        fcntl.ioctl(link, _TUNSETIFF, struct.pack("16sH22x", name, _TUN | _NO_INFORMATION))
    except OSError as error:
        pytest.skip(f"no network device of our own: {error}")
    for words in (f"addr add {HERE}/24 dev mqtick-lossy", "link set mqtick-lossy up"):
        subprocess.run(["ip", *words.split()], check=True)

    def pass_on() -> None:
        long = 0
        with contextlib.suppress(OSError):
            while packet := os.read(link, 1 << 16):
                if packet[0] >> 4 != 4 or packet[9] != 6:  # no TCP
                    continue
                long += len(packet) > 80
                if len(packet) > 80 and long % every == 0:
                    continue
                # What is for the other address comes from it; the checksums stay right.
                os.write(link, packet[:12] + packet[16:20] + packet[12:16] + packet[20:])

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "del", "mqtick-lossy"], check=True)
        thread.join()
        os.close(link)


@contextlib.contextmanager
def relay(port: int) -> Iterator[None]:
    """What comes to a port of our address goes on to that of loopback, and back."""

    def pass_on(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := one.recv(1 << 16):
                other.sendall(octets)
            other.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                one = door.accept()[0]
                other = socket.create_connection(("127.0.0.1", port))
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()

    with socket.create_server((HERE, port)) as door:
        threading.Thread(target=serve, daemon=True).start()
        yield
        door.shutdown(socket.SHUT_RDWR)


def test_segments_that_tcp_sends_again_are_told(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO)
    # The broker listens on loopback only.
    with running(Mosquitto(tmp_path)) as broker, lossy_link(every=5), relay(broker.port):
        command = [program(), "run", str(file), "--broker", f"{THERE}:{broker.port}", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    resent = next(row["median"] for row in result["rows"] if row["key"] == "resent")
    assert resent > 3
    assert any("segments to the broker again" in note for note in result["notes"])


def test_a_step_of_the_clock_is_told(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler, with which the clock is replaced")
    step, environment = stepped_clock(tmp_path)
    file, out = tmp_path / "scenario.toml", tmp_path / "out.csv"
    file.write_text(SCENARIO + "kind = 'latency'\n")
    with running(Mosquitto(tmp_path)) as broker:
        command = [program(), "run", str(file), "--broker", broker.url, "--csv", str(out), "--json"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | environment
        ) as load:
            while not out.exists() or not out.stat().st_size:
                assert load.poll() is None
                time.sleep(0.01)
            with step.open("r+b") as clock:
                clock.write(struct.pack("q", 1))
            said, _ = load.communicate(timeout=60)
    assert load.returncode == 0
    assert any("the clock was stepped by" in note for note in json.loads(said)["notes"])
