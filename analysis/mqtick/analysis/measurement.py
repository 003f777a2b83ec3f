"""What was measured: the edges of every node in every shot, and the clocks' time errors.

Whatever it was read from (a run folder, files of an oscilloscope, a client's sample log), it is
this; nothing after it knows where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqtick.recording.edges import Edge
from mqtick.recording.layout import CLOCK, LATENCY, SKEW
from mqtick.recording.shot import CAPTURED, MISSED, REFUSED, Shot
from mqtick.recording.units import Floats

__all__ = [
    "CAPTURED",
    "CLOCK",
    "LATENCY",
    "MISSED",
    "REFUSED",
    "SKEW",
    "Example",
    "Measurement",
    "Shot",
    "TimeErrors",
]


@dataclass(frozen=True, slots=True, eq=False)
class TimeErrors:
    """The time error of one clock over time: reference minus local; positive: it is behind.

    Attributes:
        name: of the clock's node.
        seconds: when, in s since `started_ns`, increasing, not always evenly.
        error_ns: the time error.
        lower_ns, upper_ns: the interval that was stated for it, None where none was.
        started_ns: in ns of the Unix epoch, None where it is not known.
        source: what measured it: "pps edges", "samples of the client".
    """

    name: str
    seconds: Floats
    error_ns: Floats
    lower_ns: Floats | None = None
    upper_ns: Floats | None = None
    started_ns: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A typical shot to be drawn: each node's waveform around its edges, thinned out.

    `traces` has, by node, instants in us after the shot's origin and volts; `edges` its edges.
    """

    number: int
    traces: Mapping[str, tuple[Floats, Floats]]
    edges: Mapping[str, Edge]


@dataclass(slots=True)
class Measurement:
    """Everything that was measured.

    Attributes:
        title: what the user calls it.
        kind: LATENCY, SKEW or CLOCK: what it was made for.
        simulated: whether an instrument or a measured node was simulated.
        nodes: names of the measured nodes, the reference (publisher) first.
        reference, first, last: which of them is which, "" if there is none.
        shots: in the order of their numbers; empty for a sample log.
        time_errors: one for each clock that was watched.
        example: a typical shot, None where no waveforms were kept.
        damaged: a sentence for each file or shot that could not be read and was left out.
        notes: sentences on what had to be repaired or assumed.
        edge_overrides: sentences on how edges were found and paired, where overridden by the user.
        provenance: what was measured with what: label and text, to be shown as they stand.
        timebase_ppm: how far the instrument's time base may be off, in parts per million.
        channel_uncertainty_fs: by how much two channels of the instrument may differ after deskew.
        instruments: how many recorded each shot. Of several, each instant counts from the
            instrument's own trigger edge, so that the time base of each acts on the whole of it,
            not on the difference of two.
    """

    title: str
    kind: str
    simulated: bool = False
    nodes: tuple[str, ...] = ()
    reference: str = ""
    first: str = ""
    last: str = ""
    shots: list[Shot] = field(default_factory=list)
    time_errors: list[TimeErrors] = field(default_factory=list)
    example: Example | None = None
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    edge_overrides: list[str] = field(default_factory=list)
    provenance: list[tuple[str, str]] = field(default_factory=list)
    timebase_ppm: float = 25.0
    channel_uncertainty_fs: int = 0
    instruments: int = 1
