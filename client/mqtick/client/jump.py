"""Candidates for a new time: samples that contradict the interval, and agree with each other."""

from __future__ import annotations

from collections import deque

from mqtick.client.bracket import Growth, Interval, agree
from mqtick.client.sample import Sample

_MOST = 256
"""Enough for `confirm_samples` bursts; the oldest are forgotten."""


class Candidates:
    """Consecutive contradicting samples that could all be true together."""

    __slots__ = ("_intervals", "_last", "_samples", "in_a_row")

    def __init__(self) -> None:
        self.in_a_row = 0
        """Contradicting exchanges since the last that agreed, whether they agree or not."""
        self._last: tuple[int, int, int] | None = None
        self._samples: deque[Sample] = deque(maxlen=_MOST)
        self._intervals: deque[Interval] = deque(maxlen=_MOST)

    def __len__(self) -> int:
        return len(self._samples)

    def clear(self) -> None:
        """Forget the candidates: a sample has agreed with the present time."""
        self.in_a_row, self._last = 0, None
        self._forget()

    def settle(self, interval: Interval, growth: Growth) -> None:
        """Forget the candidates if an exchange that agreed with the present time excludes them.

        A wide interval agrees with both, so it decides nothing: whoever delays exchanges makes such
        intervals.
        """
        if not self._all_agree(interval, growth):
            self.clear()

    def _all_agree(self, interval: Interval, growth: Growth) -> bool:
        limits = [growth.carry(one, interval.local_ns) for one in (*self._intervals, interval)]
        return agree(limits).agreeing == len(limits)

    def _forget(self) -> None:
        self._samples.clear()
        self._intervals.clear()

    def add(self, sample: Sample, interval: Interval, growth: Growth) -> None:
        """Add a candidate; if it does not agree with the earlier ones, forget those."""
        if not self._all_agree(interval, growth):
            self._forget()
        self.in_a_row += _exchange(sample) != self._last
        self._last = _exchange(sample)
        self._samples.append(sample)
        self._intervals.append(interval)

    def confirmed(self, samples: int, duration_s: float) -> list[Sample]:
        """Return the candidates if that many exchanges agree over that time, else nothing."""
        if len({_exchange(one) for one in self._samples}) < samples:
            return []
        times = [one.local_ns for one in self._samples]
        return list(self._samples) if max(times) - min(times) >= duration_s * 1e9 else []


def _exchange(sample: Sample) -> tuple[int, int, int]:
    """Return an identity of the exchange; without a sequence number, the time at its begin."""
    has_none = sample.readings and sample.sequence == 0
    began_ns = sample.readings[0][1].instant_ns if has_none else 0
    return sample.generation, sample.sequence, began_ns
