"""The values of each quantity that was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.measurement import (
    CAPTURED,
    CLOCK,
    LATENCY,
    SKEW,
    Measurement,
    Shot,
    TimeErrors,
)

__all__ = ["Values", "values_of"]

Floats = npt.NDArray[np.float64]

_FS_PER_US: Final = 1e9
_NS_PER_US: Final = 1e3
_NS_PER_S: Final = 1e9
_PER_PPM: Final = 1e-6
_MOST: Final = 1 << 63
"""No edge is so many fs (two and a half hours) away, and no instant so many ns after 1970."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of one quantity in the order of the shots.

    Attributes:
        quantity, node: as in `result.QuantityResult`.
        values_us: positive is late.
        subscribers, seconds, numbers: N, instant (in s since the first, NaN where it is not known)
            and shot number of each.
        without: of how many shots there is no value, by N.
        uncertainty_us: how far a single value may be off, either way.
    """

    quantity: str
    node: str
    values_us: Floats
    subscribers: npt.NDArray[np.int64]
    seconds: Floats
    numbers: npt.NDArray[np.int64]
    without: Counter[int]
    uncertainty_us: float


def values_of(measurement: Measurement) -> Iterator[Values]:
    """Yield what has values, the quantity that was measured for first."""
    clocks = dict.fromkeys(name for shot in measurement.shots for name in shot.clock_fs)
    logged = [each for each in measurement.time_errors if each.name not in clocks]
    order = sorted((LATENCY, SKEW, CLOCK), key=lambda quantity: quantity != measurement.kind)
    for quantity in order:
        nodes = clocks if quantity == CLOCK else [""]
        for node in nodes:
            taken = _from_shots(measurement, quantity, node)
            if taken.values_us.size:
                yield taken
        if quantity == CLOCK:
            yield from (_from_log(each) for each in logged if each.error_ns.size)


def _from_shots(measurement: Measurement, quantity: str, node: str) -> Values:
    found: list[tuple[Shot, int]] = []
    without: Counter[int] = Counter()
    for shot in measurement.shots:
        value_fs = _value_fs(shot, quantity, node) if shot.outcome == CAPTURED else None
        if value_fs is None or abs(value_fs) >= _MOST:
            without[shot.subscribers] += 1
        else:
            found.append((shot, value_fs))
    values = np.array([value_fs for _, value_fs in found], np.float64) / _FS_PER_US
    ends = {
        LATENCY: (measurement.reference, measurement.first),
        SKEW: (measurement.first, measurement.last),
    }.get(quantity, (measurement.reference, node))
    return Values(
        quantity,
        node,
        values,
        np.array([shot.subscribers for shot, _ in found], np.int64),
        _seconds([shot.started_ns for shot, _ in found]),
        np.array([shot.number for shot, _ in found], np.int64),
        without,
        _uncertainty_us(measurement, [shot for shot, _ in found], ends, values),
    )


def _value_fs(shot: Shot, quantity: str, node: str) -> int | None:
    if quantity == LATENCY:
        return shot.latency_fs
    return shot.skew_fs if quantity == SKEW else shot.clock_fs.get(node)


def _seconds(started_ns: list[int | None]) -> Floats:
    known = [each is not None and 0 <= each < _MOST for each in started_ns]
    whole = np.array([each if fine else 0 for each, fine in zip(started_ns, known, strict=True)])
    seconds = np.full(whole.size, np.nan)
    if any(known):
        seconds[known] = (whole[known] - whole[known].min()) / _NS_PER_S
    return seconds


def _uncertainty_us(
    measurement: Measurement, shots: list[Shot], ends: tuple[str, str], values: Floats
) -> float:
    """Both edges' uncertainty, the channels' deskew, and the time base over the largest value."""
    pairs = [[shot.marks.get(name) for name in ends] for shot in shots]
    edges = [sum(mark.uncertainty_fs for mark in pair if mark is not None) for pair in pairs]
    fs = float(np.median(edges)) + measurement.channel_uncertainty_fs if edges else 0.0
    largest = float(np.abs(values).max(initial=0.0))
    return fs / _FS_PER_US + measurement.timebase_ppm * _PER_PPM * largest


def _from_log(errors: TimeErrors) -> Values:
    """A clock of which there are samples and no edges; half its stated interval is uncertain."""
    known = np.isfinite(errors.error_ns)
    half = 0.0
    if errors.lower_ns is not None and errors.upper_ns is not None:
        widths = (errors.upper_ns - errors.lower_ns)[known]
        widths = widths[np.isfinite(widths)]
        half = float(np.median(widths)) / 2 / _NS_PER_US if widths.size else 0.0
    values = errors.error_ns[known] / _NS_PER_US
    return Values(
        CLOCK,
        errors.name,
        values,
        np.zeros(values.size, np.int64),
        errors.seconds[known] - float(errors.seconds[known][:1].sum()),
        np.arange(1, values.size + 1),
        Counter({0: int(errors.error_ns.size - values.size)}),
        half,
    )
