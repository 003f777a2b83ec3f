"""Real chronyd writes its logs against a server whose time is known; mqtick-report reads them."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.local_programs import Chronyd, wait_until
from mqtick.analysis import load

AHEAD_S = 0.25
NTP_TO_UNIX_S = 2_208_988_800


def answer(request: bytes, received_s: float) -> bytes:
    """Return what an NTP server of stratum 1 answers whose time is AHEAD_S ahead (RFC 5905)."""

    def stamp(seconds: float) -> bytes:
        ntp = seconds + AHEAD_S + NTP_TO_UNIX_S
        return struct.pack("!II", int(ntp), int(ntp % 1 * (1 << 32)))

    head = struct.pack("!BBbbII4s", 0o44, 1, request[2], -20, 16, 16, b"TEST")
    return head + stamp(received_s) + request[40:48] + stamp(received_s) + stamp(time.time())


@contextmanager
def server_ahead() -> Iterator[int]:
    """Serve NTP on the loopback for the length of a with block; yields the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as answering:
        answering.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                request, client = answering.recvfrom(1024)
                if not request:
                    return
                answering.sendto(answer(request, time.time()), client)

        thread = threading.Thread(target=serve)
        thread.start()
        port = answering.getsockname()[1]
        try:
            yield port
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.sendto(b"", ("127.0.0.1", port))
            thread.join(10)


@pytest.mark.slow
@pytest.mark.needs("chronyd")
def test_a_clock_that_is_behind_is_behind_in_all_logs_of_chrony(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with server_ahead() as port:
        asks = [
            f"server 127.0.0.1 port {port} minpoll 0 maxpoll 0",
            f"logdir {logs}",
            "log tracking measurements statistics",
        ]
        # It steers nothing (-x), so the clock stays behind by as much all the time.
        with Chronyd(tmp_path / "client", asks):
            tracked = logs / "tracking.log"
            wait_until(lambda: tracked.exists() and tracked.read_text().count(" N ") > 5, "updates")
    first = {}
    for name in ("tracking", "measurements", "statistics"):
        (clock,) = load(logs / f"{name}.log").time_errors
        first[name] = float(clock.error_ns[0]) / 1e9
        if name == "tracking":
            # What chronyd already reckons with is still an error of the system clock.
            assert clock.error_ns / 1e9 == pytest.approx([AHEAD_S] * clock.error_ns.size, abs=0.1)
    assert first == pytest.approx(dict.fromkeys(first, AHEAD_S), abs=0.1)
