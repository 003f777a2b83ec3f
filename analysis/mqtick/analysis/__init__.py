"""mqtick: the analysis room, from captures to edges."""

from mqtick.analysis.edges import Edge, EdgeError, StateLevels, find_edges, state_levels
from mqtick.analysis.readers.sigrok import SigrokFileError, read_sigrok
from mqtick.analysis.readers.vcd import VcdError, read_vcd
from mqtick.analysis.transitions import Transitions
from mqtick.analysis.waveform import Waveform, femtoseconds

__all__ = [
    "Edge",
    "EdgeError",
    "SigrokFileError",
    "StateLevels",
    "Transitions",
    "VcdError",
    "Waveform",
    "femtoseconds",
    "find_edges",
    "read_sigrok",
    "read_vcd",
    "state_levels",
]
