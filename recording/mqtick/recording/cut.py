"""A part of a signal."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from mqtick.recording.capture import Signal
from mqtick.recording.waveform import Waveform


def cut(signal: Signal, begin_fs: int, end_fs: int) -> Signal:
    """Return what a signal does from `begin_fs` to `end_fs`; at least one sample of a waveform."""
    if isinstance(signal, Waveform):
        size, interval_fs = signal.codes.size, signal.interval_fs
        first = min(max((begin_fs - signal.start_fs) // interval_fs, 0), max(size - 1, 0))
        last = min(max((end_fs - signal.start_fs) // interval_fs, first) + 1, size)
        start_fs = signal.start_fs + first * interval_fs
        return replace(signal, codes=signal.codes[first:last], start_fs=start_fs)
    ends = [-((signal.origin_fs - fs) // signal.tick_fs) for fs in (begin_fs, end_fs)]
    first, last = (bisect_left(signal.ticks, tick) for tick in ends)
    return replace(
        signal,
        initial=int(signal.levels[first - 1]) if first else signal.initial,
        ticks=signal.ticks[first:last],
        levels=signal.levels[first:last],
    )
