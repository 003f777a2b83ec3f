"""A typical shot from files that were saved by hand, to be drawn."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqtick.analysis.captures.groups import Group, read_group
from mqtick.analysis.captures.naming import resolve
from mqtick.analysis.measurement import Example, Shot
from mqtick.analysis.signals.capture import Capture, CaptureError
from mqtick.analysis.signals.cut import cut
from mqtick.analysis.signals.overlay import thinned

__all__ = ["Origin", "example_of"]

_LEAST_SPAN_FS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a shot came from: which capture of all, and of its group, and when in it."""

    capture: int
    group: Group
    place: int
    instant_fs: int


def example_of(
    shot: Shot,
    origin: Origin,
    capture: Capture | None,
    channels: Mapping[str, str],
    cable_delay_fs: Mapping[str, int],
) -> Example | None:
    """Return what a shot looks like; its capture is read again unless it is still in memory."""
    group, origin_fs = origin.group, origin.instant_fs
    try:
        if capture is None:
            _, capture = next(itertools.islice(read_group(group, []), origin.place, None))
    except (CaptureError, StopIteration):
        return None
    found = resolve(channels, capture)
    # From a long record, only the part around the event.
    span_fs = max(_LEAST_SPAN_FS, *(abs(mark.instant_fs) for mark in shot.marks.values()))
    traces = {}
    for name, mark in shot.marks.items():
        moved_fs = origin_fs + cable_delay_fs.get(name, 0)
        signal = capture.signals[found[name]]
        if not capture.triggered:
            signal = cut(signal, origin_fs - span_fs // 2, origin_fs + 2 * span_fs)
        traces[name] = thinned(signal, [mark.instant_fs + moved_fs], moved_fs)
    return Example(shot.number, traces, shot.marks)
