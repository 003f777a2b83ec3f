"""Make statistics.json with scipy: `python make_statistics.py`, scipy and numpy installed.

scipy is no part of mqtick; what it answers is what tests hold our own code against.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy import optimize, special, stats


def huber(seed: int) -> dict[str, Any]:
    """A line by least_squares(loss="huber"), with the scale of a resistant start."""
    x = np.tile([2.0, 10.0, 100.0], 10)
    y = np.round(40 + 3 * x + np.random.default_rng(seed).standard_t(2, 30) * 20, 3)
    medians = [float(np.median(y[x == number])) for number in (2, 10, 100)]
    b, a = np.polyfit([2, 10, 100], medians, 1)
    scale = 1.4826 * float(np.median(abs(y - a - b * x)))
    found = optimize.least_squares(
        lambda line: y - line[0] - line[1] * x,
        [a, b],
        loss="huber",
        f_scale=1.345 * scale,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        x_scale=[1, 0.01],
    )
    return {"x": x.tolist(), "y": y.tolist(), "a": float(found.x[0]), "b": float(found.x[1])}


def quantile(n: int, share: float) -> dict[str, Any]:
    """The exact interval of a quantile; an end is None where scipy has none."""
    values = np.round(np.random.default_rng(n).lognormal(3, 1, n), 3)
    ends = stats.quantile_test(values, q=0, p=share).confidence_interval(0.95)
    low, high = (None if np.isnan(end) else float(end) for end in ends)
    return {"values": values.tolist(), "share": share, "low": low, "high": high}


def main() -> None:
    """Write the file beside this one."""
    counts = ((0, 20), (1, 20), (5, 20), (20, 20), (3, 1000), (10, 100000))
    vectors = {
        "source": f"scipy {scipy.__version__} (BSD-3-Clause), by make_statistics.py",
        "beta_share": [
            [a, b, x, float(special.betainc(a, b, x))]
            for a in (0.3, 1, 20.5, 1000, 1e5)
            for b in (0.5, 7, 50.25, 9e5)
            for x in (1e-4, 0.1, 0.5, 0.9, 0.999)
        ],
        "student": [
            [share, degrees, float(stats.t.ppf(share, degrees))]
            for share in (0.05, 0.6, 0.95, 0.975, 0.9995)
            for degrees in (1, 2, 5.5, 19, 100)
        ],
        "clopper_pearson": [
            [beyond, n, *map(float, stats.binomtest(beyond, n).proportion_ci(0.95, "exact"))]
            for beyond, n in counts
        ],
        "quantiles": [
            quantile(n, share) for n in (6, 20, 37, 100, 400) for share in (0.05, 0.5, 0.95, 0.99)
        ],
        "huber": [huber(seed) for seed in range(4)],
    }
    text = json.dumps(vectors, separators=(",", ":"))
    Path(__file__).with_name("statistics.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
