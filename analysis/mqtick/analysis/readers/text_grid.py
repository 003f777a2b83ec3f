"""The time base of a text file's rows: from their times, checked against what the head says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.columns import Floats
from mqtick.analysis.readers.time_column import TimeBase, even_times, steps_of, unstretched
from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import EXACT_S, LONGEST_S
from mqtick.recording.waveform import femtoseconds

__all__ = ["UNEVEN_TIMES", "Grid", "grid_of", "once"]

_TOLD: Final = 100.0
"""Uncertainty of the interval, in parts per million, above which a note tells it."""
_THINNED_PPM: Final = 10_000.0
"""If a head's interval is further from that of the times, the samples were thinned out."""
_KNOWN: Final = 0.9
"""Share of the rows that have to have a time."""
_SLOW_FS: Final = 10**10
"""Samples so far apart, in s, are usual where the times are in ms, us or ns instead."""
_NAME_UNIT: Final = "If they are not in s, name the unit in the head of the column: `time [us]`."
UNEVEN_TIMES: Final = (
    "the samples are not evenly spaced, so no edge between them can be timed. Export the "
    "samples as the instrument took them, without thinning them out."
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Instant of sample 0 and interval in fs; how far the interval may be off, in ppm.

    Where the head tells them they are exact.
    """

    start_fs: int
    interval_fs: int
    error_ppm: float = 0.0


def grid_of(
    path: Path,
    times: Floats,
    resolution: float,
    told: tuple[float, int],
    notes: list[str],
    *,
    assumed: bool = False,
) -> Grid:
    """Return the time base of a segment from its column of times in s; CaptureError.

    `told` is what the head says: the interval in s, and how many rows there are, each 0 where it
    does not. `assumed`: nothing says that the times are in s. Notes say what had to be rebuilt,
    which of two that differ was believed, and that the unit was assumed where samples are so far
    apart that another one is likely.
    """
    known = int(np.isfinite(times).sum())
    if known < max(2, _KNOWN * times.size):
        raise CaptureError(
            f"{path} has {known:,} times in a segment of {times.size:,} rows, too few for a time "
            "base; it is cut off, or its times are no plain numbers (1 000 and 1,000 are none)."
        )
    even = even_times(times, resolution, told[0])
    if even is None:
        steps = [by[np.isfinite(by)] for by in steps_of(times)]
        least = min((float(by.min()) for by in steps if by.size), default=np.nan)
        most = max((float(by.max()) for by in steps if by.size), default=np.nan)
        raise CaptureError(
            f"{path}: the times advance by {least:.4g} to {most:.4g} s per row: {UNEVEN_TIMES}"
        )
    if even.repeats or even.error_ppm > _TOLD:
        within = (
            f", known to {even.error_ppm:,.0f} parts per million" if even.error_ppm >= 1 else ""
        )
        repeats = f" ({even.repeats:,} of {times.size:,} repeat)" if even.repeats else ""
        once(
            notes,
            f"The times in the file have too few digits{repeats}; they were rebuilt as samples "
            f"{even.interval_fs * 1e-15:.6g} s apart{within}.",
        )
    grid = _believed(even, times.size, told, resolution, notes)
    long_s = grid.interval_fs * 1e-15 * (times.size - 1)
    most_s = EXACT_S if assumed else LONGEST_S
    if abs(grid.start_fs) * 1e-15 + long_s > most_s:
        raise CaptureError(
            f"{path}: its times are {long_s:,.6g} s from first to last, and {most_s:,.0f} s is "
            f"the most{' without a unit' if assumed else ''}. {_NAME_UNIT}"
        )
    if assumed and grid.interval_fs >= _SLOW_FS:
        once(
            notes,
            "The column of times names no unit: s were assumed, so that the samples are "
            f"{grid.interval_fs * 1e-15:.6g} s apart. {_NAME_UNIT}",
        )
    return grid


def _believed(
    even: TimeBase, rows: int, told: tuple[float, int], resolution: float, notes: list[str]
) -> Grid:
    """Check the interval of the times against the other sources, and say which was taken."""
    times_s = even.interval_fs * 1e-15
    grid = Grid(even.start_fs, even.interval_fs, even.error_ppm)
    told_s, who, stretched = told[0], "The head says", ""
    if told_s <= 0:
        found = unstretched(even, rows, told[1])
        if found is None:
            return grid
        length, told_s = found
        who = f"A record of {length:,} samples has them"
        stretched = f", as if they were spread over {length - 1:,} intervals"
    apart = abs(times_s / told_s - 1) * 1e6
    if femtoseconds(told_s) == even.interval_fs or apart <= even.error_ppm:
        return grid
    if not stretched and apart > even.error_ppm and abs(times_s - told_s) < 0.999 * resolution:
        # libsigrok adds up an interval that it has rounded: 41 ns for 41.667.
        once(
            notes,
            f"The head says that samples are {told_s:.6g} s apart, and the times add up intervals "
            f"of {times_s:.6g} s, which were rounded and are {apart:,.0f} parts per million off: "
            "the head was believed.",
        )
        return Grid(even.start_fs, femtoseconds(told_s))
    if apart > _THINNED_PPM:
        once(
            notes,
            f"The head says that samples are {told_s:.6g} s apart, and the times are "
            f"{times_s:.6g} s apart ({apart:,.0f} parts per million off); the times were taken.",
        )
        return grid
    once(
        notes,
        f"{who} {'that samples are ' if not stretched else ''}{told_s:.6g} s apart, and the times "
        f"are {times_s:.6g} s apart{stretched}: {told_s:.6g} s was taken, and the time base counts "
        f"as uncertain by the difference, {apart:,.0f} parts per million.",
    )
    return Grid(even.start_fs, femtoseconds(told_s), even.error_ppm + apart)


def once(notes: list[str], note: str) -> None:
    """Add a note that is not there yet."""
    if note not in notes:
        notes.append(note)
