"""A sample: one measured offset with the interval it guarantees, as a record.

Offsets are *reference minus local*, in integer nanoseconds (positive: the local clock is behind).
"Local" is the client's free-running timeline (CLOCK_MONOTONIC_RAW, or a virtual clock), "reference"
the server's clock. Nothing is dropped silently: a sample always comes back with a verdict and a
reason, and `Counters` keeps count of both.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mqtick.mqtt.stamps import StampSource


class Kind(enum.StrEnum):
    """How a sample was measured, from the least to the most trusted."""

    ONE_WAY = "one-way"
    TWO_WAY = "two-way"
    ECHO = "echo"
    RESIDENCE = "residence"
    """A two-way exchange without the time that its messages spent in the broker."""

    @property
    def rank(self) -> int:
        """0 for one-way, 1 for two-way, 2 for echo, 3 for residence: the greater is preferred."""
        return _RANKS[self.value]

    @property
    def is_exchange(self) -> bool:
        """Whether it comes from a request: only exchanges bound the offset on both sides."""
        return self is not Kind.ONE_WAY


_RANKS = {"one-way": 0, "two-way": 1, "echo": 2, "residence": 3}


class SampleVerdict(enum.StrEnum):
    """The verdict on a sample."""

    PENDING = "pending"
    USED = "used"
    KEPT = "kept"
    REFUSED = "refused"


class Reason(enum.StrEnum):
    """Why a sample met its verdict; a closed set, so that counters and metrics stay bounded."""

    NONE = "none"
    # used
    SELECTED = "selected"
    JUMP_CONFIRMED = "jump-confirmed"
    # kept: valid, and its interval may count, but another sample is better
    BETTER_KIND = "better-kind"
    NOT_LEAST = "not-least"
    PATH_UNKNOWN = "path-unknown"
    # refused by the arithmetic of the exchange
    NEGATIVE_DELAY = "negative-delay"
    INVERTED = "inverted"
    ECHO_ORDER = "echo-order"
    USER_STAMP = "user-stamp"
    # refused by that arithmetic, or by the estimator: the residence that the broker states is
    # impossible
    RESIDENCE = "residence"
    # refused before the estimator: the first time that a server states
    TIMEZONE = "timezone"
    UNCONFIRMED = "unconfirmed"
    # refused by the estimator
    SWITCHED_OFF = "switched-off"
    SERVER_UNSYNCHRONISED = "server-unsynchronised"
    OTHER_SERVER = "other-server"
    RANGE = "range"
    DELAY = "delay"
    UNBOUNDED = "unbounded"
    STALE = "stale"
    DUPLICATE = "duplicate"
    CONTRADICTS = "contradicts"


class Reading(NamedTuple):
    """One timestamp: an instant in ns on its own timeline, and which source made it."""

    instant_ns: int
    source: StampSource = StampSource.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a message says about the server that sent it, and whether its tag was verified.

    Attributes:
        root_distance_ns: The largest error of the server's own clock, as the server states it.
        rate_change_ppb: How fast the server's time may depart from a straight line, at most, as
            the server promises for this generation, ns per s; None: it promises nothing.
        leap: As in NTP; 3: the server is not synchronised.
    """

    server: int = 0
    sequence: int = 0
    generation: int = 0
    root_distance_ns: int = 0
    rate_change_ppb: int | None = None
    stratum: int = 0
    leap: int = 0
    authenticated: bool = False

    def stated(self) -> dict[str, Any]:
        """Return all of it by name; `asdict` would copy each value."""
        return {name: getattr(self, name) for name in Origin.__slots__}


@dataclass(frozen=True, slots=True)
class Sample(Origin):
    """One offset, its instant, the interval it guarantees, and all that it was computed from.

    Attributes:
        local_ns: The instant on the local timeline to which the offset belongs.
        offset_ns: Reference minus local: the best guess from this sample alone. Broadcast: the
            lower limit, plus the time in the broker, if the broker states it.
        lower_ns: The offset is at least this; None: nothing guarantees a least value.
        upper_ns: The offset is at most this; None: nothing guarantees a greatest value.
        delay_ns: Two-way: round trip without the time in the server. Residence: also without the
            time in the broker. Echo: distance of the two echoes. One-way: the path delay that was
            added. Less is better.
        duration_ns: How long the exchange took on the local timeline, the time in the server
            included.
        readings: Every timestamp by name: `transmit`, `arrival`; `t1` to `t4`; `first_echo`,
            `last_echo`. `in_broker`, `request_in_broker`, `reply_in_broker` are durations.
        took_residence: Broadcast: whether `offset_ns` includes the time in the broker.
        stamp_error_ns: Broadcast: the possible error of its arrival, because the clock may have
            been slewed between the arrival and the conversion of its stamp.
    """

    kind: Kind
    local_ns: int
    offset_ns: int
    lower_ns: int | None
    upper_ns: int | None
    delay_ns: int = 0
    duration_ns: int = 0
    readings: tuple[tuple[str, Reading], ...] = ()
    took_residence: bool = False
    stamp_error_ns: int = 0
    verdict: SampleVerdict = SampleVerdict.PENDING
    reason: Reason = Reason.NONE

    @property
    def arrived_ns(self) -> int:
        """Local instant at which its last message arrived; clocks are compared at this instant."""
        is_amid = self.kind in (Kind.TWO_WAY, Kind.RESIDENCE)
        return self.local_ns + (self.duration_ns // 2 if is_amid else 0)

    @property
    def order_in_burst(self) -> tuple[int, int]:
        """The sort key of the samples of a burst: the first deserves most trust.

        The best kind wins, then the least delay (the narrowest bracket, for echoes).
        """
        return -self.kind.rank, self.delay_ns

    def widened(self, by_ns: int) -> Sample:
        """Return the same record with an interval extended by `by_ns` on both sides."""
        return replace(
            self,
            lower_ns=None if self.lower_ns is None else self.lower_ns - by_ns,
            upper_ns=None if self.upper_ns is None else self.upper_ns + by_ns,
        )

    def within(self, limits: Sample) -> Sample:
        """Return the same record with its interval cut to that of `limits`."""
        lower = [each for each in (self.lower_ns, limits.lower_ns) if each is not None]
        upper = [each for each in (self.upper_ns, limits.upper_ns) if each is not None]
        return replace(self, lower_ns=max(lower, default=None), upper_ns=min(upper, default=None))

    def judged(self, verdict: SampleVerdict, reason: Reason) -> Sample:
        """Return the same record with a verdict and a reason."""
        return replace(self, verdict=verdict, reason=reason)

    def refused(self, reason: Reason) -> Sample:
        """Return the same record, refused."""
        return self.judged(SampleVerdict.REFUSED, reason)


class Counters:
    """How many samples met which verdict for which reason; bounded by the enumerations."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[tuple[Kind, SampleVerdict, Reason]] = Counter()

    def count(self, sample: Sample) -> Sample:
        """Count a judged sample, and return it."""
        self._counts[sample.kind, sample.verdict, sample.reason] += 1
        return sample

    def of(
        self,
        *,
        kind: Kind | None = None,
        verdict: SampleVerdict | None = None,
        reason: Reason | None = None,
    ) -> int:
        """How many samples match all the given values."""
        return sum(
            number
            for (its_kind, its_verdict, its_reason), number in self._counts.items()
            if kind in (None, its_kind)
            and verdict in (None, its_verdict)
            and reason in (None, its_reason)
        )

    def rows(self) -> list[tuple[Kind, SampleVerdict, Reason, int]]:
        """All counts that are not zero, sorted, for `status` and metrics."""
        return sorted((*key, number) for key, number in self._counts.items())
