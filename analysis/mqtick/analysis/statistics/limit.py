"""A limit, and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqtick.analysis.statistics.estimate import Estimate

HOLDS: Final = "holds"
FAILS: Final = "fails"
NOT_PROVEN: Final = "not proven"


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a statistic of a quantity may be.

    Attributes:
        name: as a user names it: `c37.118-60`, or `skew.p99<100us` for one of their own.
        quantity: "latency", "skew" or "clock".
        statistic: "mean", "median", "sd", "p5", "p95", "p99" or "max"; of the absolute values.
        bound_us: it has to be below this.
        source: document and clause, or "" for the user's own.
        inclusive: whether the bound itself is still allowed (`<=`).
    """

    name: str
    quantity: str
    statistic: str
    bound_us: float
    source: str = ""
    inclusive: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a measurement says of a limit.

    Attributes:
        limit: which.
        of: of what: "N = 100", "all N", a clock's node.
        state: HOLDS, FAILS, or NOT_PROVEN where the values leave both possible.
        value: the statistic with its two-sided interval; NaN where nothing was measured.
        n: how many values.
        confidence: of the verdict, 0 to 1, one-sided.
        sentence: the same in words, with what it would take where it is not proven.
    """

    limit: Limit
    of: str
    state: str
    value: Estimate
    n: int
    confidence: float
    sentence: str


def duration(value_us: float, digits: int = 4) -> str:
    """Return a duration or an instant with so many digits, in the unit that suits it."""
    size = abs(value_us)
    for least, per_us, unit in ((1e6, 1e-6, "s"), (1e3, 1e-3, "ms"), (1, 1, "us")):
        if size >= least:
            return f"{value_us * per_us:.{digits}g} {unit}"
    return f"{value_us * 1e3:.{digits}g} ns" if value_us else "0 us"
