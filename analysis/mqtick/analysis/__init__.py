"""mqtick: the analysis room, from captures to reports.

`load(path)` reads whatever was measured, `analyse` works out its numbers, and the frames are its
data for notebooks.
"""

from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.load import load
from mqtick.analysis.measurement import Measurement
from mqtick.analysis.readers.vcd import VcdError, read_vcd
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.frames import (
    clock_frame,
    edges_frame,
    latency_frame,
    pairs_frame,
    skew_frame,
)
from mqtick.recording.edge_overrides import EdgeOverrides, Rule
from mqtick.recording.edges import Edge, EdgeError, StateLevels, find_edges, state_levels
from mqtick.recording.sigrok import SigrokFileError, read_sigrok
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform, femtoseconds

__all__ = [
    "CaptureOptions",
    "Edge",
    "EdgeError",
    "EdgeOverrides",
    "Measurement",
    "Rule",
    "SigrokFileError",
    "StateLevels",
    "Transitions",
    "VcdError",
    "Waveform",
    "analyse",
    "clock_frame",
    "edges_frame",
    "femtoseconds",
    "find_edges",
    "latency_frame",
    "load",
    "pairs_frame",
    "read_sigrok",
    "read_vcd",
    "skew_frame",
    "state_levels",
]
