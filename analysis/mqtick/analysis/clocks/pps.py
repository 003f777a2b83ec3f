"""The time errors that pps edges showed, clock by clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mqtick.analysis.measurement import Shot, TimeErrors
from mqtick.recording.units import FS_PER_NS, Floats


def one_after_another(records: Sequence[Floats]) -> Floats:
    """Return when events were, in records whose start is not known, from 0 s on.

    Each array has a record's events in s, increasing. The next record begins as long after the
    last event as events of the record are apart (their median), a second where it has one event.
    """
    placed, begin = [], 0.0
    for seconds in records:
        at = seconds - seconds[0] + begin
        placed.append(at)
        begin = float(at[-1]) + (float(np.median(np.diff(at))) if at.size > 1 else 1.0)
    return np.concatenate(placed)


def time_errors_of(
    nodes: Sequence[str], shots: Sequence[Shot], seconds: Sequence[float], started_ns: int | None
) -> list[TimeErrors]:
    """Return the time errors of each node that has some; reference minus local, in ns.

    `seconds` has when each shot was taken, counted from `started_ns`. Of shots at the same time the
    last one counts: a clock has one error at a time. `source` says how many were left out.
    """
    found = []
    ordered = sorted(zip(seconds, shots, strict=True), key=lambda row: (row[0], row[1].number))
    for name in nodes:
        seen = [(second, shot.clock_fs[name]) for second, shot in ordered if name in shot.clock_fs]
        rows = dict(seen)
        if rows:
            source = "pps edges"
            if left_out := len(seen) - len(rows):
                source += f" ({left_out} at the time of another one left out)"
            at = np.array(list(rows), np.float64)
            errors = np.array(list(rows.values()), np.float64) / FS_PER_NS
            found.append(TimeErrors(name, at, errors, None, None, started_ns, source))
    return found
