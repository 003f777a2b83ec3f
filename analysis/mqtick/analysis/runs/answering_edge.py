"""Which of a node's edges belongs to an event, in a run folder or in captures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from mqtick.analysis.measurement import Mark
from mqtick.analysis.signals.edges import Edge

__all__ = ["EARLY", "alike", "answer", "directions", "mark_of", "nearest"]

EARLY: Final = 20
"""A node may be early (the publisher drives its own pin once it has sent) by this part of
the time between two events, or of a record where that is not known or longer. What comes still
earlier is an answer to an event before."""


def directions(slope: str) -> tuple[bool, ...]:
    """Return which directions (True: rising) a slope stands for; both, unless it names one."""
    return {"rising": (True,), "falling": (False,)}.get(slope, (True, False))


def nearest(edges: Iterable[Edge], instant_fs: int = 0) -> Edge | None:
    """Return the edge nearest to an instant, None if there are no edges."""
    return min(edges, key=lambda edge: abs(edge.instant_fs - instant_fs), default=None)


def alike(edges: list[Edge], rising: Iterable[bool], *, toggles: bool) -> list[Edge]:
    """Return the edges of these directions; all if there is none and the pins toggle."""
    return [edge for edge in edges if edge.rising in rising] or (edges if toggles else [])


def answer(edges: list[Edge], event_fs: int = 0) -> Edge | None:
    """Return the first edge from an event on, or the first of all where that is nearer to it.

    Nothing before the event is nearer than its true edge, unless a node was early.
    """
    after = (edge for edge in edges if edge.instant_fs >= event_fs)
    return nearest((*edges[:1], *itertools.islice(after, 1)), event_fs)


def mark_of(edge: Edge, found: int) -> Mark:
    """Return what a shot keeps of an edge, and of how many there are like it."""
    return Mark(
        edge.instant_fs,
        edge.rising,
        edge.uncertainty_fs,
        found,
        edge.clipped,
        edge.quality,
        edge.samples_in_rise,
    )
