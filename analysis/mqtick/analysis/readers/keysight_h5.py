"""HDF5 files of Keysight InfiniiVision and Infiniium (.h5), through the optional package h5py.

Group `Waveforms` has one group a channel ("Channel 1") with its scale as attributes (XInc, XOrg,
YInc, YOrg) and its samples in data sets: "Channel 1 Data" or, of segmented memory, "Channel 1
Seg1Data", "Channel 1 Seg2Data", ... Integers are scaled by YInc and YOrg, floats are volts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.octets import add_waveform, interval_fs, short_decimal, start_fs
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile, Signal

__all__ = ["FORMATS"]

_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_SEGMENT: Final = re.compile(r"(?: ?Seg(?:ment)? ?(\d{1,7}))? ?Data")
_LARGEST: Final = 1 << 30


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    return CaptureFile(path, "Keysight HDF5", "Keysight", lambda: _captures(path, notes), notes)


def _captures(path: Path, notes: list[str]) -> Iterator[Capture]:
    try:
        import h5py  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise CaptureError(
            f"{path} is an HDF5 file. The package h5py reads those, but it cannot be imported "
            f"({error}). Install it with `pip install 'mqtick[captures]'`, or export as CSV."
        ) from error
    try:
        with h5py.File(path, "r") as file:
            segments = _segments(path, file)
            complete = 0
            for channels in segments.values():
                signals: dict[str, Signal] = {}
                for name, group, samples in channels:
                    _add(path, name, group, samples, signals, notes)
                if signals:
                    complete += 1
                    yield Capture(signals)
            if not complete:
                raise CaptureError(" ".join([f"{path} has no channel with samples.", *notes]))
    except CaptureError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:
        said = " ".join(str(error).split())[:200]
        raise CaptureError(
            f"{path} begins as an HDF5 file but cannot be read ({said}). It may be cut short; "
            "copy or save it again."
        ) from error


def _segments(path: Path, file: Any) -> dict[int, list[tuple[str, Any, Any]]]:
    """Return, for each segment, the channels with their groups and data sets."""
    waveforms = file.get("Waveforms")
    if waveforms is None or not hasattr(waveforms, "items"):
        raise CaptureError(
            f"{path} is an HDF5 file without the group 'Waveforms' of Keysight's oscilloscopes (it "
            f"has {', '.join(list(file)[:10]) or 'nothing'}). Export the capture as CSV."
        )
    segments: dict[int, list[tuple[str, Any, Any]]] = {}
    for name, group in waveforms.items():
        for called, samples in group.items() if hasattr(group, "items") else ():
            match = _SEGMENT.fullmatch(called.removeprefix(name))
            if match is not None and hasattr(samples, "shape"):
                segments.setdefault(int(match[1] or 1), []).append((name, group, samples))
    return dict(sorted(segments.items()))


def _add(
    path: Path, name: str, group: Any, samples: Any, signals: dict[str, Signal], notes: list[str]
) -> None:
    if len(samples.shape) != 1 or samples.dtype.kind not in "iuf":
        notes.append(f"Channel {name} was left out: its samples are not a row of numbers.")
        return
    if samples.size * samples.dtype.itemsize > _LARGEST:
        raise CaptureError(
            f"{path}: {name} says it has {samples.size} samples, more than can be read; record a "
            "shorter span."
        )
    scale = {}
    for word, otherwise in (("XInc", None), ("XOrg", 0.0), ("YInc", 1.0), ("YOrg", 0.0)):
        value = group.attrs.get(word, otherwise)
        number = float(np.ravel(value)[0]) if value is not None else float("nan")
        if not abs(number) < 1e30:
            raise CaptureError(
                f"{path}: {name} has the {word} {value!r}, which is not a number. Export it as CSV."
            )
        scale[word] = number
    timing = (
        interval_fs(short_decimal(scale["XInc"]), path, name),
        start_fs(short_decimal(scale["XOrg"]), path, name),
    )
    values = samples[()]
    if values.dtype.kind == "f":
        add_waveform(signals, notes, name, values, timing)
    elif scale["YInc"] > 0 and values.dtype.itemsize <= 2:
        told = {"volts_per_code": scale["YInc"], "code_at_zero": -scale["YOrg"] / scale["YInc"]}
        add_waveform(
            signals, notes, name, values.astype(values.dtype.newbyteorder("=")), timing, told
        )
    else:
        volts = values.astype(np.float64) * scale["YInc"] + scale["YOrg"]
        add_waveform(signals, notes, name, volts, timing)


FORMATS: Final = (Format("Keysight HDF5", "", lambda head: head.startswith(_MAGIC), _open, "h5py"),)
