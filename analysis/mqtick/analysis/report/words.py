"""What is said of results beside their numbers: titles, missed shots, negative skew, drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mqtick.analysis.measurement import SKEW
from mqtick.analysis.report.numbers import SPACE, Unit, interval_of, plain, unit_of, value_of
from mqtick.analysis.results.result import QuantityResult, Result, RowOfN
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN

MARKS: Final = {HOLDS: "✓", FAILS: "✗", NOT_PROVEN: "?"}
"""Before a verdict's state, for those who do not see its colour."""
_SIMULATED: Final = "SIMULATED: "
_TITLES_SHOWN: Final = 3
_MANY: Final = 0.05
"""Share of a row's shots: if that many are missed, its figures may be different."""
_HOUR: Final = 3600.0


def title_of(result: Result) -> str:
    """Return the measurement's title; what was simulated begins with SIMULATED."""
    title = plain(result.measurement.title).strip() or result.measurement.kind.capitalize()
    if result.measurement.simulated and not title.startswith(_SIMULATED):
        return f"{_SIMULATED}{title}"
    return title


def names_of(results: Sequence[Result]) -> list[str]:
    """Return what to call each within a report; SIMULATED is left to the title if all are."""
    every = all(result.measurement.simulated for result in results)
    names = [title_of(result) for result in results]
    if every and len(results) > 1:
        names = [name.removeprefix(_SIMULATED) for name in names]
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def title_of_all(results: Sequence[Result]) -> str:
    """Return the title of the report; SIMULATED stands in it where anything was."""
    if len(results) == 1:
        return title_of(results[0])
    names = names_of(results)
    every = all(result.measurement.simulated for result in results)
    if len(results) <= _TITLES_SHOWN:
        return (_SIMULATED if every else "") + " beside ".join(names)
    some = any(result.measurement.simulated for result in results)
    start = _SIMULATED if every else "SIMULATED in part: " if some else ""
    return f"{start}{len(results)} measurements side by side"


def level(result: Result) -> str:
    """Return the confidence as "95 %", never broken."""
    return f"{result.confidence * 100:g}{SPACE}%"


def many_missed(row: RowOfN) -> int:
    """Return out of how many shots this row's missed ones are, 0 where they are few."""
    shots = row.missed + (row.signed.n if row.signed is not None else 0)
    return shots if row.missed > _MANY * shots else 0


def negative(quantity: QuantityResult) -> str:
    """Return how many skews are negative and what that means, "" if none is."""
    count = int(np.count_nonzero(quantity.values_us < 0))
    if quantity.quantity != SKEW or not count:
        return ""
    return (
        f"Last minus first, in the order of subscription; in {count:,} of "
        f"{quantity.values_us.size:,} shots it is negative: the last to subscribe was served first."
    )


class DriftWords(NamedTuple):
    """A drift as value and interval ("" if there is none), in a unit, over a time."""

    value: str
    interval: str
    unit: Unit
    over: str


def drift_words(quantity: QuantityResult) -> DriftWords | None:
    """Return the drift so that it can be judged, None where it is not known.

    It is what the drift makes over the run, or each hour of a run that is longer: for a run of a
    few seconds, a rate per hour would say what nobody has seen.
    """
    if quantity.drift is None:
        return None
    rate, over = quantity.drift.us_per_hour, "an hour"
    seconds = quantity.seconds[np.isfinite(quantity.seconds)]
    hours = float(np.ptp(seconds)) / _HOUR
    if hours <= 1:
        low, high = (None if end is None else end * hours for end in (rate.low, rate.high))
        rate, over = Estimate(rate.value * hours, low, high), "the run"
    unit = unit_of([end for end in (rate.value, rate.low, rate.high) if end is not None])
    return DriftWords(value_of(rate, unit.per_us), interval_of(rate, unit.per_us), unit, over)
