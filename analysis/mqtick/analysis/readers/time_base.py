"""The time base of a text file's rows: from their rounded times, checked against the head.

Such columns have few digits: DS1000C and DS1000E write -5.11e-03 two hundred times in a row. So
the interval is fitted over the whole column, and held against what rounding explains. Columns are
looked at piece by piece: nothing that is as long as they are is made of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import EXACT_S, LONGEST_S
from mqtick.recording.waveform import femtoseconds

Floats = npt.NDArray[np.floating]

_FLOAT32: Final = 6e-8
"""Some instruments round to 24 bits before they write more digits than that."""
_UNEVEN: Final = 0.1
"""Share of the interval by which samples may be off, besides rounding."""
_ROUND: Final = (1.0, 1.25, 1.6, 2.0, 2.5, 3.125, 3.2, 4.0, 5.0, 6.25, 6.4, 8.0, 10.0)
"""Intervals of oscilloscopes, up to a power of ten."""
_RECORDS: Final = (500, 600, 1000, 1024, 1200, 2048, 2500, 4096, 5000, 8192, 10_000, 16_384)
"""Lengths of records; a file may hold a part of one."""
_LEAST_RECORD: Final = 200
_TELLS_PPM: Final = 50.0
_PIECE: Final = 1 << 16
_NOTED_PPM: Final = 100.0
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
    """An even time base.

    Attributes:
        start_fs: instant of the first row, in fs.
        interval_fs: from row to row, in fs, above 0.
        error_ppm: how far the interval may be off at worst, in parts per million; 0 where a head
            tells it.
        repeats: how many rows of the file have the same time as the row before.
    """

    start_fs: int
    interval_fs: int
    error_ppm: float = 0.0
    repeats: int = 0


def pieces_of(column: Floats) -> Iterator[Floats]:
    """Yield a column piece by piece, none of them empty."""
    for at in range(0, column.size, _PIECE):
        yield column[at : at + _PIECE]


def steps_of(column: Floats) -> Iterator[Floats]:
    """Yield how far each time is after the one before, piece by piece."""
    for at in range(0, column.size - 1, _PIECE):
        with np.errstate(invalid="ignore"):  # times that a file calls infinite
            steps = np.diff(column[at : at + _PIECE + 1])
        yield steps


def even_times(times_s: Floats, resolution_s: float, interval_s: float = 0.0) -> Grid | None:
    """Return the even time base of a column of seconds, None if it has none.

    `resolution_s` is what the last digit stands for, `interval_s` what the file says elsewhere
    (0 where it does not): it is taken where the column does not contradict it. Times that are no
    number are passed over, with their rows counted.
    """
    count, row_sum, time_sum, largest = 0, 0.0, 0.0, 0.0
    for rows, times in _known(times_s):
        if not count:
            first_row, first = float(rows[0]), float(times[0])
        count += times.size
        row_sum += float((rows - first_row).sum())
        time_sum += float((times - first).sum())
        largest = max(largest, float(np.abs(times).max()))
        last_row, last = float(rows[-1]), float(times[-1])
    if count < 2:
        return None
    middle, middle_row = first + time_sum / count, first_row + row_sum / count
    squares = products = 0.0
    for rows, times in _known(times_s):
        away = rows - middle_row
        squares += float((away * away).sum())
        products += float((away * (times - middle)).sum())
    slope = products / squares
    if not slope > 0:
        return None
    worst, repeats, least = 0.0, 0, math.inf
    before: Floats = np.empty(0)
    for rows, times in _known(times_s):
        worst = max(worst, float(np.abs(times - middle - slope * (rows - middle_row)).max()))
        steps = np.diff(times, prepend=before)
        repeats += int(np.count_nonzero(steps == 0))
        least, before = min(least, float(steps.min(initial=math.inf))), times[-1:]
    blur = _FLOAT32 * largest
    # Times cut off instead of rounded are off by a whole digit, on both sides of 0.
    rounding = resolution_s * (1.05 if repeats else 0.55) + blur
    if worst > rounding + _UNEVEN * slope or least < -2 * rounding:
        return None
    span = last_row - first_row
    distinct = max(count - repeats, 2)
    # Many rows, each rounded differently, say more than the first and the last one alone: among
    # what they make likely the shortest number is taken.
    share = min(1.0, 7 / distinct**0.5)
    likely = 2 * worst / span * share + 1e-12 * slope
    if interval_s > 0 and abs(interval_s - slope) <= 2 * worst / span + 1e-9 * slope:
        interval = interval_s
        error = 0.0
    else:
        interval = _shortest(slope, likely)
        # But rounding on a regular grid is not random: the first and the last time may both be off
        # by half a unit of their last digit, in opposite directions.
        chord = (last - first) / span
        error = (
            abs(femtoseconds(interval) * 1e-15 - chord)
            + 2 * max(worst, resolution_s / 2 + blur) / span
        )
    start = _shortest(middle - interval * middle_row, worst * share + 1e-9 * interval)
    interval_fs = femtoseconds(interval)
    if interval_fs <= 0 or abs(start) > LONGEST_S:
        return None
    return Grid(femtoseconds(start), interval_fs, error / interval * 1e6, repeats)


def _known(times_s: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield the numbers of the rows whose times are known, and these times."""
    at = 0
    for piece in pieces_of(times_s):
        known = np.flatnonzero(np.isfinite(piece))
        if known.size:
            yield (known + at).astype(np.float64), piece[known]
        at += piece.size


def _unstretched(base: Grid, rows: int, announced: int) -> tuple[int, float] | None:
    """Return length and interval in s of a record whose times were spread over one interval less.

    Some instruments write the N samples of a span so that the last one is at its end: each is
    then N / (N - 1) of the interval after the one before. None where the interval is one that
    oscilloscopes have, or would be none for `rows`, for the rows that were `announced`, and for
    common lengths of a record of which the file is a part.
    """
    interval = base.interval_fs * 1e-15
    error = base.error_ppm * 1e-6
    if base.error_ppm > _TELLS_PPM or _is_round(interval, error):
        return None
    lengths = (rows, announced, *(length for length in _RECORDS if length > rows))
    for length in lengths:
        true = interval * (length - 1) / max(length, 1)
        if length >= _LEAST_RECORD and (found := _is_round(true, error + 1e-9)):
            return length, found
    return None


def _is_round(interval: float, error: float) -> float:
    """Return the usual interval that is no further away than a share of it, 0.0 for none."""
    power = 10.0 ** math.floor(math.log10(interval))
    near = min((each * power for each in _ROUND), key=lambda each: abs(each - interval))
    return float(f"{near:.4g}") if abs(near - interval) <= error * interval else 0.0


def _shortest(value: float, error: float) -> float:
    """Return the number with the fewest digits that is no further away than this."""
    if abs(value) <= error:
        return 0.0
    for digits in range(16):
        rounded = float(f"{value:.{digits}e}")
        if abs(rounded - value) <= error:
            return rounded
    return value


def grid_of(
    path: Path,
    times: Floats,
    resolution: float,
    announced: tuple[float, int],
    notes: list[str],
    *,
    assumed: bool = False,
) -> Grid:
    """Return the time base of a segment from its column of times in s; CaptureError.

    `announced` is what the head says: the interval in s, and how many rows there are, each 0 where
    it does not. `assumed`: nothing says that the times are in s. Notes say what had to be rebuilt,
    which of two that differ was believed, and that the unit was assumed where samples are so far
    apart that another one is likely.
    """
    known = int(np.isfinite(times).sum())
    if known < max(2, _KNOWN * times.size):
        raise CaptureError(
            f"{path} has {known:,} times in a segment of {times.size:,} rows, too few for a time "
            "base; it is cut off, or its times are no plain numbers (1 000 and 1,000 are none)."
        )
    even = even_times(times, resolution, announced[0])
    if even is None:
        steps = [by[np.isfinite(by)] for by in steps_of(times)]
        least = min((float(by.min()) for by in steps if by.size), default=np.nan)
        most = max((float(by.max()) for by in steps if by.size), default=np.nan)
        raise CaptureError(
            f"{path}: the times advance by {least:.4g} to {most:.4g} s per row: {UNEVEN_TIMES}"
        )
    if even.repeats or even.error_ppm > _NOTED_PPM:
        within = (
            f", known to {even.error_ppm:,.0f} parts per million" if even.error_ppm >= 1 else ""
        )
        repeats = f" ({even.repeats:,} of {times.size:,} repeat)" if even.repeats else ""
        once(
            notes,
            f"The times in the file have too few digits{repeats}; they were rebuilt as samples "
            f"{even.interval_fs * 1e-15:.6g} s apart{within}.",
        )
    grid = _believed(even, times.size, announced, resolution, notes)
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
    even: Grid, rows: int, announced: tuple[float, int], resolution: float, notes: list[str]
) -> Grid:
    """Check the interval of the times against the other sources, and say which was taken."""
    times_s = even.interval_fs * 1e-15
    head_s, who, stretched = announced[0], "The head says", ""
    if head_s <= 0:
        found = _unstretched(even, rows, announced[1])
        if found is None:
            return even
        length, head_s = found
        who = f"A record of {length:,} samples has them"
        stretched = f", as if they were spread over {length - 1:,} intervals"
    apart = abs(times_s / head_s - 1) * 1e6
    if femtoseconds(head_s) == even.interval_fs or apart <= even.error_ppm:
        return even
    if not stretched and apart > even.error_ppm and abs(times_s - head_s) < 0.999 * resolution:
        # libsigrok adds up an interval that it has rounded: 41 ns for 41.667.
        once(
            notes,
            f"The head says that samples are {head_s:.6g} s apart, and the times add up intervals "
            f"of {times_s:.6g} s, which were rounded and are {apart:,.0f} parts per million off: "
            "the head was believed.",
        )
        return Grid(even.start_fs, femtoseconds(head_s))
    if apart > _THINNED_PPM:
        once(
            notes,
            f"The head says that samples are {head_s:.6g} s apart, and the times are "
            f"{times_s:.6g} s apart ({apart:,.0f} parts per million off); the times were taken.",
        )
        return even
    once(
        notes,
        f"{who} {'that samples are ' if not stretched else ''}{head_s:.6g} s apart, and the times "
        f"are {times_s:.6g} s apart{stretched}: {head_s:.6g} s was taken, and the time base counts "
        f"as uncertain by the difference, {apart:,.0f} parts per million.",
    )
    return Grid(even.start_fs, femtoseconds(head_s), even.error_ppm + apart)


def once(notes: list[str], note: str) -> None:
    """Add a note that is not there yet."""
    if note not in notes:
        notes.append(note)
