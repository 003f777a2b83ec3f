"""From the rows of a text file to captures: what all CSV formats have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.columns import Columns, Floats, Rows, read_rows
from mqtick.analysis.readers.text_transitions import is_changes, is_levels, transitions_of
from mqtick.analysis.readers.time_column import even_times
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.analysis.signals.quantise import waveform_of_volts
from mqtick.analysis.signals.waveform import Waveform

__all__ = ["Column", "Grid", "Plan", "open_plan", "split_unit", "unit_of"]

_UNITS: Final = {"": 1.0, "k": 1e3, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
_TOLD: Final = 100.0
"""Uncertainty of the interval, in parts a million, above which a note tells it."""


def unit_of(text: str, of: str) -> float | None:
    """Return the factor of a unit to its base ("mV" of "V" is 0.001), None where it is another."""
    text = text.strip().strip("[]()").strip()
    words = {"V": ("V", "Volt", "volt", "Volts", "volts"), "s": ("s", "sec", "second", "seconds")}
    for word in words[of]:
        if text.casefold() == word.casefold():
            return 1.0
        prefix = text.removesuffix(word)
        if prefix != text and prefix in _UNITS:
            return _UNITS[prefix]
    full = {"milli": 1e-3, "micro": 1e-6, "nano": 1e-9}
    for prefix, factor in full.items():
        if text.casefold().startswith(prefix) and text[len(prefix) :].casefold() in words[of]:
            return factor
    return None


_UNIT: Final = re.compile(r"(.*?)\s*(?:\(([^()]*)\)|\[([^\[\]]*)\]|\s+in\s+(\S+))\s*$")


def split_unit(cell: str) -> tuple[str, str]:
    """Return name and unit of a column: "CH 1 (mV)", "CH1 [mV]", "C1 in mV"."""
    found = _UNIT.match(f" {cell}")
    if not found:
        return cell.strip(), ""
    return found[1].strip(), (found[2] or found[3] or found[4] or "").strip()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of samples: its name, its place from 0, and the factor to volts."""

    name: str
    column: int
    to_volts: float = 1.0


@dataclass(frozen=True, slots=True)
class Grid:
    """Instant of sample 0 and interval in fs; how far the interval may be off, in parts a million.

    Where the head tells them they are exact.
    """

    start_fs: int
    interval_fs: int
    error_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the head of a text file says of its rows.

    Attributes:
        format, instrument: as CaptureFile has them.
        first_row: how many lines there are before the rows.
        channels: the columns of samples.
        time_column: the column of times, None where time is counted in rows from `grid`.
        to_seconds: the factor from that column to seconds.
        index_column: the column of sample numbers, which `grid` counts, None where it is the row.
        grid: the time base, where the head has it.
        interval_s: the interval where the head tells it beside a time column, 0 where not.
        rows: how many rows the head announces, 0 where it does not.
        delimiter, decimal_comma: as Columns has them.
        triggered: whether time 0 is the trigger; None: where it lies within the record.
    """

    format: str
    instrument: str
    first_row: int
    channels: tuple[Column, ...]
    time_column: int | None = 0
    to_seconds: float = 1.0
    index_column: int | None = None
    grid: Grid | None = None
    interval_s: float = 0.0
    rows: int = 0
    delimiter: str = ","
    decimal_comma: bool = False
    triggered: bool | None = True


def open_plan(path: Path, plan: Plan) -> CaptureFile:
    """Return a file whose head was understood; CaptureError where it names no channel."""
    if not plan.channels:
        raise CaptureError(
            f"{path}: the head of this {plan.format} names no channel; save it again with at "
            "least one channel switched on."
        )
    notes: list[str] = []
    return CaptureFile(
        path, plan.format, plan.instrument, lambda: _captures(path, plan, notes), notes
    )


def _captures(path: Path, plan: Plan, notes: list[str]) -> Iterator[Capture]:
    notes.clear()
    reads = [channel.column for channel in plan.channels]
    counts = plan.index_column if plan.grid else plan.time_column
    if counts is not None:
        reads.insert(0, counts)
    layout = Columns(
        plan.first_row,
        tuple(dict.fromkeys(reads)),
        plan.delimiter,
        plan.decimal_comma,
        every_row=counts is None,
    )
    rows = read_rows(path, layout, notes)
    if plan.rows > rows.count:
        notes.append(
            f"The head announces {plan.rows:,} samples and there are {rows.count:,}: the file was "
            "cut off."
        )
    found = False
    for first, last, grid in _segments(path, plan, rows, notes):
        if grid is None:
            signals = _changes(path, plan, rows)
        else:
            signals = _waveforms(plan, rows, (first, last), grid, notes)
        if signals:
            found = True
            yield Capture(
                signals,
                _triggered(plan, grid, last - first),
                timebase_ppm=grid.error_ppm if grid else 0.0,
            )
    if not found:
        raise CaptureError(f"{path}: no channel has samples that can be read. " + " ".join(notes))


def _segments(
    path: Path, plan: Plan, rows: Rows, notes: list[str]
) -> Iterator[tuple[int, int, Grid | None]]:
    """Yield first row, end and time base of each segment; None where only changes are kept."""
    if plan.grid:
        grid = plan.grid
        if plan.index_column is not None:
            numbers = rows.column(plan.index_column)
            if not (np.isfinite(numbers).all() and (np.diff(numbers) == 1).all()):
                raise CaptureError(
                    f"{path}: the samples are numbered {numbers[0]:.0f} to {numbers[-1]:.0f} and "
                    f"there are {rows.count} rows, not all in turn: rows are missing or doubled, "
                    "and their times are lost. Save or copy it again."
                )
            grid = Grid(grid.start_fs + int(numbers[0]) * grid.interval_fs, grid.interval_fs)
        yield 0, rows.count, grid
        return
    assert plan.time_column is not None
    times = rows.column(plan.time_column) * plan.to_seconds
    resolution = rows.resolution(plan.time_column) * plan.to_seconds
    with np.errstate(invalid="ignore"):
        back = np.flatnonzero(np.diff(times) < -2 * resolution) + 1
    ends = [*back.tolist(), rows.count]
    # One column after the other: of samples in volts, the first one settles it.
    if not back.size and is_levels(rows.column(each.column) for each in plan.channels):
        levels = [rows.column(each.column) for each in plan.channels]
        if is_changes(levels) or not even_times(times, resolution):
            yield 0, rows.count, None
            return
    if back.size > rows.count / 4:
        raise CaptureError(f"{path}: the times go back in {back.size} rows: {_UNEVEN_TIMES}")
    first = 0
    for last in ends:
        yield first, last, _grid(path, plan, times[first:last], resolution, notes)
        first = last


_UNEVEN_TIMES: Final = (
    "the samples are not evenly spaced, so that no edge between them can be told. Export the "
    "samples as the instrument took them, without thinning them out."
)


def _grid(path: Path, plan: Plan, times: Floats, resolution: float, notes: list[str]) -> Grid:
    known = times[np.isfinite(times)]
    if known.size < 2:
        raise CaptureError(
            f"{path} has a segment with {known.size} times, too few for a time base; it is cut "
            "off, or its time column is no time."
        )
    even = even_times(times, resolution, plan.interval_s)
    if even is None:
        steps = np.diff(known)
        raise CaptureError(
            f"{path}: the times go on by {steps.min():.4g} to {steps.max():.4g} s a "
            f"row: {_UNEVEN_TIMES}"
        )
    if even.repeats or even.error_ppm > _TOLD:
        within = f", known to {even.error_ppm:,.0f} parts a million" if even.error_ppm >= 1 else ""
        repeats = f" ({even.repeats:,} of {times.size:,} repeat)" if even.repeats else ""
        _once(
            notes,
            f"The times in the file have too few digits{repeats}; they were rebuilt as samples "
            f"{even.interval_fs * 1e-15:.6g} s apart{within}.",
        )
    interval_s = even.interval_fs * 1e-15
    if plan.interval_s > 0 and abs(interval_s - plan.interval_s) > 1e-3 * plan.interval_s:
        _once(
            notes,
            f"The head says that samples are {plan.interval_s:.6g} s apart, and the times are "
            f"{interval_s:.6g} s apart; the times were taken.",
        )
    return Grid(even.start_fs, even.interval_fs, even.error_ppm)


def _triggered(plan: Plan, grid: Grid | None, count: int) -> bool:
    if plan.triggered is not None:
        return plan.triggered
    return grid is not None and grid.start_fs < 0 <= grid.start_fs + count * grid.interval_fs


def _changes(path: Path, plan: Plan, rows: Rows) -> dict[str, Signal]:
    assert plan.time_column is not None
    times = rows.column(plan.time_column) * plan.to_seconds
    resolution = rows.resolution(plan.time_column) * plan.to_seconds
    levels = {each.name: rows.column(each.column) for each in plan.channels}
    return dict(transitions_of(path, times, resolution, levels))


def _waveforms(
    plan: Plan, rows: Rows, within: tuple[int, int], grid: Grid, notes: list[str]
) -> dict[str, Signal]:
    signals: dict[str, Signal] = {}
    for channel in plan.channels:
        values = rows.column(channel.column, *within)
        if channel.to_volts != 1.0:
            values = values * channel.to_volts
        waveform = _waveform(channel.name, values, grid, notes)
        if waveform is not None:
            signals[channel.name] = waveform
    return signals


def _waveform(name: str, values: Floats, grid: Grid, notes: list[str]) -> Waveform | None:
    """Return what a column has, None with a note where it has too little."""
    known = np.flatnonzero(~np.isnan(values))
    finite = values[np.isfinite(values)]
    if not finite.size:
        _once(notes, f"{name}: no samples; it was left out.")
        return None
    first, last = int(known[0]), int(known[-1]) + 1
    if last - first > known.size:
        holes = _samples(last - first - known.size)
        _once(notes, f"{name}: {holes} with no number among the others; it was left out.")
        return None
    values = values[first:last]
    if finite.size < values.size:
        over = _samples(values.size - finite.size)
        _once(notes, f"{name}: {over} beyond the range of the instrument, put at its end.")
        values = np.clip(values, finite.min(), finite.max())
    try:
        start_fs = grid.start_fs + first * grid.interval_fs
        return waveform_of_volts(values, grid.interval_fs, start_fs)
    except ValueError as error:
        _once(notes, f"{name}: values that are no volts ({error}); it was left out.")
        return None


def _samples(count: int) -> str:
    return f"{count:,} sample{'s' if count > 1 else ''}"


def _once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)
