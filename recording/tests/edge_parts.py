"""Shapes of edges and a converter, for tests of the edges."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np

from mqtick.recording.units import Floats
from mqtick.recording.waveform import Waveform

_SIGMAS = np.linspace(-6, 6, 4001)
_SHARES = np.array([NormalDist().cdf(x) for x in _SIGMAS])

# Each goes from 0 to 1, is at 0.5 at x = 0, and takes 1 from 10 to 90 %.


def gaussian(x: Floats) -> Floats:
    return np.asarray(np.interp(x * 2.5631, _SIGMAS, _SHARES), np.float64)


def exponential(x: Floats) -> Floats:
    return np.asarray(1 - np.exp(-np.maximum(x * math.log(9) + math.log(2), 0)), np.float64)


def ringing(x: Floats) -> Floats:
    """Step response of a second order system, with 25 % overshoot."""
    at, response = _ringing_step()
    return np.asarray(np.interp(x, at, response, left=0.0, right=1.0), np.float64)


@functools.cache
def _ringing_step(damping: float = 0.4) -> tuple[Floats, Floats]:
    grid = np.linspace(0, 60, 6001)
    w = math.sqrt(1 - damping**2)
    swing = np.cos(w * grid) + damping / w * np.sin(w * grid)
    response = 1 - np.exp(-damping * grid) * swing
    begin, half, end = (grid[np.argmax(response >= share)] for share in (0.1, 0.5, 0.9))
    return (grid - half) / (end - begin), response


def straight(x: Floats) -> Floats:
    return np.asarray(np.clip(0.5 + x / 1.25, 0, 1), np.float64)


def digitised(
    shares: Floats,
    dtype: str = "u1",
    amplitude: float = 150,
    zero: float | None = None,
    *,
    bits: int = 0,
    interval_fs: int = 10**9,
    start_fs: int = 0,
) -> Waveform:
    """Return 3.3 V between 0 and 1 as codes; `zero` is the code of 0, None: centred.

    `bits` is how many the converter has, 0: all of the type.
    """
    limits = np.iinfo(dtype)
    lowest, highest = (0, 2**bits - 1) if bits else (limits.min, limits.max)
    zero = (lowest + highest - amplitude) / 2 if zero is None else zero
    codes = np.clip(np.rint(zero + amplitude * shares), lowest, highest)
    return Waveform(codes.astype(dtype), 3.3 / amplitude, zero, interval_fs, start_fs)
