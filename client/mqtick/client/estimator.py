"""The estimator: samples in, verdicts and estimates out. Pure: it reads no clock.

Each sample passes four checks: is it possible at all; does its guaranteed interval agree with the
others; is its kind the best available; is it the least delayed of its burst. Contradicting samples
are refused but remembered; if enough of them agree among themselves, they replace the time.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from mqtick.client.bracket import Bracket, Growth, Interval
from mqtick.client.estimate import Estimate, State
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.history import History
from mqtick.client.jump import Candidates
from mqtick.client.path import PathDelay
from mqtick.client.plausibility import fault, guaranteed
from mqtick.client.regression import Point
from mqtick.client.sample import Counters, Kind, Reason, Sample, SampleVerdict

_DISPERSION_RATE = 1e-6
"""How fast a disciplined clock may err on its own, ns per ns: chrony's default of maxclockerror."""
_REMEMBERED = 64
"""A duplicate is recognised among this many last samples."""
_DOUBTED = 2
"""After so many contradicting exchanges in a row, the interval may be wrong as well as they."""
_UNLEARNED = 128
"""Between two exchanges, the delays of at most this many broadcasts are learned: the last ones."""


class Estimator:
    """Estimates reference minus local as a function of local time, for one server."""

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        self.settings = settings = settings or EstimatorSettings()
        self.counters = Counters()
        self.jumps = 0
        """How many contradicting times were confirmed and accepted."""
        self.resets = 0
        self.link_ns = 0
        """The round trip of the client's own link; `assumed_path_delay_us` does not include it."""
        self.path = PathDelay(
            settings.path_samples,
            group_ns=round(settings.lucky_broadcasts_s * 1e9) if settings.use_lucky else 0,
        )
        """The delay of broadcasts, learned from exchanges."""
        self.link_path = PathDelay(settings.path_samples, group_ns=self.path.group_ns)
        """The same without the time in the broker, from broadcasts for which that is known."""
        self.asymmetry = PathDelay(settings.path_samples)
        """The error of two-way samples, learned from better kinds."""
        self._round_trips = PathDelay(settings.path_samples)
        self._link_trips = PathDelay(settings.path_samples)
        self._candidates = Candidates()
        self._unlearned: deque[tuple[PathDelay, int, int]] = deque(maxlen=_UNLEARNED)
        """Broadcasts since the last exchange: the delay that learns from it, instant, offset."""
        self._restart()

    def _restart(self) -> None:
        self._history = History(self.settings)
        self._growth = self._history.growth
        """How the interval grows: learned from exchanges only, because broadcasts may be forged."""
        self._narrow_growth = self._growth
        self._bracket = Bracket(self.settings.bracket_samples, self.settings.tolerated_faults)
        self._narrow = Bracket(self.settings.bracket_samples, self.settings.tolerated_faults)
        """Intervals that hold in addition, if the broker is honest and links are symmetric."""
        self._narrow_refused = 0
        self._candidates.clear()
        self._seen: deque[tuple[Kind, int, int, int]] = deque(maxlen=_REMEMBERED)
        self._assumed = self._promised = False
        self._newest: Sample | None = None
        self._last_exchange: tuple[Sample, Interval] | None = None
        self._forget_path()

    def _forget_path(self) -> None:
        for learned in (self.path, self.link_path, self.asymmetry):
            learned.clear()
        self._unlearned.clear()
        self._round_trips.clear()
        self._link_trips.clear()

    @property
    def assumed_path_ns(self) -> int:
        """The greatest delay of a broadcast, as far as no exchange has bounded it."""
        return round(self.settings.assumed_path_delay_us * 1e3) + self.link_ns

    def reset(self) -> None:
        """Forget all samples, for instance because the server has another time; counters stay."""
        self._restart()
        self.resets += 1

    def add(self, sample: Sample) -> Sample:
        """Judge a sample and, if it is good, use it; returns it with verdict and reason."""
        return self.counters.count(self._judge(sample))

    def at(self, local_ns: int) -> Estimate:
        """Estimate the offset at a local instant, with its guaranteed interval and state."""
        history = self._history
        line, used_ns = history.fit, history.last_used_ns
        if line is None or used_ns is None or self._newest is None:
            return Estimate(local_ns, State.UNSYNCHRONISED)
        lower, upper = self._bracket.at(local_ns, self._growth)
        narrow = self._narrow_at(local_ns, lower, upper)
        age_ns = max(local_ns - used_ns, 0)
        return Estimate(
            local_ns=local_ns,
            state=self._state(age_ns, upper - lower),
            offset_ns=_into(narrow or (lower, upper), line.at(local_ns)),
            lower_ns=lower,
            upper_ns=upper,
            narrow_lower_ns=narrow[0] if narrow else None,
            narrow_upper_ns=narrow[1] if narrow else None,
            assumed=self._assumed,
            frequency_ppb=line.frequency * 1e9,
            frequency_uncertainty_ppb=history.frequency_sigma * 1e9,
            age_ns=age_ns,
            kind=history.kind,
            samples=line.points,
            root_distance_ns=self._root_distance_ns(local_ns),
            slew_ppb=round(self._bracket.slew * 1e9),
            slew_is_assumed=not self._promised,
        )

    def _root_distance_ns(self, local_ns: int) -> int:
        """The root distance of the newest sample, grown since then."""
        assert self._newest is not None
        age_ns = max(local_ns - self._newest.local_ns, 0)
        return self._newest.root_distance_ns + math.ceil(_DISPERSION_RATE * age_ns)

    def _narrow_at(self, local_ns: int, lower: int, upper: int) -> tuple[int, int] | None:
        """The part of the interval to which echoes and residences narrow it; None: they do not."""
        if not len(self._narrow):
            return None
        low, high = self._narrow.at(local_ns, self._narrow_growth)
        low, high = max(low, lower), min(high, upper)
        # If nothing is left, the broker is not honest, or links are not symmetric.
        return (low, high) if low <= high and (low, high) != (lower, upper) else None

    def _state(self, age_ns: int, width_ns: int) -> State:
        settings = self.settings
        if age_ns > settings.maximum_age_s * 1e9 or self.in_doubt:
            return State.UNSYNCHRONISED
        if width_ns > 2 * settings.unsynchronised_bound_us * 1e3:
            return State.UNSYNCHRONISED
        if self._assumed and not self._is_established:
            return State.UNSYNCHRONISED
        return State.HOLDOVER if age_ns > settings.holdover_after_s * 1e9 else State.SYNCHRONISED

    @property
    def is_bounded(self) -> bool:
        """Whether an exchange has bounded the offset on both sides; broadcasts never do."""
        return len(self._bracket) > 0 and not self._assumed

    @property
    def in_doubt(self) -> bool:
        """Whether the newest exchanges contradict the interval: either may be wrong."""
        return self._candidates.in_a_row >= _DOUBTED

    @property
    def _is_established(self) -> bool:
        """Whether enough broadcasts agree; a single one could be an old one that was retained."""
        return len(self._bracket) >= self.settings.confirm_samples

    def _judge(self, sample: Sample) -> Sample:
        if sample.verdict is SampleVerdict.REFUSED:
            return sample  # the arithmetic of the exchange has refused it
        if (reason := fault(sample, self.settings, self._newest)) is not None:
            return sample.refused(reason)
        first = sample.readings[0][1].instant_ns if sample.readings else sample.local_ns
        key = sample.kind, sample.generation, sample.sequence, first
        if key in self._seen:
            return sample.refused(Reason.DUPLICATE)
        self._seen.append(key)
        return self._take(sample)

    def _take(self, sample: Sample) -> Sample:
        if sample.kind.is_exchange:
            promises = sample.rate_change_ppb is not None
            if self._assumed or (promises and not self._promised):
                # The first measurement replaces the assumption; and what the server's clock did
                # before its first promise says nothing of its rate since.
                self._restart()
            self._promised |= promises
            return self._take_exchange(sample)
        if self._assumed or not len(self._bracket):
            return self._take_assumed(sample)
        return self._take_broadcast(sample)

    def _take_exchange(self, sample: Sample) -> Sample:
        assert sample.upper_ns is not None
        interval = guaranteed(sample, sample.upper_ns, self.settings)
        is_echo, is_residence = sample.kind is Kind.ECHO, sample.kind is Kind.RESIDENCE
        same = (is_echo or is_residence) and self._is_of_last_exchange(sample)
        if (is_echo and not self.settings.trust_broker) or (
            is_residence and not self.settings.trust_broker_residence
        ):
            return self._take_doubted(sample, interval)
        if is_residence and not same:
            return sample.refused(Reason.CONTRADICTS)  # its exchange was refused, too
        if not self._bracket.add(interval, self._growth, replaces_last=same):
            if is_residence:  # its exchange was accepted, so this is not a new time
                return sample.refused(Reason.RESIDENCE)
            return self._contradicted(sample, interval)
        self._candidates.settle(interval, self._history.worst_growth)
        self._note(sample)
        self._last_exchange = sample, interval
        if is_echo or is_residence:
            return self._use_refined(sample, interval)
        offset_ns, cost = sample.offset_ns, float(sample.delay_ns)
        above_ns = self._above_least(sample, self._round_trips)
        line = self._history.fit
        if line is not None and self._history.better_is_fresh(sample.kind, sample.local_ns):
            if self._may_learn(sample.local_ns):
                self.asymmetry.add(offset_ns - line.at(sample.local_ns))
            return sample.judged(SampleVerdict.KEPT, Reason.BETTER_KIND)
        sigma_ns = self.settings.two_way_sigma_us * 1e3
        sigma_ns += self.settings.two_way_sigma_share * above_ns
        offset_ns -= self.asymmetry.delay_ns or 0
        return self._use(sample, offset_ns, sigma_ns, cost, interval)

    def _take_doubted(self, sample: Sample, interval: Interval) -> Sample:
        """Take an echo or a residence if the broker is not trusted to be honest about it.

        It moves the estimate, and narrows the interval that rests on an honest broker. Only the
        interval of its exchange is certain, and becomes that of the sample.
        """
        if self._last_exchange is None or not self._is_of_last_exchange(sample):
            return sample.refused(Reason.CONTRADICTS)  # its exchange was refused, too
        certain = self._last_exchange[1]
        if sample.kind is Kind.RESIDENCE:
            lower_ns, upper_ns = self._bracket.at(sample.local_ns, self._growth)
            if interval.lower_ns > upper_ns or interval.upper_ns < lower_ns:
                return sample.refused(Reason.RESIDENCE)
        elif not certain.lower_ns <= sample.offset_ns <= certain.upper_ns:
            return sample.refused(Reason.ECHO_ORDER)
        if not self._narrow.add(interval, self._narrow_growth):
            self._narrow_refused += 1
            if self._narrow_refused >= self.settings.confirm_samples:
                self._narrow.clear()  # these intervals are not certain: the newer may be right
            return sample.refused(Reason.CONTRADICTS)
        self._narrow_refused = 0
        exchange = self._last_exchange[0]
        sample = replace(sample, lower_ns=exchange.lower_ns, upper_ns=exchange.upper_ns)
        return self._use_refined(sample, certain, interval)

    def _use_refined(
        self, sample: Sample, certain: Interval, narrow: Interval | None = None
    ) -> Sample:
        settings = self.settings
        if self._history.better_is_fresh(sample.kind, sample.local_ns):
            return sample.judged(SampleVerdict.KEPT, Reason.BETTER_KIND)
        if sample.kind is Kind.RESIDENCE:
            above_ns = self._above_least(sample, self._link_trips)
            sigma_ns = settings.residence_sigma_us * 1e3 + settings.two_way_sigma_share * above_ns
        else:
            sigma_ns = settings.echo_sigma_us * 1e3
            sigma_ns = max(sigma_ns, settings.echo_sigma_share * sample.delay_ns / 2)
        cost = float(sample.delay_ns)
        return self._use(sample, sample.offset_ns, sigma_ns, cost, certain, narrow)

    def _above_least(self, sample: Sample, trips: PathDelay) -> int:
        """The delay above the least one, in ns; the larger it is, the less certain the sample.

        For the first samples it seems to be 0. If a smaller delay comes, their sigma is increased.
        """
        least_ns = trips.least_ns if len(trips) else sample.delay_ns
        trips.add(sample.delay_ns)
        if sample.delay_ns < least_ns:
            share = self.settings.two_way_sigma_share
            self._history.doubt(sample.kind, share * (least_ns - sample.delay_ns))
        return sample.delay_ns - trips.least_ns

    def _take_broadcast(self, sample: Sample) -> Sample:
        """Take a broadcast after there were exchanges: learn its delay, or use it as a sample.

        Every client holds the key of broadcasts and can forge one. So a broadcast moves the
        estimate only inside the interval. The interval and the stated error of the server's clock
        stay those of the exchanges.
        """
        history = self._history
        line = history.fit
        assert line is not None
        assert self._newest is not None
        path = self._path_of(sample)
        delay_ns = line.at(sample.local_ns) - sample.offset_ns
        if delay_ns > self.settings.maximum_delay_us * 1e3:
            return sample.refused(Reason.DELAY)
        lower_ns, upper_ns = self._bracket.at(sample.local_ns, self._growth)
        if guaranteed(sample, upper_ns, self.settings).lower_ns > upper_ns:
            return sample.refused(Reason.CONTRADICTS)
        if sample.offset_ns > upper_ns + round(self.settings.stamp_error_us * 1e3):
            return sample.refused(Reason.RESIDENCE)
        self._note(replace(sample, root_distance_ns=self._root_distance_ns(sample.local_ns)))
        if history.better_is_fresh(sample.kind, sample.local_ns):
            self._unlearned.append((path, sample.local_ns, sample.offset_ns))
            return sample.judged(SampleVerdict.KEPT, Reason.BETTER_KIND)
        if path.delay_ns is None:
            return sample.judged(SampleVerdict.KEPT, Reason.PATH_UNKNOWN)
        settings = self.settings
        least_us = (
            settings.residence_sigma_us if sample.took_residence else settings.two_way_sigma_us
        )
        sigma_ns = max(path.spread_ns or 0.0, least_us * 1e3)
        offset_ns = _into((lower_ns, upper_ns), sample.offset_ns + path.delay_ns)
        within = Interval(sample.local_ns, lower_ns, upper_ns)
        sample = replace(sample, offset_ns=offset_ns, delay_ns=max(offset_ns - sample.offset_ns, 0))
        return self._use(sample, offset_ns, sigma_ns, float(delay_ns), within)

    def _take_assumed(self, sample: Sample) -> Sample:
        """Take a broadcast if there was no exchange yet: the upper limit has to be assumed."""
        assert sample.lower_ns is not None
        upper_ns = sample.lower_ns + self.assumed_path_ns
        if sample.offset_ns > upper_ns:
            return sample.refused(Reason.RESIDENCE)
        interval = guaranteed(sample, upper_ns, self.settings)
        if not self._bracket.add(interval, self._growth):
            if not self._is_established:
                return self._contradicted(sample, interval)
            _, upper = self._bracket.at(sample.local_ns, self._growth)
            ahead = interval.lower_ns > upper
            return sample.refused(Reason.CONTRADICTS if ahead else Reason.DELAY)
        self._candidates.clear()
        self._assumed = True
        self._note(sample)
        line = self._history.fit
        path = self._path_of(sample)
        delay_ns = 0 if line is None else line.at(sample.local_ns) - sample.offset_ns
        path.add(delay_ns, sample.local_ns)
        sigma_ns = path.spread_ns or self.settings.one_way_sigma_us * 1e3
        return self._use(sample, sample.offset_ns, max(sigma_ns, 1e3), float(delay_ns))

    def _learn(self, since_ns: int | None) -> None:
        """Learn the delays of the broadcasts between the exchange at `since_ns` and the newest.

        The line is more accurate between two exchanges than after the last one. Delays that were
        learned after it would keep the error of the extrapolated line.
        """
        line = self._history.fit
        while line is not None and self._unlearned:
            path, local_ns, offset_ns = self._unlearned.popleft()
            if self._may_learn(local_ns, since_ns):
                path.add(line.at(local_ns) - offset_ns, local_ns)

    def _path_of(self, sample: Sample) -> PathDelay:
        """The learned delay that applies to a broadcast, with or without the time in the broker."""
        return self.link_path if sample.took_residence else self.path

    def _may_learn(self, local_ns: int, since_ns: int | None = None) -> bool:
        """Whether the estimate is good enough to measure a delay by.

        `since_ns`: another instant at which a sample was used.
        """
        used_ns = self._history.last_used_ns
        if used_ns is None:
            return False
        away_ns = min(abs(local_ns - at) for at in (used_ns, since_ns) if at is not None)
        return self._history.frequency_sigma * away_ns <= self.settings.learn_within_us * 1e3

    def _use(
        self,
        sample: Sample,
        offset_ns: int,
        sigma_ns: float,
        cost: float,
        interval: Interval | None = None,
        narrow: Interval | None = None,
    ) -> Sample:
        """Add a point to the line.

        `interval` certainly contains the true offset; `narrow` contains it if the broker is honest.
        """
        reach_ns = _reach(offset_ns, interval) if interval else 0.0
        narrow_ns = _reach(offset_ns, narrow) if narrow else None
        point = Point(sample.local_ns, offset_ns, sigma_ns, reach_ns, narrow_ns)
        since_ns = self._history.last_used_ns
        if self._history.add(sample.kind, point, cost):
            if sample.kind.is_exchange or self._assumed:
                self._growth = self._limited(self._history.growth, self._bracket)
                self._narrow_growth = self._limited(self._history.narrow_growth, self._narrow)
            if sample.kind.is_exchange:
                self._learn(since_ns)
            return sample.judged(SampleVerdict.USED, Reason.SELECTED)
        return sample.judged(SampleVerdict.KEPT, Reason.NOT_LEAST)

    def _limited(self, growth: Growth, bracket: Bracket) -> Growth:
        """Leave out frequencies with which no line goes through all intervals of the bracket.

        If no line at all does, the frequency has changed, or some intervals are wrong: then they do
        not limit the frequency.
        """
        least, most = bracket.frequency_limits
        if least > most or not self.settings.use_frequency:
            return growth
        slack = self.settings.frequency_bound_ppm * 1e-6
        return growth.within(least - slack, most + slack)

    def _contradicted(self, sample: Sample, interval: Interval) -> Sample:
        settings = self.settings
        # A sample that contradicts the line contradicts its frequency, too: do not use that here.
        self._candidates.add(sample, interval, self._history.worst_growth)
        confirmed = self._candidates.confirmed(settings.confirm_samples, settings.confirm_s)
        if not confirmed or settings.jump_policy == "refuse":
            return sample.refused(Reason.CONTRADICTS)
        self._restart()
        for one in confirmed:
            sample = self._take(one)
        self.jumps += 1
        return sample.judged(sample.verdict, Reason.JUMP_CONFIRMED)

    def _is_of_last_exchange(self, echo: Sample) -> bool:
        if self._last_exchange is None:
            return False
        last = self._last_exchange[0]
        return last.kind is Kind.TWO_WAY and (last.generation, last.sequence) == (
            echo.generation,
            echo.sequence,
        )

    def _note(self, sample: Sample) -> None:
        """Remember the newest good sample; forget delays if the server's generation has changed."""
        if self._newest is not None and sample.generation != self._newest.generation:
            self._forget_path()
        if self._newest is None or sample.local_ns >= self._newest.local_ns:
            self._newest = sample


def _reach(offset_ns: int, interval: Interval) -> float:
    return float(max(interval.upper_ns - offset_ns, offset_ns - interval.lower_ns))


def _into(limits: tuple[int, int], offset_ns: int) -> int:
    return min(max(offset_ns, limits[0]), limits[1])
