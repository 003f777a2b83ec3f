"""The samples in use: chooses the kind, and the sample of each burst; fits a line through them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import replace

from mqtick.client.bracket import Growth
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.forgetting import Forgetting
from mqtick.client.regression import Fit, Point, Prior, RegressionSettings, fit
from mqtick.client.sample import Kind

_WANDER_SHARE = 4.0
"""At the best time constant noise and wander add alike to the error of the *offset*; wander's share
of the error of the *frequency* is then 2 * sqrt(3) times the noise's, so both together are four
times what the regression states (docs/accuracy.md)."""


class History:
    """Points of the kind in use, and the regression over them.

    Lesser kinds are only used after a better one has been silent for `prefer_better_s`, and are
    dropped when it is back. After a gap longer than `holdover_after_s` the line starts again:
    meanwhile the clock has wandered off the old one. In both cases the frequency is remembered, as
    a prior that fades as fast as a frequency may wander.
    """

    __slots__ = (
        "_burst",
        "_forgetting",
        "_ignorance",
        "_kinds",
        "_last_used",
        "_points",
        "_remembered",
        "_settings",
        "fit",
    )

    def __init__(self, settings: EstimatorSettings) -> None:
        window = settings.window_samples if settings.use_frequency else 1
        limit = settings.frequency_limit_ppm * 1e-6
        self._settings = settings
        self._points: deque[Point] = deque(maxlen=window)
        self._kinds: deque[Kind] = deque(maxlen=window)
        self._last_used: dict[Kind, int] = {}
        self._burst = 0, math.inf  # when it began, and its least cost
        self._ignorance = Prior(0.0, limit / settings.frequency_sigmas)
        self._remembered: tuple[Prior, int] | None = None  # the prior, and the instant it holds at
        self._forgetting = self._new_forgetting()
        self.fit: Fit | None = None

    def _new_forgetting(self) -> Forgetting:
        settings = self._settings
        return Forgetting(
            settings.shortest_time_constant_s,
            settings.longest_time_constant_s,
            settings.forgetting_samples,
        )

    @property
    def kind(self) -> Kind | None:
        """The kind of the newest point in use."""
        return self._kinds[-1] if self._kinds else None

    @property
    def last_used_ns(self) -> int | None:
        """Local instant of the newest sample that was used."""
        return max(self._last_used.values(), default=None)

    @property
    def time_constant_s(self) -> float:
        """The time in which the weight of a sample falls to 37 %, at present."""
        return self._forgetting.time_constant_s

    @property
    def worst_growth(self) -> Growth:
        """How an interval grows while nothing is known of the frequency."""
        settings = self._settings
        wander = settings.wander_bound_ppb * settings.frequency_sigmas / math.sqrt(3.0)
        return Growth(0.0, settings.frequency_limit_ppm * 1e-6, wander)

    @property
    def growth(self) -> Growth:
        """How the guaranteed interval moves and grows."""
        return self._growth(self.fit.frequency_reach if self.fit else 0.0)

    @property
    def narrow_growth(self) -> Growth:
        """The same, if the broker is honest."""
        return self._growth(self.fit.narrow_reach if self.fit else 0.0)

    def _growth(self, points_reach: float) -> Growth:
        settings, worst = self._settings, self.worst_growth
        if self.fit is None:
            return worst
        # frequency_bound_ppm covers past wander, `wander` covers future wander.
        unsure = settings.frequency_sigmas * self.fit.frequency_sigma
        reach = points_reach + self._prior_reach(self.fit)
        rate = settings.frequency_bound_ppm * 1e-6 + max(unsure, reach)
        # No clock is faster or slower than the limit, however little is known of this one.
        least = max(self.fit.frequency - rate, -worst.rate)
        most = min(self.fit.frequency + rate, worst.rate)
        return Growth((least + most) / 2, (most - least) / 2, worst.wander)

    @property
    def frequency_sigma(self) -> float:
        """Standard deviation of the frequency, in ns per ns; infinite if nothing tells it."""
        if self.fit is None:
            return math.inf
        share = self.fit.prior_share  # the sigma of the prior already includes wander
        return self.fit.frequency_sigma * math.sqrt(_WANDER_SHARE**2 * (1 - share) + share)

    def _prior_reach(self, line: Fit) -> float:
        """How far an error of the remembered frequency can have turned the line, ns per ns."""
        prior = self._prior(line.local_ns)
        return line.prior_share * self._settings.frequency_sigmas * prior.sigma if prior else 0.0

    def better_is_fresh(self, kind: Kind, local_ns: int) -> bool:
        """Whether a better kind was used so recently that this one is not needed."""
        patience_ns = self._settings.prefer_better_s * 1e9
        return any(
            better.rank > kind.rank and local_ns - used_ns <= patience_ns
            for better, used_ns in self._last_used.items()
        )

    def add(self, kind: Kind, point: Point, cost: float) -> bool:
        """Use a point, unless its burst has one of less cost (lucky selection).

        Returns whether it was used. A burst is of one kind and makes one point: the least delayed
        sample; for echoes, whose errors lie on both sides, the mean weighted by their deviations.
        """
        self._drop_lesser(kind)
        began_ns, least = self._burst
        if self._points and self.kind is kind and self._is_burst(kind, point, began_ns):
            if kind is Kind.ECHO:
                point = _merged(self._points[-1], point)
            elif cost >= least:
                return False
            self._points[-1] = point
            self._burst = began_ns, cost
        elif self._points and point.local_ns < self._points[-1].local_ns:
            if not self._insert(kind, point):
                return False
        else:
            if self._points:
                self._forgetting.add(self._points[-1])
                gap_ns = point.local_ns - self._points[-1].local_ns
                if gap_ns > self._settings.holdover_after_s * 1e9:
                    self._start_anew()
            self._points.append(point)
            self._kinds.append(kind)
            self._burst = point.local_ns, cost
        self._last_used[kind] = max(point.local_ns, self._last_used.get(kind, point.local_ns))
        self._refit()
        return True

    def doubt(self, kind: Kind, by_ns: float) -> None:
        """Add to the standard deviation of all points of this kind."""
        for place, point in enumerate(self._points):
            if self._kinds[place] is kind:
                self._points[place] = point._replace(sigma_ns=point.sigma_ns + by_ns)

    def _insert(self, kind: Kind, point: Point) -> bool:
        """Put a late point at its place; False if it is older than a full window."""
        place = bisect_right(self._points, point.local_ns, key=lambda old: old.local_ns)
        if len(self._points) == self._points.maxlen:
            if place == 0:
                return False
            self._points.popleft()
            self._kinds.popleft()
            place -= 1
        self._points.insert(place, point)
        self._kinds.insert(place, kind)
        return True

    def _is_burst(self, kind: Kind, point: Point, began_ns: int) -> bool:
        settings = self._settings
        length_s = settings.lucky_window_s if kind.is_exchange else settings.lucky_broadcasts_s
        return settings.use_lucky and 0 <= point.local_ns - began_ns <= length_s * 1e9

    def _drop_lesser(self, kind: Kind) -> None:
        """Drop points of lesser kinds: their larger errors would spoil the line of this kind."""
        if not any(old.rank < kind.rank for old in self._kinds):
            return
        self._remember()
        kept = [
            (point, old)
            for point, old in zip(self._points, self._kinds, strict=True)
            if old.rank >= kind.rank
        ]
        self._points.clear()
        self._kinds.clear()
        self._points.extend(point for point, _ in kept)
        self._kinds.extend(old for _, old in kept)
        self._forgetting = self._new_forgetting()

    def _start_anew(self) -> None:
        self._remember()
        self._points.clear()
        self._kinds.clear()
        self._forgetting.start_anew()

    def _remember(self) -> None:
        if self.fit is not None:
            reach = self.fit.frequency_reach + self._prior_reach(self.fit)
            sigma = max(self.frequency_sigma, reach / self._settings.frequency_sigmas)
            self._remembered = Prior(self.fit.frequency, sigma), self.fit.local_ns

    def _prior(self, local_ns: int) -> Prior | None:
        """The prior of the frequency at an instant: what is known without the points."""
        if not self._settings.use_frequency:
            return None
        if self._remembered is None:
            return self._ignorance
        prior, since_ns = self._remembered
        seconds = abs(local_ns - since_ns) * 1e-9
        wander = self._settings.wander_bound_ppb * 1e-9 * math.sqrt(seconds)
        sigma = math.hypot(prior.sigma, wander)
        return Prior(prior.frequency, sigma) if sigma < self._ignorance.sigma else self._ignorance

    def _refit(self) -> None:
        settings = self._settings
        line = fit(
            self._points,
            RegressionSettings(
                time_constant_s=self.time_constant_s,
                huber_sigmas=settings.huber_sigmas,
                outlier_sigmas=settings.outlier_sigmas,
            ),
            self._prior(self._points[-1].local_ns),
        )
        limit = settings.frequency_limit_ppm * 1e-6
        self.fit = replace(line, frequency=min(max(line.frequency, -limit), limit))


def _merged(one: Point, other: Point) -> Point:
    """Return the weighted mean of two points; it lies on any line through them."""
    weight, its = 1 / one.sigma_ns**2, 1 / other.sigma_ns**2
    share = its / (weight + its)
    return Point(
        one.local_ns + round(share * (other.local_ns - one.local_ns)),
        one.offset_ns + round(share * (other.offset_ns - one.offset_ns)),
        1 / math.sqrt(weight + its),
        one.reach_ns + share * (other.reach_ns - one.reach_ns),
        None
        if one.narrow_ns is None or other.narrow_ns is None
        else one.narrow_ns + share * (other.narrow_ns - one.narrow_ns),
    )
