"""From the waveforms of one shot to its edges, or to the sentence why they are of no use.

The bench judges a shot by this while it runs, and a report judges it anew from the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqtick.analysis.measurement import CLOCK, Mark
from mqtick.analysis.runs.layout import Layout
from mqtick.analysis.signals.edges import Edge, EdgeError, find_edges, is_clipped
from mqtick.analysis.signals.waveform import Waveform, femtoseconds

__all__ = ["Finding", "alike", "directions", "judge", "nearest"]

_LEAST_V: Final = 0.5
_CLIPPED_SHARE: Final = 0.01
_FLAT_SHARE: Final = 0.25
_HALF_SCREEN: Final = 4.0
"""Divisions from the middle of the screen to its edge; converters of some families reach on."""
_TOLERANCE_FS: Final = femtoseconds(1e-6)
"""How far the edge that triggered may seem to be from the trigger, by what deskew leaves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a shot shows; `reason` is "" where it can be used. Instants as in `ShotMeta`.

    `origins_fs` is what was taken off each channel's instants: trigger edge and cable delay.
    """

    reason: str = ""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    edges_found: Mapping[str, int] = field(default_factory=dict)
    latency_fs: int | None = None
    skew_fs: int | None = None
    clock_fs: Mapping[str, int] = field(default_factory=dict)
    origins_fs: Mapping[str, int] = field(default_factory=dict)

    @property
    def edges_fs(self) -> dict[str, int]:
        """The edge of each channel that was used."""
        return {name: mark.instant_fs for name, mark in self.marks.items()}


class _UnusableError(ValueError):
    pass


def directions(slope: str) -> tuple[bool, ...]:
    """Return which directions (True: rising) a slope stands for; both, unless it names one."""
    return {"rising": (True,), "falling": (False,)}.get(slope, (True, False))


def nearest(edges: Iterable[Edge], instant_fs: int = 0) -> Edge | None:
    """Return the edge nearest to an instant, None of none."""
    return min(edges, key=lambda edge: abs(edge.instant_fs - instant_fs), default=None)


def alike(edges: list[Edge], rising: Iterable[bool]) -> list[Edge]:
    """Return the edges of these directions; all where there is none: a pin that toggles may."""
    return [edge for edge in edges if edge.rising in rising] or edges


def judge(layout: Layout, waveforms: Mapping[str, Waveform]) -> Finding:
    """Find the edges of all channels, take cable delays off, and compare them.

    Every channel's instants count from the trigger edge of its own instrument, so that those of
    several instruments compare where all were triggered by one pin. Whatever the waveforms are,
    this does not raise.
    """
    found: dict[str, list[Edge]] = {}
    waveforms = {name: each for name, each in waveforms.items() if name in layout.channels}
    try:
        needed = layout.needed()
        for name in needed - set(waveforms):
            raise _UnusableError(f"There is no record of {layout.shown(name)}.")
        for name, waveform in waveforms.items():
            found[name] = _edges(layout, name, waveform, needed=name in needed)
        triggered_fs = {
            instrument: _trigger_fs(layout, instrument, found[trigger.channel], waveforms)
            for instrument, trigger in layout.triggers.items()
        }
        origins_fs = {
            name: triggered_fs[layout.channels[name].instrument]
            + layout.channels[name].cable_delay_fs
            for name in found
        }
        moved = {
            name: [
                Edge(edge.instant_fs - origins_fs[name], edge.rising, edge.uncertainty_fs)
                for edge in edges
            ]
            for name, edges in found.items()
        }
        chosen = _clock(layout, moved) if layout.kind == CLOCK else _order(layout, moved)
    except ValueError as fault:  # of ours, or what no waveform should be
        return Finding(
            reason=str(fault), edges_found={name: len(edges) for name, edges in found.items()}
        )
    marks = {
        name: Mark(
            edge.instant_fs,
            edge.rising,
            edge.uncertainty_fs,
            sum(each.rising == edge.rising for each in moved[name]),
            _touches_limit(waveforms[name]) and is_clipped(waveforms[name]),
        )
        for name, edge in chosen.items()
    }
    return _compared(layout, marks, {name: len(edges) for name, edges in found.items()}, origins_fs)


def _edges(layout: Layout, name: str, waveform: Waveform, *, needed: bool) -> list[Edge]:
    try:
        _refuse_clipped(layout, name, waveform)
        edges = find_edges(waveform, _LEAST_V)
    except EdgeError as error:
        if not needed:
            return []
        raise _UnusableError(
            f"Fewer edges than channels: {layout.shown(name)} has none. {error} Or its edge "
            f"lies outside the record, {_window(waveform)}: then lengthen span_us "
            "or raise before."
        ) from None
    if needed and not edges:
        raise _UnusableError(
            f"Fewer edges than channels: {layout.shown(name)} has none in the record, "
            f"{_window(waveform)}; lengthen span_us, or look whether the pin is driven."
        )
    return edges


def _window(waveform: Waveform) -> str:
    end_fs = waveform.instant_fs(waveform.codes.size - 1)
    return f"{waveform.start_fs / 1e9:.1f} to {end_fs / 1e9:.1f} us around the trigger"


def _refuse_clipped(layout: Layout, name: str, waveform: Waveform) -> None:
    """Refuse a level at the converter's limits, or cut flat beyond the screen."""
    channel = layout.channels[name]
    codes = waveform.codes
    if not codes.size:
        return
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest < 2:
        return  # a logic analyser's one bit has nothing to clip
    limits = np.iinfo(codes.dtype)
    clipped = False
    for extreme in (lowest, highest):
        volts = (extreme - waveform.code_at_zero) * waveform.volts_per_code
        divisions = abs(volts - channel.offset_v) / channel.volts_per_division
        if extreme not in (limits.min, limits.max) and divisions <= _HALF_SCREEN:
            continue
        held = int(np.count_nonzero(codes == extreme))
        at_limit = extreme in (limits.min, limits.max) and held > _CLIPPED_SHARE * codes.size
        cut = divisions > _HALF_SCREEN and held > _FLAT_SHARE * codes.size
        clipped = clipped or at_limit or cut
    if clipped:
        raise _UnusableError(
            f"{layout.shown(name)} is clipped: its level lies beyond the "
            f"{channel.volts_per_division:g} V a division around {channel.offset_v:g} V; raise "
            "volts_per_division, or correct offset_v and probe."
        )


def _touches_limit(waveform: Waveform) -> bool:
    """Whether a code is so near to its type's limits that it is worth to look for clipping."""
    limits = np.iinfo(waveform.codes.dtype)
    step = 1 << limits.bits - 8  # codes of 8 bits may stand in the upper half of a word
    lowest, highest = int(waveform.codes.min()), int(waveform.codes.max())
    return lowest < limits.min + step or highest > limits.max - step


def _trigger_fs(
    layout: Layout, instrument: str, edges: list[Edge], waveforms: Mapping[str, Waveform]
) -> int:
    """Return the instant of the edge that triggered, cable delay taken off, in fs."""
    trigger = layout.triggers[instrument]
    waveform = waveforms[trigger.channel]
    span_fs = waveform.codes.size * waveform.interval_fs
    wanted = directions(trigger.slope)
    edge = nearest(each for each in edges if each.rising in wanted)
    limit_fs = max(span_fs // 100, 5 * waveform.interval_fs, _TOLERANCE_FS)
    if edge is None or abs(edge.instant_fs) > limit_fs:
        seen = (
            f"has no {trigger.slope} edge"
            if edge is None
            else f"has its nearest {edge.instant_fs / 1e9:.1f} us away from it"
        )
        raise _UnusableError(
            f"{instrument} was triggered by something else than the edge of "
            f"{layout.shown(trigger.channel)}, which {seen}; look at trigger source, level and "
            "slope, and whether the probes are on the pins that the experiment names."
        )
    return edge.instant_fs - layout.channels[trigger.channel].cable_delay_fs


def _order(layout: Layout, found: Mapping[str, list[Edge]]) -> dict[str, Edge]:
    """Choose what triggered, and each other channel's first edge of the same direction."""
    triggers = {trigger.channel for trigger in layout.triggers.values()}
    chosen = {name: edge for name in triggers if (edge := nearest(found[name])) is not None}
    rising = {edge.rising for edge in chosen.values()}
    for name, edges in found.items():
        if name not in chosen and edges:
            # A pulse that began before the record ends within it: its end is not the edge.
            chosen[name] = alike(edges, rising)[0]
    return chosen


def _clock(layout: Layout, found: Mapping[str, list[Edge]]) -> dict[str, Edge]:
    """Choose the reference's edge, and of each other channel the nearest of its direction."""
    instrument = layout.channels[layout.publisher].instrument
    wanted = directions(layout.triggers[instrument].slope)
    reference = nearest(alike(found[layout.publisher], wanted))
    assert reference is not None, "a needed channel has an edge"
    chosen = {layout.publisher: reference}
    for name, edges in found.items():
        edge = nearest(alike(edges, (reference.rising,)), reference.instant_fs)
        if name != layout.publisher and edge is not None:
            chosen[name] = edge
    return chosen


def _compared(
    layout: Layout,
    marks: Mapping[str, Mark],
    counts: Mapping[str, int],
    origins_fs: Mapping[str, int],
) -> Finding:
    def between(name: str, before: str) -> int | None:
        later, earlier = marks.get(name), marks.get(before)
        return later.instant_fs - earlier.instant_fs if later and earlier else None

    if layout.kind == CLOCK:
        reference_fs = marks[layout.publisher].instant_fs
        others = {name: mark for name, mark in marks.items() if name != layout.publisher}
        clock_fs = {name: mark.instant_fs - reference_fs for name, mark in others.items()}
        return Finding("", marks, counts, clock_fs=clock_fs, origins_fs=origins_fs)
    latency_fs = between(layout.first, layout.publisher)
    skew_fs = between(layout.last, layout.first)
    return Finding("", marks, counts, latency_fs, skew_fs, origins_fs=origins_fs)
