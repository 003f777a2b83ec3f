"""mqtick: the analysis room, from captures to edges."""

from mqtick.analysis.edges import Edge, EdgeError, StateLevels, find_edges, state_levels
from mqtick.analysis.waveform import Waveform, femtoseconds

__all__ = [
    "Edge",
    "EdgeError",
    "StateLevels",
    "Waveform",
    "femtoseconds",
    "find_edges",
    "state_levels",
]
