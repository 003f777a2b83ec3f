"""Where between two samples an edge passes the middle, and how far that may be off.

A cubic through the four samples around the middle; of an edge that takes more samples, a cubic
fitted to as many of them as it describes within their noise. Everything is in samples and codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.units import Floats

BETWEEN: Final = "between samples"
INTERPOLATED: Final = "interpolated"
FITTED: Final = "fitted"

_WIDTHS: Final = ((0.6, 3.0), (0.85, 1.5), (1.4, 1.0))
"""Lengths of the fitted part that are tried, in rise times, the longer ones as long as they agree
with the one before within this many of its standard deviations: more samples, less noise, but a
bend that no cubic describes may lie among them."""
_LEAST_FIT: Final = 6
_MOST_FIT: Final = 4096
_CHI: Final = 1.1
"""A cubic describes an edge when its residuals are at most this many times the noise,
plus what three standard deviations of chance add."""
_NEWTON: Final = 5
_SIGMAS: Final = 4.0
_SHAPE: Final = 0.7
_MOST_SHAPE: Final = 0.5
"""What the shape between two samples can do, in samples: tried: those of tests/edge_parts.py."""
_OVERSHOOT: Final = 0.15
_RINGS_ABOVE: Final = 0.5
_SLOW: Final = 0.3
_STRAIGHT: Final = 0.8
_DURATION: Final = 0.9
"""From the slope in the middle to 10 to 90 %: a straight edge has 0.8, a Gaussian one 1.02."""
_FIT_BIAS: Final = 0.002
"""How far a cubic misses the middle of an edge that it describes: of the edge's length."""
_UNSEEN: Final = 0.5
"""What of that noise may hide, in standard deviations of the place."""
_UNRESOLVED: Final = 0.75
"""An edge with this much of its amplitude between two samples says little about its shape."""

_LAGRANGE: Final = np.linalg.inv(np.vander(np.arange(-1.0, 3.0), increasing=True)).T
"""From four samples at -1, 0, 1 and 2 to the coefficients of their cubic, the constant first."""

Integers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What is known of the edges of a record before they are timed.

    Attributes:
        codes: the record.
        before, after: last sample of the one level and first one of the other, of each edge.
        first, last: first and last sample after which the middle is passed, of each edge.
        middle: the 50 % reference level of each edge, in codes.
        amplitude: of each edge, in codes.
        noise, step: standard deviation of the noise and distance of neighbouring codes.
        level_noise: standard deviation of the middle itself, in codes.
        band: share of the amplitude on either side of the middle between `before` and `after`.
    """

    codes: npt.NDArray[np.integer[Any]]
    before: Integers
    after: Integers
    first: Integers
    last: Integers
    middle: Floats
    amplitude: Floats
    noise: float
    step: int
    level_noise: float
    band: float


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Places and their uncertainties in samples, rise times (10 to 90 %) and methods.

    `chances` are the standard deviations of the places by noise and rounding alone.
    """

    places: Floats
    errors: Floats
    rises: Floats
    methods: list[str]
    chances: Floats


def crossings(search: Search) -> Crossings:
    """Time every edge."""
    found = _interpolated(search)
    _fit(search, found)
    return found


def _interpolated(search: Search) -> Crossings:
    """Time every edge by the cubic through the four samples around the middle."""
    codes, at = search.codes, search.last
    stencil = at[:, None] + np.arange(-1, 3)
    # Two values have no shape that a cubic could follow.
    inside = (stencil[:, 0] >= 0) & (stencil[:, 3] < codes.size) & (search.amplitude > 1)
    samples = codes[np.clip(stencil, 0, codes.size - 1)] - search.middle[:, None]
    start, end = samples[:, 1], samples[:, 2]
    line = -start / (end - start)
    share = _root(samples @ _LAGRANGE, line)
    share = np.where(inside & (share >= 0) & (share <= 1) & (search.first == at), share, line)
    steps = np.abs(np.diff(samples, axis=1))
    # The steepest step near the middle says how little of the edge the samples show.
    steepest = steps.max(axis=1) / search.amplitude
    beyond = np.abs(samples).max(axis=1) / search.amplitude - 0.5
    # Ringing that is too fast for the samples: the edge may be anywhere between them.
    rings = (beyond > _OVERSHOOT) & (steepest > _RINGS_ABOVE)
    errors = np.where(rings, 1.0, np.minimum(_SHAPE * steepest**2, _MOST_SHAPE))
    # Noise makes a slow edge look steeper here or there.
    slow = steepest < _SLOW
    wider = np.abs(samples[:, 3] - samples[:, 0]) / 3
    slope = np.where(slow, np.minimum(steps[:, 1], wider), steps[:, 1])
    slope = np.maximum(slope, search.step / 3)
    chance = _SIGMAS * (search.noise + search.level_noise)
    errors += (_quantum(search) + chance) / slope
    # The true crossing lies between the two samples, but for noise; and noise may cross again.
    errors = np.minimum(errors, np.maximum(share, 1 - share) + _SIGMAS * search.noise / slope)
    long = np.maximum(search.after - search.before - 1, 0) * _STRAIGHT / 2 / search.band
    return Crossings(
        places=at + share,
        errors=errors + (at - search.first),
        rises=np.where(search.after - search.before > _LEAST_FIT, long, _DURATION / steepest),
        methods=[BETWEEN if steep > _UNRESOLVED else INTERPOLATED for steep in steepest.tolist()],
        chances=0.8 * _expected(search) / slope,
    )


def _expected(search: Search) -> float:
    """Return the standard deviation of a sample around the signal, in codes."""
    return float((search.noise**2 + search.step**2 / 12) ** 0.5)


def _quantum(search: Search) -> float:
    """Return what rounding does to a sample and to the levels, in codes; noise dithers levels."""
    dithered = min(max((0.7 - search.noise / search.step) / 0.3, 0.1), 1.0)
    return search.step * (0.5 + 0.5 * dithered)


def _root(cubic: Floats, start: Floats) -> Floats:
    """Return a root of each cubic by Newton's method; NaN where there is none near `start`."""
    x = start
    c0, c1, c2, c3 = cubic.T
    for _ in range(_NEWTON):
        slope = c1 + x * (2 * c2 + 3 * x * c3)
        value = c0 + x * (c1 + x * (c2 + x * c3))
        x = x - np.divide(value, slope, out=np.full_like(value, np.nan), where=slope != 0)
    value = c0 + x * (c1 + x * (c2 + x * c3))
    return np.where(np.abs(value) <= 1e-6 * (np.abs(c0) + np.abs(c1)), x, np.nan)


def _fit(search: Search, found: Crossings) -> None:
    """Replace the interpolated places of slow edges by fitted ones.

    The samples are chosen by their time, not by their code: that would bend the curve.
    """
    rises = found.rises.copy()  # the fits below give better ones
    if rises.max() * _WIDTHS[-1][0] < _LEAST_FIT:
        return
    # A fit may not reach into the neighbours.
    low = np.concatenate((np.zeros(1, np.intp), search.after[:-1]))
    high = np.concatenate((search.before[1:], np.array([search.codes.size - 1], np.intp)))
    centre = (search.first + search.last + 1) // 2
    room = 2 * np.minimum(centre - low, high - centre)
    going, fitted = np.ones(centre.size, np.bool_), np.zeros(centre.size, np.bool_)
    for width, agree in _WIDTHS:
        lengths = _rounded(np.minimum(np.minimum(rises * width, room), _MOST_FIT))
        lengths[~going | (lengths < _LEAST_FIT)] = 0
        for length in np.unique(lengths[lengths > 0]).tolist():
            chosen = np.flatnonzero(lengths == length)
            known = fitted[chosen]
            good = _fit_some(search, found, chosen, centre[chosen], length, agree, known)
            going[chosen] = good | ~known
            fitted[chosen] |= good


def _rounded(lengths: npt.NDArray[Any]) -> Integers:
    """Round down to few different lengths, even ones, so that edges are fitted together."""
    exponents = np.floor(np.log2(np.maximum(lengths, 1))) - 2
    units = np.maximum(2.0**exponents, 2)
    return np.asarray(np.floor(lengths / units) * units).astype(np.intp)


@lru_cache(maxsize=64)
def _cubic(length: int) -> tuple[Floats, Floats]:
    """Return powers of this many samples' places, -1 to 1, and what fits a cubic to them."""
    times = (np.arange(length) - (length - 1) / 2) / (length / 2)
    powers = np.asarray(np.vander(times, 4, increasing=True), np.float64)
    return powers, np.asarray(np.linalg.pinv(powers), np.float64)


def _fit_some(
    search: Search,
    found: Crossings,
    chosen: Integers,
    centre: Integers,
    length: int,
    agree: float,
    fitted: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Fit a cubic to this many samples around each centre; return which edges it describes."""
    powers, inverse = _cubic(length)
    first = centre - length // 2 + 1
    samples = search.codes[first[:, None] + np.arange(length)] - search.middle[chosen, None]
    cubic = samples @ inverse.T
    residual = samples - cubic @ powers.T
    rms = np.sqrt((residual**2).sum(axis=1) / (length - 4))
    most = (_CHI**2 + 3 * (2 / (length - 4)) ** 0.5) ** 0.5
    expected = _expected(search)
    root = _root(cubic, np.zeros(chosen.size))
    slopes = cubic[:, 1] + root * (2 * cubic[:, 2] + 3 * root * cubic[:, 3])
    places = first + (length - 1) / 2 + root * (length / 2)
    slopes /= length / 2
    good = (rms <= most * expected) & (np.abs(root) < 0.7)
    good &= (slopes > 0) == (search.codes[search.after[chosen]] > search.middle[chosen])
    good &= (places > search.before[chosen]) & (places < search.after[chosen])
    slope = np.abs(slopes)
    gains = root[:, None] ** np.arange(4) @ inverse
    reach = np.sqrt((gains**2).sum(axis=1))
    level = _quantum(search) - 0.5 * search.step + _SIGMAS * search.level_noise
    errors = level + (_SIGMAS + _UNSEEN) * expected * reach
    errors += _FIT_BIAS * search.amplitude[chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = errors / slope
        chances = expected * reach / slope
    # If noise crossed the middle more than once, there is no single crossing to agree with.
    loose = (search.last[chosen] != search.first[chosen]) & ~fitted
    good &= loose | (np.abs(places - found.places[chosen]) <= agree * found.chances[chosen])
    for index in np.flatnonzero(good).tolist():
        edge = int(chosen[index])
        found.places[edge], found.errors[edge] = places[index], errors[index]
        found.methods[edge], found.chances[edge] = FITTED, chances[index]
        found.rises[edge] = _DURATION * search.amplitude[edge] / slope[index]
    return np.asarray(good, np.bool_)
