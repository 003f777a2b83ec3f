"""The shot whose values are the most typical, to be drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mqtick.analysis.measurement import CAPTURED, Shot

__all__ = ["typical"]


def typical(shots: Sequence[Shot]) -> Shot | None:
    """Return the shot nearest to the medians of all that it measured, at the largest N.

    None where nothing was captured.
    """
    shots = [shot for shot in shots if shot.outcome == CAPTURED]
    if not shots:
        return None
    most = max(shot.subscribers for shot in shots)
    shots = [shot for shot in shots if shot.subscribers == most]
    values: list[dict[str, int | None]] = [
        {"latency": shot.latency_fs, "skew": shot.skew_fs}
        | {f"clock {name}": value for name, value in shot.clock_fs.items()}
        for shot in shots
    ]
    away = np.zeros(len(shots))
    for name in sorted({name for each in values for name in each}):
        found = [each.get(name) for each in values]
        of = np.array([np.nan if value is None else value for value in found], np.float64)
        if np.isnan(of).all():
            continue
        distance = np.abs(of - np.nanmedian(of))
        spread = float(np.nanmedian(distance)) or 1.0
        away += np.nan_to_num(distance / spread, nan=1e6)
    return shots[int(away.argmin())]
