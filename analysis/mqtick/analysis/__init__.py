"""mqtick: the analysis room, from captures to reports.

`load(path)` reads whatever was measured, `analyse` works out its numbers, and the frames are its
data for notebooks.
"""

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

__all__ = [
    "CaptureOptions",
    "EdgeOverrides",
    "Measurement",
    "Rule",
    "analyse",
    "clock_frame",
    "edges_frame",
    "latency_frame",
    "load",
    "pairs_frame",
    "skew_frame",
]
