"""What was measured: the edges of every node in every shot, and the clocks' time errors.

Whatever it was read from (a run folder, files of an oscilloscope, a client's sample log), it is
this; nothing after it knows where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.runs.shot import CAPTURED, MISSED, REFUSED

if TYPE_CHECKING:
    import pandas as pd

    from mqtick.analysis.results.result import Result
    from mqtick.analysis.statistics.limit import Limit

__all__ = [
    "CAPTURED",
    "CLOCK",
    "LATENCY",
    "MISSED",
    "REFUSED",
    "SKEW",
    "Example",
    "Mark",
    "Measurement",
    "Shot",
    "TimeErrors",
]

LATENCY: Final = "latency"
"""First subscriber's edge minus the publisher's."""
SKEW: Final = "skew"
"""Last subscriber's edge minus the first one's."""
CLOCK: Final = "clock"
"""A clock's time error: its pps edge minus the reference's; positive: late, the clock is behind."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The edge of one node that was used in one shot.

    Attributes:
        instant_fs: after the shot's origin (the trigger edge), cable delay subtracted, in fs.
        rising: its direction.
        uncertainty_fs: how far it may be off, either way (see `edges.Edge`), in fs.
        found: edges of its direction in its window; above 1: doubled.
        clipped: whether the record stands at the converter's limits.
        quality: how the instant was found (see `edges.Edge`), "" where that is not known.
        samples_in_rise: its transition duration (10 to 90 %) in samples, 0 where it is not known.
    """

    instant_fs: int
    rising: bool
    uncertainty_fs: int = 0
    found: int = 1
    clipped: bool = False
    quality: str = ""
    samples_in_rise: float = 0.0


@dataclass(frozen=True, slots=True)
class Shot:
    """One event: what every node did.

    Attributes:
        number: from 1, in the order in which they were taken.
        subscribers: N, 0 where it is not known or nobody subscribes.
        outcome: CAPTURED, MISSED or REFUSED.
        reason: a sentence that says why it was missed or refused, else "".
        started_ns: in ns of the Unix epoch, None where it is not known.
        marks: the edge of each node that has one.
        latency_fs, skew_fs: None where an edge is missing.
        clock_fs: each node's pps edge minus the reference's, in fs; positive: it is late.
        source: the file (and segment) it was read from.
    """

    number: int
    subscribers: int = 0
    outcome: str = CAPTURED
    reason: str = ""
    started_ns: int | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    latency_fs: int | None = None
    skew_fs: int | None = None
    clock_fs: Mapping[str, int] = field(default_factory=dict)
    source: str = ""


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
    seconds: npt.NDArray[np.float64]
    error_ns: npt.NDArray[np.float64]
    lower_ns: npt.NDArray[np.float64] | None = None
    upper_ns: npt.NDArray[np.float64] | None = None
    started_ns: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A typical shot to be drawn: each node's waveform around its edges, thinned out.

    `traces` has, by node, instants in us after the shot's origin and volts; `marks` its edges.
    """

    number: int
    traces: Mapping[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]
    marks: Mapping[str, Mark]


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
    provenance: list[tuple[str, str]] = field(default_factory=list)
    timebase_ppm: float = 25.0
    channel_uncertainty_fs: int = 0
    instruments: int = 1

    # Imported where needed: a bench's host has no pandas and does not need it.

    def skew(self) -> pd.DataFrame:
        """Return one row a shot: `skew_us`, the last subscriber's edge minus the first one's."""
        from mqtick.analysis.results.frames import skew_frame  # noqa: PLC0415

        return skew_frame(self)

    def latency(self) -> pd.DataFrame:
        """Return one row a shot: `latency_us`, the first subscriber's edge minus the publisher's.

        Positive: the subscriber's is later.
        """
        from mqtick.analysis.results.frames import latency_frame  # noqa: PLC0415

        return latency_frame(self)

    def clock(self) -> pd.DataFrame:
        """Return one row a time error of a clock: `time_error_us`, reference minus local."""
        from mqtick.analysis.results.frames import clock_frame  # noqa: PLC0415

        return clock_frame(self)

    def edges(self) -> pd.DataFrame:
        """Return one row an edge: `instant_us` after its shot's origin."""
        from mqtick.analysis.results.frames import edges_frame  # noqa: PLC0415

        return edges_frame(self)

    def pairs(self) -> pd.DataFrame:
        """Return one row a shot, one column a pair of nodes: `B-A_us`, B's edge minus A's."""
        from mqtick.analysis.results.frames import pairs_frame  # noqa: PLC0415

        return pairs_frame(self)

    def result(self, limits: Sequence[Limit] | None = None, confidence: float = 0.95) -> Result:
        """Work out statistics and verdicts; `limits` None: the usual ones of its kind."""
        from mqtick.analysis.results.analyse import analyse  # noqa: PLC0415

        return analyse(self, limits, confidence)
