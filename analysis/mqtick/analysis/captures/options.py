"""What a user says about captures that do not say it themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from mqtick.recording.edge_overrides import NO_OVERRIDES, EdgeOverrides

MINIMUM_V: Final = 0.5
"""Below this amplitude in volts, a signal does not count, unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What a user says about files that do not say it themselves.

    Attributes:
        channels: name ("publisher", "first", "last", "reference", or any other) to channel.
        kind: latency, skew or clock; "": skew where there are a first and a last one, else latency.
        subscribers: pairs of a pattern of file names and N; the first that matches counts.
        cable_delay_fs: what is subtracted from the edges of a name.
        edge: rising or falling, the direction that counts; both: for pins that toggle.
        minimum_v: least amplitude of a signal in V.
        timebase_ppm: how far the instrument's time base may be off, in parts per million.
        title: of the report.
        channel_uncertainty_fs: by how much two channels may differ after deskew.
        simulated: whether what was recorded was simulated.
        edge_overrides: thresholds, inversions and a window, where finding the edges fails.
        every_event: whether each edge of the publisher is an event, in a triggered record too.
        units: of two columns of text without a line of names, that of the times and that of the
            offsets: "s,ns"; "s,-ns" where these are local minus reference.
        within_fs: with `every_event`, the longest time from an event to an answer; 0: up to the
            usual time between two events.
    """

    channels: dict[str, str] = field(default_factory=dict)
    kind: str = ""
    subscribers: list[tuple[str, int]] = field(default_factory=list)
    cable_delay_fs: dict[str, int] = field(default_factory=dict)
    edge: str = "rising"
    minimum_v: float = MINIMUM_V
    timebase_ppm: float = 25.0
    title: str = ""
    channel_uncertainty_fs: int = 0
    simulated: bool = False
    edge_overrides: EdgeOverrides = NO_OVERRIDES
    every_event: bool = False
    within_fs: int = 0
    units: str = ""

    def subscribers_of(self, paths: Sequence[Path]) -> int:
        """Return N of a capture that was read from these files, 0 where nothing was said."""
        for pattern, number in self.subscribers:
            if any(matches(path, pattern) for path in paths):
                return number
        return 0


def matches(path: Path, pattern: str) -> bool:
    """Whether a pattern (`*n100*`) is for a file: by its name, or by its whole path."""
    return fnmatch(path.name, pattern) or fnmatch(str(path), pattern)
