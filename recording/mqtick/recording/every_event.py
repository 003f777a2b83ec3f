"""Many events in one record: which edges are events, and from when to when answers are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.edges import Edge, instants_of
from mqtick.recording.layout import Layout

EARLY: Final = 20
"""A node may be early (the publisher drives its own pin once it has sent) by this part of
the time between two events, or of a record where that is not known or longer. What comes still
earlier is an answer to an event before."""

Instants = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The events of a record, and the window of each.

    Attributes:
        events: the edges that are events, in their order.
        begin_fs, end_fs: the window of each, cable delays subtracted; they do not overlap. None
            where there is one event and nothing bounds it.
        reach_fs: the longest time from an event to an answer, 0: not known.
        doubled: how many edges follow an event so closely that they are its edge again.
        doubled_fs: how closely that is.
    """

    events: list[Edge]
    begin_fs: Instants | None
    end_fs: Instants | None
    reach_fs: int = 0
    doubled: int = 0
    doubled_fs: int = 0


def windows_of(layout: Layout, edges: Sequence[Edge]) -> Windows:
    """Return the events among the edges of the trigger's channel, in its direction and in order.

    An edge that follows an event by less than a twentieth of the usual time between two (or of
    `within_fs`) is that event's edge, doubled. The window of an event ends with `within_fs` or the
    usual time between two events, and a twentieth before the next event; for clocks, and where no
    publisher was recorded, it is as long on either side, up to half the way to the next event.
    """
    at = instants_of(edges)
    usual_fs = layout.within_fs or _usual_fs(np.diff(at))
    apart_fs = usual_fs // EARLY
    kept: list[int] = []
    for index, instant_fs in enumerate(at.tolist()):
        if not kept or instant_fs - int(at[kept[-1]]) > apart_fs:
            kept.append(index)
    events = [edges[index] for index in kept]
    doubled = at.size - len(kept)
    if not usual_fs or not kept:
        return Windows(events, None, None)
    ((_, trigger),) = layout.triggers.items()
    here = at[kept] - layout.channels[trigger.channel].cable_delay_fs
    gaps = np.diff(here)
    # Beyond the ends of the record nothing is nearer than usual.
    if layout.symmetric:
        reach_fs = layout.within_fs or usual_fs // 2
        before, after = np.append(reach_fs, gaps // 2), np.append(gaps - gaps // 2, reach_fs)
    else:
        reach_fs = usual_fs
        before = np.append(usual_fs, gaps) // EARLY
        after = np.append(gaps - gaps // EARLY, usual_fs)
        before = np.minimum(before, usual_fs // EARLY)
    begin = here - np.minimum(before, reach_fs)
    end = here + np.minimum(after, reach_fs)
    return Windows(events, begin, end, reach_fs, doubled, apart_fs)


def _usual_fs(gaps: Instants) -> int:
    """Return the time between two events that half of the record's time consists of at least.

    Doubled edges are many but short, and so hardly count.
    """
    if not gaps.size:
        return 0
    ordered = np.sort(gaps)
    covered = np.cumsum(ordered.astype(np.float64))
    return int(ordered[int(np.searchsorted(covered, covered[-1] / 2))])
