"""A simulated Tektronix MSO of the 5 series.

Sources: programmer manual 077-1305 (MSO 4/5/6), as in tm_devices' commands; the order of the
preamble's fields from scopehal (TektronixOscilloscope.cpp).
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable

from mqtick.lab.scope.simulator.front import boolean
from mqtick.lab.scope.simulator.model import Frame, Model, Physics
from mqtick.lab.scope.simulator.tektronix_common import TektronixFront
from mqtick.pins.base import monotonic_raw_ns

__all__ = ["TektronixMsoFront"]

_RATES = (1, 2, 2.5, 4, 5, 10)


class TektronixMsoFront(TektronixFront):
    """12 bits in words; YOFf always 0; XZEro the time from the trigger to the point after it."""

    name = "tektronix"
    identity = "TEKTRONIX,MSO54,SIMULATED,CF:91.1CT FV:2.0.3.950"
    physics = Physics(
        bits=12, divisions=10.0, max_rate_hz=5e9, depths=(1000, 100_000, 1_000_000, 10_000_000)
    )
    trigger = "TRIGger:A"
    preambles = ("WFMOutpre",)
    order = (
        "BYT_Nr;BIT_Nr;ENCdg;BN_Fmt;BYT_Or;WFID;NR_Pt;PT_Fmt;XUNit;XINcr;XZEro;PT_Off;YUNit;YMUlt;"
        "YOFf;YZEro"
    )

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.width = 2
        self._rate_hz, self._length, self._count = 1e6, 10_000, 1
        self._fast, self._first_frame, self._last_frame = False, 1, 1
        self._position = 50.0
        # What the clock on the wall of the instrument says at 0 of the edges' clock.
        self._wall_ns = time.time_ns() - monotonic_raw_ns()
        self._add_time()
        self._add_frames()
        self._add_vertical()
        self._fit()

    # -- time base -----------------------------------------------------------------------------

    def _add_time(self) -> None:
        on = self.scpi.on
        on("HORizontal:MODE", lambda _: None)
        on("HORizontal:MODE?", lambda _: "MANUAL")
        for head in ("HORizontal:MODE", "HORizontal"):
            on(f"{head}:SAMPLERate", self._set_rate)
            on(f"{head}:SAMPLERate?", lambda _: f"{self._rate_hz:.4E}")
            on(f"{head}:RECOrdlength", self._set_length)
            on(f"{head}:RECOrdlength?", lambda _: str(self._length))
            on(f"{head}:SCAle?", lambda _: f"{self.model.span_s / 10:.4E}")
        on("HORizontal:DELay:MODe", lambda _: None)
        on("HORizontal:POSition", self._set_position)
        on("HORizontal:POSition?", lambda _: f"{self._position:.4f}")

    def _set_rate(self, text: str) -> None:
        wanted = min(float(text), self.model.physics.max_rate_hz)
        if wanted <= 0:
            raise ValueError
        decade = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
        self._rate_hz = next(step * decade for step in _RATES if step * decade >= wanted * 0.999999)
        self._fit()

    def _set_length(self, text: str) -> None:
        self._length = min(max(int(float(text)), 100), max(self.model.physics.depths))
        self._fit()

    def _set_position(self, text: str) -> None:
        self._position = min(max(float(text), 0.0), 100.0)
        self._fit()

    def _fit(self) -> None:
        model = self.model
        model.depth, model.span_s = self._length, self._length / self._rate_hz
        model.before = self._position / 100
        model.segments = self._count if self._fast else 1

    # -- FastFrame -----------------------------------------------------------------------------

    def _add_frames(self) -> None:
        on, head = self.scpi.on, "HORizontal:FASTframe"
        on(f"{head}:STATE", self._set_fast)
        on(f"{head}:STATE?", lambda _: str(int(self._fast)))
        on(f"{head}:COUNt", self._set_count)
        on(f"{head}:COUNt?", lambda _: str(self._count))
        on(f"{head}:MAXFRames?", lambda _: str(self._most()))
        on(f"{head}:TIMEStamp:ALL?", lambda _: f'"{self.each(self.stamp)}"')
        on(f"{head}:XZEro:ALL?", lambda _: f'"{self.each(self.zero)}"')
        on("ACQuire:NUMFRAMESACQuired?", lambda _: str(len(self.model.frames)))
        on("DATa:FRAMESTARt", lambda text: setattr(self, "_first_frame", int(text)))
        on("DATa:FRAMESTOP", lambda text: setattr(self, "_last_frame", int(text)))

    def _set_fast(self, text: str) -> None:
        self._fast = boolean(text)
        self._fit()

    def _most(self) -> int:
        return max(self.model.physics.depths) // self._length

    def _set_count(self, text: str) -> None:
        self._count = min(max(int(text), 1), self._most())
        self._fit()

    def each(self, value: Callable[[Frame], str]) -> str:
        """Write something of all frames: 1:something,2:something."""
        frames = self.model.frames
        return ",".join(f"{number}:{value(frame)}" for number, frame in enumerate(frames, start=1))

    def zero(self, frame: Frame) -> str:
        """Write XZEro of a record."""
        return self._place(frame)[1]

    def instant(self, frame: Frame) -> tuple[datetime.datetime, int]:
        """Return when a record had its trigger: whole seconds, and picoseconds."""
        picoseconds = (self._wall_ns + frame.trigger_ns) * 1000 + round(frame.rest_ns * 1000)
        seconds, rest = divmod(picoseconds, 10**12)
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC), rest

    def stamp(self, frame: Frame) -> str:
        """Write the instant of a record: 20.11.2026.14:15:16.123456789012."""
        wall, rest = self.instant(frame)
        return f"{wall:%d.%m.%Y.%H:%M:%S}.{rest:012d}"

    def frame(self) -> Frame:
        """Return the record whose preamble is asked for: the first of several."""
        last = super().frame()
        return self.frames()[0] if self._fast else last

    def frames(self) -> list[Frame]:
        """Return the records that CURVe? sends."""
        if not self._fast:
            return super().frames()
        super().frame()
        return self.model.frames[self._first_frame - 1 : self._last_frame]

    # -- scales --------------------------------------------------------------------------------

    def _add_vertical(self) -> None:
        on, inputs = self.scpi.on, self.model.inputs
        on("CH<n>:OFFSet", lambda n, text: setattr(inputs[n], "offset_v", float(text)))
        on("CH<n>:OFFSet?", lambda n, _: f"{inputs[n].offset_v:.4E}")
        on("CH<n>:POSition", lambda n, text: self._zero(text))
        on("CH<n>:POSition?", lambda n, _: "0.0E+0")
        on("CH<n>:DESKew", lambda n, text: self._zero(text))
        on("CH<n>:PRObe:GAIN?", lambda n, _: "100.0000E-3")
        on(
            "CH<n>:PROBEFunc:EXTAtten",
            lambda n, text: setattr(inputs[n], "probe", 10 * float(text)),
        )
        on("CH<n>:PROBEFunc:EXTAtten?", lambda n, _: f"{inputs[n].probe / 10:.4E}")

    def _zero(self, text: str) -> None:
        if float(text) != 0:  # another value is not simulated
            raise ValueError

    def _place(self, frame: Frame) -> tuple[int, str]:
        """Return PT_Off and XZEro: the point after the trigger, and how long after it is."""
        after = math.ceil(round(-frame.start_s / frame.interval_s, 6))
        zero_s = frame.start_s + after * frame.interval_s
        return after - (self.first - 1), f"{zero_s:.9E}"

    def scales(self, frame: Frame) -> dict[str, str]:
        """Return the fields that place the points."""
        point, zero = self._place(frame)
        scale = self.volts_per_level()
        return {
            "PT_Off": str(point),
            "XZEro": zero,
            "YMUlt": f"{scale:.6E}",
            "YOFf": "0.0E+0",
            "YZEro": f"{self.model.inputs[self.source].offset_v - self.middle * scale:.6E}",
        }
