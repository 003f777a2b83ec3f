"""A simulated Tektronix TDS2014C, and a TBS2104B.

Sources: programmer manuals 077-0444 and 077-1149; the order of the preamble's fields from QCoDeS
(TPS2012).
"""

from __future__ import annotations

import math
from typing import ClassVar

from mqtick.lab.scope.simulator.model import Frame, Model, Physics
from mqtick.lab.scope.simulator.tektronix_common import TektronixFront

__all__ = ["TektronixTbsFront", "TektronixTdsFront"]


class TektronixTdsFront(TektronixFront):
    """8 bits, 2500 points; the offset is a position in divisions, YOFf tells it in codes."""

    name = "tektronix-tds"
    identity = "TEKTRONIX,TDS 2014C,SIMULATED,CF:91.1CT FV:v24.26"
    physics = Physics(bits=8, divisions=10.24, max_rate_hz=2e9, depths=(2500,))
    trigger = "TRIGger:MAIn"
    either = False
    steps: ClassVar[tuple[float, ...]] = (1, 2.5, 5, 10)
    """Of the time per division, in a decade."""
    limit: ClassVar[float] = 50.0
    """How many divisions a channel can be moved."""
    preambles: ClassVar[tuple[str, ...]] = ("WFMPre",)
    order = (
        "BYT_Nr;BIT_Nr;ENCdg;BN_Fmt;BYT_Or;NR_Pt;WFID;PT_Fmt;XINcr;PT_Off;XZEro;XUNit;YMUlt;YZEro;"
        "YOFf;YUNit"
    )

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.scale_s, self.position = 1e-4, 0.0
        self.add_time()
        on, inputs = self.scpi.on, model.inputs
        on("CH<n>:POSition", self._set_position)
        on(
            "CH<n>:POSition?",
            lambda n, _: f"{-inputs[n].offset_v / inputs[n].volts_per_division:.4E}",
        )
        self.fit()

    def add_time(self) -> None:
        """Add the time base's commands."""
        on = self.scpi.on
        on("CH<n>:PRObe", lambda n, text: setattr(self.model.inputs[n], "probe", float(text)))
        on("CH<n>:PRObe?", lambda n, _: f"{self.model.inputs[n].probe:g}")
        on("HORizontal[:MAIn]:SCAle", self.set_scale)
        on("HORizontal[:MAIn]:SCAle?", lambda _: f"{self.scale_s:.1E}")
        on("HORizontal[:MAIn]:POSition", self.set_place)
        on("WAVFrm?", lambda _: self.whole())
        on("HARDCopy:PORT", lambda _: None)
        on("HARDCopy:FORMat", lambda _: None)
        on("HARDCopy", lambda _: self.screen())

    def whole(self) -> str | bytes:
        """Return preamble and curve."""
        head, curve = ";".join(self.fields(self.frame()).values()) + ";", self.curve()
        return head + curve if isinstance(curve, str) else head.encode() + curve

    def set_scale(self, text: str) -> None:
        """Set the time per division: the nearest that it has."""
        wanted = min(max(float(text), 1e-9), 50.0)
        decade = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
        self.scale_s = min((step * decade for step in self.steps), key=lambda s: abs(s - wanted))
        self.fit()

    def set_place(self, text: str) -> None:
        """Set the trigger's place on the screen."""
        position = float(text)
        if not math.isfinite(position):
            raise ValueError
        self.position = position
        self.fit()

    def _set_position(self, channel: int, text: str) -> None:
        one = self.model.inputs[channel]
        position = min(max(float(text), -self.limit), self.limit)
        one.offset_v = -position * one.volts_per_division

    def fit(self) -> None:
        """Work out the record; the position is the middle of the screen, from the trigger, in s."""
        span_s = self.model.span_s = 10 * self.scale_s
        self.model.before = min(max(0.5 - self.position / span_s, 0.0), 1.0)

    def scales(self, frame: Frame) -> dict[str, str]:
        """Return the fields that place the points."""
        scale = self.volts_per_level()
        return {
            "PT_Off": "0",
            "XZEro": f"{frame.start_s + (self.first - 1) * frame.interval_s:.9E}",
            "YMUlt": f"{scale:.6E}",
            "YZEro": "0.0E+0",
            "YOFf": f"{self.middle - self.model.inputs[self.source].offset_v / scale:.6E}",
        }


class TektronixTbsFront(TektronixTdsFront):
    """Longer records, and the trigger of the larger instruments; the place is in per cent."""

    name = "tektronix-tbs"
    identity = "TEKTRONIX,TBS2104B,SIMULATED,CF:91.1CT FV:v1.27"
    physics = Physics(
        bits=8,
        divisions=10.24,
        max_rate_hz=2e9,
        depths=(1000, 2000, 20_000, 200_000, 2_000_000, 5_000_000),
    )
    trigger = "TRIGger:A"
    steps = (1, 2, 4, 10)
    limit = 5.0
    preambles = ("WFMPre", "WFMOutpre")
    order = (
        "BYT_Nr;BIT_Nr;ENCdg;BN_Fmt;BYT_Or;WFID;NR_Pt;PT_Fmt;XUNit;XINcr;XZEro;PT_Off;YUNit;YMUlt;"
        "YOFf;YZEro"
    )

    def add_time(self) -> None:
        """Add the time base's commands."""
        on, inputs = self.scpi.on, self.model.inputs
        self.position, self._length = 50.0, 2000
        on("CH<n>:PRObe:GAIN", lambda n, text: setattr(inputs[n], "probe", 1 / float(text)))
        on("CH<n>:PRObe:GAIN?", lambda n, _: f"{1 / inputs[n].probe:.4E}")
        on("HORizontal:SCAle", self.set_scale)
        on("HORizontal:SCAle?", lambda _: f"{self.scale_s:.4E}")
        on("HORizontal:RECOrdlength", self._set_length)
        on("HORizontal:RECOrdlength?", lambda _: str(self._length))
        on("HORizontal:DELay:MODe", lambda _: None)
        on("HORizontal:POSition", self.set_place)

    def _set_length(self, text: str) -> None:
        length = int(text)
        if length not in self.physics.depths:
            raise ValueError
        self._length = length
        self.fit()

    def fit(self) -> None:
        """Work out the record: ten of the fifteen divisions."""
        self.model.depth, self.model.span_s = self._length, 10 * self.scale_s
        self.model.before = self.position / 100
