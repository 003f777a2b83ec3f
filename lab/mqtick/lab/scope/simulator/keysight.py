"""A simulated Keysight InfiniiVision.

Source: InfiniiVision programmer's guides; the form of the answers from drivers by other authors.
"""

from __future__ import annotations

import numpy as np

from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import Front, boolean, flag
from mqtick.lab.scope.simulator.model import Frame, Model, Physics

_FORMATS = {"BYTE": 0, "WORD": 1, "ASC": 4}
_SLOPES = {"POS": "rising", "NEG": "falling", "EITH": "either"}
_REAL = "{:+.6E}".format


class KeysightFront(Front):
    """DSO-X 3000 series: words hold the 8 bits of the converter in their upper octet."""

    name = "keysight"
    identity = "KEYSIGHT TECHNOLOGIES,DSO-X 3034A,SIMULATED,02.50.2019022736"
    physics = Physics(bits=8, divisions=8.0, max_rate_hz=4e9, depths=(1000, 100_000, 1_000_000))

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._source = 1
        self._format = "WORD"
        self._high_first, self._signed = True, False
        self._points: int | None = None
        self._segment = 1
        self._add_acquisition()
        self._add_inputs()
        self._add_waveform()

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on(":SINGle", lambda _: self._start(single=True))
        on(":DIGitize", lambda _: self._start(single=True))
        on(":RUN", lambda _: self._start(single=False))
        on(":STOP", lambda _: model.stop())
        on(":OPERegister:CONDition?", lambda _: str(self._condition()))
        on(":SYSTem:ERRor?", lambda _: "+" + self.scpi.next_error().removeprefix("+"))
        on(":ACQuire:MODE", self._set_mode)
        self.keep(":ACQuire:SEGMented:COUNt", model, "segments", int)
        on(":ACQuire:SEGMented:INDex", lambda text: self._set_segment(int(text)))
        on(":ACQuire:SRATe?", lambda _: f"{model.rate_hz:+.6E}")
        on(":TIMebase:REFerence", self._set_reference)
        self.keep(":TIMebase:RANGe", model, "span_s", float, _REAL)
        self.keep(":TIMebase:SCALe", model, "span_s", lambda text: 10 * float(text))
        on(":TIMebase:POSition", self._set_position)
        self.keep(":TRIGger[:EDGE]:SOURce", model, "trigger_channel", _channel)
        self.keep(":TRIGger:EDGE:SLOPe", model, "trigger_slope", _slope)
        on(":TRIGger[:EDGE]:LEVel", self._set_level)
        self.ignore(":ACQuire:TYPE", ":TIMebase:MODE", ":TRIGger:SWEep", ":TRIGger:MODE")
        self._left = False

    def _start(self, *, single: bool) -> None:
        self._segment = 1
        self.model.start(single=single)

    def _condition(self) -> int:
        return {State.STOPPED: 0, State.ARMED: 8 + 32}.get(self.model.poll(), 8)

    def _set_mode(self, text: str) -> None:
        if not text.upper().startswith("SEGM"):
            self.model.segments = 1

    def _set_segment(self, index: int) -> None:
        if not 1 <= index <= max(len(self.model.frames), 1):
            raise ValueError
        self._segment = index

    def _set_reference(self, text: str) -> None:
        self._left = text.upper().startswith("LEFT")

    def _set_position(self, text: str) -> None:
        # The reference point is one division from the left, or the middle of ten.
        at = 0.1 if self._left else 0.5
        self.model.before = min(max(at - float(text) / self.model.span_s, 0.0), 1.0)

    def _set_level(self, text: str) -> None:
        self.model.trigger_level_v = float(text.split(",", maxsplit=1)[0])

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        head = ":CHANnel<n>:"
        self.keep_input(f"{head}DISPlay", "on", boolean, flag)
        self.keep_input(f"{head}SCALe", "volts_per_division", float, _REAL)
        self.keep_input(f"{head}OFFSet", "offset_v", float, _REAL)
        self.keep_input(f"{head}PROBe", "probe")
        self.keep_input(f"{head}PROBe:SKEW", "deskew_s")
        self.keep_input(f"{head}COUPling", "coupling", str.upper)

    # -- waveform ------------------------------------------------------------------------------

    def _add_waveform(self) -> None:
        on = self.scpi.on
        self.keep(":WAVeform:SOURce", self, "_source", _channel, "CHAN{}".format)
        self.ignore(":WAVeform:POINts:MODE")
        on(":WAVeform:POINts", self._set_points)
        on(":WAVeform:POINts?", lambda _: str(self._frame_points()))
        self.keep(":WAVeform:FORMat", self, "_format", _format, str)
        self.keep(":WAVeform:BYTeorder", self, "_high_first", lambda t: t.upper()[:4] == "MSBF")
        self.keep(":WAVeform:UNSigned", self, "_signed", lambda text: not boolean(text))
        on(":WAVeform:PREamble?", lambda _: self._preamble())
        on(":WAVeform:DATA?", lambda _: self.block(self._data()))
        on(":WAVeform:SEGMented:COUNt?", lambda _: str(len(self.model.frames)))
        on(":WAVeform:SEGMented:TTAG?", lambda _: f"{self._tag_s():+.11E}")
        on(":DISPlay:DATA?", lambda _: self.block(self.screen()))

    def _set_points(self, text: str) -> None:
        self._points = None if text.upper().startswith("MAX") else max(int(float(text)), 1)

    def _frame(self) -> Frame | None:
        self.model.poll()
        frames = self.model.frames
        on = self.model.inputs[self._source].on
        return frames[self._segment - 1] if frames and on else None

    def _frame_points(self) -> int:
        frame = self._frame()
        return -(-frame.points // self._stride(frame)) if frame else 0

    def _stride(self, frame: Frame) -> int:
        """Return n, if every n-th point is sent: fewer points may be wanted than there are."""
        return -(-frame.points // min(self._points or frame.points, frame.points))

    def _preamble(self) -> str:
        frame = self._frame()
        if frame is None:
            return "+0"
        shift = self._shift()
        scale = self.model.volts_per_code(self._source) / 2.0**shift
        middle = 0 if self._signed else round(self.model.middle_code * 2.0**shift)
        offset_v = self.model.inputs[self._source].offset_v
        return (
            f"{_FORMATS[self._format]:+d},+0,{self._frame_points():+d},+1,"
            f"{frame.interval_s * self._stride(frame):+.8E},"
            f"{frame.start_s:+.8E},+0,{scale:+.8E},{offset_v:+.8E},{middle:+d}"
        )

    def _data(self) -> bytes:
        frame = self._frame()
        if frame is None:
            return b""
        codes = self.model.codes(self._source, frame)[:: self._stride(frame)]
        if self._format == "ASC":
            offset_v = self.model.inputs[self._source].offset_v
            steps = codes.astype(np.int32) - self.model.middle_code
            volts = steps * self.model.volts_per_code(self._source) + offset_v
            return ",".join(f"{value:+.6E}" for value in volts).encode()
        levels = codes.astype(np.int32) - (self.model.middle_code if self._signed else 0)
        kind = "i" if self._signed else "u"
        if self._format == "BYTE":
            return (levels >> -self._shift()).astype(f"{kind}1").tobytes()
        order = ">" if self._high_first else "<"
        return (levels << self._shift()).astype(f"{order}{kind}2").tobytes()

    def _shift(self) -> int:
        # The converter's bits are the upper ones of the octet or word.
        return (16 if self._format == "WORD" else 8) - self.model.physics.bits

    def block(self, data: bytes) -> bytes:
        """Write a block with eight digits."""
        return definite_block(data, 8)

    def _tag_s(self) -> float:
        frames = self.model.frames
        return (frames[self._segment - 1].trigger_ns - frames[0].trigger_ns) / 1e9


def _slope(text: str) -> str:
    return _SLOPES[text.upper()[: 4 if text.upper().startswith("EITH") else 3]]


def _channel(text: str) -> int:
    return int(text.upper().removeprefix("CHANNEL").removeprefix("CHAN"))


def _format(text: str) -> str:
    name = text.upper().removesuffix("II")
    if name not in _FORMATS:
        raise ValueError
    return name
