"""A simulated Siglent of the :WAVeform command set: an SDS824X HD.

Source: SDS series programming guide EN11F; what an SDS814X HD really does:
github.com/vindavs/siglent-bin, SPEC.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.dialects.siglent_values import quantity
from mqtick.lab.scope.setup import State
from mqtick.lab.scope.simulator.front import Front, boolean
from mqtick.lab.scope.simulator.model import Frame, Model, Physics
from mqtick.lab.scope.simulator.siglent_descriptor import wavedesc

__all__ = ["SiglentFront"]

_DIVISIONS = 10
_SLOPES = {"RIS": "rising", "FALL": "falling", "ALT": "either"}
_WORDS = {State.PREPARING: "Arm", State.ARMED: "Ready", State.TRIGGERED: "Trig'd"}
_DEPTHS = ("10k", "100k", "1M", "10M", "25M", "50M", "100M")
_TIME_BASES = tuple(
    float(f"{step}e{decade}")
    for decade in range(-10, 4)
    for step in (1, 2, 5)
    if decade > -10 or step == 5
)
"""The model's own table, from 500 ps on; other models begin at 100 or 200 ps."""


class SiglentFront(Front):
    """Words hold the 12 bits of the converter in their upper bits, signed, 7680 per division."""

    name = "siglent"
    identity = "Siglent Technologies,SDS824X HD,SIMULATED,4.8.12.1.1.6.5"
    physics = Physics(
        bits=12,
        divisions=65536 / 7680,
        max_rate_hz=1e9,
        depths=(10_000, 100_000, 1_000_000, 10_000_000),
    )
    page: ClassVar[int] = 5_000_000
    bits: ClassVar[int] = 16
    codes_per_division: ClassVar[float] = 7680.0
    digits: ClassVar[int] = 0
    """Of a block's length; 0 for as many as it has (EN11D), 9 for older firmware."""
    counts_samples: ClassVar[bool] = False
    """The fault of SDS2000X Plus up to 1.3.9R6: words are announced by their number."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._mode = "AUTO"
        self._scale_s, self._delay_s, self._percent = 1e-4, 0.0, 50.0
        self._source, self._words = 1, False
        self._first, self._count, self._every = 0, 0, 1
        self._sequence, self._segment = False, 1
        self._history, self._history_frame = False, 1
        self._add_inputs()
        self._add_acquisition()
        self._add_trigger()
        self._add_waveform()

    def _setting(self, header: str, field: str, convert: Callable[[str], object]) -> None:
        """Add a setting of this front, and its query."""
        self.scpi.on(header, lambda text: self._store(field, convert(text)))
        self.scpi.on(f"{header}?", lambda _: _shown(getattr(self, field)))

    def _store(self, field: str, value: object) -> None:
        before_it = getattr(self, field)
        setattr(self, field, value)
        span_s = self._scale_s * _DIVISIONS
        try:
            self.model.span_s = span_s
            self.model.before = round(self._percent / 100 - self._delay_s / span_s, 9)
        except ValueError:  # what is refused changes nothing
            setattr(self, field, before_it)
            raise

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        self._input("SWITch", "on", boolean)
        self._input("COUPling", "coupling", str.upper)
        self._input("SCALe", "volts_per_division", float)
        self._input("SKEW", "deskew_s", _skew)
        on, inputs = self.scpi.on, self.model.inputs
        on(":CHANnel<n>:OFFSet", lambda n, text: setattr(inputs[n], "offset_v", -float(text)))
        on(":CHANnel<n>:OFFSet?", lambda n, _: _shown(-inputs[n].offset_v))
        on(":CHANnel<n>:PROBe", self._set_probe)
        on(":CHANnel<n>:PROBe?", lambda n, _: _shown(inputs[n].probe))
        on(":CHANnel<n>:UNIT?", lambda n, _: "V")
        for key in ("BWLimit", "INVert", "UNIT"):
            on(f":CHANnel<n>:{key}", lambda n, _: None)

    def _input(self, key: str, field: str, convert: Callable[[str], object]) -> None:
        inputs = self.model.inputs
        self.scpi.on(f":CHANnel<n>:{key}", lambda n, text: setattr(inputs[n], field, convert(text)))
        self.scpi.on(f":CHANnel<n>:{key}?", lambda n, _: _shown(getattr(inputs[n], field)))

    def _set_probe(self, channel: int, text: str) -> None:
        kind, _, value = text.partition(",")
        probe = float(value) if kind.upper().startswith("VAL") else float(text)
        source = self.model.inputs[channel]
        source.volts_per_division *= probe / source.probe  # the scale at the input stays
        source.probe = probe

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on(":SYSTem:ERRor?", lambda _: self.scpi.next_error('0,"No Error"'))
        on(":ACQuire:MODE", lambda _: None)
        on(":ACQuire:TYPE", lambda _: None)
        on(":ACQuire:MMANagement", lambda _: None)
        on(":ACQuire:MDEPth", self._set_depth)
        on(":ACQuire:MDEPth?", lambda _: f"{model.depth / 1000:g}k")
        on(":ACQuire:POINts?", lambda _: f"{float(model.points):.2E}")
        on(":ACQuire:SRATe?", lambda _: f"{model.rate_hz:.2E}")
        on(":ACQuire:NUMAcq?", lambda _: str(len(model.frames)))
        on(":ACQuire:SEQuence", self._set_sequence)
        on(":ACQuire:SEQuence?", lambda _: "ON" if self._sequence else "OFF")
        on(":ACQuire:SEQuence:COUNt", self._set_segments)
        self._setting(":TIMebase:SCALe", "_scale_s", float)
        self._setting(":TIMebase:DELay", "_delay_s", float)
        on(":TIMebase:REFerence", lambda _: None)
        on(":TIMebase:WINDow", lambda _: None)
        self._setting(":TIMebase:REFerence:POSition", "_percent", float)
        on(":PRINt?", lambda _: self.screen())

    def _set_depth(self, text: str) -> None:
        if text.lower() not in (depth.lower() for depth in _DEPTHS) or not self.model.running:
            raise ValueError  # a stopped instrument refuses it
        self.model.depth = int(quantity(text, "MDEPth"))

    def _set_sequence(self, text: str) -> None:
        self._sequence = boolean(text)
        if not self._sequence:
            self.model.segments = 1

    def _set_segments(self, text: str) -> None:
        if not self._sequence:
            raise ValueError
        self.model.segments = int(text)

    def _add_trigger(self) -> None:
        on, model = self.scpi.on, self.model
        on(":TRIGger:MODE", self._set_mode)
        on(":TRIGger:MODE?", lambda _: self._mode)
        on(":TRIGger:RUN", lambda _: self._set_mode(self._mode))
        on(":TRIGger:STOP", lambda _: model.stop())
        on(":TRIGger:STATus?", lambda _: self._word())
        on(":TRIGger:TYPE", lambda _: None)
        on(":TRIGger:EDGE:COUPling", lambda _: None)
        on(":TRIGger:EDGE:HOLDoff", lambda _: None)
        on(":TRIGger:EDGE:SOURce", self._set_trigger_source)
        on(":TRIGger:EDGE:SLOPe", self._set_slope)
        on(":TRIGger:EDGE:LEVel", lambda text: setattr(model, "trigger_level_v", float(text)))

    def _set_mode(self, text: str) -> None:
        mode = text.upper()
        if mode == "FTRIG":
            self.model.force()
            return
        if mode[:4] not in ("AUTO", "NORM", "SING"):
            raise ValueError
        self._mode, self._segment = mode, 1
        self.model.start(single=mode.startswith("SING"))

    def _set_trigger_source(self, text: str) -> None:
        self.model.trigger_channel = int(text.upper().removeprefix("C"))

    def _set_slope(self, text: str) -> None:
        self.model.trigger_slope = next(
            slope for start, slope in _SLOPES.items() if text.upper().startswith(start)
        )

    def _word(self) -> str:
        state = self.model.poll()
        if state is State.STOPPED:
            return "Stop"
        return "Auto" if self._mode == "AUTO" else _WORDS[state]

    # -- waveform ------------------------------------------------------------------------------

    def _add_waveform(self) -> None:
        on = self.scpi.on
        on(":WAVeform:SOURce", lambda text: self._store("_source", int(text.upper()[1:])))
        on(":WAVeform:SOURce?", lambda _: f"C{self._source}")
        on(":WAVeform:WIDTh", lambda text: self._store("_words", text.upper() == "WORD"))
        on(":WAVeform:WIDTh?", lambda _: "WORD" if self._words else "BYTE")
        self._setting(":WAVeform:STARt", "_first", int)
        self._setting(":WAVeform:POINt", "_count", int)
        self._setting(":WAVeform:INTerval", "_every", int)
        on(":WAVeform:MAXPoint?", lambda _: f"{float(self.page):.2E}")
        on(":WAVeform:SEQuence", self._set_segment)
        on(":WAVeform:PREamble?", lambda _: self._header() + definite_block(self._descriptor()))
        on(":WAVeform:DATA?", lambda _: self._header() + self._data_block() + b"\n")
        on(":HISTORy", lambda text: self._store("_history", boolean(text)))
        on(":HISTORy:FRAMe", lambda text: self._store("_history_frame", int(text)))
        on(":HISTORy:TIME?", lambda _: self._time_of_day())

    def _header(self) -> bytes:
        return f"C{self._source}:WF ".encode() if self._sequence else b""

    def _set_segment(self, text: str) -> None:
        first, count = map(int, text.split(","))
        if count != 1 or not 1 <= first <= len(self.model.frames):
            raise ValueError  # the real one hangs
        self._segment = first

    def _frame(self) -> Frame | None:
        self.model.poll()
        frames = self.model.frames
        on = self.model.inputs[self._source].on
        return frames[self._segment - 1] if frames and on else None

    def _descriptor(self) -> bytes:
        frame = self._frame()
        tail = bytes(16 * len(self.model.frames)) if self._sequence else b""
        if frame is None:
            return bytes(346)
        source = self.model.inputs[self._source]
        centre_s = self._delay_s + (0.5 - self._percent / 100) * self._scale_s * _DIVISIONS
        nearest = min(_TIME_BASES, key=lambda scale_s: abs(scale_s - self._scale_s))
        fields = {
            0x20: ("h", float(self._words)),
            0x3C: ("i", frame.points * (1 + self._words)),
            0x74: ("i", frame.points),
            0x84: ("i", self._first),
            0x88: ("i", self._every),
            0x90: ("i", 1),
            0x94: ("i", len(self.model.frames)),
            0x9C: ("f", source.volts_per_division / source.probe),
            0xA0: ("f", -source.offset_v / source.probe),
            0xA4: ("f", self.codes_per_division),
            0xAC: ("h", self.bits),
            0xAE: ("h", self._segment),
            0xB0: ("f", frame.interval_s),
            0xB4: ("d", centre_s),
            0x144: ("h", _TIME_BASES.index(nearest)),
            0x148: ("f", source.probe),
        }
        return wavedesc(fields) + tail

    def _data_block(self) -> bytes:
        frame = self._frame()
        if frame is None:
            return definite_block(b"")
        model = self.model
        codes = (model.codes(self._source, frame).astype(np.int32) - model.middle_code) << (
            16 - model.physics.bits
        )
        codes = codes[self._first :: max(self._every, 1)]
        codes = codes[: min(self._count or self.page, self.page)]
        data = codes.astype("<i2").tobytes() if self._words else (codes >> 8).astype("i1").tobytes()
        announced = codes.size if self.counts_samples else len(data)
        digits = self.digits or len(str(announced))
        return b"#%d%0*d" % (digits, digits, announced) + data

    def _time_of_day(self) -> str:
        if not self._history or not 1 <= self._history_frame <= len(self.model.frames):
            raise ValueError
        time_us = round(self.model.frames[self._history_frame - 1].trigger_ns / 1000)
        seconds, micros = divmod(time_us, 1_000_000)
        minutes, seconds = divmod(seconds, 60)
        return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}:{seconds:02d}.{micros:06d}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return f"{value:.6E}" if isinstance(value, float) else str(value)


def _skew(text: str) -> float:
    value = float(text)
    if abs(value) > 1e-7:
        raise ValueError
    return value
