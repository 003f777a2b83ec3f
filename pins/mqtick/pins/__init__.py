"""Pins: edges on GPIO lines, each with the time bracket in which it was made.

`open_output(PinSettings(backend=..., line=...))` gives an `Output`; `Output.fire()` makes an edge
and returns its `Edge`; `Pps` makes one at each whole second.
"""

from mqtick.pins.base import (
    COMPLETE_US,
    Clock,
    Edge,
    LatencyClass,
    Line,
    Mode,
    PinError,
    PinSettings,
    PulseLine,
    monotonic_raw_ns,
)
from mqtick.pins.discovery import GROUP, backends, open_line, open_output
from mqtick.pins.keeper import Keeper, keepers
from mqtick.pins.memory import (
    RECORD_OCTETS,
    MemoryLine,
    PinRecord,
    decode_record,
    encode_record,
)
from mqtick.pins.output import Output
from mqtick.pins.pps import Pps, PpsEdge, RawOfTime

__all__ = [
    "COMPLETE_US",
    "GROUP",
    "RECORD_OCTETS",
    "Clock",
    "Edge",
    "Keeper",
    "LatencyClass",
    "Line",
    "MemoryLine",
    "Mode",
    "Output",
    "PinError",
    "PinRecord",
    "PinSettings",
    "Pps",
    "PpsEdge",
    "PulseLine",
    "RawOfTime",
    "backends",
    "decode_record",
    "encode_record",
    "keepers",
    "monotonic_raw_ns",
    "open_line",
    "open_output",
]
