"""Makes allantools.json from what allantools and scipy compute: OUT.json.

Run by the Python of `make setup-drivers`, from this folder:
../../../.venv-drivers/bin/python make_allantools.py allantools.json
"""

import json
import sys

import allantools
import numpy as np
import scipy

_TAU0_S = 0.5
_FACTORS = [1, 2, 3, 5, 10, 50, 100, 249, 250]


def nist_1000() -> np.ndarray:
    """Integrate the 1000 random frequencies of NIST SP 1065, without their mean."""
    numbers = [1234567890]
    while len(numbers) < 1000:
        numbers.append(16807 * numbers[-1] % 2147483647)
    frequencies = np.array(numbers) / 2147483647
    return np.concatenate(([0.0], np.cumsum(frequencies - frequencies.mean())))


def values(measure: str, x: np.ndarray) -> list:
    found = getattr(allantools, measure)(
        x, rate=1 / _TAU0_S, data_type="phase", taus=np.array(_FACTORS) * _TAU0_S
    )
    assert np.rint(found[0] / _TAU0_S).astype(int).tolist() == _FACTORS
    return np.asarray(found[1]).tolist()


def degrees() -> list:
    """Return alpha, factor, points, modified, degrees wherever allantools knows them."""
    rows = []
    for alpha in (2, 1, 0, -1, -2):
        for modified in (False, True):
            for points in (20, 1001, 1_000_000):
                for factor in (1, 2, 5, 33, 34, 100, 250, 1000, 250_000):
                    if points <= (3 if modified else 2) * factor:
                        continue
                    try:
                        found = allantools.edf_greenhall(
                            alpha, 2, factor, points, overlapping=True, modified=modified
                        )
                    except NotImplementedError:
                        continue
                    rows.append([alpha, factor, points, modified, found])
    return rows


def quantiles() -> list:
    """Return share, degrees, quantile of chi-square."""
    return [
        [share, degrees, float(scipy.stats.chi2.ppf(share, degrees))]
        for share in (0.005, 0.025, 0.1587, 0.5, 0.8413, 0.975, 0.995)
        for degrees in (0.3, 1, 1.5, 2, 7.7, 33.3, 400, 1999, 2001, 1e6)
    ]


x = nist_1000()
content = {
    "by": f"allantools {allantools.__version__}, scipy {scipy.__version__}",
    "tau0_s": _TAU0_S,
    "factors": _FACTORS,
    **{measure: values(measure, x) for measure in ("mtie", "tdev", "oadev")},
    "degrees_of_freedom": degrees(),
    "chi_square": quantiles(),
}
with open(sys.argv[1], "w") as file:
    json.dump(content, file, indent=None, separators=(",", ":"))
    file.write("\n")
