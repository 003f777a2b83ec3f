"""The time server, with a clock that chronyd seems to correct: OFFSET_NS RATE_PPB, and its flags.

It is wrong by OFFSET_NS until it has begun, and is then corrected at RATE_PPB. Its root distance is
what chronyd would state: what is left, and 50 us.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.timeserver.cli import main
from mqtick.timeserver.reference import Reference
from mqtick.timeserver.server import Server

_SURE_NS = 50_000


def serve(offset_ns: int, rate_ppb: int, arguments: list[str]) -> int:
    """Run the time server; returns the exit code."""
    begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    plain: Callable[[VirtualClock, int], int] = VirtualClock.at_monotonic_raw_ns
    trusted: Callable[[Server], Reference] = vars(Server)["reference"].fget

    def left_ns(raw_ns: int) -> int:
        done_ns = (raw_ns - begin_ns) * rate_ppb // 10**9
        return max(0, abs(offset_ns) - max(0, done_ns)) * (1 if offset_ns > 0 else -1)

    def slewed(clock: VirtualClock, monotonic_raw_ns: int) -> int:
        return plain(clock, monotonic_raw_ns) + left_ns(monotonic_raw_ns)

    def reference(server: Server) -> Reference:
        wrong_ns = abs(left_ns(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)))
        return replace(trusted(server), root_distance_ns=wrong_ns + _SURE_NS)

    VirtualClock.at_monotonic_raw_ns = slewed  # type: ignore[method-assign, assignment]
    Server.reference = property(reference)  # type: ignore[method-assign, assignment]
    right = VirtualClockSettings.starting_now().to_text()
    return main(["run", *arguments, "--virtual-clock", right])


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
