"""Receives the true edges that the `memory` pins of running processes send."""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import socket
import stat
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final

from mqtick.pins.memory import RECORD_OCTETS, decode_record

_KEPT: Final = 20_000
_RECEIVE_OCTETS: Final = 1 << 22


class EdgeFeed:
    """The last edges of each line: instants in CLOCK_MONOTONIC_RAW ns, and the level after each.

    Processes send their records to a Unix datagram socket (`listen`), tests call `add`.
    """

    def __init__(self) -> None:
        self.refused = 0
        """Datagrams that were not records."""
        self._times: dict[int, list[int]] = defaultdict(list)
        self._levels: dict[int, list[bool]] = defaultdict(list)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._path: Path | None = None

    def listen(self, path: Path) -> None:
        """Take the records that come to a path, in a thread; OSError if that is not possible.

        The kernel queues as few as ten datagrams for one socket (net.unix.max_dgram_qlen), and a
        pin does not wait: so this needs a thread of its own.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            _make_room(path)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_OCTETS)
            listener.bind(os.fspath(path))
        except OSError:
            listener.close()
            raise
        self._socket, self._path = listener, path
        threading.Thread(target=self._receive, args=(listener,), daemon=True).start()

    def _receive(self, listener: socket.socket) -> None:
        with listener:
            while self._socket is listener:
                try:
                    record = decode_record(listener.recv(RECORD_OCTETS + 1))
                except ValueError:
                    self.refused += 1
                except OSError:
                    return
                else:
                    self.add(record.line, record.time_ns, record.level)

    def add(self, line: int, time_ns: int, level: bool) -> None:
        """Take one edge; a line's edges may come out of order."""
        with self._lock:
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
        with self._lock:
            times, levels = self._times[line], self._levels[line]
            first, last = bisect.bisect_right(times, from_ns), bisect.bisect_right(times, to_ns)
            before = levels[first - 1] if first else bool(levels) and not levels[0]
            return before, list(zip(times[first:last], levels[first:last], strict=True))

    def close(self) -> None:
        """Stop listening."""
        listener, self._socket = self._socket, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RD)  # wakes the thread, which then closes it
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None


def _make_room(path: Path) -> None:
    """Remove a socket that no process reads any more; OSError if the path is in use."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(errno.EEXIST, "is a file, not a socket that could be replaced")
    with (
        contextlib.suppress(ConnectionRefusedError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
    ):
        other.connect(os.fspath(path))
        raise OSError(errno.EADDRINUSE, "is read by another program")
    path.unlink(missing_ok=True)
