"""The guaranteed interval: no filter can overrule it.

Each exchange guarantees an interval of the offset at its own instant. Carried to another instant
along the estimated frequency, it grows on both sides as fast as the frequency may be wrong; what
all grown intervals have in common still contains the truth. If they have nothing in common, one of
them is wrong: then the largest set that agrees decides (K. Marzullo, "Maintaining the time in a
distributed system", 1984; RFC 5905, 11.2.1), the rest is counted, and where sets of equal size
compete the answer covers them all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

_PROMISED_NS = 1_000 * 1_000_000_000
"""For so long a server's promise of its rate holds as it is stated."""


class Interval(NamedTuple):
    """At `local_ns` the offset lies in `lower_ns`..`upper_ns`.

    Attributes:
        slew: How fast the reference may depart from a straight line after that, ns per ns: for
            1000 s, and after t s as many times as fast as t holds 1000 s (docs/protocol.md).
    """

    local_ns: int
    lower_ns: int
    upper_ns: int
    slew: float = 0.0


class Agreement(NamedTuple):
    """The intersection of the largest agreeing set of intervals."""

    lower_ns: int
    upper_ns: int
    agreeing: int
    """How many intervals the best-covered instant lies in."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How an interval moves and grows with the local time that passes.

    Attributes:
        frequency: Change of the offset, in ns per ns: the middle of its possible range.
        rate: How far the true frequency may be from `frequency`, in ns per ns.
        wander: Further growth because the frequency wanders, in ns per s**1.5.
    """

    frequency: float = 0.0
    rate: float = 0.0
    wander: float = 0.0

    def by_ns(self, duration_ns: int) -> int:
        """How much an interval grows on each side in this time, either way."""
        seconds = abs(duration_ns) * 1e-9
        return round(self.rate * seconds * 1e9 + self.wander * seconds * math.sqrt(seconds))

    def carry(self, interval: Interval, local_ns: int) -> tuple[int, int]:
        """Lower and upper limit at another instant."""
        duration = local_ns - interval.local_ns
        shift = round(self.frequency * duration)
        slewed = interval.slew * abs(duration) * max(1.0, abs(duration) / _PROMISED_NS)
        grown = self.by_ns(duration) + math.ceil(slewed)
        return interval.lower_ns + shift - grown, interval.upper_ns + shift + grown

    def within(self, least: float, most: float) -> Growth:
        """Return the growth with its frequencies cut to two limits; itself if none would remain."""
        least = max(self.frequency - self.rate, least)
        most = min(self.frequency + self.rate, most)
        if least > most:
            return self
        return Growth((least + most) / 2, (most - least) / 2, self.wander)


def agree(intervals: Sequence[tuple[int, int]], faults: int = 0) -> Agreement:
    """Return what the largest agreeing set of closed intervals has in common; never empty.

    With `faults`, any `faults` intervals of that set may be wrong: the answer extends to all
    instants at which the others agree. Where several regions are covered often enough, it reaches
    from the first to the last. Raises ValueError if there is no interval, or one whose lower end
    is above its upper.
    """
    if not intervals:
        raise ValueError("No interval was given, so nothing can agree; ask with at least one.")
    lowers = sorted(low for low, _ in intervals)
    uppers = sorted(high for _, high in intervals)
    if lowers[-1] <= uppers[0]:
        return Agreement(lowers[-1 - faults], uppers[faults], len(intervals))
    if any(low > high for low, high in intervals):
        raise ValueError("An interval ends before it starts; it must be refused earlier.")
    # Sorting puts starts (0) before ends (1) at the same instant: intervals that touch agree.
    edges = sorted([(low, 0) for low in lowers] + [(high, 1) for high in uppers])
    depths = list(accumulate(-1 if is_end else 1 for _, is_end in edges))
    most = max(depths)
    enough = max(most - faults, 1)
    lower = next(edge[0] for edge, depth in zip(edges, depths, strict=True) if depth >= enough)
    # After an end the depth is one less than at it.
    upper = max(
        edge[0]
        for edge, depth in zip(edges, depths, strict=True)
        if edge[1] and depth + 1 >= enough
    )
    return Agreement(lower, upper, most)


class Bracket:
    """The recent guaranteed intervals, and the interval that follows from all of them."""

    __slots__ = ("_faults", "_intervals", "_slopes", "agreement", "local_ns")

    def __init__(self, samples: int, faults: int = 0) -> None:
        self._intervals: deque[Interval] = deque(maxlen=samples)
        self._slopes: deque[tuple[float, float]] = deque(maxlen=samples)
        self._faults = faults
        self.agreement: Agreement | None = None
        """The agreed interval, at the instant of the newest interval; None if there is none."""
        self.local_ns = 0

    def __len__(self) -> int:
        return len(self._intervals)

    @property
    def slew(self) -> float:
        """How fast the reference may depart from a straight line: what was promised once holds."""
        return min((one.slew for one in self._intervals), default=0.0)

    def clear(self) -> None:
        """Forget all intervals."""
        self._intervals.clear()
        self._slopes.clear()
        self.agreement = None

    def add(self, interval: Interval, growth: Growth, *, replaces_last: bool = False) -> bool:
        """Accept the interval if it agrees with most of the others; return whether it did.

        "Most" is at least half of all, itself included, and at least one other. An accepted
        interval is always part of the answer: if the largest set does not include it, the answer
        covers both. The first interval is always accepted. `replaces_last`: it is a narrower
        interval of the exchange added last, and replaces the interval of that exchange.
        """
        others = list(self._intervals)[: -1 if replaces_last else None]
        local_ns = max(interval.local_ns, self.local_ns) if self._intervals else interval.local_ns
        carried = [growth.carry(old, local_ns) for old in others]
        lower, upper = growth.carry(interval, local_ns)
        clipped = [
            (max(low, lower), min(high, upper))
            for low, high in carried
            if low <= upper and high >= lower
        ]
        own = agree([*clipped, (lower, upper)])
        if carried and own.agreeing < max(2, len(carried) // 2 + 1):
            return False
        if replaces_last and self._intervals:
            self._intervals.pop()
            self._slopes.pop()
        self._intervals.append(interval)
        self._slopes.append(self._slopes_to(interval, others))
        self.local_ns = local_ns
        # Of two intervals neither can be found wrong; of three, one can: the other two agree.
        faults = min(self._faults, len(carried) // 2)
        largest = agree([*carried, (lower, upper)], faults)
        self.agreement = Agreement(
            min(own.lower_ns, largest.lower_ns),
            max(own.upper_ns, largest.upper_ns),
            largest.agreeing,
        )
        return True

    def _slopes_to(self, interval: Interval, others: Sequence[Interval]) -> tuple[float, float]:
        """Least and greatest frequency (ns per ns) that lead from the other intervals to this."""
        passed = [(old, interval.local_ns - old.local_ns) for old in others]
        least = [(interval.lower_ns - old.upper_ns) / ns for old, ns in passed if ns > 0]
        most = [(interval.upper_ns - old.lower_ns) / ns for old, ns in passed if ns > 0]
        return self._but_faults(least, largest=True), self._but_faults(most, largest=False)

    def _but_faults(self, limits: Sequence[float], *, largest: bool) -> float:
        """Return the tightest limit that still holds if the tolerated number of them is wrong."""
        if len(limits) <= self._faults:
            return -math.inf if largest else math.inf
        return sorted(limits, reverse=largest)[self._faults]

    @property
    def frequency_limits(self) -> tuple[float, float]:
        """Least and greatest average frequency (ns per ns) of a line through the intervals."""
        return (
            self._but_faults([least for least, _ in self._slopes], largest=True),
            self._but_faults([most for _, most in self._slopes], largest=False),
        )

    def at(self, local_ns: int, growth: Growth) -> tuple[int, int]:
        """Return the limits at an instant.

        The agreement is decided when an interval is added, and only grows from then on. If grown
        intervals voted again, an outvoted one could agree again and narrow the answer.
        Raises ValueError while there is no interval.
        """
        if self.agreement is None:
            raise ValueError("There is no interval yet, so nothing is guaranteed; add one first.")
        held = Interval(self.local_ns, self.agreement.lower_ns, self.agreement.upper_ns, self.slew)
        return growth.carry(held, local_ns)
