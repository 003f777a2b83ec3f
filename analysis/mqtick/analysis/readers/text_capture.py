"""Text files of samples: recognised by their heads, and read row by row to captures."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.columns import (
    CsvLayout,
    Rows,
    cells_of,
    head_lines,
    is_text,
    plain_text,
    read_head,
    read_rows,
)
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.text_dialects import DIALECTS, PLAIN, Dialect
from mqtick.analysis.readers.text_head import rows_of_numbers, titles_in
from mqtick.analysis.readers.text_layout import layout_of
from mqtick.analysis.readers.text_transitions import is_changes, is_levels, transitions_of
from mqtick.analysis.readers.time_base import (
    UNEVEN_TIMES,
    Floats,
    Grid,
    even_times,
    grid_of,
    once,
    steps_of,
)
from mqtick.analysis.readers.units import time_unit
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.quantise import waveform_of_volts
from mqtick.recording.waveform import Waveform

_MOST_LINES: Final = 200
_MOST_UNITS: Final = 8
_LATEST_S: Final = 10**10
"""Seconds since 1970 are less until the year 2286; larger numbers are ms, us or ns."""


@functools.lru_cache(maxsize=4)
def _head_lines(octets: bytes) -> list[str] | None:
    """Return the lines of a file's first octets, None where they are no text."""
    octets = plain_text(octets)
    return head_lines(octets)[:_MOST_LINES] if is_text(octets) else None


def _recognises(dialect: Dialect, octets: bytes) -> bool:
    lines = _head_lines(octets)
    return lines is not None and dialect.signature.search("\n".join(lines)) is not None


def _is_table(octets: bytes) -> bool:
    lines = _head_lines(octets) or []
    return titles_in(lines) is not None or any(rows_of_numbers(lines))


def _open(dialect: Dialect, path: Path) -> CaptureFile:
    layout = layout_of(path, dialect, head_lines(read_head(path))[:_MOST_LINES])
    if not layout.channels:
        raise CaptureError(
            f"{path}: the head of this {layout.format} names no channel; save it again with at "
            "least one channel switched on."
        )
    notes: list[str] = []
    return CaptureFile(
        path, layout.format, layout.instrument, lambda: _captures(path, layout, notes), notes
    )


def _captures(path: Path, layout: CsvLayout, notes: list[str]) -> Iterator[Capture]:
    notes[:] = layout.notes
    rows = read_rows(path, layout, notes)
    _look_at_words(path, layout, rows.words, notes)
    if layout.unit_assumed and rows.origin is not None and abs(rows.origin) > _LATEST_S:
        raise CaptureError(
            f"{path}: the times, from {rows.origin:f} on, are no seconds since 1970, and nothing "
            "says what they are. Name their unit in the head of the column: `time [us]`."
        )
    if layout.rows > rows.count:
        notes.append(
            f"The head announces {layout.rows:,} samples and there are {rows.count:,}: the file "
            "was cut off."
        )
    found = False
    for first, last, grid in _segments(path, layout, rows, notes):
        if grid is None:
            signals = _changes(path, layout, rows)
        else:
            signals = _waveforms(layout, rows, (first, last), grid, notes)
        if signals:
            found = True
            yield Capture(
                signals,
                _triggered(layout, grid, last - first),
                timebase_ppm=grid.error_ppm if grid else 0.0,
            )
    if not found:
        raise CaptureError(f"{path}: no channel has samples that can be read. " + " ".join(notes))


def _look_at_words(path: Path, layout: CsvLayout, lines: list[str], notes: list[str]) -> None:
    """Say which lines are no rows; CaptureError where one has other names than the head."""
    others = []
    for line in lines:
        cells = cells_of(line, layout.delimiter)
        if layout.time_column is None or cells == layout.heading:
            continue
        if time_unit(cells[layout.time_column]) is not None:
            raise CaptureError(
                f"{path} has other names further down, {line.strip()[:80]!r}, and maybe other "
                "units. Split it into a file for each line of names."
            )
        others.append(line.strip())
    if others:
        more = f" and {len(others) - 1} more were" if len(others) > 1 else " was"
        notes.append(f"Among the rows, the line {others[0][:60]!r}{more} left out.")


def _segments(
    path: Path, layout: CsvLayout, rows: Rows, notes: list[str]
) -> Iterator[tuple[int, int, Grid | None]]:
    """Yield first row, end and time base of each segment; None where only changes are kept."""
    if layout.grid:
        grid = layout.grid
        if layout.index_column is not None:
            numbers = rows.column(layout.index_column)
            first, last = float(numbers[0]), float(numbers[-1])
            if not (np.isfinite(first) and all((by == 1).all() for by in steps_of(numbers))):
                raise CaptureError(
                    f"{path}: the samples are numbered {first:.0f} to {last:.0f} and "
                    f"there are {rows.count} rows, not all in turn: rows are missing or doubled, "
                    "and their times are lost. Save or copy it again."
                )
            grid = Grid(grid.start_fs + int(first) * grid.interval_fs, grid.interval_fs)
        yield 0, rows.count, grid
        return
    assert layout.time_column is not None
    resolution = rows.resolution(layout.time_column)
    times = rows.column(layout.time_column)
    back = _back(times, resolution)
    if len(back) == rows.count - 1 > 1:
        np.negative(times, out=times)
        notes.append(
            "The times go back in every row. Instruments write samples in the order in which they "
            "took them, so the times were taken with the opposite sign."
        )
        back = []
    if len(back) > rows.count / 4:
        raise CaptureError(f"{path}: the times go back in {len(back)} rows: {UNEVEN_TIMES}")
    if back and np.isfinite(times).all() and _one_unit(times, back, notes):
        back = []
    if back:
        notes.append(
            f"The times go back {len(back)} time{'s' if len(back) > 1 else ''} among the rows: the "
            f"{len(back) + 1} parts were read as captures of their own."
        )
    kept = [rows.column(each.column) for each in layout.channels]
    changes = not back and is_levels(kept)
    if changes and not is_changes(kept):
        changes = not even_times(times, resolution)
    del kept
    if changes:
        del times
        yield 0, rows.count, None
        return
    begin = 0
    for end in (*back, rows.count):
        grid = grid_of(
            path,
            times[begin:end],
            resolution,
            (layout.interval_s, layout.rows),
            notes,
            assumed=layout.unit_assumed,
        )
        if end == rows.count:
            del times
        yield begin, end, grid
        begin = end


def _back(times: Floats, resolution: float) -> list[int]:
    """Return the rows whose times are before those of the row above."""
    back, at = [], 1
    for steps in steps_of(times):
        back += (np.flatnonzero(steps < -2 * resolution) + at).tolist()
        at += steps.size
    return back


def _one_unit(times: Floats, back: list[int], notes: list[str]) -> bool:
    """Put times in one unit whose rows change it on the way, and return whether they did.

    Red Pitaya's firmware writes -1.000 us and then -992.000, in ns, under the same heading.
    """
    ends = [0, *back, times.size]
    steps = [np.diff(times[a:b]).mean() if b - a > 1 else np.nan for a, b in pairwise(ends)]
    least = min((step for step in steps if step > 0), default=np.nan)
    powers = [1000.0 ** round(np.log(step / least) / np.log(1000)) for step in steps if step > 0]
    if len(powers) < len(steps) or {*powers} == {1.0} or len(steps) > _MOST_UNITS:
        return False
    scaled = np.concatenate(
        [times[a:b] / power for (a, b), power in zip(pairwise(ends), powers, strict=True)]
    )
    apart = np.diff(scaled)
    if not (np.abs(apart - apart.mean()) < 0.1 * apart.mean()).all():
        return False
    times[:] = scaled
    notes.append(
        f"The times change their unit in row {ends[1] + 1:,} and go on in one a thousand times "
        "smaller or larger; they were put in one unit, which makes them evenly spaced."
    )
    return True


def _triggered(layout: CsvLayout, grid: Grid | None, count: int) -> bool:
    if layout.triggered is not None:
        return layout.triggered
    return grid is not None and grid.start_fs < 0 <= grid.start_fs + count * grid.interval_fs


def _changes(path: Path, layout: CsvLayout, rows: Rows) -> dict[str, Signal]:
    assert layout.time_column is not None
    times = rows.taken(layout.time_column)
    levels = ((each.name, rows.taken(each.column)) for each in layout.channels)
    resolution = rows.resolution(layout.time_column)
    return dict(transitions_of(path, times, resolution, levels, layout.interval_s))


def _waveforms(
    layout: CsvLayout, rows: Rows, within: tuple[int, int], grid: Grid, notes: list[str]
) -> dict[str, Signal]:
    signals: dict[str, Signal] = {}
    only = within == (0, rows.count)
    if only and rows.layout.exact is not None:
        rows.taken(rows.layout.exact)
    for channel in layout.channels:
        values = rows.taken(channel.column) if only else rows.column(channel.column, *within)
        if channel.to_volts != 1.0:
            values *= np.float32(channel.to_volts)
        waveform = _waveform(channel.name, values, grid, notes)
        if waveform is not None:
            signals[channel.name] = waveform
    return signals


def _waveform(name: str, values: Floats, grid: Grid, notes: list[str]) -> Waveform | None:
    """Return what a column has, None with a note where it has too little."""
    known = np.flatnonzero(~np.isnan(values))
    finite = values[np.isfinite(values)]
    if not finite.size:
        once(notes, f"{name}: no samples; it was left out.")
        return None
    first, last = int(known[0]), int(known[-1]) + 1
    if last - first > known.size:
        holes = _samples(last - first - known.size)
        once(notes, f"{name}: {holes} with no number among the others; it was left out.")
        return None
    if last - first < values.size:
        gone = _samples(values.size - (last - first))
        once(notes, f"{name}: {gone} at its ends without a number; they were left out.")
    values = values[first:last]
    if finite.size < values.size:
        over = _samples(values.size - finite.size)
        once(notes, f"{name}: {over} beyond the range of the instrument, put at its end.")
        values = np.clip(values, finite.min(), finite.max())
    try:
        start_fs = grid.start_fs + first * grid.interval_fs
        return waveform_of_volts(values, grid.interval_fs, start_fs)
    except ValueError as error:
        once(notes, f"{name}: values that are not volts ({error}); it was left out.")
        return None


def _samples(count: int) -> str:
    return f"{count:,} sample{'s' if count > 1 else ''}"


FORMATS: Final = (
    *(
        Format(
            each.name,
            each.tested,
            functools.partial(_recognises, each),
            functools.partial(_open, each),
        )
        for each in DIALECTS
    ),
    Format(PLAIN.name, PLAIN.tested, _is_table, functools.partial(_open, PLAIN)),
)
