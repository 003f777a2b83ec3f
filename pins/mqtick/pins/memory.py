"""A pin that does not exist: remembers its edges, and can show them to another process.

For tests, for machines without pins, and for the simulated oscilloscope. Each edge is one record
of 12 octets, big endian:

    octet 0-7   u64  CLOCK_MONOTONIC_RAW in ns, read while the edge was made
    octet 8-9   u16  line number of the settings
    octet 10    u8   electrical level after the edge: 0 low, 1 high
    octet 11    u8   0

The clock is the same for all processes of one machine, so several can share one time axis.
Sending never blocks: a record that nobody accepts at once is counted in `lost`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections import deque
from typing import Final, NamedTuple

from mqtick.pins.base import Clock, LatencyClass, PinError, PinSettings, monotonic_raw_ns

_RECORD: Final = struct.Struct(">QHBx")
RECORD_OCTETS: Final = _RECORD.size
MAX_PATH_OCTETS: Final = 107  # sun_path of unix(7) is 108 octets with its ending zero


class PinRecord(NamedTuple):
    """One edge of one line: CLOCK_MONOTONIC_RAW in ns, line number, level after it."""

    time_ns: int
    line: int
    level: bool


def encode_record(record: PinRecord) -> bytes:
    """Write a record as the 12 octets above."""
    return _RECORD.pack(*record)


def decode_record(data: bytes) -> PinRecord:
    """Read the 12 octets above; raises ValueError if they are not a record."""
    if len(data) != RECORD_OCTETS:
        raise ValueError(f"A pin record has {RECORD_OCTETS} octets, but this has {len(data)}.")
    time_ns, line, level = _RECORD.unpack(data)
    if level > 1 or data[-1] != 0:
        raise ValueError(
            f"A pin record ends with a level of 0 or 1 and a 0, but this with {data[-2:].hex()}."
        )
    return PinRecord(time_ns, line, bool(level))


class MemoryLine:
    """The line of this back end: counts and keeps its edges."""

    latency_class = LatencyClass.SIMULATED

    def __init__(self, settings: PinSettings, now: Clock = monotonic_raw_ns) -> None:
        """Start at the inactive level, with no record; raises PinError if the sink is unusable."""
        self.name = f"memory line {settings.line} (simulated)"
        self.overflow = 0
        """Records that left the ring because newer ones needed the room."""
        self.lost = 0
        """Records that the sink did not accept (nobody reads there, or not fast enough)."""
        self._ring: deque[PinRecord] = deque(maxlen=settings.ring_edges)
        self._line = settings.line
        self._level = settings.inactive_level
        self._now = now
        self._sink = _open_sink(settings.sink)

    def set(self, level: bool) -> None:
        """Record an edge, if this is one."""
        record = PinRecord(self._now(), self._line, level)
        if level == self._level:
            return
        self._level = level
        ring = self._ring
        if len(ring) == ring.maxlen:
            self.overflow += 1
        ring.append(record)
        if self._sink is not None and not self._sink.send(_RECORD.pack(*record)):
            self.lost += 1

    def records(self) -> list[PinRecord]:
        """List the edges that are kept, the oldest first."""
        return list(self._ring)

    def close(self) -> None:
        """Release the sink; the records stay readable."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None


def open_pin(settings: PinSettings) -> MemoryLine:
    """Open a line that exists in memory only; raises PinError if the sink is unusable."""
    return MemoryLine(settings)


class _SocketSink:
    """Sends to a path afresh each time, so that a reader may come late, go, and come back."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(self, record: bytes) -> bool:
        try:
            return self._socket.sendto(record, self._path) == RECORD_OCTETS
        except OSError:
            return False

    def close(self) -> None:
        self._socket.close()


class _DescriptorSink:
    """Writes to a pipe or socket that the program was given; it stays open afterwards."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, record: bytes) -> bool:
        try:
            return os.write(self._descriptor, record) == RECORD_OCTETS
        except OSError:
            return False

    def close(self) -> None:
        pass


def _open_sink(sink: str) -> _SocketSink | _DescriptorSink | None:
    if not sink:
        return None
    if not sink.startswith("fd:"):
        octets = len(os.fsencode(sink))
        if octets > MAX_PATH_OCTETS or "\0" in sink:
            raise PinError(
                f"sink is a path of {octets} octets, but a Unix socket's has at most "
                f"{MAX_PATH_OCTETS} and no zero, so no edge could be sent; choose a shorter path."
            )
        return _SocketSink(sink)
    kind = None
    with contextlib.suppress(ValueError, OSError, OverflowError):
        descriptor = int(sink[3:])
        kind = os.fstat(descriptor).st_mode
    if kind is None or not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        raise PinError(
            f"sink is {sink!r}, which is not the number of an open pipe or socket, so no edge "
            "could be sent without waiting; give a pipe's or socket's number, or a path."
        )
    # The flag belongs to the open file, so others that share the descriptor no longer wait either.
    os.set_blocking(descriptor, False)
    return _DescriptorSink(descriptor)
