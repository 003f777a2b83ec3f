"""The values of each quantity that was measured, and the skew of every pair of nodes."""

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
    REFUSED,
    SKEW,
    Measurement,
    Shot,
    TimeErrors,
)
from mqtick.analysis.results.result import Pairs
from mqtick.recording.units import FS_PER_US, NS_PER_S, NS_PER_US, Floats

_PER_PPM: Final = 1e-6
_LEAST_NODES: Final = 3
_MOST: Final = 1 << 63
"""No edge is that many fs (two and a half hours) away, and no instant that many ns after 1970."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of one quantity in the order of the shots.

    Attributes:
        quantity, node: as in `result.QuantityResult`.
        values_us: positive is late.
        subscribers, seconds, numbers: N, instant (in s since the first, NaN where it is not known)
            and shot number of each.
        within_us: the least and the most that each value may truly be; infinite where nothing
            bounds it.
        without: of how many shots there is no value, by N.
        missed: those of them that were tried (none was REFUSED), in the order of the shots.
        uncertainty_us: how far a single value may be off, either way; infinite where nothing
            bounds most of them.
    """

    quantity: str
    node: str
    values_us: Floats
    subscribers: npt.NDArray[np.int64]
    seconds: Floats
    numbers: npt.NDArray[np.int64]
    within_us: tuple[Floats, Floats]
    without: Counter[int]
    missed: tuple[Shot, ...]
    uncertainty_us: float

    @property
    def numbers_of_subscribers(self) -> list[int]:
        """Return the different N, ascending: of values and of shots without one."""
        return sorted({*self.subscribers.tolist(), *(+self.without)})

    @property
    def off_us(self) -> Floats:
        """Return how far each value may be off at the most, either way."""
        low, high = self.within_us
        return np.maximum(self.values_us - low, high - self.values_us)


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
    without: list[Shot] = []
    for shot in measurement.shots:
        value_fs = _value_fs(shot, quantity, node) if shot.outcome == CAPTURED else None
        if value_fs is None or abs(value_fs) >= _MOST:
            without.append(shot)
        else:
            found.append((shot, value_fs))
    values = np.array([value_fs for _, value_fs in found], np.float64) / FS_PER_US
    ends = {
        LATENCY: (measurement.reference, measurement.first),
        SKEW: (measurement.first, measurement.last),
    }.get(quantity, (measurement.reference, node))
    edges = _edges_us(measurement, [shot for shot, _ in found], ends)
    spans = np.abs(values)
    if measurement.instruments > 1:
        # Each counts from its own trigger edge, by its own time base.
        spans = _spans_us([shot for shot, _ in found], ends)
    timebase = measurement.timebase_ppm * _PER_PPM * spans
    steady = float(np.median(edges)) if edges.size else 0.0
    return Values(
        quantity,
        node,
        values,
        np.array([shot.subscribers for shot, _ in found], np.int64),
        _seconds([shot.started_ns for shot, _ in found]),
        np.array([shot.number for shot, _ in found], np.int64),
        (values - edges - timebase, values + edges + timebase),
        Counter(shot.subscribers for shot in without),
        tuple(shot for shot in without if shot.outcome != REFUSED),
        steady + float(timebase.max(initial=0.0)),
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
        seconds[known] = (whole[known] - whole[known].min()) / NS_PER_S
    return seconds


def _edges_us(measurement: Measurement, shots: list[Shot], ends: tuple[str, str]) -> Floats:
    """Both edges' uncertainty in each shot, and the channels' deskew."""
    pairs = [[shot.edges.get(name) for name in ends] for shot in shots]
    edges = [sum(mark.uncertainty_fs for mark in pair if mark is not None) for pair in pairs]
    return (np.array(edges, np.float64) + measurement.channel_uncertainty_fs) / FS_PER_US


def _spans_us(shots: list[Shot], ends: tuple[str, str]) -> Floats:
    """How far both edges are from the triggers, together, in each shot."""
    marks = [[shot.edges[name] for name in ends if name in shot.edges] for shot in shots]
    spans = [sum(min(abs(mark.instant_fs), _MOST) for mark in pair) for pair in marks]
    return np.array(spans, np.float64) / FS_PER_US


def _from_log(errors: TimeErrors) -> Values:
    """A clock of which there are samples and no edges; each is uncertain within its interval."""
    values = errors.error_ns / NS_PER_US
    bounds = []
    for bound_ns, nothing in ((errors.lower_ns, -np.inf), (errors.upper_ns, np.inf)):
        stated = np.full(values.size, nothing) if bound_ns is None else bound_ns / NS_PER_US
        bounds.append(np.where(np.isnan(stated), nothing, stated))
    off = np.maximum(values - bounds[0], bounds[1] - values)
    return Values(
        CLOCK,
        errors.name,
        values,
        np.zeros(values.size, np.int64),
        errors.seconds - errors.seconds[0],
        np.arange(1, values.size + 1),
        (bounds[0], bounds[1]),
        Counter(),
        (),
        float(np.median(off)),
    )


def pairs_of(measurement: Measurement) -> Pairs | None:
    """Return the median skew of each pair; None where fewer than three nodes share shots.

    Nodes are in the measurement's order; those that share no shot with another are left out.
    """
    shots = [shot.edges for shot in measurement.shots if shot.outcome == CAPTURED]
    shots = [marks for marks in shots if len(marks) > 1]
    names = list(dict.fromkeys((*measurement.nodes, *(name for each in shots for name in each))))
    shared = {name for marks in shots for name in marks}
    names = [name for name in names if name in shared]
    if len(names) < _LEAST_NODES:
        return None
    place = {name: index for index, name in enumerate(names)}
    instants = np.full((len(names), len(shots)), np.nan)
    for column, marks in enumerate(shots):
        origin_fs = next(iter(marks.values())).instant_fs
        for name, mark in marks.items():
            # Differences first: an instant may have more digits than a float.
            distance_fs = mark.instant_fs - origin_fs
            if abs(distance_fs) < _MOST:
                instants[place[name], column] = distance_fs / FS_PER_US
    median = np.full((len(names), len(names)), np.nan)
    counts = np.zeros((len(names), len(names)), np.int64)
    for index, own in enumerate(instants):
        for other in range(index + 1):
            skew = instants[other] - own
            skew = skew[~np.isnan(skew)]
            counts[index, other] = counts[other, index] = skew.size
            if skew.size:
                median[index, other] = float(np.median(skew))
                median[other, index] = -median[index, other]
    np.fill_diagonal(median, 0.0)
    return Pairs(tuple(names), median, counts)
