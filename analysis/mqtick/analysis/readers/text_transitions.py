"""Digital channels of a text file that has one row a change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.columns import Floats
from mqtick.analysis.readers.octets import LONGEST_S
from mqtick.analysis.signals.capture import CaptureError
from mqtick.analysis.signals.transitions import UNKNOWN, Transitions
from mqtick.analysis.signals.waveform import femtoseconds

__all__ = ["is_changes", "is_levels", "refuse_dates", "transitions_of"]

_ENOUGH: Final = 8
"""Changes out of whose distances the sample interval can be told."""
_ODD_RATES_HZ: Final = (3e6, 6e6, 12e6, 24e6, 48e6, 96e6)
"""Sample rates of logic analysers whose intervals are no whole ns, and are rounded in the file."""


def is_levels(channels: Iterable[Floats]) -> bool:
    """Whether these are levels, 0 or 1, as logic analysers write them."""
    for values in channels:
        levels = values[~np.isnan(values)]
        if not levels.size or not ((levels == 0) | (levels == 1)).all():
            return False
    return True


def is_changes(channels: Sequence[Floats]) -> bool:
    """Whether each row but the last differs from the one before."""
    changed = np.zeros(max(channels[0].size - 1, 0), bool)
    for levels in channels:
        changed |= levels[1:] != levels[:-1]
    return bool(changed[:-1].all())


def transitions_of(
    path: Path, times_s: Floats, resolution_s: float, channels: Mapping[str, Floats]
) -> Iterable[tuple[str, Transitions]]:
    """Return the changes of each channel by its name; CaptureError where times go back.

    The file does not keep the sample rate: a change is uncertain by the greatest distance that
    all changes are whole multiples of, or by the last digit where there are too few changes.
    """
    if not np.isfinite(times_s).all() or (np.diff(times_s) < 0).any():
        raise CaptureError(
            f"{path}: the times of the changes go back, or are missing; it is damaged, or two "
            "files were joined. Export it again."
        )
    if np.abs(times_s).max() > LONGEST_S:
        raise CaptureError(
            f"{path}: times up to {np.abs(times_s).max():.4g} s, and more than {LONGEST_S:.0f} s "
            "is not counted in fs. Export a shorter range, with times counted from its start."
        )
    instants = np.rint(times_s * 1e15).astype(np.int64)
    uncertainty = _interval_fs(times_s[1:-1], resolution_s)
    return [(name, _of(name, instants, levels, uncertainty)) for name, levels in channels.items()]


def _interval_fs(times_s: Floats, resolution_s: float) -> int:
    """Return the greatest interval that the times are multiples of, in fs."""
    resolution_fs = femtoseconds(resolution_s)
    if times_s.size < _ENOUGH or resolution_fs < 1:
        return resolution_fs
    digits = (times_s - times_s[0]) / resolution_s
    common = int(np.gcd.reduce(np.rint(digits).astype(np.int64)))
    if common > 1:
        return resolution_fs * common
    for rate_hz in _ODD_RATES_HZ:
        interval = 1 / (rate_hz * resolution_s)
        samples = digits / interval
        if interval > 4 and (np.abs(samples - np.rint(samples)) * interval <= 1.001).all():
            return femtoseconds(1 / rate_hz)
    return resolution_fs


def _of(
    name: str, instants: npt.NDArray[np.int64], values: Floats, uncertainty_fs: int
) -> Transitions:
    levels = np.where(np.isnan(values), UNKNOWN, values).astype(np.int8)
    at = np.flatnonzero(levels[1:] != levels[:-1]) + 1
    return Transitions(name, int(levels[0]), instants[at], levels[at], uncertainty_fs)


def refuse_dates(path: Path, cell: str) -> None:
    """Raise CaptureError where the first time is a date, as Logic 2 can write it."""
    if re.match(r"\d{4}-\d\d-\d\d", cell):
        raise CaptureError(
            f"{path}: the times are dates ({cell!r}), which are not read. Export it again with "
            "`Use ISO8601 timestamps` switched off, or convert them to seconds."
        )
