"""Levels that drift, or droop as behind a coupling capacitor: each edge has its own middle."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from mqtick.recording.crossing import Search

_LEAST_REST: Final = 16
"""Samples at rest that it takes to find a level."""
_MOST_REST: Final = 1000
_NEAR: Final = 4
"""What is left out next to an edge, in units of its length."""
_RINGING: Final = 100
"""After this many of its lengths, an edge no longer rings."""
_MOST_RESTS: Final = 64
_DRIFT: Final = 0.01
"""Levels that move by more than this share of the amplitude drift."""


def drifting_levels(search: Search, jitter: float) -> Search:
    """Give each edge the middle of the levels next to it, if the levels move.

    `jitter` is the standard deviation of the noise from sample to sample, in codes. Ringing is no
    drift: what follows an edge closely is left out before that is judged.
    """
    codes, before, after = search.codes, search.before, search.after
    rest = min(max(codes.size // 100, _LEAST_REST), _MOST_REST)
    if not _moves(search, jitter, rest):
        return search
    first, last = search.first.copy(), search.last.copy()
    middle, amplitude = search.middle.copy(), search.amplitude.copy()
    for index, (left, right) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        near = _NEAR * (right - left)
        begin = int(after[index - 1]) + near if index else 0
        end = int(before[index + 1]) - near if index + 1 < before.size else codes.size
        earlier = codes[max(begin, left - near - rest, 0) : max(left - near, 0)]
        later = codes[right + near : min(end, right + near + rest)]
        if min(earlier.size, later.size) < _LEAST_REST:
            continue
        one, two = float(earlier.mean()), float(later.mean())
        upper = codes[left : right + 1] >= (one + two) / 2
        flips = np.flatnonzero(upper[1:] != upper[:-1])
        if not flips.size or bool(upper[-1]) != (two > one):
            continue
        middle[index], amplitude[index] = (one + two) / 2, abs(two - one)
        first[index], last[index] = left + flips[0], left + flips[-1]
    return replace(
        search,
        first=first,
        last=last,
        middle=middle,
        amplitude=amplitude,
        noise=jitter,
        level_noise=jitter * rest**-0.5,
    )


def _moves(search: Search, jitter: float, rest: int) -> bool:
    """Whether the level changes while the signal rests between two edges."""
    codes, before, after = search.codes, search.before, search.after
    lengths = after - before
    begins = np.concatenate((np.zeros(1, np.intp), after + _RINGING * lengths))
    ends = np.concatenate((before - _NEAR * lengths, np.array([codes.size], np.intp)))
    every = -(-begins.size // _MOST_RESTS)
    most = 4 * jitter * (2 / rest) ** 0.5 + _DRIFT * float(search.amplitude[0])
    for begin, end in zip(begins[::every].tolist(), ends[::every].tolist(), strict=True):
        if begin + 2 * rest <= end:
            early, late = codes[begin : begin + rest], codes[end - rest : end]
            if abs(float(early.mean()) - float(late.mean())) > most:
                return True
    return False
