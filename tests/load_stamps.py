"""The stamps of mqtick-load beside those of a packet capture.

A message leaves with the segment that carries its last octet; a copy comes with its last octet,
too. `mqtick-load agent` prints the kernel's stamps of each message. A capture sees the segments as
they leave at the loopback, and as they come in.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench.sniffer import Heard, Sniffer

MESSAGES = 2000
# This length differs from those of the records in the TLS handshake.
_OCTETS = 100
_TOPIC = b"load/stamped"
_GROUP = {
    "kind": "latency",
    "payload": _OCTETS,
    "interval_us": 1000.0,
    "messages": MESSAGES,
    "topic": _TOPIC.decode(),
}
_SCENARIO = {
    "seconds": 60.0,
    "ramp_up_s": 0.0,
    "ramp_down_s": 0.0,
    "group": [_GROUP],
    "machine": [{"name": "here", "clock": "none"}],
}
_HEAD = b"\x30" + bytes((2 + len(_TOPIC) + _OCTETS,)) + len(_TOPIC).to_bytes(2, "big") + _TOPIC
_LENGTH = len(_HEAD) + _OCTETS
# Over TLS 1.3 each message is a record of its own: with type, length, content type and tag.
_RECORD_HEAD, _RECORD = b"\x17\x03\x03\0" + bytes((_LENGTH + 1 + 16,)), 5 + _LENGTH + 1 + 16


class Differences(NamedTuple):
    """Differences of stamps for the messages of one load, us."""

    left: list[float]
    """Transmit stamp of a message minus the capture's stamp as it left: never below 0."""
    passed: list[float]
    """The capture's stamp as it came in minus that as it left: never below `left`."""
    came: list[float]
    """Receive stamp of a copy minus the capture's stamp as it came in: never below 0."""

    def wrong(self) -> int:
        """Return how many differences are impossible."""
        ways = zip(self.left, self.passed, strict=True)
        left = sum(not 0 <= left <= passed for left, passed in ways)
        return left + sum(came < 0 for came in self.came)


class _Capture:
    """The segments that a packet socket has captured, by direction and connection."""

    def __init__(self) -> None:
        self._sniffer = Sniffer()
        self._heard: dict[tuple[bool, tuple[int, int]], list[Heard]] = defaultdict(list)

    def read(self) -> None:
        for one in self._sniffer.read():
            self._heard[one.outgoing, one.ports].append(one)

    def close(self) -> None:
        self.read()
        self._sniffer.close()

    def messages(
        self, port: int, head: bytes, length: int, *, outgoing: bool, to: bool
    ) -> list[int]:
        """Return the stamps of the messages to a port, or from it."""
        all_heard = [
            heard
            for (out, ports), heard in self._heard.items()
            if out == outgoing and ports[to] == port
        ]
        return [stamp for heard in all_heard for stamp in ends(heard, head, length)]


def ends(heard: list[Heard], head: bytes, length: int) -> list[int]:
    """Return when the last octet of each message passed, for one direction of a connection."""
    start = heard[0].sequence
    first: dict[int, Heard] = {}  # retransmissions do not count
    for one in heard:
        first.setdefault((one.sequence - start) % 2**32, one)
    octets, places = b"", []
    for offset, one in sorted(first.items()):
        if offset > len(octets):
            raise RuntimeError("The capture has lost segments.")
        octets += one.data[len(octets) - offset :]
        places.append((len(octets), one.realtime_ns))
    found, segments, end, stamp = [], iter(places), 0, 0
    at = octets.find(head)
    while 0 <= at <= len(octets) - length:
        while end < at + length:
            end, stamp = next(segments)
        found.append(stamp)
        at = octets.find(head, at + length)
    return found


def _part(program: str, port: int, folder: Path, ca: Path | None, capture: _Capture) -> Any:
    """Let mqtick-load send; return its result."""
    task = {
        "scenario": _SCENARIO,
        "own": 0,
        "broker": f"{'mqtts://' if ca else ''}127.0.0.1:{port}",
        "v5": False,
        "login": None,
        "pem": {"ca": ca and ca.read_text(), "certificate": None, "key": None},
        "prefix": "load",
        "patience_s": 5.0,
    }
    how, begin_ns = {"scale": 1.0, "patience_s": 5.0, "times": True}, 0  # 0: as soon as it can
    file = folder / "said"
    with (
        file.open("wb") as out,
        subprocess.Popen([program, "agent"], stdin=subprocess.PIPE, stdout=out) as load,
    ):
        assert load.stdin is not None
        load.stdin.write("".join(json.dumps(one) + "\n" for one in (task, how, begin_ns)).encode())
        load.stdin.flush()
        said = ""
        while load.poll() is None and not ('"Done"' in said and said.endswith("\n")):
            time.sleep(0.02)
            capture.read()
            said = file.read_text()
    answer = json.loads(said.splitlines()[-1])
    if "Done" not in answer:
        raise RuntimeError(f"mqtick-load: {answer}")
    return answer["Done"]


def _less(these: Iterable[int], those: Iterable[int]) -> list[float]:
    return [(this - that) / 1e3 for this, that in zip(these, those, strict=True)]


def differences(program: str, port: int, folder: Path, ca: Path | None = None) -> Differences:
    """Return the differences for mqtick-load through a broker.

    With an authority's certificate, mqtick-load uses TLS.
    """
    capture = _Capture()
    try:
        part = _part(program, port, folder, ca, capture)
    finally:
        capture.close()
    shape = (_RECORD_HEAD, _RECORD) if ca else (_HEAD, _LENGTH)
    left = [left_ns for _, number, _, left_ns in sorted(part["left"])]
    came = [came_ns for _, number, came_ns in sorted(part["heard"])]
    if not len(left) == len(came) == MESSAGES:
        raise RuntimeError(f"{len(left)} left and {len(came)} came of {MESSAGES} messages.")
    went = capture.messages(port, *shape, outgoing=True, to=True)
    arrived = capture.messages(port, *shape, outgoing=False, to=True)
    copies = capture.messages(port, *shape, outgoing=False, to=False)
    return Differences(_less(left, went), _less(arrived, went), _less(came, copies))
