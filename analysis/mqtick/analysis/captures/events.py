"""Which edges of a capture belong to one event: the publisher's, and every node's answer to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mqtick.analysis.measurement import CLOCK, Mark
from mqtick.analysis.runs.choose import alike, directions, nearest
from mqtick.analysis.signals.capture import Signal
from mqtick.analysis.signals.edges import Edge, EdgeError, find_edges, is_clipped
from mqtick.analysis.signals.waveform import Waveform

__all__ = ["Event", "Parts", "Seen", "events_of", "look"]

_EARLY: Final = 20
"""A node may be early (its pin may be faster than the publisher's own) by this part of the time
between two events; what comes still earlier is a late answer to the event before."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Who is measured: names, the reference first; `first` and `last` are "" where none is."""

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
    """What one node's signal shows: its edges, cable delay taken off; why it has none."""

    edges: list[Edge] = field(default_factory=list)
    clipped: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: when in its capture (fs after the capture's origin), and everybody's edges.

    The instants of `marks` count from the event. `reason` is "" where it can be used.
    """

    origin_fs: int = 0
    marks: Mapping[str, Mark] = field(default_factory=dict)
    reason: str = ""


def look(signal: Signal, cable_delay_fs: int, minimum_v: float) -> Seen:
    """Find a signal's edges, however many there are."""
    if not isinstance(signal, Waveform):
        return Seen(signal.edges(cable_delay_fs))
    try:
        edges = find_edges(signal, minimum_v)
    except EdgeError as error:
        return Seen(why_not=str(error))
    moved = [Edge(e.instant_fs - cable_delay_fs, e.rising, e.uncertainty_fs) for e in edges]
    return Seen(moved, is_clipped(signal))


def events_of(
    parts: Parts, seen: Mapping[str, Seen], slope: str, *, triggered: bool
) -> tuple[list[Event], int]:
    """Return a capture's events, and how many edges of the reference were not taken for one.

    Triggered: the reference's edge nearest to the trigger is the event. Else each of its edges in
    the wanted direction is one, and a node's first edge of that direction belongs to the event
    before it; for clocks, and where no publisher was recorded, to the nearest event.
    """
    wanted = directions(slope)
    reference = seen[parts.reference]
    edges = [edge for edge in reference.edges if edge.rising in wanted]
    if not edges:
        which = f" {slope}" if len(wanted) == 1 and reference.edges else ""
        why = reference.why_not or (
            "Its other edges are not looked at (--edge both does)."
            if reference.edges
            else "Its edge may lie outside the record: record more before the trigger."
        )
        return [Event(reason=f"{parts.reference} has no{which} edge. {why}")], 0
    instants = [edge.instant_fs for edge in edges]
    chosen = range(len(edges))
    if triggered:
        mark = nearest(edges)
        assert mark is not None
        chosen = range(edges.index(mark), edges.index(mark) + 1)
    times = {name: [edge.instant_fs for edge in each.edges] for name, each in seen.items()}
    toggles = triggered or len(wanted) > 1
    events = []
    for index in chosen:
        begin_fs, end_fs = _window(instants, index, symmetric=parts.symmetric)
        marks, origin_fs = {}, instants[index]
        for name in parts.nodes:
            at = times[name]
            first = 0 if begin_fs is None else bisect_left(at, begin_fs)
            last = len(at) if end_fs is None else bisect_left(at, end_fs)
            within = seen[name].edges[first:last]
            edge = edges[index]
            if name != parts.reference:
                like = [each for each in within if each.rising == edge.rising]
                like = alike(within, (edge.rising,)) if toggles else like
                found = nearest(like, origin_fs) if parts.symmetric else next(iter(like), None)
                if found is None:
                    continue
                edge = found
            marks[name] = Mark(
                edge.instant_fs - origin_fs,
                edge.rising,
                edge.uncertainty_fs,
                max(sum(each.rising == edge.rising for each in within), 1),
                seen[name].clipped,
            )
        events.append(Event(origin_fs, marks, _missing(parts, seen, marks)))
    return events, len(edges) - len(chosen)


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
        None if early is None else here - early // _EARLY,
        None if after is None else here + after - after // _EARLY,
    )


def _missing(parts: Parts, seen: Mapping[str, Seen], marks: Mapping[str, Mark]) -> str:
    """Say which edge is missing without which the event is of no use, "" where none is."""
    if parts.kind == CLOCK:
        if len(marks) > 1:
            return ""
        needed = [name for name in parts.nodes if name != parts.reference]
    else:
        needed = [name for name in (parts.first, parts.last) if name]
    for name in needed:
        if name not in marks:
            why = seen[name].why_not or (
                "It has edges elsewhere: it did not answer this time, or in the other direction "
                "(--edge both)."
                if seen[name].edges
                else "Its edge may lie outside the record: record longer."
            )
            return f"{name} has no edge that belongs to the one of {parts.reference}. {why}"
    return ""
