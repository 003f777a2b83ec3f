"""Detects the patterns that a broker's faults leave in the delays of messages; no I/O.

Delays are arrival minus transmit, in ns; all stamps are of one host's clock, so no two clocks are
compared. Every function returns its measurement, and whether it shows the pattern of the fault.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mqtick.timeserver.order import keeps_order

_MS = 1_000_000

# Step, least and most delay, ms: one, two or three delayed acknowledgements
# (mqtick.mqtt.pairs.DELAYED_ACK_NS), and a timer of 200 ms.
_STEPS_MS = ((40, 36, 48), (80, 76, 92), (120, 115, 135), (200, 192, 225))
_STEP_LATE_NS = 5 * _MS
_STEP_SHARE_OF_ALL = 0.04
_STEP_SHARE_OF_LATE = 0.6
_STEP_LEAST = 3

_FLUSH_COHERENCE = 0.8
"""Mean length of the arrivals' phases as unit vectors: 1 when all come at one phase."""
_FLUSH_SHORTEST_NS, _FLUSH_LONGEST_NS = 4 * _MS, 2_000 * _MS
_FLUSH_LEAST = 20
_FLUSH_MOST = 256  # arrivals to evaluate; more are not needed, and the work grows quadratically
_FLUSH_GRID_PER_CYCLE = 6
_FLUSH_FINE = 40
_FLUSH_SPREAD = 0.5
"""The delays must be spread over at least this share of the period."""


def quantile(values: Sequence[int], share: float) -> int:
    """Return the value below which `share` of the values lie (nearest rank); values not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True, slots=True)
class Steps:
    """How many messages were late by a typical timer value."""

    messages: int
    late: int
    """Messages at least 5 ms later than the fast ones."""
    by_step: dict[int, int]
    """By step in ms: messages that were late by about this much."""

    @property
    def found(self) -> bool:
        """Whether the late messages are late by such steps."""
        stepped = sum(self.by_step.values())
        return (
            stepped >= _STEP_LEAST
            and stepped >= _STEP_SHARE_OF_ALL * self.messages
            and stepped >= _STEP_SHARE_OF_LATE * self.late
        )


def find_steps(delays_ns: Sequence[int]) -> Steps:
    """Look for many delays 40, 80, 120 or 200 ms above the fast tenth of the delays."""
    if not delays_ns:
        return Steps(0, 0, {})
    base_ns = quantile(delays_ns, 0.1)
    excess = [delay - base_ns for delay in delays_ns]
    by_step = {
        step: count
        for step, low, high in _STEPS_MS
        if (count := sum(low * _MS <= value < high * _MS for value in excess))
    }
    return Steps(len(excess), sum(value >= _STEP_LATE_NS for value in excess), by_step)


@dataclass(frozen=True, slots=True)
class Flush:
    """Whether the broker sends messages periodically, by a timer."""

    period_ns: int
    """The timer's period; 0: none was found."""
    coherence: float
    """0 (arrivals at all phases of the period) to 1 (all at one phase)."""

    @property
    def found(self) -> bool:
        """Whether a period was found."""
        return self.period_ns > 0


def _coherence(
    instants_ns: np.ndarray[tuple[int], np.dtype[np.int64]],
    frequencies_hz: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the mean length of the instants' phases for each frequency (Rayleigh's test)."""
    seconds = (instants_ns - instants_ns[0]) / 1e9
    found = np.empty(len(frequencies_hz))
    for start in range(0, len(found), 1024):  # in parts, to limit the memory
        turns = np.outer(frequencies_hz[start : start + 1024], seconds)
        found[start : start + 1024] = np.abs(np.exp(2j * np.pi * turns).mean(axis=1))
    return found


def find_flush(messages: Sequence[tuple[int, int]]) -> Flush:
    """Look for a period in the arrivals of messages (sent, arrived), ns, sent at random instants.

    If a timer flushes the messages, they arrive at one phase of its period, at whatever phase they
    were sent, and the delays are spread over the period. Multiples of the true frequency are
    equally coherent, so the lowest frequency counts. Fewer than 20 messages give no result.
    """
    if len(messages) < _FLUSH_LEAST:
        return Flush(0, 0.0)
    messages = messages[:_FLUSH_MOST]
    sent = np.array([one for one, _ in messages], dtype=np.int64)
    arrived = np.array([one for _, one in messages], dtype=np.int64)
    length_ns = int(sent[-1] - sent[0])
    # At least four periods, because few arrivals may be at one phase by chance.
    longest_ns = min(_FLUSH_LONGEST_NS, length_ns // 4)
    spread_ns = quantile([int(one) for one in arrived - sent], 0.95) - int((arrived - sent).min())
    if longest_ns < _FLUSH_SHORTEST_NS or spread_ns < _FLUSH_SPREAD * _FLUSH_SHORTEST_NS:
        return Flush(0, 0.0)
    step_hz = 1e9 / length_ns / _FLUSH_GRID_PER_CYCLE
    # A period is at most twice the spread of the delays that it makes.
    longest_ns = min(longest_ns, int(spread_ns / _FLUSH_SPREAD))
    frequencies = np.arange(1e9 / longest_ns, 1e9 / _FLUSH_SHORTEST_NS, step_hz)
    coherence = _coherence(arrived, frequencies)
    coherence[_coherence(sent, frequencies) > 0.6] = 0.0  # then we sent with this period
    best = float(coherence.max(initial=0.0))
    if best < _FLUSH_COHERENCE:
        return Flush(0, best)
    first = int(np.argmax(coherence >= max(_FLUSH_COHERENCE, 0.95 * best)))
    while first + 1 < len(coherence) and coherence[first + 1] > coherence[first]:
        first += 1
    near = frequencies[first] + np.linspace(-step_hz, step_hz, 2 * _FLUSH_FINE + 1)
    fine = _coherence(arrived, near)
    return Flush(round(1e9 / float(near[np.argmax(fine)])), float(fine.max()))


@dataclass(frozen=True, slots=True)
class FanOut:
    """The order and the spread in which several subscribers get one message."""

    messages: int
    """Messages that came to all subscribers, all with kernel stamps."""
    kept: int
    """How many of these messages came in the order that an echo needs."""
    orders: int
    """How many different orders there were."""
    spread_ns: int
    """Median of last minus first arrival."""
    worst_spread_ns: int
    """Its 99th percentile."""
    slope_ns: float
    """Cost of one more subscriber: least squares through the medians of the n-th arrival."""

    @property
    def is_kept(self) -> bool:
        """Whether the broker keeps the order, by the same rule as a time server decides."""
        return keeps_order(self.messages - self.kept, self.messages)


def fan_out(arrivals: Sequence[Sequence[int]]) -> FanOut | None:
    """Evaluate arrivals (ns) of messages; each lists all subscribers in the expected order."""
    if not arrivals or len(arrivals[0]) < 2:
        return None
    spreads = [max(one) - min(one) for one in arrivals]
    places = range(len(arrivals[0]))
    medians = [
        statistics.median(sorted(one)[place] - min(one) for one in arrivals) for place in places
    ]
    return FanOut(
        len(arrivals),
        sum(list(one) == sorted(one) for one in arrivals),
        len({tuple(sorted(places, key=one.__getitem__)) for one in arrivals}),
        int(statistics.median(spreads)),
        quantile(spreads, 0.99),
        statistics.linear_regression(list(places), medians).slope,
    )
