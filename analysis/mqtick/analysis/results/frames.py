"""A measurement as pandas DataFrames, for notebooks. The unit is in a column's name.

Positive is late, everywhere. Shots that were missed have their row, with NaN for the values.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from mqtick.analysis.runs.shot import CAPTURED
from mqtick.analysis.signals.units import FS_PER_US, NS_PER_S, NS_PER_US

if TYPE_CHECKING:
    import pandas as pd

    from mqtick.analysis.measurement import Measurement, Shot

__all__ = ["clock_frame", "edges_frame", "latency_frame", "pairs_frame", "skew_frame"]


def skew_frame(measurement: Measurement) -> pd.DataFrame:
    """Return one row a shot: `skew_us` is the last subscriber's edge minus the first one's."""
    shots = measurement.shots
    return _quantity(
        "skew_us", shots, [s.skew_fs for s in shots], measurement.first, measurement.last
    )


def latency_frame(measurement: Measurement) -> pd.DataFrame:
    """Return one row a shot: `latency_us` is the first subscriber's edge minus the publisher's."""
    shots = measurement.shots
    return _quantity(
        "latency_us",
        shots,
        [s.latency_fs for s in shots],
        measurement.reference,
        measurement.first,
    )


def clock_frame(measurement: Measurement) -> pd.DataFrame:
    """Return one row a time error of a clock, in the order of the clocks.

    `time_error_us` is reference minus local (positive: the clock is behind); `lower_us` and
    `upper_us` are the interval that was stated for it, NaN where none was; `seconds` counts from
    the clock's first value.
    """
    import pandas as pd  # noqa: PLC0415 - a second that only notebooks need

    frames = [
        pd.DataFrame(
            {
                "node": each.name,
                "started": _instants(
                    [
                        None
                        if each.started_ns is None
                        else each.started_ns + round(float(second) * NS_PER_S)
                        for second in each.seconds
                    ]
                ),
                "seconds": each.seconds,
                "time_error_us": each.error_ns / NS_PER_US,
                "lower_us": np.nan if each.lower_ns is None else each.lower_ns / NS_PER_US,
                "upper_us": np.nan if each.upper_ns is None else each.upper_ns / NS_PER_US,
            }
        )
        for each in measurement.time_errors
    ]
    if frames:
        return pd.concat(frames, ignore_index=True)
    columns = ("node", "started", "seconds", "time_error_us", "lower_us", "upper_us")
    return pd.DataFrame({name: [] for name in columns})


def edges_frame(measurement: Measurement) -> pd.DataFrame:
    """Return one row an edge: whose, when after the shot's origin, how certain, how many alike.

    Edges of missed shots are included, if there are any.
    """
    import pandas as pd  # noqa: PLC0415

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
        for node, mark in shot.marks.items()
    ]
    columns = [
        *("shot", "subscribers", "node", "instant_us", "uncertainty_us", "direction"),
        *("found", "clipped", "quality", "samples_in_rise"),
    ]
    return pd.DataFrame(rows, columns=columns)


def pairs_frame(measurement: Measurement) -> pd.DataFrame:
    """Return one row a shot and one column a pair: `B-A_us` is B's edge minus A's."""
    import pandas as pd  # noqa: PLC0415

    table: dict[str, Any] = _head(measurement.shots)
    for before, after in itertools.combinations(measurement.nodes, 2):
        table[f"{after}-{before}_us"] = [
            (shot.marks[after].instant_fs - shot.marks[before].instant_fs) / FS_PER_US
            if shot.outcome == CAPTURED and before in shot.marks and after in shot.marks
            else np.nan
            for shot in measurement.shots
        ]
    return pd.DataFrame(table)


def _quantity(
    name: str, shots: list[Shot], values_fs: list[int | None], before: str, after: str
) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415

    values = [np.nan if value is None else value / FS_PER_US for value in values_fs]
    uncertain = [
        (shot.marks[before].uncertainty_fs + shot.marks[after].uncertainty_fs) / FS_PER_US
        if value is not None and before in shot.marks and after in shot.marks
        else np.nan
        for shot, value in zip(shots, values_fs, strict=True)
    ]
    return pd.DataFrame(
        {
            **_head(shots),
            name: values,
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


def _instants(instants_ns: list[int | None]) -> pd.Series[Any]:
    """Return instants, NaT where one is not known (or pandas cannot represent it)."""
    import pandas as pd  # noqa: PLC0415

    known = [
        np.iinfo(np.int64).min if each is None or not 0 < each < 1 << 62 else each
        for each in instants_ns
    ]
    return pd.Series(pd.to_datetime(np.array(known, "datetime64[ns]"), utc=True))
