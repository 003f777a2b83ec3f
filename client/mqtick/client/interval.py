"""The time as an interval, for any program on this host: earliest, latest, state.

The running client writes its estimate, and a forecast of it, to a small file. To read it needs no
server, no broker and no answer from the client. It stays right after the client has died: the
interval just grows.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqtick.service import Status, StatusError, read_status
from mqtick.service.status_file import status_path

PROGRAM = "mqtick-client"
_SLEPT_NS = 1_000_000
"""Two readings may be so far apart."""
_READS, _TIGHT_NS = 10, 1_000
_DRAWN, _WHERE_KNOWN = ("offset_ns", "lower_ns", "upper_ns"), ("narrow_lower_ns", "narrow_upper_ns")


@functools.cache
def boot_id() -> str:
    """Return the boot ID: readings of the raw timeline are comparable only within one boot.

    In a container /proc may state the container's own ID, which a service with its own /proc does
    not see: there the unit passes systemd's boot ID.
    """
    file = Path("/proc/sys/kernel/random/boot_id")
    told = os.environ.get("MQTICK_BOOT_ID") or file.read_text(encoding="ascii").strip()
    return told.replace("-", "")


def slept_ns() -> int:
    """How long this host has slept since it started: the raw timeline stood still meanwhile."""
    best = (1 << 62, 0)
    for _ in range(_READS):  # a delay between the reads would look like sleep
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        best = min(best, (after_ns - before_ns, boot_ns - before_ns))
        if best[0] < _TIGHT_NS:
            break
    return best[1]


class NowError(RuntimeError):
    """The time is not known; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Now:
    """The present as an interval: UTC lies between earliest and latest (Unix time, ns).

    Attributes:
        estimate_ns: The likeliest instant; never outside the interval.
        state: synchronised, holdover or unsynchronised.
        clock_ns: What this host's clock read at that moment.
        bound_is_assumed: Nothing was measured: the interval holds the truth if no broadcast takes
            longer than `assumed_path_delay_us`.
        disagreement_ns: The gap between the intervals of two servers, root distances included:
            one of them is wrong, and it may be the server in use; 0: all intervals meet.
        narrow_earliest_ns: Begin of the interval if the broker is honest and links are symmetric;
            None: it is not narrower.
        narrow_latest_ns: The end of that interval.
    """

    earliest_ns: int
    latest_ns: int
    estimate_ns: int
    state: str
    clock_ns: int
    bound_is_assumed: bool = False
    disagreement_ns: int = 0
    narrow_earliest_ns: int | None = None
    narrow_latest_ns: int | None = None

    @property
    def bound_ns(self) -> int:
        """The largest possible error of the estimate: the distance to the interval's far end."""
        return max(self.latest_ns - self.estimate_ns, self.estimate_ns - self.earliest_ns)

    @property
    def narrow_bound_ns(self) -> int | None:
        """The same, if the broker is honest and links are symmetric; None: it is not narrower."""
        if self.narrow_earliest_ns is None or self.narrow_latest_ns is None:
            return None
        return max(
            self.narrow_latest_ns - self.estimate_ns, self.estimate_ns - self.narrow_earliest_ns
        )

    @property
    def clock_error_ns(self) -> int:
        """The largest possible error of this host's clock."""
        return max(self.latest_ns - self.clock_ns, self.clock_ns - self.earliest_ns)


def now(state_folder: str = "") -> Now:
    """Return the present as an interval; NowError if no client has written it since boot."""
    try:
        found = read_status(status_path(PROGRAM, state_folder), PROGRAM)
    except StatusError as error:
        raise NowError(str(error)) from None
    return now_from(found)


def now_from(found: Status) -> Now:
    """Return the present according to a status that was read."""
    values = found.values
    try:
        if values["boot_id"] != boot_id():
            raise NowError("the status is from an earlier boot: start mqtick-client")
        if slept_ns() - values["slept_ns"] > _SLEPT_NS:
            raise NowError("the host has slept since the client's last estimate: wait for the next")
        raw_ns, clock_ns = _read_clocks(values["virtual_clock"])
        if len(values["forecast"]) == 0:
            raise NowError(f"the client is not synchronised: {_why(values['servers'])}")
        row = _at(values["forecast"], raw_ns)
        offset_ns, lower_ns, upper_ns = row["offset_ns"], row["lower_ns"], row["upper_ns"]
        narrow = row["narrow_lower_ns"], row["narrow_upper_ns"]
        gap_ns = max((each["gap_ns"] for each in values.get("disagreements", ())), default=0)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise NowError(f"the status file is not this version's ({error!r})") from None
    return Now(
        earliest_ns=raw_ns + lower_ns,
        latest_ns=raw_ns + upper_ns,
        estimate_ns=raw_ns + offset_ns,
        state=row["state"],
        clock_ns=clock_ns,
        bound_is_assumed=row["bound_is_assumed"],
        disagreement_ns=gap_ns,
        narrow_earliest_ns=None if narrow[0] is None else raw_ns + narrow[0],
        narrow_latest_ns=None if narrow[1] is None else raw_ns + narrow[1],
    )


def _read_clocks(virtual: str) -> tuple[int, int]:
    """Read the client's raw timeline and its judged clock, ns."""
    if virtual:
        # Imported only here, because the package is large and virtual clocks are for tests.
        from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings  # noqa: PLC0415

        raw_ns = VirtualClock(VirtualClockSettings.from_text(virtual)).raw_ns()
        return raw_ns, raw_ns
    best = (1 << 62, 0, 0)
    for _ in range(_READS):  # a delay between the reads would look like a clock error
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        clock_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        best = min(best, (after_ns - before_ns, (before_ns + after_ns) // 2, clock_ns))
        if best[0] < _TIGHT_NS:
            break
    return best[1:]


def _why(servers: Sequence[Mapping[str, Any]]) -> str:
    """Say of each server why its time is not known."""
    said = [
        f"server {each['format'] if each['server'] is None else each['server']}: "
        f"{each['why_unknown']}"
        for each in servers
    ]
    return "; ".join(said) or "no server was heard yet"


def _at(rows: Sequence[Mapping[str, Any]], raw_ns: int) -> dict[str, Any]:
    """Draw a straight line between the two rows of the forecast around this moment."""
    for before, after in itertools.pairwise(rows):
        if raw_ns <= after["local_ns"]:
            share = (raw_ns - before["local_ns"]) / (after["local_ns"] - before["local_ns"])
            drawn: dict[str, Any] = {
                name: _between(before[name], after[name], share) for name in _DRAWN
            }
            for name in _WHERE_KNOWN:
                one, other = before.get(name), after.get(name)
                if one is None or other is None:
                    drawn[name] = None
                else:
                    drawn[name] = _between(one, other, share)
            is_assumed = after.get("bound_is_assumed", False)
            return drawn | {"state": after["state"], "bound_is_assumed": is_assumed}
    raise NowError("the client's last estimate is too old: start mqtick-client")


def _between(before_ns: int, after_ns: int, share: float) -> int:
    return before_ns + round(share * (after_ns - before_ns))
