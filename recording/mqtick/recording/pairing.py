"""Every event of a record becomes a shot; what pairs with none is counted, with its reason."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mqtick.recording.channel_edges import ChannelEdges
from mqtick.recording.edges import instants_of
from mqtick.recording.every_event import Windows, windows_of
from mqtick.recording.judge import Origin, directions, judge
from mqtick.recording.layout import Layout
from mqtick.recording.shot import CAPTURED, MISSED, Shot
from mqtick.recording.units import FS_PER_US

LEFT_OUT = "left out"
Tally = Counter[tuple[str, str]]
"""How many there are of something, by channel and by what it is."""


def pair(layout: Layout, seen: Mapping[str, ChannelEdges], tally: Tally) -> list[Shot]:
    """Judge every event of a record; `tally` counts what is not in a shot.

    An event without an answer whose window goes on beyond the record's end is left out: nobody
    knows whether there was one. Where a channel has no answer to an event and several after the
    next one, that shot is missed: nobody knows whose is whose.
    """
    ((_, trigger),) = layout.triggers.items()
    its = seen[trigger.channel]
    edges = [edge for edge in its.edges if edge.rising in directions(trigger.slope)]
    windows = windows_of(layout, edges)
    shots = judge(layout, seen, Origin.EVERY)
    if windows.doubled:
        close_us = windows.doubled_fs / FS_PER_US
        what = f"within {close_us:,.4g} us after another one, left out as doubled"
        tally[trigger.channel, what] += windows.doubled
    if windows.begin_fs is None or windows.end_fs is None:
        return shots
    _count_strays(layout, seen, windows, tally)
    needed = sorted(layout.needed() - {trigger.channel})
    if not layout.symmetric:
        shots = _without_ambiguous(shots, needed, tally)
    return _whole(layout, seen, windows, shots, tally)


def describe(tally: Tally) -> list[str]:
    """Return one sentence for each thing that was counted."""
    lines = []
    for (name, what), count in tally.items():
        more = "" if count == 1 else "s"
        of = f"{count:,} event{more}" if name == LEFT_OUT else f"{name}: {count:,} edge{more}"
        lines.append(f"{of} {what}.")
    return lines


def _count_strays(
    layout: Layout, seen: Mapping[str, ChannelEdges], windows: Windows, tally: Tally
) -> None:
    ((_, trigger),) = layout.triggers.items()
    assert windows.begin_fs is not None
    assert windows.end_fs is not None
    wanted = directions(trigger.slope)
    for name, its in seen.items():
        if name == trigger.channel:
            continue
        delay_fs = layout.channels[name].cable_delay_fs
        at = instants_of([e for e in its.edges if e.rising in wanted]) - delay_fs
        window = np.searchsorted(windows.begin_fs, at, "right") - 1
        early = int(np.count_nonzero(window < 0))
        late = int(np.count_nonzero(at[window >= 0] >= windows.end_fs[window[window >= 0]]))
        if early:
            tally[name, "before the first event: of no event of the record"] += early
        if late:
            reach_us = windows.reach_fs / FS_PER_US
            what = f"of no event: none is within {reach_us:,.4g} us before"
            tally[name, what if not layout.symmetric else what.replace(" before", "")] += late


def _without_ambiguous(shots: list[Shot], needed: list[str], tally: Tally) -> list[Shot]:
    found = shots[:1]
    for before, shot in itertools.pairwise(shots):
        for name in needed if shot.outcome == CAPTURED else ():
            edge = shot.edges.get(name)
            if edge is None or name in before.edges:
                continue
            if edge.found > 1:
                reason = (
                    f"{name} has {edge.found} edges after this event and none after the one "
                    "before: one of them may be a late answer to that one."
                )
                shot = replace(  # noqa: PLW2901 - the same shot, no longer of use
                    shot, outcome=MISSED, reason=reason, latency_fs=None, skew_fs=None
                )
                break
            what = (
                "alone after an event that follows one without any; if an answer can be later "
                "than the next event, that may be the late answer to the one before"
            )
            tally[name, what] += 1
        found.append(shot)
    return found


def _whole(
    layout: Layout,
    seen: Mapping[str, ChannelEdges],
    windows: Windows,
    shots: list[Shot],
    tally: Tally,
) -> list[Shot]:
    """Leave out events without an answer whose windows are not wholly in the record."""
    assert windows.begin_fs is not None
    assert windows.end_fs is not None
    ends = [(its.begin_fs, its.end_fs) for its in seen.values() if its.interval_fs]
    if not ends:
        return shots
    needed = layout.needed()
    first_fs, last_fs = max(begin for begin, _ in ends), min(end for _, end in ends)
    rows = zip(shots, windows.begin_fs.tolist(), windows.end_fs.tolist(), strict=True)
    kept = [
        shot
        for shot, begin_fs, end_fs in rows
        if shot.outcome == CAPTURED
        or needed <= set(shot.edges)  # it has its answers, and is unusable for another reason
        or (end_fs <= last_fs and (begin_fs >= first_fs or not layout.symmetric))
    ]
    if len(kept) < len(shots) and kept:
        what = "at an end of the record, without an answer within it: left out"
        tally[LEFT_OUT, what] += len(shots) - len(kept)
    return kept or shots
