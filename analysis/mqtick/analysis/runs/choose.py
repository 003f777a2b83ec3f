"""From the waveforms of one shot to its edges, or to a sentence why they cannot be used.

The bench judges a shot by this while it runs, and a report judges it again from the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mqtick.analysis.measurement import CLOCK, Mark
from mqtick.analysis.runs.answering_edge import EARLY, alike, answer, directions, mark_of, nearest
from mqtick.analysis.runs.layout import Layout
from mqtick.analysis.signals.edges import Edge, find_edges, state_levels
from mqtick.analysis.signals.said import no_passage, outliers_of
from mqtick.analysis.signals.units import FS_PER_US
from mqtick.analysis.signals.waveform import Waveform, femtoseconds

__all__ = ["Finding", "judge"]

_LEAST_V: Final = 0.5
_CLIPPED_SHARE: Final = 0.01
_FLAT_SHARE: Final = 0.25
_HALF_SCREEN: Final = 4.0
"""Divisions from the middle of the screen to its edge; some families' converters reach further."""
_TOLERANCE_FS: Final = femtoseconds(1e-6)
"""How far the edge that triggered may seem to be from the trigger, by what deskew leaves."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a shot shows; `reason` is "" where it can be used. Instants as in `ShotMeta`.

    `marks` also has the edges found in a shot that cannot be used.
    `origins_fs` is what was subtracted from each channel's instants: trigger edge and cable delay.
    `outliers` says, by channel, what lies far outside its levels.
    """

    reason: str = ""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    edges_found: Mapping[str, int] = field(default_factory=dict)
    latency_fs: int | None = None
    skew_fs: int | None = None
    clock_fs: Mapping[str, int] = field(default_factory=dict)
    origins_fs: Mapping[str, int] = field(default_factory=dict)
    outliers: Mapping[str, str] = field(default_factory=dict)

    @property
    def edges_fs(self) -> dict[str, int]:
        """The edge of each channel that was used."""
        return {name: mark.instant_fs for name, mark in self.marks.items()}


def judge(layout: Layout, waveforms: Mapping[str, Waveform]) -> Finding:
    """Find the edges of all channels, subtract cable delays, and compare them.

    Every channel's instants count from the trigger edge of its own instrument, so that those of
    several instruments compare where all were triggered by one pin. A channel's edge is its first
    one of the trigger edge's direction that comes no earlier before it than `EARLY` allows, or its
    first one after it where that is nearer. Whatever the waveforms are, this
    does not raise; a shot that cannot be used keeps the edges that it has.
    """
    waveforms = {name: each for name, each in waveforms.items() if name in layout.channels}
    needed = layout.needed()
    faults = [
        f"There is no record of {layout.shown(name)}." for name in sorted(needed - set(waveforms))
    ]
    found: dict[str, list[Edge]] = {}
    outliers: dict[str, str] = {}
    clipped = set()
    for name, waveform in waveforms.items():
        found[name], fault, far = _edges(layout, name, waveform)
        outliers |= {name: far} if far else {}
        if _is_clipped(layout, name, waveform):
            clipped.add(name)
            faults.append(_clipped_text(layout, name))
        elif name in needed and fault:
            faults.append(fault)
    triggered: dict[str, Edge | None] = {}
    for instrument, trigger in layout.triggers.items():
        if (name := trigger.channel) in found:
            triggered[instrument], fault = _trigger(
                layout, instrument, found[name], waveforms[name]
            )
            faults += [fault] if fault else []
    moved, origins_fs = _moved(layout, found, triggered)
    spans_fs = [_span_fs(waveform) for waveform in waveforms.values()]
    early_fs = max(layout.interval_fs, *spans_fs, 0) // EARLY
    marks = _chosen(layout, moved, triggered, early_fs)
    marks |= {name: replace(mark, clipped=True) for name, mark in marks.items() if name in clipped}
    faults += [
        _elsewhere(layout, name, moved[name])
        for name in sorted(needed - set(marks))
        if moved.get(name)
    ]
    counts = {name: len(edges) for name, edges in found.items()}
    if faults:
        return Finding(faults[0], marks, counts, origins_fs=origins_fs, outliers=outliers)
    return replace(_compared(layout, marks, counts, origins_fs), outliers=outliers)


def _span_fs(waveform: Waveform) -> int:
    return int(waveform.codes.size) * waveform.interval_fs


def _edges(layout: Layout, name: str, waveform: Waveform) -> tuple[list[Edge], str, str]:
    """Return the edges, what to say if there is none, and what to say about outliers."""
    try:
        levels = state_levels(waveform, _LEAST_V)
        edges = find_edges(waveform, _LEAST_V, levels)
    except ValueError as error:  # of ours, or what no waveform should be
        fault = (
            f"Fewer edges than channels: {layout.shown(name)} has none. {error} Or its edge "
            f"lies outside the record, {_window(waveform)}: then lengthen span_us "
            "or raise before."
        )
        return [], fault, ""
    fault = (
        f"Fewer edges than channels: {layout.shown(name)} has none in the record, "
        f"{_window(waveform)}; lengthen span_us, or check whether the pin is driven. "
        f"{no_passage(waveform, levels)}"
    )
    return edges, "" if edges else fault, outliers_of(waveform, levels)


def _elsewhere(layout: Layout, name: str, edges: list[Edge]) -> str:
    """Say that none of a channel's edges belongs to the event."""
    edge = nearest(edges)
    assert edge is not None
    where = f"{'rising' if edge.rising else 'falling'} at {edge.instant_fs / FS_PER_US:.1f} us"
    return (
        f"Fewer edges than channels: {layout.shown(name)} has none that belongs to the trigger's: "
        f"the nearest is {where}, the end of a pulse or an answer to an earlier event. The node "
        "did not answer within the record: lengthen span_us; of pins that toggle, either direction "
        'counts where trigger_slope is "either".'
    )


def _window(waveform: Waveform) -> str:
    end_fs = waveform.instant_fs(waveform.codes.size - 1)
    return f"{waveform.start_fs / FS_PER_US:.1f} to {end_fs / FS_PER_US:.1f} us around the trigger"


def _is_clipped(layout: Layout, name: str, waveform: Waveform) -> bool:
    """Whether a level lies at the converter's limits, or is cut flat beyond the screen."""
    channel = layout.channels[name]
    codes = waveform.codes
    if not codes.size:
        return False
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest < 2:
        return False  # a logic analyser's one bit has nothing to clip
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
    return clipped


def _clipped_text(layout: Layout, name: str) -> str:
    channel = layout.channels[name]
    return (
        f"{layout.shown(name)} is clipped: its level lies beyond the "
        f"{channel.volts_per_division:g} V per division around {channel.offset_v:g} V; raise "
        "volts_per_division, or correct offset_v and probe."
    )


def _trigger(
    layout: Layout, instrument: str, edges: list[Edge], waveform: Waveform
) -> tuple[Edge | None, str]:
    """Return the edge that triggered, None and what to say where something else did."""
    trigger = layout.triggers[instrument]
    wanted = directions(trigger.slope)
    edge = nearest(each for each in edges if each.rising in wanted)
    limit_fs = max(_span_fs(waveform) // 100, 5 * waveform.interval_fs, _TOLERANCE_FS)
    if edge is not None and abs(edge.instant_fs) <= limit_fs:
        return edge, ""
    seen = (
        f"has no {trigger.slope} edge"
        if edge is None
        else f"has its nearest {edge.instant_fs / FS_PER_US:.1f} us away from it"
    )
    return None, (
        f"{instrument} was triggered by something other than the edge of "
        f"{layout.shown(trigger.channel)}, which {seen}; look at trigger source, level and "
        "slope, and whether the probes are on the pins that the experiment names."
    )


def _moved(
    layout: Layout, found: Mapping[str, list[Edge]], triggered: Mapping[str, Edge | None]
) -> tuple[dict[str, list[Edge]], dict[str, int]]:
    """Return the edges after the trigger edge, cable delays subtracted, and what was subtracted.

    Where the trigger edge is missing they count from the trigger itself. Of several instruments,
    how uncertain its own trigger edge is adds to every other edge; of one, it acts on all alike.
    """
    moved, origins_fs = {}, {}
    for name, edges in found.items():
        channel = layout.channels[name]
        source = layout.triggers[channel.instrument].channel
        edge = triggered.get(channel.instrument)
        origin_fs, more_fs = channel.cable_delay_fs, 0
        if edge is not None:
            origin_fs += edge.instant_fs - layout.channels[source].cable_delay_fs
            more_fs = edge.uncertainty_fs if len(layout.triggers) > 1 and name != source else 0
        origins_fs[name] = origin_fs
        moved[name] = [
            replace(
                each,
                instant_fs=each.instant_fs - origin_fs,
                uncertainty_fs=each.uncertainty_fs + more_fs,
            )
            for each in edges
        ]
    return moved, origins_fs


def _chosen(
    layout: Layout,
    moved: Mapping[str, list[Edge]],
    triggered: Mapping[str, Edge | None],
    early_fs: int,
) -> dict[str, Mark]:
    """Choose the edge of each channel that has one, and count those like it."""
    marks: dict[str, Mark] = {}
    event_fs = 0
    for name in sorted(moved, key=lambda name: name != layout.publisher):
        instrument = layout.channels[name].instrument
        trigger, source = layout.triggers[instrument], triggered.get(instrument)
        if source is None and trigger.channel == name:
            continue
        wanted = directions(trigger.slope)
        rising = wanted if source is None else (source.rising,)
        toggles = len(wanted) > 1
        if layout.kind == CLOCK:
            like = alike(moved[name], rising, toggles=toggles)
            edge = nearest(like, event_fs)
        else:
            # A pulse that began before the record ends within it: its end is not the edge.
            within = [each for each in moved[name] if each.instant_fs >= -early_fs]
            like = alike(within, rising, toggles=toggles)
            edge = answer(like)
        if edge is None:
            continue
        if name == layout.publisher:
            event_fs = edge.instant_fs
        marks[name] = mark_of(edge, sum(each.rising == edge.rising for each in like))
    return marks


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
