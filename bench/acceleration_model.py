"""The published queueing model of an accelerated broker, and a figure with measured values.

n publishers of rate l, stations of service rate m, share w of the publishes accelerated: the wait
at the publisher, at the broker (there and back), and at the switch (Banno and Osawa).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

PUBLISHED_M = 12_207.03125
"""Service rate of a station, messages per second, as published, with l = 1/s."""
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_SEEN = ("#8c2d04", "#d94801", "#f16913", "#74a9cf", "#2b8cbe", "#045a8d")


def wait_s(n: float, w: float, m: float, rate: float = 1.0) -> float | None:
    """Return E[W]; None if a station is overloaded."""
    if not (rate < m and rate * n < m):
        return None
    broker = 2 * (1 - w) / (m - rate * (1 - w) * n)
    return 1 / (m - rate) + broker + 1 / (m - rate * n)


def service_rate(wait_us: float, n: float) -> float:
    """Return the m for which the model has this wait without acceleration, by bisection."""
    low, high = n + 1, 1e9
    for _ in range(100):
        middle = (low + high) / 2
        found = wait_s(n, 0.0, middle)
        low, high = (middle, high) if found is None or found * 1e6 > wait_us else (low, middle)
    return high


def _lines(axes: Axes, m: float, most: float, shares: Sequence[float], style: str) -> None:
    for share in shares:
        places = [most * step / 400 for step in range(1, 401)]
        waits = [wait_s(place, share, m) for place in places]
        axes.plot(
            places,
            [float("nan") if one is None else one * 1e6 for one in waits],
            style,
            color=_SEEN[_SHARES.index(share)],
            label=f"model, w = {share:g}",
        )


def draw(
    file: Path,
    measured: Mapping[float, Mapping[int, Sequence[float]]],
    named: Mapping[float, str],
    skew: Mapping[str, tuple[float, float]],
) -> float:
    """Write the figure; return the m that the slowest rate without acceleration gives.

    Args:
        file: The path of the figure.
        measured: By share accelerated and publishes a second: the mean of each round, us.
        named: The labels of the points, by share.
        skew: By who: first to last of 100 subscribers, p50 and p99, us.
    """
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    bars, left, right = figure.subplots(1, 3)
    middles, ends = [p50 for p50, _ in skew.values()], [p99 for _, p99 in skew.values()]
    bars.barh(list(skew), ends, color=_SEEN[3], label="p99")
    bars.barh(list(skew), middles, color=_SEEN[5], label="p50")
    bars.invert_yaxis()
    bars.set_title("first to last copy of 100 subscribers")
    bars.set_xlabel("us")
    bars.set_axisbelow(True)
    bars.grid(alpha=0.3, axis="x")
    bars.legend(fontsize=8)
    _lines(left, PUBLISHED_M, 10_000, _SHARES, "-")
    left.set_title(f"published model: m = {PUBLISHED_M:,.0f}/s, l = 1/s")
    left.set_ylim(0, 1000)
    slowest = min(measured[0.0])
    values = sorted(measured[0.0][slowest])
    m = service_rate(values[len(values) // 2], slowest)
    most = max(max(points) for points in measured.values())
    _lines(right, m, most, (0.0, 1.0), "--")
    for share, points in measured.items():
        middle = {place: sorted(found)[len(found) // 2] for place, found in points.items()}
        right.errorbar(
            list(middle),
            list(middle.values()),
            yerr=[
                [middle[place] - min(found) for place, found in points.items()],
                [max(found) - middle[place] for place, found in points.items()],
            ],
            fmt="o",
            capsize=3,
            color=_SEEN[_SHARES.index(share)],
            label=named[share],
        )
    right.set_title(f"measured, and the model with m = {m:,.0f}/s")
    right.set_yscale("log")
    right.locator_params(axis="x", nbins=5)
    for axes in (left, right):
        axes.set_xlabel("publishes a second, n l")
        axes.set_ylabel("E[W], publisher to subscriber, us")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(file, dpi=150)
    return m
