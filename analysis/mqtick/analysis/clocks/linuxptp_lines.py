"""Lines of linuxptp's ptp4l, phc2sys and ts2phc, from their output (-m), syslog or the journal.

They print the offset of the clock that they discipline from its master, in ns: positive where that
clock is *ahead* (ptp4l: IEEE 1588's offsetFromMaster; phc2sys: system clock minus PHC, sysoff.c;
ts2phc: time stamp of the pulse minus its second, ts2phc.c). Here, as everywhere, an error is
reference minus local, so it is negated. It may be off by ptp4l's path delay (all of it in one
direction), and by half of phc2sys's delay (the time that reading both clocks took); ts2phc says
nothing of that. Lines with rms and max have no sign and are not used, nor is what ts2phc says in
holdover, when it has no pulse and compares the clock with itself.

The time is the one in brackets: s of CLOCK_MONOTONIC, which nobody steps.
"""

from __future__ import annotations

import math
import re
from typing import Final

from mqtick.analysis.clocks.clock_log import LeftOutError, Value

MARK: Final = re.compile(
    rb"offset +-?\d+ s[0-3] freq +[-+]?\d|\brms +\d+ max +\d+ freq +[-+]?\d"
    rb"|\bts2phc(?:\[[\d.]+\])?:.* offset +-?\d+\s*$",
    re.M,
)
"""What is in a log of theirs and hardly anywhere else."""
_SUMMARY: Final = re.compile(r"\brms +\d+ max +\d+ freq")
_LINE: Final = re.compile(
    r"(?:(?P<program>ptp4l|phc2sys|ts2phc)(?:\[(?P<at>\d+(?:\.\d+)?)\])?:? "
    r"(?:\[(?P<later>\d+\.\d+)\] )?(?:\[[^\]]*\] )?)?"
    r"(?P<what>[^\s\[\]]*(?: (?:master|phc|sys))?|) ?"
    r"offset +(?P<ns>-?\d+)(?P<servo> s[0-3] freq +[-+]?\d+)?"
    r"(?: (?P<path>path )?delay +(?P<delay>-?\d+)| (?P<holdover>holdover))?\s*$"
)
_FROM: Final = (" master", " phc", " sys")


def offset(line: str) -> Value | None:
    """Return what a line says, None where it is about something else.

    ValueError where it says an offset without saying when.
    """
    found = _LINE.search(line)
    if found is None:
        if _SUMMARY.search(line):
            raise LeftOutError(
                "rms and max have no sign (let ptp4l print each offset: summary_interval -7; "
                "phc2sys: without -u)"
            )
        return None
    if not found["servo"] and found["program"] != "ts2phc":  # which may only watch a clock
        return None
    if found["holdover"]:
        raise LeftOutError("ts2phc was in holdover, without a pulse to compare with")
    # In a syslog the first brackets have the process's number, which is whole.
    at = found["later"] or (found["at"] if "." in (found["at"] or "") else None)
    if at is None:
        raise ValueError("it does not say when (program[seconds.milliseconds] is missing)")
    what = found["what"]
    for end in _FROM:
        what = what.removesuffix(end)
    clock = "" if what in ("master", "phc", "sys") else what
    off_ns = math.nan
    if found["delay"] is not None:
        # Less than 0 is no delay, and no bound.
        delay_ns = float(found["delay"])
        off_ns = (delay_ns if found["path"] else delay_ns / 2) if delay_ns >= 0 else math.nan
    name = found["program"] + (f" {clock}" if clock else "")
    return Value(name, float(at), -float(found["ns"]), off_ns)
