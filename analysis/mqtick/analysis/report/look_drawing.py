"""What is drawn of a look: each channel thinned out, its marks, its levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.captures.look import Lane, Look
from mqtick.analysis.overlay import DRAWN_HEIGHT, thinned
from mqtick.recording.transitions import Transitions
from mqtick.recording.units import FS_PER_US, Floats
from mqtick.recording.waveform import Waveform

_MOST_DETAILED: Final = 64
"""Edges of a channel around which every sample is drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnLane:
    """One channel, ready to be drawn; instants in us.

    Attributes:
        lane: what it is.
        us, volts: the line: every sample near some edges, the envelope elsewhere.
        at_us: of its edges.
        levels_v: low level, threshold and high level; empty where they are not known.
        interval_us: between samples, 0 where there are none.
        label: whose it is, and how many edges it has.
    """

    lane: Lane
    us: Floats
    volts: Floats
    at_us: Floats
    levels_v: tuple[float, ...]
    interval_us: float
    label: str


def drawn_lanes(look: Look, points: int) -> list[DrawnLane]:
    """Return what is drawn of each channel: lines of at most so many points."""
    drawn = [_drawn(lane, points) for lane in look.lanes]
    begin, end = span_us(drawn)
    return [each if each.interval_us else _over(each, begin, end) for each in drawn]


def _over(each: DrawnLane, begin: float, end: float) -> DrawnLane:
    """Draw the first and the last level of a digital channel to the ends of all records."""
    us, volts = each.us, each.volts
    if not each.at_us.size:
        us, volts = np.array([begin, end]), volts[:1].repeat(2)
    us = np.concatenate(([min(begin, us[0])], us, [max(end, us[-1])]))
    return replace(each, us=us, volts=np.concatenate((volts[:1], volts, volts[-1:])))


def span_us(drawn: Sequence[DrawnLane]) -> tuple[float, float]:
    """Return begin and end of what there is to be drawn."""
    moving = [each for each in drawn if each.interval_us or each.at_us.size] or drawn
    ends = [(float(each.us[0]), float(each.us[-1])) for each in moving if each.us.size]
    begin = min((first for first, _ in ends), default=0.0)
    end = max((last for _, last in ends), default=1.0)
    return begin, end if end > begin else begin + 1.0


def _drawn(lane: Lane, points: int) -> DrawnLane:
    signal, glance = lane.signal, lane.glance
    around = _some(glance.instants_fs[lane.used] if lane.used.any() else glance.instants_fs)
    us, volts = thinned(signal, around.tolist(), 0, points)
    levels: tuple[float, ...] = ()
    if isinstance(signal, Waveform) and glance.seen.levels is not None:
        found = glance.seen.levels
        codes = (found.low, found.middle, found.high)
        levels = tuple((code - signal.code_at_zero) * signal.volts_per_code for code in codes)
    elif isinstance(signal, Transitions) and glance.rising.size:
        levels = (0.0, DRAWN_HEIGHT / 2, DRAWN_HEIGHT)
    interval_us = signal.interval_fs / FS_PER_US if isinstance(signal, Waveform) else 0.0
    at_us = glance.instants_fs.astype(np.float64) / FS_PER_US
    return DrawnLane(lane, us, volts, at_us, levels, interval_us, _label(lane))


def _some(instants_fs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return at most as many as are drawn in detail, evenly chosen, the first one among them."""
    if instants_fs.size <= _MOST_DETAILED:
        return instants_fs
    return instants_fs[np.linspace(0, instants_fs.size - 1, _MOST_DETAILED).astype(np.intp)]


def _label(lane: Lane) -> str:
    edges, used = lane.glance.rising.size, int(lane.used.sum())
    name = f"{lane.name} = {lane.part}" if lane.part not in ("", lane.name) else lane.name
    count = f"{edges:,} edge{'' if edges == 1 else 's'}, {used:,} used" if edges else "no edge"
    edge_overrides = lane.rule.describe()
    return f"{name}: {count}" + (f" ({edge_overrides})" if edge_overrides else "")
