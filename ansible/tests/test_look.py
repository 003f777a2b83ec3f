"""What the fleet tests see of a client, against a client whose error is known."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from fleet import ON_HOST, PYTHON, knows_the_time

from mqtick.client.interval import boot_id, slept_ns
from mqtick.protocol import VirtualClock, VirtualClockSettings

MS, SECOND = 1_000_000, 1_000_000_000
CLOCK_ERROR_NS = 250 * MS
# What chronyd may slew the kernel's clock by between the epoch of the virtual one and the look.
SLEWED_NS = MS


def look(folder: Path, error_ms: int, lower_ms: int, upper_ms: int) -> dict[str, object]:
    """Look at a client whose estimate is wrong by `error_ms`; its interval is about the truth."""
    clock = VirtualClockSettings.starting_now(offset_ns=CLOCK_ERROR_NS)
    local_ns = VirtualClock(clock).raw_ns()
    truth_ns = -CLOCK_ERROR_NS
    forecast = [
        {
            "local_ns": local_ns + later_s * SECOND,
            "offset_ns": truth_ns + error_ms * MS,
            "lower_ns": truth_ns + lower_ms * MS,
            "upper_ns": truth_ns + upper_ms * MS,
            "state": "synchronised",
        }
        for later_s in (0, 30)
    ]
    status = {
        "boot_id": boot_id(),
        "slept_ns": slept_ns(),
        "virtual_clock": clock.to_text(),
        "forecast": forecast,
    }
    content = {
        "version": 1,
        "program": "mqtick-client",
        "pid": os.getpid(),
        "written_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        "status": status,
    }
    (folder / "status.json").write_text(json.dumps(content))
    done = subprocess.run(
        [PYTHON, ON_HOST / "look.py", "1"],
        env={**os.environ, "RUNTIME_DIRECTORY": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


# The error of the estimate, the ends of the interval about the truth, and whether that is right:
# also far from the middle, and never outside, however far the interval reaches on the other side.
@pytest.mark.parametrize(
    ("error_ms", "lower_ms", "upper_ms", "is_right"),
    [(13, -3, 22, True), (90, -30, 150, True), (90, 50, 150, False), (90, 50, 500, False)],
)
def test_a_look_sees_how_wrong_a_client_is_and_what_it_states(
    tmp_path: Path, error_ms: int, lower_ms: int, upper_ms: int, is_right: bool
) -> None:
    seen = look(tmp_path, error_ms, lower_ms, upper_ms)
    assert seen["error_ns"] == pytest.approx(error_ms * MS, abs=SLEWED_NS)
    assert seen["bound_ns"] == max(error_ms - lower_ms, upper_ms - error_ms) * MS
    assert seen["clock_error_ns"] == pytest.approx(CLOCK_ERROR_NS, abs=SLEWED_NS)
    assert seen["is_inside"] == knows_the_time(seen) == is_right
