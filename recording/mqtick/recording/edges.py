"""Edges of a waveform: state levels, the 50 % crossing between them, sub-sample time.

The terms are those of IEEE 181: low and high *state level*, *reference level* instant of 50 %,
*transition duration* from 10 to 90 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.crossing import BETWEEN, FITTED, INTERPOLATED, Search, crossings
from mqtick.recording.drifting_levels import drifting_levels
from mqtick.recording.levels import (
    HYSTERESIS,
    SIGMAS,
    EdgeError,
    StateLevels,
    is_clipped,
    state_levels,
)
from mqtick.recording.waveform import Codes, Waveform, seen

__all__ = [
    "BETWEEN",
    "FITTED",
    "HYSTERESIS",
    "INTERPOLATED",
    "MOST_EDGES",
    "Edge",
    "EdgeError",
    "StateLevels",
    "find_edges",
    "instants_of",
    "is_clipped",
    "state_levels",
    "too_many",
]

MOST_EDGES: Final = 500_000
"""More in one signal mean a bus or a fault; as objects they would fill a host's memory."""

_FITS_FS: Final = 1 << 61
_MOST_HYSTERESIS: Final = 0.45
_OFF_MIDDLE: Final = 0.4
"""A reference level nearer to one of the levels than this share of the amplitude is off the middle,
where edges bend."""
Integers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Edge:
    """One crossing of the 50 % level: its instant in fs from the trigger, and its direction.

    Attributes:
        instant_fs: the instant.
        rising: its direction.
        uncertainty_fs: how far the instant may be from the true one, in fs: what quantisation,
            noise (four standard deviations) and the shape between two samples can do, for a
            straight, Gaussian or exponential edge and one that rings (not faster than it is
            sampled). Not the instrument's time base, nor its trigger.
        quality: how the instant was found: `INTERPOLATED` between the samples around it, `FITTED`
            to more of them, `BETWEEN`: it changed so quickly that nothing more can be told; ""
            where it is not known.
        samples_in_rise: the transition duration (10 to 90 %) in samples; at most what a straight
            line between two samples takes where it is shorter than their distance. 0: not known.
        clipped: whether a level of its waveform is cut off (see `is_clipped`).
        found: of a node's edge in a shot, how many like it were there; above 1: doubled.
    """

    instant_fs: int
    rising: bool
    uncertainty_fs: int = field(default=0, compare=False)
    quality: str = field(default=BETWEEN, compare=False)
    samples_in_rise: float = field(default=0.0, compare=False)
    clipped: bool = field(default=False, compare=False)
    found: int = field(default=1, compare=False)


def instants_of(edges: Sequence[Edge]) -> npt.NDArray[Any]:
    """Return the instants of edges in their order, in fs.

    They have 64 bits with room to add two of them, or are Python's integers where they do not fit:
    in records of more than half an hour.
    """
    found = [edge.instant_fs for edge in edges]
    fits = not found or max(-found[0], found[-1]) < _FITS_FS
    return np.array(found, np.int64 if fits else object)


def find_edges(
    waveform: Waveform,
    minimum_v: float = 0.5,
    levels: StateLevels | None = None,
    hysteresis_v: float | None = None,
) -> list[Edge]:
    """Return every edge, the earliest first; EdgeError where it is flat or has too many.

    `levels` are those of `state_levels`, where they are known already. `hysteresis_v` is the width
    in volts of the band around the middle that the signal has to leave, None: as described below.

    An edge counts when the signal went from below the middle by `HYSTERESIS` of the amplitude (more
    where there is much noise) to above it by as much, or back: a runt does not count, nor does an
    edge that began before the record did. Its instant is where a cubic through the four samples
    around the middle meets it, the last ones before it arrived; of a slow edge, one that is fitted
    to all of its middle part. Where the levels drift or droop, each edge has its own middle.
    Outliers are passed over: the sample before takes their place, and an edge among them is
    uncertain by that many samples. An edge at a level overridden by the user, away from the middle,
    may be anywhere between two samples, unless a fit describes it: its shape is known less there.
    """
    levels = levels or state_levels(waveform, minimum_v)
    codes = waveform.codes
    if not codes.dtype.isnative:
        codes = codes.astype(codes.dtype.newbyteorder("="))
    outliers, longest = np.empty(0, np.intp), 0
    if levels.passed_over:
        codes, outliers, longest = _without(codes, levels)
    noise = levels.jitter if levels.wander else levels.noise
    band = min(
        max(HYSTERESIS * levels.amplitude, SIGMAS * noise), 2 * _MOST_HYSTERESIS * levels.nearest
    )
    if hysteresis_v is not None:
        band = hysteresis_v / waveform.volts_per_code / 2
        if band >= min(levels.middle - int(codes.min()), int(codes.max()) - levels.middle):
            raise EdgeError(
                f"The hysteresis of {hysteresis_v:g} V reaches beyond its {seen(waveform)}: no "
                "edge can leave it; give a smaller one, or none."
            )
    before, after, rising = _changes(codes, levels.middle, band)
    if not before.size or (before.size == 1 and before[0] < after[0] - before[0]):
        # The record began within its only edge: where it came from was not seen.
        return []
    if before.size > MOST_EDGES:
        raise EdgeError(too_many(before.size))
    # Where the signal passes the middle: between such a sample and the next one.
    flips = _flips(codes >= int(np.ceil(levels.middle)))
    search = Search(
        codes=codes,
        before=before,
        after=after,
        first=flips[np.searchsorted(flips, before)],
        last=flips[np.searchsorted(flips, after) - 1],
        middle=np.full(before.size, levels.middle),
        amplitude=np.full(before.size, levels.amplitude),
        noise=levels.noise,
        step=levels.step,
        level_noise=levels.noise * levels.samples**-0.5 if levels.samples else 0.0,
        band=band / levels.amplitude,
    )
    if levels.wander and levels.reference is None:
        search = drifting_levels(search, levels.jitter)
    found = crossings(search)
    errors = found.errors
    if levels.nearest < _OFF_MIDDLE * levels.amplitude:
        share = np.abs(found.places - search.last - 0.5) + 0.5
        loose = np.array([method != FITTED for method in found.methods])
        errors = np.where(loose, np.maximum(errors, share), errors)
    begin = before - 1 - longest
    among = np.searchsorted(outliers, after + 1, "right") - np.searchsorted(outliers, begin)
    errors_fs = np.ceil((errors + among) * waveform.interval_fs)
    return [
        Edge(waveform.instant_fs(place), up, int(error_fs), method, rise, levels.cut_off)
        for place, up, error_fs, method, rise in zip(
            found.places.tolist(),
            rising.tolist(),
            errors_fs.tolist(),
            found.methods,
            found.rises.tolist(),
            strict=True,
        )
    ]


def _without(codes: Codes, levels: StateLevels) -> tuple[Codes, Integers, int]:
    """Return codes with the sample before in the place of each outlier.

    And where the outliers were, and how many in turn at most.
    """
    outliers = np.flatnonzero(levels.is_outlier(codes))
    runs = np.flatnonzero(np.diff(outliers, prepend=-2) > 1)
    before = outliers[runs] - 1
    # Of those at the very beginning the sample after.
    before[before < 0] = outliers[[*(runs[1:] - 1), -1]][before < 0] + 1
    codes = codes.copy()
    lengths = np.diff(runs, append=outliers.size)
    codes[outliers] = codes[np.repeat(before, lengths)]
    return codes, outliers, int(lengths.max())


def too_many(edges: int) -> str:
    """Say that a signal has more than `MOST_EDGES`."""
    return (
        f"None of its {edges:,} edges is used: a signal may have at most {MOST_EDGES:,}; "
        "save a shorter part of the record, or filter its glitches out."
    )


def _flips(flags: npt.NDArray[np.bool_]) -> Integers:
    """Return the samples after which a flag changes."""
    return np.flatnonzero(flags[1:] != flags[:-1])


def _changes(
    codes: Codes, middle: float, band: float
) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
    """Return the last sample of each level before, the first one after it, and the direction.

    Only the ends of what lies beyond the band are looked at, a few in a record of many samples.
    """
    above = codes > int(np.floor(middle + band))
    below = codes < int(np.ceil(middle - band))
    starts, ends, high = [], [], []
    for flags, is_high in ((above, True), (below, False)):
        flips = _flips(flags)
        first = flags[flips + 1]
        starts.append(np.concatenate((np.zeros(int(flags[0]), np.intp), flips[first] + 1)))
        ends.append(np.concatenate((flips[~first], np.full(int(flags[-1]), codes.size - 1))))
        high.append(np.full(starts[-1].size, is_high))
    start, end, up = np.concatenate(starts), np.concatenate(ends), np.concatenate(high)
    order = np.argsort(start, kind="stable")
    start, end, up = start[order], end[order], up[order]
    changes = np.flatnonzero(up[1:] != up[:-1])
    return end[changes], start[changes + 1], up[changes + 1]
