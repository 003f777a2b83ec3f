"""Print what this host's client says of the time, and how wrong that is, COUNT times.

Runs on a host of the rig with the program's own Python. The truth is known there: the host's clock
is virtual, and its time server serves the kernel's, which all hosts of the rig share.
"""

import json
import sys
import time

from mqtick.client.interval import NowError, now_from
from mqtick.protocol import VirtualClock, VirtualClockSettings, read_kernel_time
from mqtick.service import StatusError, read_status
from mqtick.service.status_file import status_path


def look() -> dict[str, object]:
    """Return the client's state, its true error, what it states, and whether that holds; ns."""
    try:
        # Once: a client that is started again in between has another virtual clock.
        status = read_status(status_path("mqtick-client", ""))
        found = now_from(status)
    except (NowError, StatusError) as error:
        return {"state": "unsynchronised", "why": str(error)}
    kernel = read_kernel_time(10)
    clock = VirtualClock(VirtualClockSettings.from_text(status.values["virtual_clock"]))
    truth_ns = clock.monotonic_raw_ns(found.clock_ns) + kernel.realtime_ns - kernel.raw_ns
    return {
        "state": found.state,
        "error_ns": found.estimate_ns - truth_ns,
        "bound_ns": found.bound_ns,
        "is_inside": found.earliest_ns <= truth_ns <= found.latest_ns,
        "clock_error_ns": found.clock_ns - truth_ns,
    }


for _ in range(int(sys.argv[1])):
    print(json.dumps(look()), flush=True)
    time.sleep(0.2)
