"""The data transfer of the simulated Rigols: modes, formats, pages, preamble.

Sources: programming guides, chapter :WAVeform.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import ClassVar

import numpy as np

from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import Front
from mqtick.lab.scope.simulator.model import Frame, Model
from mqtick.recording.waveform import Codes

_FORMATS = {"BYTE": 0, "WORD": 1, "ASC": 2}
_OCTETS = {"BYTE": 1, "WORD": 2, "ASC": 16}
_MODES = {"NORM": 0, "MAX": 1, "RAW": 2}


class RigolWaveform(Front):
    """The :WAVeform commands."""

    divisions: ClassVar[int]
    screen_points: ClassVar[int]
    page_octets: ClassVar[int]
    """The most points in one answer to :WAVeform:DATA?."""
    word_bits: ClassVar[int] = 8
    """How many bits of a word are used: the lower ones."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.scale_s, self.offset_s = 1e-6, 0.0
        self.source, self.mode, self.format = 1, "NORM", "BYTE"
        self.first, self.last = 1, self.screen_points
        self.readable = self.screen_points
        self._kept: tuple[object, Codes] | None = None
        on = self.scpi.on
        self.keep(":WAVeform:SOURce", self, "source", channel_of, "CHAN{}".format)
        on(":WAVeform:MODE", self._set_mode)
        self.keep(":WAVeform:FORMat", self, "format", lambda text: choice_of(text, _FORMATS))
        self.keep(":WAVeform:STARt", self, "first", lambda text: max(int(text), 1))
        self.keep(":WAVeform:STOP", self, "last", lambda text: max(int(text), 1))
        on(":WAVeform:POINts?", lambda _: str(self._preamble()[2]))
        on(":WAVeform:PREamble?", lambda _: ",".join(self._preamble()))
        fields = ("XINCrement", "XORigin", "XREFerence", "YINCrement", "YORigin", "YREFerence")
        for index, key in enumerate(fields, start=4):
            on(f":WAVeform:{key}?", lambda _, index=index: self._preamble()[index])
        on(":WAVeform:DATA?", lambda _: self._data())

    def _set_mode(self, text: str) -> None:
        mode = choice_of(text, _MODES)
        if mode != self.mode:
            self.mode = mode
            self.readable = self.length(mode)
            self.first, self.last = 1, self.readable

    def length(self, mode: str) -> int:
        """Return how many points there are to read in a mode."""
        return self.screen_points if mode == "NORM" else self.model.points

    def _frame(self) -> Frame | None:
        """Return the frame, if there is one; memory can be read only when stopped."""
        stopped = self.model.poll() is State.STOPPED
        frames = self.model.frames
        on = self.model.inputs[self.source].on
        if not (frames and on and (stopped or self.mode == "NORM")):
            return None
        return frames[self.frame_index() if stopped else -1]

    def frame_index(self) -> int:
        """Return which frame is shown."""
        return -1

    def announced(self, frame: Frame) -> int:
        """Return the number of points that the preamble states."""
        return self.screen_points if self.mode == "NORM" else frame.points

    def _preamble(self) -> list[str]:
        frame = self._frame()
        if frame is None:  # the answer without a record
            return ["0", str(_MODES[self.mode]), "0", "1", *["0.000000E+00"] * 6]
        memory = frame.start_s, frame.interval_s
        begin_s, interval_s = self._screen() if self.mode == "NORM" else memory
        volts = self.model.volts_per_code(self.source) / 2.0 ** self._shift()
        offset_v = self.model.inputs[self.source].offset_v
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
        """Return how many bits longer a transferred sample is than one of the converter."""
        return (8 if self.format == "BYTE" else self.word_bits) - self.model.physics.bits

    def _screen(self) -> tuple[float, float]:
        """Return the instant of the screen's first point, and the interval."""
        width_s = self.divisions * self.scale_s
        return self.offset_s - width_s / 2, width_s / self.screen_points

    def _data(self) -> bytes | str:
        frame = self._frame()
        if frame is None:
            return self.block(b"")
        codes = self._codes(frame)
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

    def _codes(self, frame: Frame) -> Codes:
        """Return the record's codes; cached, because they are read in pages."""
        key = (self.source, frame, astuple(self.model.inputs[self.source]))
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self.model.codes(self.source, frame))
        return self._kept[1]

    def text(self, codes: Codes) -> bytes | str:
        """Write volts, in a block of text."""
        step, origin, reference = (float(field) for field in self._preamble()[7:])
        volts = (codes.astype(np.float64) - origin - reference) * step
        return self.block(",".join(f"{volt:.6e}" for volt in volts).encode())


def choice_of(text: str, known: Iterable[str]) -> str:
    """Return the short form of a word; ValueError if it is not a known one."""
    (found,) = (short for short in known if text.upper().startswith(short))
    return found


def channel_of(text: str) -> int:
    """Return the number of CHANnel1 to CHANnel4; ValueError if it is not one."""
    number = int(text.upper().removeprefix("CHANNEL").removeprefix("CHAN"))
    if not 1 <= number <= 4:
        raise ValueError
    return number
