"""The waveform recorder of the simulated Rigols."""

from __future__ import annotations

import time
from typing import Protocol

from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import Front, boolean, flag

_MOST_POINTS = 50_000_000
_REFRESH_S = 0.3


class Start(Protocol):
    """Begins to record."""

    def __call__(self, *, single: bool, segments: int = 1) -> None:
        """Begin to record that many frames."""


class Recorder:
    """Records frames, and shows one of them: `shown`, from 1.

    The commands begin with `record`, `frames` is the one for their number; `tags` says whether the
    instrument tells when a frame was taken.
    """

    def __init__(self, front: Front, start: Start, record: str, frames: str, tags: bool) -> None:
        self.enabled = False
        self.shown = 1
        self.refresh_s = _REFRESH_S
        """How long the time of the previous frame is still reported."""
        self._model, self._start, self._tags = front.model, start, tags
        self._wanted = 1
        self._worked_out: int | None = None
        """How many frames fit, computed by the last recording: a new depth does not change it."""
        self._before, self._chosen_s = 1, float("-inf")
        on, play, record = front.scpi.on, f"{record}:WREPlay:", f"{record}:WRECord:"
        on(f"{record}ENABle", self._enable)
        on(f"{record}ENABle?", lambda _: flag(self.enabled))
        front.ignore(f"{record}FINTerval", f"{record}PROMpt", f"{play}OPERate")
        on(f"{record}{frames}", self._set_wanted)
        on(f"{record}{frames}?", lambda _: str(self._wanted))
        on(f"{record}FMAX?", lambda _: str(self._most))
        on(f"{record}OPERate", self._operate)
        on(f"{record}OPERate?", lambda _: "RUN" if self._recording else "STOP")
        on(f"{play}FMAX?", lambda _: str(len(self._model.frames)))
        on(f"{play}FCURrent", self._choose)
        on(f"{play}FCURrent?", lambda _: str(self._current))
        if tags:
            on(f"{play}FCURrent:TIME?", lambda _: self._tag())

    @property
    def _most(self) -> int:
        if self._worked_out is None or not self._tags:
            self._worked_out = _MOST_POINTS // self._model.points
        return self._worked_out

    @property
    def _recording(self) -> bool:
        return self.enabled and self._model.poll() is not State.STOPPED

    @property
    def _current(self) -> int:
        state = self._model.poll()
        if state is State.STOPPED:
            return self.shown
        return 0 if state is State.PREPARING else len(self._model.frames) + 1

    def _enable(self, text: str) -> None:
        self.enabled = boolean(text)
        self.shown = 1

    def _set_wanted(self, text: str) -> None:
        if int(text) < 1:
            raise ValueError
        self._wanted = min(int(text), self._most)

    def _operate(self, text: str) -> None:
        if not self.enabled:
            raise ValueError
        if text.upper() == "RUN":
            self.shown, self._worked_out = 1, None
            self._start(single=True, segments=self._wanted)
        else:
            self._model.stop()

    def _choose(self, text: str) -> None:
        if not 1 <= int(text) <= len(self._model.frames):
            raise ValueError
        self._before, self._chosen_s = self.shown, time.monotonic()
        self.shown = int(text)

    def _tag(self) -> str:
        frames = self._model.frames
        fresh = time.monotonic() - self._chosen_s > self.refresh_s
        frame = frames[(self.shown if fresh else self._before) - 1]
        seconds = (frame.trigger_ns - frames[0].trigger_ns) / 1e9
        for unit, size in (("ks", 1e3), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if seconds >= size:
                return f"{seconds / size:#.6g}{unit}"
        return "0.00000s"
