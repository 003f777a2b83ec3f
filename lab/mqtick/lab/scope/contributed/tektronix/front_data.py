"""The data transfer of the simulated Tektronix: sources, encodings, preamble.

Sources: as the dialect's; the form of the answers from drivers by other authors, the order of the
preamble's fields from scopehal (TektronixOscilloscope.cpp).
"""

from __future__ import annotations

import math

import numpy as np

from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.simulator.front import Front, boolean, flag
from mqtick.lab.scope.simulator.model import Frame, Model
from mqtick.recording.waveform import Codes

_ENCODINGS = {
    "RI": (True, False),
    "RP": (False, False),
    "SRI": (True, True),
    "SRP": (False, True),
}
"""Whether signed, whether the low octet comes first."""
_HEAD = "WFMOutpre"


class TektronixData(Front):
    """Words; YOFf is always 0, XZEro the time from the trigger to the point after it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.source, self.width = 1, 2
        self.binary, self.signed, self.low_first = True, True, False
        self.first, self.last = 1, 1_000_000_000
        on = self.scpi.on
        others = ["0"] * 4
        on("SELect?", lambda _: ";".join([flag(i.on) for i in model.inputs.values()] + others))
        self.keep_input("SELect:CH<n>", "on", boolean, flag)
        self.keep("DATa:SOUrce", self, "source", self.channel, "CH{}".format)
        on("DATa:SOUrce:AVAILable?", lambda _: ",".join(self._shown()))
        on("DATa:ENCdg", self._set_encoding)
        on("DATa:ENCdg?", lambda _: self._encoding_name())
        self.keep("DATa:STARt", self, "first", lambda text: max(int(text), 1), str)
        self.keep("DATa:STOP", self, "last", lambda text: int(float(text)), str)
        on("CURVe?", lambda _: self._curve())
        on(f"{_HEAD}?", lambda _: ";".join(self._fields().values()))
        for name in self._no_fields():
            on(f"{_HEAD}:{name}?", lambda _, name=name: self._fields()[name])
        self.keep("DATa:WIDth", self, "width", _width, str)
        self.keep(f"{_HEAD}:BYT_Nr", self, "width", _width)
        self.keep(f"{_HEAD}:BYT_Or", self, "low_first", lambda text: text.upper() == "LSB")
        self.keep(f"{_HEAD}:BN_Fmt", self, "signed", lambda text: text.upper() == "RI")
        self.keep(f"{_HEAD}:ENCdg", self, "binary", lambda text: text.upper()[:3] == "BIN")

    def channel(self, text: str) -> int:
        """Read CH<x>."""
        number = int(text.upper().removeprefix("CH"))
        if number not in self.model.inputs:
            raise ValueError
        return number

    def _shown(self) -> list[str]:
        return [f"CH{number}" for number, one in self.model.inputs.items() if one.on]

    def _set_encoding(self, text: str) -> None:
        upper = text.upper()
        self.binary = not upper.startswith("ASC")
        if self.binary:
            self.signed, self.low_first = _ENCODINGS[upper[: 3 if upper[0] == "S" else 2]]

    def _encoding_name(self) -> str:
        if not self.binary:
            return "ASCII"
        names = {kind: name for name, kind in _ENCODINGS.items()}
        return names[self.signed, self.low_first] + "BINARY"

    def _frame(self) -> Frame:
        """Return the record; ValueError (an event) if there is none."""
        self.model.poll()
        frames = self.model.frames
        if not frames or not self.model.inputs[self.source].on:
            raise ValueError
        return frames[-1]

    def _points(self, frame: Frame) -> int:
        return max(min(self.last, frame.points) - self.first + 1, 0)

    def _levels(self, frame: Frame) -> Codes:
        """Return the values to send for a record: signed, 0 in the middle of the screen."""
        codes = self.model.codes(self.source, frame)[self.first - 1 :][: self._points(frame)]
        levels = codes.astype(np.int32) - self.model.middle_code
        return levels << self._shift if self._shift >= 0 else levels >> -self._shift

    @property
    def _shift(self) -> int:
        """How many bits the converter's codes are shifted, so that they fill an octet or word."""
        return 8 * self.width - self.model.physics.bits

    @property
    def _middle(self) -> int:
        """The code that is sent for the middle of the screen."""
        return 0 if self.signed or not self.binary else 1 << (8 * self.width - 1)

    def _curve(self) -> str | bytes:
        frame = self._frame()
        if not self.binary:
            return ",".join(map(str, self._levels(frame)))
        kind = ("<" if self.low_first else ">") + ("i" if self.signed else "u") + str(self.width)
        return self.block((self._levels(frame) + self._middle).astype(kind).tobytes())

    def block(self, data: bytes) -> bytes:
        """Write a block with no more digits than it needs."""
        return definite_block(data, len(str(len(data))))

    def _fields(self) -> dict[str, str]:
        """Return the preamble, in the order of the instrument."""
        frame = self._frame()
        one, points = self.model.inputs[self.source], self._points(frame)
        # The point after the trigger, and its time after the trigger.
        after = math.ceil(round(-frame.start_s / frame.interval_s, 6))
        scale = self.model.volts_per_code(self.source) / 2.0**self._shift
        return self._no_fields() | {
            "NR_Pt": str(points),
            "WFID": f'"Ch{self.source}, {one.coupling} coupling, {points} points, Sample mode"',
            "XINcr": f"{frame.interval_s:.4E}",
            "XZEro": f"{frame.start_s + after * frame.interval_s:.9E}",
            "PT_Off": str(after - (self.first - 1)),
            "YMUlt": f"{scale:.6E}",
            "YZEro": f"{one.offset_v - self._middle * scale:.6E}",
        }

    def _no_fields(self) -> dict[str, str]:
        """Return the preamble of no record, in the order of the instrument."""
        return {
            "BYT_Nr": str(self.width),
            "BIT_Nr": str(8 * self.width),
            "ENCdg": "BINARY" if self.binary else "ASCII",
            "BN_Fmt": "RI" if self.signed else "RP",
            "BYT_Or": "LSB" if self.low_first else "MSB",
            "WFID": "",
            "NR_Pt": "",
            "PT_Fmt": "Y",
            "XUNit": '"s"',
            "XINcr": "",
            "XZEro": "",
            "PT_Off": "",
            "YUNit": '"V"',
            "YMUlt": "",
            "YOFf": "0.0E+0",
            "YZEro": "",
        }


def _width(text: str) -> int:
    if int(text) not in (1, 2):
        raise ValueError
    return int(text)
