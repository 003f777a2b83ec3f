"""The estimator: samples in, verdicts and estimates out. Pure: it reads no clock.

Each sample passes four gates: is it possible at all; does its guaranteed interval agree with the
others; is its kind the best there is; is it the least delayed of its burst. Contradicting samples
are refused but remembered, and only exchanges that agree among themselves can make a new time.
"""

from __future__ import annotations

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

__all__ = ["Estimator"]

_REMEMBERED = 64
"""How many samples back a duplicate is recognised."""
_DOUBTED = 2
"""So many exchanges in a row that contradict the interval leave open which is wrong."""
_UNLEARNED = 128
"""Broadcasts between two exchanges whose delays are learned; of more, the last ones."""


class Estimator:
    """Estimates reference minus local as a function of local time, for one server."""

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        self.settings = settings = settings or EstimatorSettings()
        self.counters = Counters()
        self.jumps = 0
        """How many contradicting times were confirmed and accepted."""
        self.resets = 0
        self.path = PathDelay(
            settings.path_samples,
            group_ns=round(settings.lucky_broadcasts_s * 1e9) if settings.use_lucky else 0,
        )
        """The delay of broadcasts, learned from exchanges."""
        self.link_path = PathDelay(settings.path_samples, group_ns=self.path.group_ns)
        """The same without the time in the broker, of those of which that is known."""
        self.asymmetry = PathDelay(settings.path_samples)
        """How far two-way samples are off, learned from echoes."""
        self._round_trips = PathDelay(settings.path_samples)
        self._link_trips = PathDelay(settings.path_samples)
        self._candidates = Candidates()
        self._unlearned: deque[tuple[PathDelay, int, int]] = deque(maxlen=_UNLEARNED)
        """Broadcasts since the last exchange: what learns of it, local instant, offset."""
        self._restart()

    def _restart(self) -> None:
        self._history = History(self.settings)
        self._growth = self._history.growth
        """How the interval grows: by exchanges alone, for broadcasts may be forged."""
        self._narrow_growth = self._growth
        self._bracket = Bracket(self.settings.bracket_samples, self.settings.tolerated_faults)
        self._narrow = Bracket(self.settings.bracket_samples, self.settings.tolerated_faults)
        """What holds as well, if the broker is honest and links are symmetric."""
        self._narrow_refused = 0
        self._candidates.clear()
        self._seen: deque[tuple[Kind, int, int, int]] = deque(maxlen=_REMEMBERED)
        self._assumed = False
        self._newest: Sample | None = None
        self._last_exchange: tuple[Sample, Interval] | None = None
        self._forget_path()

    def _forget_path(self) -> None:
        for learned in (self.path, self.link_path, self.asymmetry):
            learned.clear()
        self._unlearned.clear()
        self._round_trips.clear()
        self._link_trips.clear()

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
            root_distance_ns=self._newest.root_distance_ns,
        )

    def _narrow_at(self, local_ns: int, lower: int, upper: int) -> tuple[int, int] | None:
        """The part of the interval in which the echoes see the offset; None without them."""
        if not len(self._narrow):
            return None
        low, high = self._narrow.at(local_ns, self._narrow_growth)
        low, high = max(low, lower), min(high, upper)
        # If nothing is left, the assumption is wrong.
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
        """Whether the newest exchanges contradict the interval: it or they may be wrong."""
        return self._candidates.in_a_row >= _DOUBTED

    @property
    def _is_established(self) -> bool:
        """Broadcasts alone: the first could be an old one that the broker retained."""
        return len(self._bracket) >= self.settings.confirm_samples

    def _judge(self, sample: Sample) -> Sample:
        if sample.verdict is SampleVerdict.REFUSED:
            return sample  # by the arithmetic of its exchange
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
            if self._assumed:
                self._restart()  # the first measurement replaces what was assumed
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
            return sample.refused(Reason.CONTRADICTS)  # as its exchange was
        if not self._bracket.add(interval, self._growth, replaces_last=same):
            if is_residence:  # the exchange itself was accepted: it is no new time
                return sample.refused(Reason.RESIDENCE)
            return self._contradicted(sample, interval)
        self._candidates.clear()
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
        """An echo or a residence through a broker that might lie about the one or the other.

        It moves the estimate, and narrows what is only assumed; only what its exchange says is
        certain, and the sample then says the same.
        """
        if self._last_exchange is None or not self._is_of_last_exchange(sample):
            return sample.refused(Reason.CONTRADICTS)  # as its exchange was
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
                self._narrow.clear()  # nothing is certain here, so the newer ones may be right
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
        """How much of the delay is above the least, of which samples are the more doubtful.

        The first ones seem to have none: if less turns out to do, that goes for them too.
        """
        least_ns = trips.least_ns if len(trips) else sample.delay_ns
        trips.add(sample.delay_ns)
        if sample.delay_ns < least_ns:
            share = self.settings.two_way_sigma_share
            self._history.doubt(sample.kind, share * (least_ns - sample.delay_ns))
        return sample.delay_ns - trips.least_ns

    def _take_broadcast(self, sample: Sample) -> Sample:
        """A broadcast while there are exchanges: its delay is learned, or used.

        Whoever holds the key of broadcasts can forge one. So it moves the estimate only inside the
        interval, and narrows neither that nor the stated error of its server's clock.
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
        distance_ns = max(sample.root_distance_ns, self._newest.root_distance_ns)
        self._note(replace(sample, root_distance_ns=distance_ns))
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
        """A broadcast, and never an exchange: an assumption has to serve as the upper limit."""
        assert sample.lower_ns is not None
        upper_ns = sample.lower_ns + round(self.settings.assumed_path_delay_us * 1e3)
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

        The line between two exchanges is better known than beyond the last: what was learned there
        would keep the error that the line had grown to when exchanges ended.
        """
        line = self._history.fit
        while line is not None and self._unlearned:
            path, local_ns, offset_ns = self._unlearned.popleft()
            if self._may_learn(local_ns, since_ns):
                path.add(line.at(local_ns) - offset_ns, local_ns)

    def _path_of(self, sample: Sample) -> PathDelay:
        """What is learned of the delay that is left in a broadcast."""
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

        `interval`: in which its true offset certainly lies; `narrow`: while the broker is
        honest.
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
        """Leave out the frequencies with which no line goes through the bracket's intervals.

        Where no line goes through all of them, the frequency was not the same all the time, or some
        are wrong: then they limit nothing.
        """
        least, most = bracket.frequency_limits
        if least > most or not self.settings.use_frequency:
            return growth
        slack = self.settings.frequency_bound_ppm * 1e-6
        return growth.within(least - slack, most + slack)

    def _contradicted(self, sample: Sample, interval: Interval) -> Sample:
        settings = self.settings
        # What contradicts the line contradicts its frequency too: that must not judge here.
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
        """Keep what the newest good message said; another generation may take another path."""
        if self._newest is not None and sample.generation != self._newest.generation:
            self._forget_path()
        if self._newest is None or sample.local_ns >= self._newest.local_ns:
            self._newest = sample


def _reach(offset_ns: int, interval: Interval) -> float:
    return float(max(interval.upper_ns - offset_ns, offset_ns - interval.lower_ns))


def _into(limits: tuple[int, int], offset_ns: int) -> int:
    return min(max(offset_ns, limits[0]), limits[1])
