"""A measurement as DataFrames of pandas, for notebooks. A column's name has its unit.

Positive is late, everywhere. Shots that were missed have their row, with NaN for the values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mqtick.analysis.measurement import Measurement, Shot, TimeErrors
from mqtick.recording.shot import CAPTURED
from mqtick.recording.units import FS_PER_US, NS_PER_S, NS_PER_US, Floats

_EDGE_COLUMNS = (
    *("shot", "subscribers", "node", "instant_us", "uncertainty_us", "direction"),
    *("found", "clipped", "quality", "samples_in_rise"),
)


def skew_frame(measurement: Measurement) -> Any:
    """Return one row a shot: `skew_us` is the last subscriber's edge minus the first one's."""
    values = [shot.skew_fs for shot in measurement.shots]
    ends = (measurement.first, measurement.last)
    return _quantity("skew_us", values, measurement, ends)


def latency_frame(measurement: Measurement) -> Any:
    """Return one row a shot: `latency_us` is the first subscriber's edge minus the publisher's."""
    values = [shot.latency_fs for shot in measurement.shots]
    ends = (measurement.reference, measurement.first)
    return _quantity("latency_us", values, measurement, ends)


def clock_frame(measurement: Measurement) -> Any:
    """Return one row a time error of a clock, in the order of the clocks.

    `time_error_us` is reference minus local (positive: the clock is behind); `lower_us` and
    `upper_us` are the interval that was stated for it, NaN where none was; `seconds` counts from
    the clock's first value.
    """
    clocks = measurement.time_errors
    return _table(
        {
            "node": [each.name for each in clocks for _ in each.seconds],
            "started": _instants([instant for each in clocks for instant in _instants_ns(each)]),
            "seconds": _joined([each.seconds for each in clocks]),
            "time_error_us": _joined([each.error_ns for each in clocks]) / NS_PER_US,
            "lower_us": _joined([_bound_ns(each, each.lower_ns) for each in clocks]) / NS_PER_US,
            "upper_us": _joined([_bound_ns(each, each.upper_ns) for each in clocks]) / NS_PER_US,
        }
    )


def edges_frame(measurement: Measurement) -> Any:
    """Return one row an edge: whose, when after the shot's origin, how certain, how many alike.

    Edges of missed shots are included, if there are any.
    """
    rows = [
        (
            shot.number,
            shot.subscribers,
            node,
            mark.instant_fs / FS_PER_US,
            mark.uncertainty_fs / FS_PER_US,
            "rising" if mark.rising else "falling",
            mark.found,
            mark.clipped,
            mark.quality,
            mark.samples_in_rise,
        )
        for shot in measurement.shots
        for node, mark in shot.edges.items()
    ]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(_EDGE_COLUMNS)}
    return _table(columns)


def pairs_frame(measurement: Measurement) -> Any:
    """Return one row a shot and one column a pair: `B-A_us` is B's edge minus A's."""
    table = _head(measurement.shots)
    for before, after in itertools.combinations(measurement.nodes, 2):
        table[f"{after}-{before}_us"] = [
            (shot.edges[after].instant_fs - shot.edges[before].instant_fs) / FS_PER_US
            if shot.outcome == CAPTURED and before in shot.edges and after in shot.edges
            else np.nan
            for shot in measurement.shots
        ]
    return _table(table)


def _table(columns: dict[str, Any]) -> Any:
    import pandas as pd  # noqa: PLC0415 - a second that only notebooks need

    return pd.DataFrame(
        {
            name: pd.Series(pd.to_datetime(values, utc=True)) if _are_instants(values) else values
            for name, values in columns.items()
        }
    )


def _are_instants(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind == "M"


def _quantity(
    name: str,
    values_fs: list[int | None],
    measurement: Measurement,
    ends: tuple[str, str],
) -> Any:
    shots = measurement.shots
    before, after = ends
    uncertain = [
        (shot.edges[before].uncertainty_fs + shot.edges[after].uncertainty_fs) / FS_PER_US
        if value is not None and before in shot.edges and after in shot.edges
        else np.nan
        for shot, value in zip(shots, values_fs, strict=True)
    ]
    return _table(
        {
            **_head(shots),
            name: [np.nan if value is None else value / FS_PER_US for value in values_fs],
            "uncertainty_us": uncertain,
            "reason": [shot.reason for shot in shots],
            "source": [shot.source for shot in shots],
        }
    )


def _head(shots: list[Shot]) -> dict[str, Any]:
    return {
        "shot": [shot.number for shot in shots],
        "subscribers": [shot.subscribers for shot in shots],
        "outcome": [shot.outcome for shot in shots],
        "started": _instants([shot.started_ns for shot in shots]),
    }


def _instants_ns(errors: TimeErrors) -> list[int | None]:
    begun_ns = errors.started_ns
    if begun_ns is None:
        return [None] * errors.seconds.size
    return [begun_ns + round(float(second) * NS_PER_S) for second in errors.seconds]


def _bound_ns(errors: TimeErrors, bound_ns: Floats | None) -> Floats:
    return np.full(errors.seconds.size, np.nan) if bound_ns is None else bound_ns


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def _instants(instants_ns: list[int | None]) -> npt.NDArray[np.datetime64]:
    """Return instants in UTC, NaT where one is not known (or cannot be represented)."""
    known = [
        np.iinfo(np.int64).min if each is None or not 0 < each < 1 << 62 else each
        for each in instants_ns
    ]
    return np.array(known, "datetime64[ns]")
