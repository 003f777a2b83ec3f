"""A typical shot from files that were saved by hand, to be drawn."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqtick.analysis.captures.groups import Group, read_group
from mqtick.analysis.captures.naming import resolve
from mqtick.analysis.measurement import Example, Shot
from mqtick.analysis.overlay import thinned
from mqtick.recording.capture import Capture, CaptureError
from mqtick.recording.cut import cut

_LEAST_SPAN_FS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shot came from: which capture of all, and of its group, and when in it."""

    capture: int
    group: Group
    place: int
    instant_fs: int


def example_of(
    shot: Shot,
    origin: Place,
    capture: Capture | None,
    channels: Mapping[str, str],
    cable_delay_fs: Mapping[str, int],
    *,
    many: bool,
) -> Example | None:
    """Return what a shot looks like; its capture is read again unless it is still in memory.

    Of a record of `many` events, only the part around this one.
    """
    group, origin_fs = origin.group, origin.instant_fs
    try:
        if capture is None:
            _, capture = next(itertools.islice(read_group(group, []), origin.place, None))
    except (CaptureError, StopIteration):
        return None
    found = resolve(channels, capture)
    span_fs = max(_LEAST_SPAN_FS, *(abs(mark.instant_fs) for mark in shot.edges.values()))
    traces = {}
    for name, mark in shot.edges.items():
        moved_fs = origin_fs + cable_delay_fs.get(name, 0)
        signal = capture.signals[found[name]]
        if many or not capture.triggered:
            signal = cut(signal, origin_fs - span_fs // 2, origin_fs + 2 * span_fs)
        traces[name] = thinned(signal, [mark.instant_fs + moved_fs], moved_fs)
    return Example(shot.number, traces, shot.edges)
