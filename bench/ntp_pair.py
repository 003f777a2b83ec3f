"""Two chronyd on the loopback, one the other's NTP server: what NTP does in the same run.

Both read the same clock and steer nothing (-x), so the true offset is zero.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from demo.local_broker import free_port, program
from demo.local_programs import Chronyd
from mqtick.service import Leap


@contextlib.contextmanager
def ntp_client(folder: Path) -> Iterator[Chronyd | None]:
    """Run server and client for the length of a with block; without chrony, nothing."""
    if program("chronyd") is None:
        yield None
        return
    port = free_port()
    served = ("local stratum 1", "allow 127.0.0.1", "bindaddress 127.0.0.1")
    asks = [f"server 127.0.0.1 port {port} xleave minpoll 0 maxpoll 0"]
    with (
        Chronyd(folder / "ntp-server", served, port=port),
        Chronyd(folder / "ntp-client", asks) as client,
    ):
        yield client


def errors_us(client: Chronyd | None, warm_up_s: float, seconds: float) -> Iterator[float]:
    """Yield, once a second, the offset that the client believes the clocks to have, us."""
    if client is None:
        return
    time.sleep(warm_up_s)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tracking = client.tracking()
        if tracking is not None and tracking.leap is Leap.NORMAL:
            yield tracking.offset_reference_minus_local_ns / 1e3
        time.sleep(1)
