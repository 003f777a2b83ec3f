"""mqtick: the analysis room, from captures to reports.

`load(path)` reads whatever was measured, `analyse` works out its numbers, and the frames are its
data for notebooks. `figure` and `write_paper` draw it.
"""

from typing import TYPE_CHECKING

from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.load import load
from mqtick.analysis.measurement import Measurement
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.frames import (
    clock_frame,
    edges_frame,
    latency_frame,
    pairs_frame,
    skew_frame,
)
from mqtick.recording.edge_overrides import EdgeOverrides, Rule

if TYPE_CHECKING:
    from mqtick.analysis.report.notebook import figure
    from mqtick.analysis.report.paper import write_paper

__all__ = [
    "CaptureOptions",
    "EdgeOverrides",
    "Measurement",
    "Rule",
    "analyse",
    "clock_frame",
    "edges_frame",
    "figure",
    "latency_frame",
    "load",
    "pairs_frame",
    "skew_frame",
    "write_paper",
]


def __getattr__(name: str) -> object:
    """Import what draws when it is used: Matplotlib takes a second."""
    if name == "figure":
        from mqtick.analysis.report.notebook import figure  # noqa: PLC0415

        return figure
    if name == "write_paper":
        from mqtick.analysis.report.paper import write_paper  # noqa: PLC0415

        return write_paper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
