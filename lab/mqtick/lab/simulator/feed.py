"""Edges that really happened, as the `memory` pins of running processes send them."""

from __future__ import annotations

import bisect
import os
import socket
from collections import defaultdict
from pathlib import Path
from typing import Final

from mqtick.pins.memory import RECORD_OCTETS, decode_record

__all__ = ["EdgeFeed"]

_KEPT: Final = 20_000
_READ_AT_ONCE: Final = 4096


class EdgeFeed:
    """The last edges of each line: instants in CLOCK_MONOTONIC_RAW ns, and the level after each.

    Processes send their records to a Unix datagram socket (`listen`), tests call `add`.
    """

    def __init__(self) -> None:
        self.refused = 0
        """Datagrams that were no record."""
        self._times: dict[int, list[int]] = defaultdict(list)
        self._levels: dict[int, list[bool]] = defaultdict(list)
        self._socket: socket.socket | None = None
        self._path: Path | None = None

    def listen(self, path: Path) -> socket.socket:
        """Bind to a path, for `receive` to read; OSError when that cannot be."""
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(os.fspath(path))
        self._path = path
        return self._socket

    def receive(self) -> None:
        """Take what has come."""
        if self._socket is None:
            return
        for _ in range(_READ_AT_ONCE):
            try:
                data = self._socket.recv(RECORD_OCTETS + 1)
            except BlockingIOError:
                return
            try:
                record = decode_record(data)
            except ValueError:
                self.refused += 1
                continue
            self.add(record.line, record.time_ns, record.level)

    def add(self, line: int, time_ns: int, level: bool) -> None:
        """Take one edge; a line's edges may come out of order."""
        times, levels = self._times[line], self._levels[line]
        at = bisect.bisect_right(times, time_ns)
        times.insert(at, time_ns)
        levels.insert(at, level)
        if len(times) > _KEPT:
            del times[: _KEPT // 2], levels[: _KEPT // 2]

    def between(
        self, line: int, from_ns: float, to_ns: float
    ) -> tuple[bool, list[tuple[int, bool]]]:
        """Return the level at `from_ns`, and the edges after it up to `to_ns`."""
        times, levels = self._times[line], self._levels[line]
        first, last = bisect.bisect_right(times, from_ns), bisect.bisect_right(times, to_ns)
        before = levels[first - 1] if first else bool(levels) and not levels[0]
        return before, list(zip(times[first:last], levels[first:last], strict=True))

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
