"""mqtick: the analysis room, from captures to reports. `load(path)` reads whatever was measured."""

from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.load import load
from mqtick.analysis.measurement import Measurement
from mqtick.analysis.readers.sigrok import SigrokFileError, read_sigrok
from mqtick.analysis.readers.vcd import VcdError, read_vcd
from mqtick.analysis.signals.edges import Edge, EdgeError, StateLevels, find_edges, state_levels
from mqtick.analysis.signals.transitions import Transitions
from mqtick.analysis.signals.waveform import Waveform, femtoseconds

__all__ = [
    "CaptureOptions",
    "Edge",
    "EdgeError",
    "Measurement",
    "SigrokFileError",
    "StateLevels",
    "Transitions",
    "VcdError",
    "Waveform",
    "femtoseconds",
    "find_edges",
    "load",
    "read_sigrok",
    "read_vcd",
    "state_levels",
]
