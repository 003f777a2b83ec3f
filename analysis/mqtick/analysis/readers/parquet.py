"""Parquet files of samples: a time column and a column for each channel. Needs pyarrow.

The time is called as in CSV files (`time [s]`, `t_us`), or is a column of durations or instants.
Channels are numbers in V, or true and false.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.time_base import grid_of
from mqtick.analysis.readers.units import named, time_unit, unit_of
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import LONGEST_S
from mqtick.recording.quantise import waveform_of_volts
from mqtick.recording.sigrok import LOGIC_V
from mqtick.recording.units import Floats

__all__ = ["FORMATS"]

_MAGIC: Final = b"PAR1"
_MOST_VALUES: Final = 100_000_000
"""Of all columns together: each takes 8 octets while its channel is converted."""
_TICKS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _open(path: Path) -> CaptureFile:
    file = CaptureFile(path, "Parquet", "", lambda: _read(path, file.notes))
    return file


def _read(path: Path, notes: list[str]) -> Iterator[Capture]:
    try:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise CaptureError(
            f"{path} is a Parquet file, for which pyarrow is needed: pip install "
            "'mqtick[parquet]'; or save it as CSV."
        ) from None
    try:
        with pq.ParquetFile(path) as file:
            fields = {field.name: field.type for field in file.schema_arrow}
            values = file.metadata.num_rows * len(fields)
            if values > _MOST_VALUES:
                raise CaptureError(
                    f"{path} has {values:,} values, more than {_MOST_VALUES:,}; save fewer rows "
                    "or channels in a file."
                )
            time, to_s, assumed = _time(path, fields)
            times, resolution = _times(file.read([time]).column(0), fields[time], to_s)
            signals: dict[str, Signal] = {}
            grid = grid_of(path, times, resolution, (0.0, 0), notes, assumed=assumed)
            for name, kind in fields.items():
                if name == time:
                    continue
                if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or _is_bool(kind)):
                    notes.append(f"Column {name!r} is of type {kind} and was left out.")
                    continue
                column = named(path, name)
                if column.note:
                    notes.append(column.note)
                if column.to_volts is None:
                    continue
                volts = _numbers(file.read([name]).column(0))
                volts *= LOGIC_V if _is_bool(kind) else column.to_volts
                signals[column.name] = waveform_of_volts(volts, grid.interval_fs, grid.start_fs)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        if isinstance(error, CaptureError):
            raise
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise CaptureError(f"{path} cannot be read as Parquet ({said}); save it again.") from error
    if not signals:
        raise CaptureError(f"{path}: no column besides the time {time!r} holds numbers.")
    yield Capture(signals, triggered=False, timebase_ppm=grid.error_ppm)


def _is_bool(kind: Any) -> bool:
    return str(kind) == "bool"


def _time(path: Path, fields: dict[str, Any]) -> tuple[str, float, bool]:
    """Return the column of times, how many seconds 1 in it is, and whether that is assumed."""
    for name, kind in fields.items():
        if str(kind).startswith(("timestamp[", "duration[")):
            return name, _TICKS[kind.unit], False
        if (unit := time_unit(name)) is not None:
            to_s = unit_of(unit or "s", "s")
            if to_s is not None:
                return name, to_s, not unit
    there = ", ".join(map(repr, list(fields)[:12]))
    raise CaptureError(
        f"{path}: no column is a time with a unit; there is {there}. Name one `time [s]`."
    )


def _times(column: Any, kind: Any, to_s: float) -> tuple[Floats, float]:
    """Return times in s after the first one where they are whole, and to what they are rounded."""
    if str(kind).startswith(("timestamp[", "duration[", "int", "uint")):
        ticks = column.cast("int64").to_numpy()
        # In whole ticks first: instants of today are too large for a float.
        since = (ticks - ticks[:1].sum()).astype(np.float64)
        return since * to_s, to_s
    times = _numbers(column) * to_s
    largest = float(np.abs(times[np.isfinite(times)]).max(initial=0.0))
    if times.size and abs(times[0]) > LONGEST_S:  # since 1970
        times -= times[0]
    return times, float(np.spacing(largest))


def _numbers(column: Any) -> Floats:
    numbers: Floats = np.array(column.cast("float64").to_numpy(), np.float64)
    return numbers


FORMATS: Final = (
    Format("Parquet", "pyarrow", lambda head: head.startswith(_MAGIC), _open, "pyarrow"),
)
