"""The time errors that pps edges showed, clock by clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mqtick.analysis.measurement import Shot, TimeErrors

__all__ = ["time_errors_of"]

_FS_PER_NS: Final = 10**6


def time_errors_of(
    nodes: Sequence[str], shots: Sequence[Shot], seconds: Sequence[float], started_ns: int | None
) -> list[TimeErrors]:
    """Return the time errors of each node that has some; reference minus local, in ns.

    `seconds` has when each shot was taken, counted from `started_ns`. Of shots at the same time
    the last one counts.
    """
    found = []
    for name in nodes:
        rows = {
            second: shot.clock_fs[name] / _FS_PER_NS
            for second, shot in sorted(
                zip(seconds, shots, strict=True), key=lambda row: (row[0], row[1].number)
            )
            if name in shot.clock_fs
        }
        if rows:
            at, errors = np.array(list(rows.items()), np.float64).T.copy()
            found.append(TimeErrors(name, at, errors, None, None, started_ns, "pps edges"))
    return found
