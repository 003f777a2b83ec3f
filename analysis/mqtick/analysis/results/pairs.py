"""Skew of every pair of nodes that share shots."""

from __future__ import annotations

from typing import Final

import numpy as np

from mqtick.analysis.measurement import CAPTURED, Measurement
from mqtick.analysis.results.result import Pairs
from mqtick.recording.units import FS_PER_US

__all__ = ["pairs_of"]

_LEAST: Final = 3
_MOST_FS: Final = 1 << 63


def pairs_of(measurement: Measurement) -> Pairs | None:
    """Return the median skew of each pair; None where fewer than three nodes share shots.

    Nodes are in the measurement's order; those that share no shot with another are left out.
    """
    shots = [shot.edges for shot in measurement.shots if shot.outcome == CAPTURED]
    shots = [marks for marks in shots if len(marks) > 1]
    names = list(dict.fromkeys((*measurement.nodes, *(name for each in shots for name in each))))
    shared = {name for marks in shots for name in marks}
    names = [name for name in names if name in shared]
    if len(names) < _LEAST:
        return None
    place = {name: index for index, name in enumerate(names)}
    instants = np.full((len(names), len(shots)), np.nan)
    for column, marks in enumerate(shots):
        origin_fs = next(iter(marks.values())).instant_fs
        for name, mark in marks.items():
            # Differences first: an instant may have more digits than a float.
            distance_fs = mark.instant_fs - origin_fs
            if abs(distance_fs) < _MOST_FS:
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
