"""What one channel of a record shows: its edges, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mqtick.recording.capture import Signal
from mqtick.recording.cut import cut
from mqtick.recording.edge_overrides import AUTOMATIC, EdgeOverrides, Rule
from mqtick.recording.edges import (
    MOST_EDGES,
    Edge,
    StateLevels,
    find_edges,
    state_levels,
    too_many,
)
from mqtick.recording.layout import Channel, Layout
from mqtick.recording.sample_notes import no_passage, outliers_of
from mqtick.recording.transitions import UNKNOWN, Transitions
from mqtick.recording.units import FS_PER_US
from mqtick.recording.waveform import Waveform

_CLIPPED_SHARE: Final = 0.01
_FLAT_SHARE: Final = 0.25
_HALF_SCREEN: Final = 4.0
"""Divisions from the middle of the screen to its edge; some families' converters reach further."""
_LEVELS: Final = {0: "0", 1: "1", UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class ChannelEdges:
    """What one channel's signal shows: its edges, not yet moved; or why it has none.

    `begin_fs` and `end_fs` are the instants of its record's ends, as far as they are known;
    `outliers` says what lies far outside its levels, "" where nothing does; `clipped` whether a
    level is cut off; `levels` are those between which its edges are, None where none were found.
    """

    edges: list[Edge] = field(default_factory=list)
    why_not: str = ""
    begin_fs: int = 0
    end_fs: int = 0
    interval_fs: int = 0
    outliers: str = ""
    clipped: bool = False
    levels: StateLevels | None = None


def channel_edges(
    signal: Signal,
    minimum_v: float = 0.5,
    channel: Channel | None = None,
    rule: Rule = AUTOMATIC,
    window: EdgeOverrides | None = None,
) -> ChannelEdges:
    """Find a signal's edges. Whatever the signal is, this does not raise."""
    if window is not None and (window.begin_fs, window.end_fs) != (None, None):
        part = _part(signal, window)
        if isinstance(part, ChannelEdges):
            return part
        signal = part
    found = (
        _digital(signal)
        if isinstance(signal, Transitions)
        else _analog(signal, minimum_v, channel, rule)
    )
    edges = found.edges
    if rule.invert:
        edges = [replace(edge, rising=not edge.rising) for edge in edges]
    if rule.skip and edges:
        why_not = (
            "" if edges[rule.skip :] else f"All of its edges ({len(edges)}) were to be skipped."
        )
        found, edges = replace(found, why_not=why_not), edges[rule.skip :]
    return found if edges is found.edges else replace(found, edges=edges)


def edges_of_all(layout: Layout, signals: Mapping[str, Signal]) -> dict[str, ChannelEdges]:
    """Find the edges of every channel of a layout that has a record; others are left out."""
    edge_overrides = layout.edge_overrides
    return {
        name: channel_edges(
            signals[name], layout.minimum_v, channel, edge_overrides.of(name), edge_overrides
        )
        for name, channel in layout.channels.items()
        if name in signals
    }


def _part(signal: Signal, window: EdgeOverrides) -> Signal | ChannelEdges:
    """Return what of a signal is in a window, or that nothing is."""
    if isinstance(signal, Transitions):
        if not signal.ticks.size:
            return signal
        begin_fs, end_fs = signal.ends_fs()
    else:
        begin_fs, end_fs = _ends(signal)
    from_fs = begin_fs if window.begin_fs is None else window.begin_fs
    to_fs = end_fs if window.end_fs is None else window.end_fs
    if to_fs < begin_fs or from_fs > end_fs:
        return ChannelEdges(
            why_not=f"The window of {from_fs / FS_PER_US:,.10g} to {to_fs / FS_PER_US:,.10g} us is "
            f"outside its record, which is from {begin_fs / FS_PER_US:,.10g} to "
            f"{end_fs / FS_PER_US:,.10g} us; correct --from and --to."
        )
    return cut(signal, from_fs, to_fs)


def _ends(waveform: Waveform) -> tuple[int, int]:
    return waveform.start_fs, waveform.start_fs + waveform.codes.size * waveform.interval_fs


def _digital(signal: Transitions) -> ChannelEdges:
    if (count := signal.ticks.size + signal.missing) > MOST_EDGES:
        return ChannelEdges(why_not=too_many(count))
    edges = signal.edges()
    levels = dict.fromkeys([signal.initial, *signal.levels.tolist()]) if not edges else {}
    why_not = f"Its level is {' and '.join(_LEVELS[each] for each in levels)} throughout."
    return ChannelEdges(edges, "" if edges else why_not, *signal.ends_fs())


def _analog(
    signal: Waveform, minimum_v: float, channel: Channel | None, rule: Rule
) -> ChannelEdges:
    begin_fs, end_fs = _ends(signal)
    clipped = channel is not None and _is_clipped(channel, signal)
    record = ChannelEdges([], "", begin_fs, end_fs, signal.interval_fs, clipped=clipped)
    try:
        levels = state_levels(signal, minimum_v, rule.threshold_v)
        edges = find_edges(signal, minimum_v, levels, rule.hysteresis_v)
    except ValueError as error:  # of ours, or what no waveform should be
        return replace(record, why_not=str(error))
    why_not = "" if edges else no_passage(signal, levels)
    outliers = outliers_of(signal, levels)
    return replace(record, edges=edges, why_not=why_not, outliers=outliers, levels=levels)


def _is_clipped(channel: Channel, waveform: Waveform) -> bool:
    """Whether a level lies at the converter's limits, or is cut flat beyond the screen."""
    codes = waveform.codes
    if not codes.size or not channel.volts_per_division:
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
        cut_flat = divisions > _HALF_SCREEN and held > _FLAT_SHARE * codes.size
        clipped = clipped or at_limit or cut_flat
    return clipped
