"""From the signals of one record to its shots: which edges belong together, or are unusable.

The bench judges each shot by `judge_triggered` while it runs, and a report judges it again from the
files; files that were saved by hand are judged by `judge` too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from typing import Final

from mqtick.recording.channel_edges import ChannelEdges, edges_of_all
from mqtick.recording.edges import Edge
from mqtick.recording.every_event import EARLY, windows_of
from mqtick.recording.layout import CLOCK, Layout, Trigger
from mqtick.recording.shot import MISSED, Shot
from mqtick.recording.units import FS_PER_US
from mqtick.recording.waveform import Waveform, femtoseconds

_TOLERANCE_FS: Final = femtoseconds(1e-6)
"""How far the edge that triggered may seem to be from the trigger, by what deskew leaves."""
_DIRECTIONS: Final = {"rising": (True,), "falling": (False,)}


class Origin(Enum):
    """What instant 0 of a record is, and which edges of the trigger's channel are events."""

    SET_TRIGGER = "the bench set the trigger: the one event is the edge at instant 0"
    TRIGGER = "somebody set a trigger: the one event is the edge nearest to instant 0"
    START = "the record's start: each edge in the wanted direction is an event"
    EVERY = "somebody asked for every event: as START, but doubled edges are none"


@dataclass(frozen=True, slots=True)
class _Event:
    """The trigger edge of each instrument (None: not there), and what belongs to it.

    `windows_fs` are begin and end by instrument, cable delays subtracted; None: without end.
    """

    triggers: Mapping[str, Edge | None]
    windows_fs: Mapping[str, tuple[int | None, int | None]]


class _Record:
    """What is the same for all events of a record."""

    def __init__(
        self, layout: Layout, seen: Mapping[str, ChannelEdges], origin: Origin, known: Shot
    ) -> None:
        self.layout, self.seen, self.origin = layout, seen, origin
        self.times = {name: [edge.instant_fs for edge in its.edges] for name, its in seen.items()}
        self.publisher_first = sorted(seen, key=lambda name: name != layout.publisher)
        spans_fs = [its.end_fs - its.begin_fs for its in seen.values()]
        self.early_fs = max(layout.interval_fs, *spans_fs, 0) // EARLY
        self.needed = layout.needed()
        its_own = {field.name: getattr(known, field.name) for field in fields(Shot)}
        for name in ("outcome", "reason", "edges", "latency_fs", "skew_fs", "clock_fs"):
            del its_own[name]
        its_own["edges_found"] = {name: len(its.edges) for name, its in seen.items()}
        its_own["outliers"] = {name: its.outliers for name, its in seen.items() if its.outliers}
        # `replace` would look at all fields again: of a long record that takes most of the time.
        self.shot = partial(Shot, **its_own)

    def triggering(self, trigger: Trigger) -> list[Edge]:
        """Return the edges of a trigger's channel in its direction."""
        its = self.seen.get(trigger.channel)
        wanted = directions(trigger.slope)
        return [edge for edge in its.edges if edge.rising in wanted] if its else []


# -- the judge -------------------------------------------------------------------------------


def judge(
    layout: Layout,
    seen: Mapping[str, ChannelEdges],
    origin: Origin = Origin.SET_TRIGGER,
    known: Shot | None = None,
) -> list[Shot]:
    """Choose the edge of every channel at each event, subtract cable delays, and compare them.

    Every channel's instants count from the trigger edge of its own instrument, so that those of
    several instruments compare where all were triggered by one pin. A channel's edge is its first
    one of the trigger edge's direction that comes no earlier before it than `EARLY` allows, or its
    first one after it where that is nearer; for clocks, and where no publisher was recorded, the
    nearest one. A later event of the record ends what belongs to one; edges of the trigger's
    channel that follow within a twentieth of a triggered record are doubled ones. Whatever the
    signals are, this does not raise, and returns one shot at least; one that cannot be used keeps
    the edges that it has. What is known of the shots besides (N, when, what nodes said) is kept.
    """
    record = _Record(layout, seen, origin, known or Shot())
    faults = _faults_of_records(record)
    if origin is Origin.SET_TRIGGER:
        return [_shot(record, _trigger_event(record, faults), faults)]
    shots = [_shot(record, event, faults) for event in _events_of_reference(record)]
    return shots or [record.shot(outcome=MISSED, reason=_no_event(record))]


def judge_triggered(
    layout: Layout, waveforms: Mapping[str, Waveform], known: Shot | None = None
) -> Shot:
    """Find the edges of a record that the bench triggered, and judge the one shot in it."""
    (shot,) = judge(layout, edges_of_all(layout, waveforms), known=known)
    return shot


def directions(slope: str) -> tuple[bool, ...]:
    """Return which directions (True: rising) a slope stands for; both, unless it names one."""
    return _DIRECTIONS.get(slope, (True, False))


def _nearest(edges: Iterable[Edge], instant_fs: int = 0) -> Edge | None:
    return min(edges, key=lambda edge: abs(edge.instant_fs - instant_fs), default=None)


def _trigger_event(record: _Record, faults: list[str]) -> _Event:
    """Return the event of a record that the bench triggered; what is wrong goes to `faults`."""
    triggers: dict[str, Edge | None] = {}
    windows = {}
    for instrument, trigger in record.layout.triggers.items():
        edges = record.triggering(trigger)
        edge = _nearest(edges)
        if (its := record.seen.get(trigger.channel)) is not None:
            span_fs = its.end_fs - its.begin_fs
            limit_fs = max(span_fs // 100, 5 * its.interval_fs, _TOLERANCE_FS)
            if edge is None or abs(edge.instant_fs) > limit_fs:
                faults.append(_not_the_trigger(record.layout, instrument, edge))
                edge = None
        triggers[instrument] = edge
        windows[instrument] = (
            (-record.early_fs, None) if edge is None else _window(record, trigger, edge, edges)
        )
    return _Event(triggers, windows)


def _events_of_reference(record: _Record) -> Iterator[_Event]:
    """Yield the events of other records: edges of the one trigger's channel."""
    ((instrument, trigger),) = record.layout.triggers.items()
    edges = record.triggering(trigger)
    if record.origin is Origin.EVERY:
        windows = windows_of(record.layout, edges)
        if windows.begin_fs is not None and windows.end_fs is not None:
            ends = zip(windows.begin_fs.tolist(), windows.end_fs.tolist(), strict=True)
            for edge, window in zip(windows.events, ends, strict=True):
                yield _Event({instrument: edge}, {instrument: window})
            return
    if record.origin is Origin.TRIGGER:
        nearest = _nearest(edges)
        if nearest is not None:
            yield _Event(
                {instrument: nearest}, {instrument: _window(record, trigger, nearest, edges)}
            )
        return
    for at, edge in enumerate(edges):
        others = edges[max(at - 1, 0) : at + 2]
        yield _Event({instrument: edge}, {instrument: _window(record, trigger, edge, others)})


def _window(
    record: _Record, trigger: Trigger, event: Edge, edges: list[Edge]
) -> tuple[int | None, int | None]:
    """Return from when on, and up to when, edges belong to an event, cable delays subtracted."""
    here = event.instant_fs
    started = record.origin is Origin.START
    apart_fs = 0 if started else record.early_fs  # what is nearer is the event's edge, doubled
    gaps = [edge.instant_fs - here for edge in edges]
    before = min((-gap for gap in gaps if gap < -apart_fs), default=None)
    after = min((gap for gap in gaps if gap > apart_fs), default=None)
    here -= record.layout.channels[trigger.channel].cable_delay_fs
    if record.layout.symmetric:
        return (
            None if before is None else here - before // 2,
            None if after is None else here + after - after // 2,
        )
    end_fs = None if after is None else here + after - after // EARLY
    if not started:
        return here - record.early_fs, end_fs
    early = before if before is not None else after
    return None if early is None else here - early // EARLY, end_fs


def _shot(record: _Record, event: _Event, faults: list[str]) -> Shot:
    """Choose the edges of one event, and compare them."""
    layout, seen = record.layout, record.seen
    origins_fs = {
        instrument: 0
        if edge is None
        else edge.instant_fs - layout.channels[layout.triggers[instrument].channel].cable_delay_fs
        for instrument, edge in event.triggers.items()
    }
    edges = _chosen(record, event, origins_fs)
    missing = sorted(_needed(record, edges.keys()) - edges.keys())
    elsewhere = [name for name in missing if name in seen and seen[name].edges]
    if record.origin is Origin.EVERY:
        faults = faults + [_unanswered(layout, name) for name in elsewhere]
    else:
        faults = faults + [_elsewhere(layout, name, seen[name], origins_fs) for name in elsewhere]
    shot = partial(record.shot, edges=edges, origins_fs=tuple(origins_fs.values()))
    if faults:
        return shot(outcome=MISSED, reason=faults[0])
    if layout.kind == CLOCK:
        reference_fs = edges[layout.publisher].instant_fs
        others = {name: edge for name, edge in edges.items() if name != layout.publisher}
        clock_fs = {name: edge.instant_fs - reference_fs for name, edge in others.items()}
        return shot(clock_fs=clock_fs)

    def between(name: str, before: str) -> int | None:
        later, earlier = edges.get(name), edges.get(before)
        return later.instant_fs - earlier.instant_fs if later and earlier else None

    return shot(
        latency_fs=between(layout.first, layout.publisher),
        skew_fs=between(layout.last, layout.first),
    )


def _needed(record: _Record, there: Set[str]) -> set[str]:
    """Return the channels without whose edges a shot cannot be used.

    Of clocks, the bench watches those that the experiment names; whoever saves files by hand is
    content with one of them.
    """
    layout = record.layout
    edge_overrides = record.origin is not Origin.SET_TRIGGER
    if layout.kind == CLOCK and edge_overrides and there - {layout.publisher}:
        return {layout.publisher}
    return record.needed


def _chosen(record: _Record, event: _Event, origins_fs: Mapping[str, int]) -> dict[str, Edge]:
    """Choose the edge of each channel that has one, move it, and count those like it.

    Of several instruments, how uncertain its own trigger edge is adds to every other edge; of one,
    it acts on all alike.
    """
    layout = record.layout
    chosen: dict[str, Edge] = {}
    event_fs = 0
    for name in record.publisher_first:
        channel = layout.channels[name]
        trigger, source = layout.triggers[channel.instrument], event.triggers[channel.instrument]
        if source is None and trigger.channel == name:
            continue
        moved_fs = origins_fs[channel.instrument] + channel.cable_delay_fs
        within = _within(record, name, event.windows_fs[channel.instrument])
        wanted = directions(trigger.slope)
        rising = wanted if source is None else (source.rising,)
        # Of pins that toggle, the other direction counts where this one is not there.
        like = [e for e in within if e.rising in rising] or (within if len(wanted) > 1 else [])
        if trigger.channel == name:
            edge = source
        elif layout.symmetric:
            edge = _nearest(like, event_fs + moved_fs)
        elif record.origin is Origin.EVERY:
            edge = next(iter(like), None)  # an early one may be doubled after the event
        else:
            edge = _answer(like, moved_fs)
        if edge is None:
            continue
        more_fs = 0
        if source is not None and len(layout.triggers) > 1 and name != trigger.channel:
            more_fs = source.uncertainty_fs
        chosen[name] = Edge(
            instant_fs=edge.instant_fs - moved_fs,
            rising=edge.rising,
            uncertainty_fs=edge.uncertainty_fs + more_fs,
            quality=edge.quality,
            samples_in_rise=edge.samples_in_rise,
            clipped=edge.clipped or record.seen[name].clipped,
            found=max([each.rising for each in like].count(edge.rising), 1),
        )
        if name == layout.publisher:
            event_fs = chosen[name].instant_fs
    return chosen


def _within(record: _Record, name: str, window_fs: tuple[int | None, int | None]) -> list[Edge]:
    """Return a channel's edges that belong to an event."""
    times, delay_fs = record.times[name], record.layout.channels[name].cable_delay_fs
    begin_fs, end_fs = window_fs
    first = 0 if begin_fs is None else bisect_left(times, begin_fs + delay_fs)
    last = len(times) if end_fs is None else bisect_left(times, end_fs + delay_fs)
    return record.seen[name].edges[first:last]


def _answer(edges: list[Edge], event_fs: int) -> Edge | None:
    """Return the first edge from an event on, or the first of all where that is nearer to it.

    Nothing before the event is nearer than its true edge, unless a node was early.
    """
    for edge in edges:
        if edge.instant_fs >= event_fs:
            is_first_nearer = event_fs - edges[0].instant_fs <= edge.instant_fs - event_fs
            return edges[0] if is_first_nearer else edge
    return edges[0] if edges else None


# -- why a shot cannot be used ---------------------------------------------------------------


def _faults_of_records(record: _Record) -> list[str]:
    """Say what is wrong with the records themselves, whatever the event is."""
    layout, seen = record.layout, record.seen
    needed = _needed(record, {name for name, its in seen.items() if its.edges})
    faults = [f"There is no record of {layout.shown(name)}." for name in sorted(needed - set(seen))]
    for name, its in seen.items():
        if its.clipped:
            channel = layout.channels[name]
            faults.append(
                f"{layout.shown(name)} is clipped: its level lies beyond the "
                f"{channel.volts_per_division:g} V per division around {channel.offset_v:g} V; "
                "raise volts_per_division, or correct offset_v and probe."
            )
        elif name in needed and not its.edges:
            none = f"Fewer edges than channels: {layout.shown(name)} has none."
            faults.append(f"{none} {_outside(record, its)}")
    return faults


def _outside(record: _Record, its: ChannelEdges) -> str:
    """Say why a channel has no edge, and that its edge may lie outside the record."""
    around = (
        f", {its.begin_fs / FS_PER_US:.1f} to {its.end_fs / FS_PER_US:.1f} us around the trigger"
    )
    where = "" if record.origin is Origin.START or its.end_fs == its.begin_fs else around
    longer = record.layout.advice.longer
    return f"{its.why_not} Or its edge lies outside the record{where}: then {longer}."


def _not_the_trigger(layout: Layout, instrument: str, edge: Edge | None) -> str:
    trigger = layout.triggers[instrument]
    found = (
        f"has no {trigger.slope} edge"
        if edge is None
        else f"has its nearest {edge.instant_fs / FS_PER_US:.1f} us away from it"
    )
    return (
        f"{instrument} was triggered by something other than the edge of "
        f"{layout.shown(trigger.channel)}, which {found}; look at trigger source, level and "
        "slope, and whether the probes are on the pins that the experiment names."
    )


def _no_event(record: _Record) -> str:
    """Say that the channel whose edges are the events has none."""
    layout = record.layout
    (trigger,) = layout.triggers.values()
    its, name = record.seen[trigger.channel], layout.shown(trigger.channel)
    if not its.edges:
        return f"{name} has no edge. {_outside(record, its)}"
    either = layout.advice.either
    return f"{name} has no {trigger.slope} edge, and its others do not count (they do {either})."


def _unanswered(layout: Layout, name: str) -> str:
    """Say that a channel has no edge in the window of one of many events."""
    near = "nearer to it than to another event" if layout.symmetric else "before the next one"
    within = f"within {layout.within_fs / FS_PER_US:,.4g} us of it" if layout.within_fs else near
    return f"{layout.shown(name)} has no edge that belongs to the event: none is {within}."


def _elsewhere(layout: Layout, name: str, seen: ChannelEdges, origins_fs: Mapping[str, int]) -> str:
    """Say that none of a channel's edges belongs to the event."""
    channel = layout.channels[name]
    moved_fs = origins_fs[channel.instrument] + channel.cable_delay_fs
    # Edges are in order: of a long record not all of them are looked at for each event.
    after = bisect_left(seen.edges, moved_fs, key=lambda edge: edge.instant_fs)
    edge = _nearest(seen.edges[max(after - 1, 0) : after + 1], moved_fs)
    assert edge is not None
    at_us = (edge.instant_fs - moved_fs) / FS_PER_US
    where = f"{'rising' if edge.rising else 'falling'} at {at_us:.1f} us"
    event = layout.triggers[channel.instrument].channel
    return (
        f"Fewer edges than channels: {layout.shown(name)} has none that belongs to the one of "
        f"{event}: the nearest is {where}, the end of a pulse or an answer to another event. The "
        f"node did not answer within the record: {layout.advice.longer}; of pins that toggle, "
        f"either direction counts {layout.advice.either}."
    )
