"""What the simulated Rigols have in common.

Sources: the programming guides; what they leave out from libsigrok, scopehal and pymeasure. Sample
rates go in steps of 1, 2, 2.5, 4 and 5; where the depth does not fit the screen with them, the
memory is longer than the screen, as it is on a real DHO800.
"""

from __future__ import annotations

import time
from typing import ClassVar

import numpy as np

from mqtick.analysis.waveform import Codes
from mqtick.lab.setup import State
from mqtick.lab.simulator.front import Front, boolean
from mqtick.lab.simulator.model import Frame, Model
from mqtick.lab.simulator.rigol_record import Recorder

__all__ = ["RigolFront"]

_STATES = {
    State.STOPPED: "STOP",
    State.PREPARING: "RUN",
    State.ARMED: "WAIT",
    State.TRIGGERED: "TD",
}
_SLOPES = {"POS": "rising", "NEG": "falling", "RFAL": "either"}
_MULTIPLES = {"K": 1e3, "M": 1e6}
_TCAL_SCALE_S = 10e-6
_TCAL_LIMIT_S = 100e-9
_FORMATS = {"BYTE": 0, "WORD": 1, "ASC": 2}
_OCTETS = {"BYTE": 1, "WORD": 2, "ASC": 16}
_MODES = {"NORM": 0, "MAX": 1, "RAW": 2}


class RigolFront(Front):
    """What they have in common."""

    divisions: ClassVar[int]
    screen_points: ClassVar[int]
    page_octets: ClassVar[int]
    """What one :WAVeform:DATA? gives at most."""
    word_bits: ClassVar[int] = 8
    """Bits of a word that are used, the lower ones."""
    depths: ClassVar[tuple[tuple[int, ...], ...]]
    """Memory depths with one, two, three and four channels on."""
    record: ClassVar[str] = ":RECord"
    frames: ClassVar[str] = "FRAMes"
    tags: ClassVar[bool] = True
    lag_s: ClassVar[float] = 0.03
    """How long after :SINGle it goes on to say STOP; 0.3 s with real ones."""
    says_refused_depth: ClassVar[bool] = True
    """Whether a depth that it does not take is an error."""
    stale_depth: ClassVar[bool] = False
    """Whether reading goes on with the old depth until the mode was another one."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._scale_s, self._offset_s = 1e-6, 0.0
        self.depth = self.depths[0][0]
        self._source, self.mode, self.format = 1, "NORM", "BYTE"
        self.first, self.last = 1, self.screen_points
        self.readable = self.screen_points
        self._sweep = "AUTO"
        self._begins_s = float("-inf")
        self.recorder = Recorder(self)
        self._add_acquisition()
        self._add_inputs()
        self._add_waveform()
        self._fit()

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on(":SINGle", lambda _: self._single())
        on(":RUN", lambda _: self.start(single=False))
        on(":STOP", lambda _: model.stop())
        on(":TFORce", lambda _: model.force())
        on(":TRIGger:STATus?", lambda _: self._status())
        on(":TRIGger:SWEep", self._set_sweep)
        on(":TRIGger:SWEep?", lambda _: self._sweep)
        on(":TRIGger:MODE", lambda _: None)
        on(":TRIGger:COUPling", lambda _: None)
        on(":TRIGger:EDGE:SOURce", self._set_trigger_source)
        on(":TRIGger:EDGE:SLOPe", lambda text: setattr(model, "trigger_slope", _slope(text)))
        on(":TRIGger:EDGE:LEVel", lambda text: setattr(model, "trigger_level_v", float(text)))
        on(":ACQuire:TYPE", lambda _: None)
        on(":ACQuire:MDEPth", self._set_depth)
        on(":ACQuire:MDEPth?", lambda _: self.depth_text())
        on(":ACQuire:SRATe?", lambda _: f"{model.rate_hz:.6E}")
        on(":TIMebase:MODE", lambda _: None)
        on(":TIMebase:DELay:ENABle", lambda _: None)
        on(":TIMebase[:MAIN]:SCALe", self._set_scale)
        on(":TIMebase[:MAIN]:SCALe?", lambda _: f"{self._scale_s:.6E}")
        on(":TIMebase[:MAIN]:OFFSet", self._set_offset)
        on(":TIMebase[:MAIN]:OFFSet?", lambda _: f"{self._offset_s:.6E}")
        on(":SYSTem:ERRor[:NEXT]?", lambda _: self.scpi.next_error())
        on(":DISPlay:DATA?", lambda _: self.block(self.screen()))

    def _status(self) -> str:
        state = self.model.poll()
        return "STOP" if time.monotonic() < self._begins_s else _STATES[state]

    def _single(self) -> None:
        if self.recorder.enabled:
            raise ValueError
        self._sweep = "SING"
        self.start(single=True)

    def start(self, *, single: bool, segments: int = 1) -> None:
        """Begin to record so many frames."""
        for source in self.model.inputs.values():
            # The offset comes in steps of eight bits, so that yorigin can be a whole number.
            step = source.volts_per_division * self.model.physics.divisions / 256
            source.offset_v = round(source.offset_v / step) * step
        self.model.segments = segments
        self.model.start(single=single)
        self._begins_s = time.monotonic() + (self.lag_s if single else 0.0)

    def _set_sweep(self, text: str) -> None:
        self._sweep = text.upper()[:4]

    def _set_trigger_source(self, text: str) -> None:
        self.model.trigger_channel = _channel(text)

    def _set_depth(self, text: str) -> None:
        upper = text.upper()
        depth = round(float(upper.rstrip("KM")) * _MULTIPLES.get(upper[-1:], 1.0))
        channels = max(sum(source.on for source in self.model.inputs.values()), 1)
        if not self.model.running or depth not in self.depths[channels - 1]:
            if self.says_refused_depth:
                raise ValueError
            return
        self.depth = depth
        self._fit()

    def depth_text(self) -> str:
        """Write the memory depth."""
        return f"{self.depth:.4E}"

    def _set_scale(self, text: str) -> None:
        scale_s = float(text)
        mantissa = float(f"{scale_s:.6e}".split("e")[0])
        if mantissa not in (1.0, 2.0, 5.0):
            raise ValueError
        self._scale_s = scale_s
        self._fit()

    def _set_offset(self, text: str) -> None:
        self._offset_s = float(text)
        self._fit()

    def _fit(self) -> None:
        """Work out rate and record from scale, offset and depth."""
        model = self.model
        model.depth = self.depth
        model.span_s = self.divisions * self._scale_s
        model.span_s = self.depth / model.rate_hz
        # The offset is the instant in the middle of screen and memory.
        model.before = min(max(0.5 - self._offset_s / model.span_s, 0.0), 1.0)
        if not self.stale_depth:
            self.readable = self._length(self.mode)

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        on = self.scpi.on
        for key, field, convert in (
            ("DISPlay", "on", boolean),
            ("SCALe", "volts_per_division", float),
            ("PROBe", "probe", float),
            ("COUPling", "coupling", str.upper),
        ):
            on(
                f":CHANnel<n>:{key}",
                lambda channel, text, field=field, convert=convert: setattr(
                    self.model.inputs[channel], field, convert(text)
                ),
            )
        on(":CHANnel<n>:DISPlay?", lambda channel, _: str(int(self.model.inputs[channel].on)))
        on(":CHANnel<n>:SCALe?", self._scale)
        on(":CHANnel<n>:OFFSet", self._set_channel_offset)
        on(":CHANnel<n>:OFFSet?", lambda n, _: f"{-self.model.inputs[n].offset_v:.6E}")
        on(":CHANnel<n>:TCALibrate", self._set_deskew)
        for key in ("INVert", "UNITs", "VERNier", "BWLimit"):
            on(f":CHANnel<n>:{key}", lambda channel, _: None)

    def _scale(self, channel: int, _: str) -> str:
        return f"{self.model.inputs[channel].volts_per_division:.6E}"

    def _set_channel_offset(self, channel: int, text: str) -> None:
        self.model.inputs[channel].offset_v = -float(text)  # positive moves the trace up

    def _set_deskew(self, channel: int, text: str) -> None:
        if self._scale_s > _TCAL_SCALE_S or abs(float(text)) > _TCAL_LIMIT_S:
            raise ValueError
        self.model.inputs[channel].deskew_s = float(text)

    # -- waveform ------------------------------------------------------------------------------

    def _add_waveform(self) -> None:
        on = self.scpi.on
        on(":WAVeform:SOURce", lambda text: setattr(self, "_source", _channel(text)))
        on(":WAVeform:SOURce?", lambda _: f"CHAN{self._source}")
        on(":WAVeform:MODE", self._set_mode)
        on(":WAVeform:FORMat", self._set_format)
        on(":WAVeform:STARt", lambda text: setattr(self, "first", _at_least_1(text)))
        on(":WAVeform:STOP", lambda text: setattr(self, "last", _at_least_1(text)))
        on(":WAVeform:POINts?", lambda _: str(self._preamble()[2]))
        on(":WAVeform:PREamble?", lambda _: ",".join(self._preamble()))
        for index, key in enumerate(("XINCrement", "XORigin", "XREFerence"), start=4):
            on(f":WAVeform:{key}?", lambda _, index=index: self._preamble()[index])
        for index, key in enumerate(("YINCrement", "YORigin", "YREFerence"), start=7):
            on(f":WAVeform:{key}?", lambda _, index=index: self._preamble()[index])
        on(":WAVeform:DATA?", lambda _: self._data())

    def _set_mode(self, text: str) -> None:
        mode = next(mode for mode in _MODES if text.upper().startswith(mode))
        if mode != self.mode:
            self.mode = mode
            self.readable = self._length(mode)
            self.first, self.last = 1, self.readable

    def _set_format(self, text: str) -> None:
        self.format = next(form for form in _FORMATS if text.upper().startswith(form))

    def _length(self, mode: str) -> int:
        return self.screen_points if mode == "NORM" else self.model.points

    def _frame(self) -> Frame | None:
        """Return the frame, if there is one; the memory only when stopped."""
        stopped = self.model.poll() is State.STOPPED
        frames = self.model.frames
        if not frames or not self.model.inputs[self._source].on:
            return None
        if self.mode != "NORM" and not stopped:
            return None
        return frames[self.recorder.shown - 1] if self.recorder.enabled and stopped else frames[-1]

    def announced(self, frame: Frame) -> int:
        """Return the number of points that the preamble tells."""
        return self.screen_points if self.mode == "NORM" else frame.points

    def _preamble(self) -> list[str]:
        frame = self._frame()
        if frame is None:  # what it says while there is nothing
            return ["0", str(_MODES[self.mode]), "0", "1", *["0.000000E+00"] * 6]
        if self.mode == "NORM":
            begin_s, interval_s = self._screen()
        else:
            begin_s, interval_s = frame.start_s, frame.interval_s
        volts = self.model.volts_per_code(self._source) / 2.0 ** self._shift()
        offset_v = self.model.inputs[self._source].offset_v
        middle = round(self.model.middle_code * 2.0 ** self._shift())
        return [
            str(_FORMATS[self.format]),
            str(_MODES[self.mode]),
            str(self.announced(frame)),
            "1",
            f"{interval_s:.6E}",
            f"{begin_s:.6E}",
            "0",
            f"{volts:.6E}",
            str(round(-offset_v / volts)),
            str(middle),
        ]

    def _shift(self) -> int:
        """Return by how many bits a sample that is sent is longer than one of the converter."""
        return (8 if self.format == "BYTE" else self.word_bits) - self.model.physics.bits

    def _screen(self) -> tuple[float, float]:
        """Return the instant of the screen's first point, and the interval."""
        width_s = self.divisions * self._scale_s
        return self._offset_s - width_s / 2, width_s / self.screen_points

    def _data(self) -> bytes | str:
        frame = self._frame()
        if frame is None:
            return self.block(b"")
        codes = self.model.codes(self._source, frame)
        if self.mode == "NORM":
            begin_s, interval_s = self._screen()
            instants_s = begin_s + interval_s * np.arange(self.screen_points)
            places = np.rint((instants_s - frame.start_s) / frame.interval_s).astype(np.int64)
            codes = codes[np.clip(places, 0, codes.size - 1)]
        most = self.page_octets // _OCTETS[self.format]
        last = min(self.last, self.readable, self.first - 1 + most)
        shift, page = self._shift(), codes[self.first - 1 : last]
        shifted = page << shift if shift > 0 else page >> -shift
        if self.format == "ASC":
            return self.text(shifted)
        return self.block(shifted.astype("<u2" if self.format == "WORD" else "u1").tobytes())

    def text(self, codes: Codes) -> bytes | str:
        """Write volts, in a block of text."""
        step, origin, reference = (float(field) for field in self._preamble()[7:])
        volts = (codes.astype(np.float64) - origin - reference) * step
        return self.block(",".join(f"{volt:.6e}" for volt in volts).encode())


def _slope(text: str) -> str:
    return next(slope for short, slope in _SLOPES.items() if text.upper().startswith(short))


def _channel(text: str) -> int:
    number = int(text.upper().removeprefix("CHANNEL").removeprefix("CHAN"))
    if not 1 <= number <= 4:
        raise ValueError
    return number


def _at_least_1(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)
