"""restart: how do 2,000 clients come back when the broker is restarted?

Each client connects again as soon as its connection ends, and if the broker does not listen, one
second later: clients do not spread their attempts. The broker is ended by SIGTERM, as systemd does,
and started again when it has ended.

    python -m bench.restart              each way once
    python -m bench.restart --short      with 400 clients
"""

from __future__ import annotations

import errno
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.harness import Report, options, progress
from demo.local_broker import MqtickBroker, free_port

AGAIN_S = 1.0
BIN_S = 0.1
WAYS = {
    "all at once": "[limits]\nconnections_a_second = 0\n",
    "as it comes": "",
}


class Member:
    """One client: MQTT 5, with a session that is kept."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        name = b"c%d" % number
        body = b"\0\4MQTT\5\0\0\0\5\x11\0\0\x0e\x10" + struct.pack(">H", len(name)) + name
        self.crowd, self.hello = crowd, b"\x10" + bytes([len(body)]) + body
        self.told_s, self.away_s = 0.0, 0.0
        self.is_up = False
        self.connect()

    def connect(self) -> None:
        """Try to connect."""
        self.sock, self.said = socket.socket(), False
        self.sock.setblocking(False)
        self.crowd.tries.append(time.monotonic())
        if self.sock.connect_ex(self.crowd.address) not in (0, errno.EINPROGRESS):
            return self.rest()
        self.crowd.selector.register(self.sock, selectors.EVENT_WRITE, self)
        return None

    def rest(self) -> None:
        """Try again later."""
        self.sock.close()
        self.crowd.resting.append((time.monotonic() + AGAIN_S, self))

    def ready(self) -> None:
        """Continue: send CONNECT, or read the broker's answer."""
        try:
            if not self.said:
                self.sock.send(self.hello)
                self.said = True
                self.crowd.selector.modify(self.sock, selectors.EVENT_READ, self)
                return
            octets = self.sock.recv(4096)
        except OSError:
            octets = b""
        if octets[:1] == b"\x20":
            self.is_up = True
            if self.told_s:
                self.away_s = time.monotonic() - self.told_s
            return
        self.crowd.selector.unregister(self.sock)
        if self.is_up:
            self.is_up, self.told_s = False, time.monotonic()
            self.sock.close()
            self.connect()
        else:
            self.rest()


class Crowd:
    """All clients, in one loop."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        self.address, self.selector = address, selectors.DefaultSelector()
        self.tries: list[float] = []
        self.resting: list[tuple[float, Member]] = []
        self.members = [Member(self, number) for number in range(count)]

    def turn(self) -> None:
        """One turn of the loop."""
        for key, _ in self.selector.select(0.005):
            key.data.ready()
        now = time.monotonic()
        rested = [one for until, one in self.resting if until <= now]
        self.resting = [each for each in self.resting if each[0] > now]
        for one in rested:
            one.connect()

    def gather(self) -> None:
        """Wait until all are connected."""
        end = time.monotonic() + 60
        while not all(one.is_up for one in self.members):
            if time.monotonic() > end:
                raise RuntimeError("not all clients came back within a minute")
            self.turn()


def command(folder: Path, port: int, passed: socket.socket | None, lines: str) -> list[str]:
    """The command of the broker, with a socket as passed by systemd, or with its own port."""
    place = 'systemd = "mqtt"' if passed else f'address = "127.0.0.1:{port}"'
    config = folder / "broker.toml"
    config.write_text(f"[[listener]]\n{place}\n[access]\nanonymous = true\n{lines}")
    plain = [MqtickBroker(folder).built(), "--config", str(config)]
    if not passed:
        return plain
    said = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=mqtt"
    return ["bash", "-c", f'{said} exec "$0" "$@" 3<&{passed.fileno()}', *plain]


def in_bins(instants: list[float]) -> list[float]:
    """Return the number of instants in each tenth of a second, from the first to the last."""
    counts = Counter(int((at - min(instants)) / BIN_S) for at in instants)
    return [counts[number] for number in range(max(counts) + 1)]


def measure(report: Report, how: str, lines: str, *, by_systemd: bool, count: int) -> None:
    """Restart the broker once, and report when the clients came back."""
    port = free_port()
    passed = socket.create_server(("127.0.0.1", port), backlog=4096) if by_systemd else None
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "log", "ab") as log:
        start = command(Path(name), port, passed, lines)
        files = [passed.fileno()] if passed else []
        process = subprocess.Popen(start, stderr=log, pass_fds=files)
        crowd = Crowd(("127.0.0.1", port), count)
        crowd.gather()
        crowd.tries.clear()
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            crowd.turn()
        process = subprocess.Popen(start, stderr=log, pass_fds=files)
        while not all(one.told_s for one in crowd.members):
            crowd.turn()
        crowd.gather()
        process.send_signal(signal.SIGKILL)
        process.wait()
    if passed:
        passed.close()
    members = crowd.members
    place = "systemd's socket" if by_systemd else "its own port"
    told = [one.told_s for one in members]
    back = [one.told_s + one.away_s for one in members]
    report.add(f"{place}: clients told in 0.1 s", "", how, in_bins(told))
    report.add(f"{place}: connections tried in 0.1 s", "", how, in_bins(crowd.tries))
    report.add(f"{place}: clients back in 0.1 s", "", how, in_bins(back))
    report.add(f"{place}: a client is away", "s", how, [one.away_s for one in members])
    last = [max(back) - min(told)]
    report.add(f"{place}: from the first told to the last back", "s", how, last)


def main() -> int:
    """Measure; exit code 0."""
    args = options(__doc__, {"clients": 400}, clients=2000)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    report = Report("restart")
    for by_systemd in (False, True):
        for how, lines in WAYS.items():
            progress(f"{how}{', by systemd' if by_systemd else ''}")
            measure(report, how, lines, by_systemd=by_systemd, count=args.clients)
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
