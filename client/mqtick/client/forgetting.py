"""How fast to forget: the time constant whose predictions have been best.

A crystal's frequency wanders. A long time constant averages noise well, but lags behind the wander;
a short one follows the wander, but averages less noise. The best one depends on both, which are not
known beforehand. So several regressions run side by side, each weighted and recursive, with five
sums. Each predicts every sample before it takes it in. The one with the least mean squared error of
its recent predictions is chosen. docs/accuracy.md compares this with a fixed time constant and with
a test of runs.
"""

from __future__ import annotations

import math

from mqtick.client.regression import Point

_WORST = 16.0
"""The squared error of a prediction is capped at this many variances, because of outliers."""
_HUBER = 2.0
_WARM_UP = 3
"""Two points make a line; the third is the first that a line can predict."""


class _Candidate:
    """A regression with one time constant; its origin is the last point."""

    __slots__ = ("score", "sums", "time_constant_s")

    def __init__(self, time_constant_s: float) -> None:
        self.time_constant_s = time_constant_s
        self.sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self.score = 1.0

    def add(self, elapsed_s: float, change_ns: float, sigma_ns: float, share: float) -> None:
        """Predict a point at this distance from the last, score the prediction, add the point."""
        s_w, s_x, s_xx, s_y, s_xy = self.sums
        weight = 1.0 / (sigma_ns * sigma_ns)
        if s_w > 0.0:
            # Move the origin to the new point.
            s_y -= change_ns * s_w
            s_xy -= change_ns * s_x + elapsed_s * s_y
            s_xx += elapsed_s * (elapsed_s * s_w - 2 * s_x)
            s_x -= elapsed_s * s_w
            error_ns = self._prediction(s_w, s_x, s_xx, s_y, s_xy)
            pull = abs(error_ns) / sigma_ns
            if share > 0.0:
                self.score += share * (min(pull * pull, _WORST) - self.score)
            if pull > _HUBER:
                weight *= _HUBER / pull
            kept = math.exp(-elapsed_s / self.time_constant_s)
            s_w, s_x, s_xx, s_y, s_xy = s_w * kept, s_x * kept, s_xx * kept, s_y * kept, s_xy * kept
        self.sums = (s_w + weight, s_x, s_xx, s_y, s_xy)

    @staticmethod
    def _prediction(s_w: float, s_x: float, s_xx: float, s_y: float, s_xy: float) -> float:
        mean_x, mean_y = s_x / s_w, s_y / s_w
        spread = s_xx - s_x * mean_x
        if spread <= 1e-9 * s_xx:
            return mean_y
        return mean_y - (s_xy - s_x * mean_y) / spread * mean_x


class Forgetting:
    """Chooses among time constants from `shortest_s` to `longest_s`, each twice the one before."""

    __slots__ = ("_candidates", "_count", "_in_line", "_last", "_samples")

    def __init__(self, shortest_s: float, longest_s: float, samples: int) -> None:
        steps = max(0, math.floor(math.log2(longest_s / shortest_s) + 1e-9))
        # The longest comes first, because it shall win at equal scores.
        self._candidates = [_Candidate(longest_s / 2**step) for step in range(steps + 1)]
        self._samples = samples
        self._count = 0
        self._in_line = 0
        self._last: Point | None = None

    def start_anew(self) -> None:
        """Begin a new line after a gap: the points before the gap predict nothing after it.

        The scores of the time constants stay.
        """
        for candidate in self._candidates:
            candidate.sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._in_line = 0
        self._last = None

    def add(self, point: Point) -> None:
        """Let each time constant predict this point, then add the point to each."""
        last = self._last
        if last is not None and point.local_ns <= last.local_ns:
            return  # a late sample: too late to be predicted
        elapsed_s = 0.0 if last is None else (point.local_ns - last.local_ns) * 1e-9
        change_ns = 0.0 if last is None else float(point.offset_ns - last.offset_ns)
        self._count += 1
        self._in_line += 1
        share = 1.0 / min(self._count, self._samples) if self._in_line >= _WARM_UP else 0.0
        for candidate in self._candidates:
            candidate.add(elapsed_s, change_ns, point.sigma_ns, share)
        self._last = point

    @property
    def time_constant_s(self) -> float:
        """The time constant that predicts best at present."""
        return min(self._candidates, key=lambda candidate: candidate.score).time_constant_s
