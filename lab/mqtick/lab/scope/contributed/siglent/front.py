"""A simulated Siglent of the :WAVeform command set: an SDS824X HD.

Source: SDS series programming guide EN11F; what an SDS814X HD really does:
github.com/vindavs/siglent-bin, SPEC.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.contributed.siglent.values import quantity
from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import Front, boolean
from mqtick.lab.scope.simulator.model import Frame, Model, Physics

_DIVISIONS = 10
_PAGE = 5_000_000
_CODES_PER_DIVISION = 7680.0
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
        divisions=65536 / _CODES_PER_DIVISION,
        max_rate_hz=1e9,
        depths=(10_000, 100_000, 1_000_000, 10_000_000),
    )

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._mode = "AUTO"
        self._scale_s, self._delay_s, self._percent = 1e-4, 0.0, 50.0
        self._source, self._words = 1, False
        self._first, self._count, self._every = 0, 0, 1
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
        except ValueError:  # a refused value has no effect
            setattr(self, field, before_it)
            raise

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        head = ":CHANnel<n>:"
        self.keep_input(f"{head}SWITch", "on", boolean, _shown)
        self.keep_input(f"{head}COUPling", "coupling", str.upper, _shown)
        self.keep_input(f"{head}SCALe", "volts_per_division", float, _shown)
        self.keep_input(f"{head}SKEW", "deskew_s", _skew, _shown)
        self.keep_input(
            f"{head}OFFSet", "offset_v", lambda text: -float(text), lambda volts: _shown(-volts)
        )
        self.scpi.on(f"{head}PROBe", self._set_probe)
        self.scpi.on(f"{head}PROBe?", lambda n, _: _shown(self.model.inputs[n].probe))
        self.scpi.on(f"{head}UNIT?", lambda n, _: "V")
        self.ignore(*(f"{head}{key}" for key in ("BWLimit", "INVert", "UNIT")))

    def _set_probe(self, channel: int, text: str) -> None:
        kind, _, value = text.partition(",")
        probe = float(value) if kind.upper().startswith("VAL") else float(text)
        one = self.model.inputs[channel]
        one.volts_per_division *= probe / one.probe  # the scale at the input stays
        one.probe = probe

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on(":SYSTem:ERRor?", lambda _: self.scpi.next_error('0,"No Error"'))
        self.ignore(":ACQuire:MODE", ":ACQuire:TYPE", ":ACQuire:MMANagement", ":ACQuire:SEQuence")
        on(":ACQuire:MDEPth", self._set_depth)
        on(":ACQuire:MDEPth?", lambda _: f"{model.depth / 1000:g}k")
        on(":ACQuire:POINts?", lambda _: f"{float(model.points):.2E}")
        on(":ACQuire:SRATe?", lambda _: f"{model.rate_hz:.2E}")
        on(":ACQuire:NUMAcq?", lambda _: str(len(model.frames)))
        self._setting(":TIMebase:SCALe", "_scale_s", float)
        self._setting(":TIMebase:DELay", "_delay_s", float)
        self.ignore(":TIMebase:REFerence", ":TIMebase:WINDow")
        self._setting(":TIMebase:REFerence:POSition", "_percent", float)
        on(":PRINt?", lambda _: self.screen())

    def _set_depth(self, text: str) -> None:
        if text.lower() not in (depth.lower() for depth in _DEPTHS) or not self.model.running:
            raise ValueError  # a stopped instrument refuses it
        self.model.depth = int(quantity(text, "MDEPth"))

    def _add_trigger(self) -> None:
        on, model = self.scpi.on, self.model
        on(":TRIGger:MODE", self._set_mode)
        on(":TRIGger:MODE?", lambda _: self._mode)
        on(":TRIGger:RUN", lambda _: self._set_mode(self._mode))
        on(":TRIGger:STOP", lambda _: model.stop())
        on(":TRIGger:STATus?", lambda _: self._word())
        self.ignore(":TRIGger:TYPE", ":TRIGger:EDGE:COUPling", ":TRIGger:EDGE:HOLDoff")
        self.keep(":TRIGger:EDGE:SOURce", model, "trigger_channel", lambda text: int(text[1:]))
        self.keep(":TRIGger:EDGE:SLOPe", model, "trigger_slope", _slope)
        self.keep(":TRIGger:EDGE:LEVel", model, "trigger_level_v")

    def _set_mode(self, text: str) -> None:
        mode = text.upper()
        if mode[:4] not in ("AUTO", "NORM", "SING"):
            raise ValueError
        self._mode = mode
        self.model.start(single=mode.startswith("SING"))

    def _word(self) -> str:
        state = self.model.poll()
        if state is State.STOPPED:
            return "Stop"
        return "Auto" if self._mode == "AUTO" else _WORDS[state]

    # -- waveform ------------------------------------------------------------------------------

    def _add_waveform(self) -> None:
        on = self.scpi.on
        self.keep(":WAVeform:SOURce", self, "_source", lambda text: int(text[1:]), "C{}".format)
        self.keep(":WAVeform:WIDTh", self, "_words", lambda text: text.upper() == "WORD", _width)
        self._setting(":WAVeform:STARt", "_first", int)
        self._setting(":WAVeform:POINt", "_count", int)
        self._setting(":WAVeform:INTerval", "_every", int)
        on(":WAVeform:MAXPoint?", lambda _: f"{float(_PAGE):.2E}")
        on(":WAVeform:PREamble?", lambda _: definite_block(self._descriptor()))
        on(":WAVeform:DATA?", lambda _: self._data_block() + b"\n")
        self.ignore(":HISTORy")

    def _frame(self) -> Frame | None:
        self.model.poll()
        frames = self.model.frames
        on = self.model.inputs[self._source].on
        return frames[-1] if frames and on else None

    def _descriptor(self) -> bytes:
        frame = self._frame()
        if frame is None:
            return bytes(346)
        one = self.model.inputs[self._source]
        centre_s = self._delay_s + (0.5 - self._percent / 100) * self._scale_s * _DIVISIONS
        nearest = min(_TIME_BASES, key=lambda scale_s: abs(scale_s - self._scale_s))
        fields = {
            0x20: ("h", float(self._words)),
            0x3C: ("i", frame.points * (1 + self._words)),
            0x74: ("i", frame.points),
            0x84: ("i", self._first),
            0x88: ("i", self._every),
            0x90: ("i", 1),
            0x9C: ("f", one.volts_per_division / one.probe),
            0xA0: ("f", -one.offset_v / one.probe),
            0xA4: ("f", _CODES_PER_DIVISION),
            0xAC: ("h", 16),
            0xB0: ("f", frame.interval_s),
            0xB4: ("d", centre_s),
            0x144: ("h", _TIME_BASES.index(nearest)),
            0x148: ("f", one.probe),
        }
        return _wavedesc(fields)

    def _data_block(self) -> bytes:
        frame = self._frame()
        if frame is None:
            return definite_block(b"")
        model = self.model
        codes = (model.codes(self._source, frame).astype(np.int32) - model.middle_code) << (
            16 - model.physics.bits
        )
        codes = codes[self._first :: max(self._every, 1)]
        codes = codes[: min(self._count or _PAGE, _PAGE)]
        data = codes.astype("<i2").tobytes() if self._words else (codes >> 8).astype("i1").tobytes()
        return definite_block(data, len(str(len(data))))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return f"{value:.6E}" if isinstance(value, float) else str(value)


def _skew(text: str) -> float:
    value = float(text)
    if abs(value) > 1e-7:
        raise ValueError
    return value


def _slope(text: str) -> str:
    return next(slope for start, slope in _SLOPES.items() if text.upper().startswith(start))


def _width(words: bool) -> str:
    return "WORD" if words else "BYTE"


def _wavedesc(fields: dict[int, tuple[str, float]]) -> bytes:
    """Write numbers (a `struct` letter and a value) at their offsets, little endian."""
    data = bytearray(346)
    data[0:8] = b"WAVEDESC"
    data[16:23] = b"WAVEACE"
    data[76:87] = b"Siglent SDS"
    struct.pack_into("<i", data, 0x24, len(data))
    for offset, (kind, value) in fields.items():
        whole = kind in "hi"
        struct.pack_into("<" + kind, data, offset, int(value) if whole else value)
    return bytes(data)
