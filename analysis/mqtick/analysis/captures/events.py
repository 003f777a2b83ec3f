"""Which edges of a capture belong to one event: the publisher's, and every node's answer to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mqtick.analysis.measurement import CLOCK, Mark
from mqtick.analysis.runs.answering_edge import EARLY, alike, answer, directions, mark_of, nearest
from mqtick.analysis.signals.capture import Signal
from mqtick.analysis.signals.edges import (
    MOST_EDGES,
    Edge,
    EdgeError,
    find_edges,
    state_levels,
    too_many,
)
from mqtick.analysis.signals.said import no_passage, outliers_of
from mqtick.analysis.signals.transitions import UNKNOWN, Transitions
from mqtick.analysis.signals.waveform import Waveform

__all__ = ["Event", "Parts", "Seen", "events_of", "look"]

_OUTSIDE: Final = "Its edge may lie outside the record: record more before and after the trigger."
_LEVELS: Final = {0: "0", 1: "1", UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class Parts:
    """Who is measured: names, the reference first; `first` and `last` are "" if there is none."""

    kind: str
    nodes: tuple[str, ...]
    reference: str
    first: str = ""
    last: str = ""

    @property
    def symmetric(self) -> bool:
        """Whether a node may be before the reference as well as after it."""
        return self.kind == CLOCK or self.reference == self.first


@dataclass(frozen=True, slots=True)
class Seen:
    """What one node's signal shows: its edges, cable delay subtracted; or why it has none.

    `span_fs` is how long its record is, as far as that is known; `outliers` says what lies far
    outside its levels, "" where nothing does.
    """

    edges: list[Edge] = field(default_factory=list)
    why_not: str = ""
    span_fs: int = 0
    outliers: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: when in its capture (fs after the capture's origin), and everybody's edges.

    The instants of `marks` count from the event. `reason` is "" where it can be used.
    """

    origin_fs: int = 0
    marks: Mapping[str, Mark] = field(default_factory=dict)
    reason: str = ""


def look(signal: Signal, cable_delay_fs: int, minimum_v: float) -> Seen:
    """Find a signal's edges."""
    if not isinstance(signal, Waveform):
        if (count := signal.instants_fs.size + signal.missing) > MOST_EDGES:
            return Seen(why_not=too_many(count))
        ends = signal.instants_fs[[0, -1]].tolist() if signal.instants_fs.size else [0, 0]
        edges = signal.edges(cable_delay_fs)
        return Seen(edges, _unchanged(signal, edges), span_fs=ends[1] - ends[0])
    try:
        levels = state_levels(signal, minimum_v)
        edges = find_edges(signal, minimum_v, levels)
    except EdgeError as error:
        return Seen(why_not=str(error))
    return Seen(
        [replace(edge, instant_fs=edge.instant_fs - cable_delay_fs) for edge in edges],
        "" if edges else f"{no_passage(signal, levels)} {_OUTSIDE}",
        int(signal.codes.size) * signal.interval_fs,
        outliers_of(signal, levels),
    )


def _unchanged(signal: Transitions, edges: list[Edge]) -> str:
    """Say what a digital signal without an edge shows, "" if it has one."""
    if edges:
        return ""
    levels = dict.fromkeys([signal.initial, *signal.levels.tolist()])
    return f"Its level is {' and '.join(_LEVELS[each] for each in levels)} throughout. {_OUTSIDE}"


def events_of(
    parts: Parts, seen: Mapping[str, Seen], slope: str, *, triggered: bool
) -> tuple[list[Event], int]:
    """Return a capture's events, and how many edges of the reference were not used as one.

    Triggered: the reference's edge nearest to the trigger is the event, and a node's edge is chosen
    as in a run folder (see `choose.judge`); edges of the reference that follow within a twentieth
    of the record are doubled ones, and later ones end what belongs to the event. Else each of its
    edges in the wanted direction is an event, and a node's first edge of that direction belongs to
    the event before it; for clocks, and where no publisher was recorded, to the nearest event.
    """
    wanted = directions(slope)
    reference = seen[parts.reference]
    edges = [edge for edge in reference.edges if edge.rising in wanted]
    if not edges:
        which = f" {slope}" if len(wanted) == 1 and reference.edges else ""
        why = reference.why_not or "Its other edges are ignored (--edge both uses them)."
        return [Event(reason=f"{parts.reference} has no{which} edge. {why}")], 0
    instants = [edge.instant_fs for edge in edges]
    chosen = edges
    if triggered:
        mark = nearest(edges)
        assert mark is not None
        chosen = [mark]
        early_fs = max(each.span_fs for each in seen.values()) // EARLY
        at_fs = mark.instant_fs
        instants = [each for each in instants if each == at_fs or abs(each - at_fs) > early_fs]
    times = {name: [edge.instant_fs for edge in each.edges] for name, each in seen.items()}
    toggles = len(wanted) > 1
    events = []
    for event in chosen:
        origin_fs = event.instant_fs
        index = bisect_left(instants, origin_fs)
        begin_fs, end_fs = _window(instants, index, symmetric=parts.symmetric)
        if triggered and not parts.symmetric:
            begin_fs = origin_fs - early_fs
        marks = {}
        for name in parts.nodes:
            at = times[name]
            first = 0 if begin_fs is None else bisect_left(at, begin_fs)
            last = len(at) if end_fs is None else bisect_left(at, end_fs)
            like = alike(seen[name].edges[first:last], (event.rising,), toggles=toggles)
            edge = event if name == parts.reference else _its(parts, like, origin_fs, triggered)
            if edge is not None:
                moved = replace(edge, instant_fs=edge.instant_fs - origin_fs)
                found = sum(each.rising == edge.rising for each in like)
                marks[name] = mark_of(moved, max(found, 1))
        events.append(Event(origin_fs, marks, _missing(parts, seen, marks)))
    return events, len(edges) - len(chosen)


def _its(parts: Parts, edges: list[Edge], event_fs: int, triggered: bool) -> Edge | None:
    """Return which of the edges that belong to an event is its node's."""
    if parts.symmetric:
        return nearest(edges, event_fs)
    return answer(edges, event_fs) if triggered else next(iter(edges), None)


def _window(instants: list[int], index: int, *, symmetric: bool) -> tuple[int | None, int | None]:
    """Return from when on, and up to when, edges belong to an event; None: without end."""
    here = instants[index]
    before = here - instants[index - 1] if index else None
    after = instants[index + 1] - here if index + 1 < len(instants) else None
    if symmetric:
        return (
            None if before is None else here - before // 2,
            None if after is None else here + after - after // 2,
        )
    early = before if before is not None else after
    return (
        None if early is None else here - early // EARLY,
        None if after is None else here + after - after // EARLY,
    )


def _missing(parts: Parts, seen: Mapping[str, Seen], marks: Mapping[str, Mark]) -> str:
    """Say which required edge of the event is missing, "" if none is."""
    if parts.kind == CLOCK:
        if len(marks) > 1:
            return ""
        needed = [name for name in parts.nodes if name != parts.reference]
    else:
        needed = [name for name in (parts.first, parts.last) if name]
    for name in needed:
        if name not in marks:
            why = seen[name].why_not or (
                "It has edges elsewhere: it did not answer this time, or it did in the other "
                "direction (--edge both)."
            )
            return f"{name} has no edge that belongs to the one of {parts.reference}. {why}"
    return ""
