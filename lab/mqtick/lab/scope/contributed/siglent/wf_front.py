"""A simulated Siglent of the older command set: an SDS1104X-E.

Source: programming guide for the SDS series PG01-E02; the form of the answers from drivers by other
authors.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.contributed.siglent.values import quantity
from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import Front
from mqtick.lab.scope.simulator.model import Frame, Model, Physics

_DIVISIONS = 14
_CODES_PER_DIVISION = 25
_DEPTHS = ("7K", "70K", "700K", "7M", "14K", "140K", "1.4M", "14M")
_SLOPES = {"POS": "rising", "NEG": "falling", "WINDOW": "either"}
_WORDS = {State.PREPARING: "Arm", State.ARMED: "Ready", State.TRIGGERED: "Trig'd"}
_READY, _NEW_SIGNAL = 8192, 1


class SiglentWfFront(Front):
    """Signed octets, 25 per division; blocks with a header before and two line ends after."""

    name = "siglent-wf"
    identity = "Siglent Technologies,SDS1104X-E,SIMULATED,8.2.6.1.37R9"
    physics = Physics(
        bits=8,
        divisions=256 / _CODES_PER_DIVISION,
        max_rate_hz=1e9,
        depths=(7_000, 14_000, 70_000, 140_000, 700_000, 1_400_000, 7_000_000, 14_000_000),
    )
    block_end = b"\n\n"
    level_times_probe = False
    """The fault of some firmware: a trigger level is multiplied by the probe's factor."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.lost: list[str] = []
        """Commands that begin like this are dropped silently, once each, as by real instruments."""
        self._headers = True
        self._mode = "AUTO"
        self._scale_s, self._centre_s = 1e-4, 0.0
        self._first, self._count, self._every = 0, 0, 0
        self._seen = 0
        self._add_inputs()
        self._add_acquisition()
        self._add_waveform()

    def answer(self, line: str) -> bytes:
        """Execute one line, if it is not lost."""
        for start in self.lost:
            if line.startswith(start) and "?" not in line:
                self.lost.remove(start)
                return b""
        return super().answer(line)

    def _reply(self, header: str, text: str, bare: str | None = None) -> str:
        """Answer with header and unit, or, with CHDR OFF, without both."""
        return f"{header} {text}" if self._headers else bare or text

    def _setting(self, header: str, take: Callable[[str], None], give: Callable[[], str]) -> None:
        self.scpi.on(header, take)
        self.scpi.on(f"{header}?", lambda _: self._reply(header, give()))

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        model, inputs = self.model, self.model.inputs
        self._input("TRA", "on", {"ON": True, "OFF": False})
        self._input("CPL", "coupling", {"D1M": "DC", "A1M": "AC"})
        self._input("VDIV", "volts_per_division", _number, self._measured)
        self._input("OFST", "offset_v", lambda t: -_number(t), lambda volts: self._measured(-volts))
        self._input(
            "SKEW",
            "deskew_s",
            lambda text: min(max(_number(text), -1e-7), 1e-7),
            lambda seconds: f"{seconds:.2E}S",
        )
        self._ask("ATTN", lambda n: f"{inputs[n].probe:g}")
        self.scpi.on("C<n>:ATTN", self._attenuate)
        self._ask("TRLV", lambda _: f"{model.trigger_level_v:.2E} V")
        self.scpi.on("C<n>:TRLV", self._level)
        self._ask("TRSL", lambda _: _key(_SLOPES, model.trigger_slope))
        self.scpi.on("C<n>:TRSL", lambda _, text: setattr(model, "trigger_slope", _SLOPES[text]))
        for key, value in (("TRCP", "DC"), ("UNIT", "V"), ("INVS", "OFF")):
            self.ignore(f"C<n>:{key}")
            self.scpi.on(f"C<n>:{key}?", lambda n, _, k=key, v=value: self._reply(f"C{n}:{k}", v))
        self.ignore("BWL")

    def _ask(self, key: str, give: Callable[[int], str]) -> None:
        self.scpi.on(f"C<n>:{key}?", lambda n, _: self._reply(f"C{n}:{key}", give(n)))

    def _input(
        self,
        key: str,
        field: str,
        read: Callable[[str], object] | dict[str, Any],
        write: Callable[[float], str] | None = None,
    ) -> None:
        """Add a setting of an input; a table of words serves for both directions."""
        words = read if isinstance(read, dict) else {}
        inputs = self.model.inputs
        self.keep_input(f"C<n>:{key}", field, words.__getitem__ if isinstance(read, dict) else read)
        self._ask(key, lambda n: (write or partial(_key, words))(getattr(inputs[n], field)))

    def _attenuate(self, channel: int, text: str) -> None:
        one = self.model.inputs[channel]
        one.volts_per_division *= float(text) / one.probe  # the scale at the input stays
        one.probe = float(text)

    def _level(self, channel: int, text: str) -> None:
        factor = self.model.inputs[channel].probe if self.level_times_probe else 1.0
        self.model.trigger_level_v = _number(text) * factor

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on("CHDR", self._set_headers)
        self._setting("TDIV", self._set_scale, lambda: self._measured(self._scale_s, "S"))
        self._setting("TRDL", self._set_centre, lambda: self._measured(self._centre_s, "S"))
        self._setting("MSIZ", self._set_depth, lambda: _depth(model.depth))
        self._setting("TRMD", self._set_mode, self._get_mode)
        self._setting("TRSE", self._set_trigger, self._get_trigger)
        self.ignore("ACQW")
        on("ACQW?", lambda _: self._reply("ACQW", "SAMPLING"))
        on("AVGA?", lambda _: self._reply("AVGA", "16"))
        on("STOP", lambda _: self._set_mode("STOP"))
        on("ARM", lambda _: self._set_mode("SINGLE"))
        on("SARA?", lambda _: self._counted("SARA", model.rate_hz, "Sa/s"))
        on("SANU?", lambda _: self._counted("SANU", model.points, "pts"))
        on("SAST?", lambda _: self._reply("SAST", self._word()))
        on("INR?", lambda _: self._reply("INR", str(self._changes())))
        on("TRLV?", lambda _: self._reply(f"C{model.trigger_channel}:TRLV", "1.65E+00V"))
        on("SCDP", lambda _: _bmp(np.full((48, 80), 32, np.uint8)))

    def _counted(self, header: str, value: float, unit: str) -> str:
        return self._reply(header, _prefixed(value) + unit, f"{value:.2E}")

    def _measured(self, value: float, unit: str = "V") -> str:
        return f"{value:.2E}{unit if self._headers else ''}"

    def _set_headers(self, text: str) -> None:
        self._headers = {"OFF": False, "SHORT": True, "LONG": True}[text]

    def _set_scale(self, text: str) -> None:
        self._scale_s = _number(text)
        self._place()

    def _set_centre(self, text: str) -> None:
        self._centre_s = _number(text)
        self._place()

    def _place(self) -> None:
        """Place the record: it is as long as the grid, and its middle is at the delay."""
        self.model.span_s = self._scale_s * _DIVISIONS
        before = round(0.5 - self._centre_s / self.model.span_s, 9)
        self.model.before = min(max(before, 0.0), 1.0)

    def _set_depth(self, text: str) -> None:
        if text in _DEPTHS and self.model.running:  # ignored silently when stopped
            self.model.depth = int(quantity(text, "MSIZ"))

    def _set_mode(self, text: str) -> None:
        if text == "STOP":
            self.model.stop()
        elif text in ("AUTO", "NORM", "SINGLE"):
            self._mode = text
            self.model.start(single=text == "SINGLE")
        else:
            raise ValueError

    def _get_mode(self) -> str:
        return "STOP" if self.model.poll() is State.STOPPED else self._mode

    def _set_trigger(self, text: str) -> None:
        match = re.match(r"EDGE,SR,C([1-4]),HT,OFF$", text)
        if match is None:
            raise ValueError
        self.model.trigger_channel = int(match[1])

    def _get_trigger(self) -> str:
        return f"EDGE,SR,C{self.model.trigger_channel},HT,OFF"

    def _word(self) -> str:
        state = self.model.poll()
        if state is State.STOPPED:
            return "Stop"
        return "Auto" if self._mode == "AUTO" else _WORDS[state]

    def _changes(self) -> int:
        """Return the register and clear it."""
        ready = _READY if self.model.poll() is State.ARMED else 0
        newest = self.model.frames[-1].number if self.model.frames else self._seen
        new, self._seen = newest != self._seen, newest
        return ready + (_NEW_SIGNAL if new else 0)

    # -- waveform ------------------------------------------------------------------------------

    def _add_waveform(self) -> None:
        on = self.scpi.on
        on("WFSU", self._set_transfer)
        on(
            "WFSU?",
            lambda _: self._reply("WFSU", f"SP,{self._every},NP,{self._count},FP,{self._first}"),
        )
        on("C<n>:WF?", self._waveform)

    def _set_transfer(self, text: str) -> None:
        fields = text.split(",")
        numbers = dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
        self._every = numbers.get("SP", self._every)
        self._count = numbers.get("NP", self._count)
        self._first = numbers.get("FP", self._first)

    def _frame(self, channel: int) -> Frame | None:
        self.model.poll()
        frames = self.model.frames
        return frames[-1] if frames and self.model.inputs[channel].on else None

    def _waveform(self, channel: int, text: str) -> bytes:
        if text != "DAT2":  # the descriptors of WF? DESC and WF? ALL are not simulated
            raise ValueError
        frame = self._frame(channel)
        header = f"C{channel}:WF " if self._headers else ""
        data = self._data(channel, frame) if frame else b""
        return f"{header}DAT2,".encode() + definite_block(data)

    def _data(self, channel: int, frame: Frame) -> bytes:
        finer = 1 << (self.model.physics.bits - 8)  # for more than 8 bits by --bits
        codes = self.model.codes(channel, frame).astype(np.int32)
        codes = np.minimum((codes + finer // 2) // finer, 255) - 128
        codes = codes[self._first :: max(self._every, 1)]
        return codes[: self._count or None].astype(np.int8).tobytes()


def _number(text: str) -> float:
    """Read a number with unit; M is milli in 500MV and in 5MS."""
    match = re.match(r"([-+.\dE]+)\s*([NUMK]?)[VS]?$", text.upper())
    if match is None:
        raise ValueError
    return float(match[1]) * {"": 1.0, "N": 1e-9, "U": 1e-6, "M": 1e-3, "K": 1e3}[match[2]]


def _prefixed(value: float) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.2f}{prefix}"
    return f"{value:.2f}"


def _depth(points: int) -> str:
    return next(depth for depth in _DEPTHS if quantity(depth, "MSIZ") == points)


def _key(table: dict[str, Any], value: object) -> str:
    return next(key for key, found in table.items() if found == value)


def _bmp(grey: np.ndarray) -> bytes:
    """Write rows of grey pixels as a bitmap with 24 bits a pixel; the width divides by 4."""
    height, width = grey.shape
    pixels = np.repeat(grey[::-1, :, np.newaxis], 3, axis=2).astype(np.uint8).tobytes()
    size = 54 + len(pixels)
    head = struct.pack("<2sIHHI", b"BM", size, 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return head + info + pixels
