"""Shows the progress of a run: one line, rewritten, on a terminal; plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import defaultdict
from typing import Final, Protocol, TextIO

import numpy as np

from mqtick.lab.runner.summary import quantities
from mqtick.recording.shot import CAPTURED, Shot

_EVERY_S: Final = 5.0
_BAR: Final = 24
_FS_PER_US: Final = 1e9


class Progress(Protocol):
    """Callbacks for the events of a run; they must not raise."""

    def note(self, sentence: str) -> None:
        """Tell the user of an event: a retry, a refusal, the reason for waiting."""

    def begin(self, total: int) -> None:
        """Note that the run begins, with this many shots in its plan."""

    def shot(self, shot: Shot) -> None:
        """Note a recorded shot, also those from before a resume."""

    def end(self) -> None:
        """Note that the run has ended."""


class Quiet:
    """Shows nothing."""

    def note(self, sentence: str) -> None:
        """Ignore."""

    def begin(self, total: int) -> None:
        """Ignore."""

    def shot(self, shot: Shot) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""


class Watch:
    """Shows a run to the user, with the statistics of the present N."""

    def __init__(self, kind: str, stream: TextIO = sys.stderr) -> None:
        self._kind, self._stream = kind, stream
        self._terminal = stream.isatty()
        self._colours = self._terminal and "NO_COLOR" not in os.environ
        self._total = self._count = self._failed = 0
        self._values_us: dict[int, list[float]] = defaultdict(list)
        self._subscribers: int | None = None
        self._shown_s = float("-inf")
        self._shown: str | None = None

    def begin(self, total: int) -> None:
        """Begin with no shot done."""
        self._total, self._count, self._failed = total, 0, 0
        self._values_us.clear()

    def note(self, sentence: str) -> None:
        """Print the sentence above the bar."""
        self._print(f"{self._erase()}{sentence}\n")
        if self._terminal and self._shown is not None:
            self._print(self._line())

    def shot(self, shot: Shot) -> None:
        """Count the shot, and show it; without a terminal, show only some of the shots."""
        self._count += 1
        self._failed += shot.outcome != CAPTURED
        self._subscribers = shot.subscribers
        values_us = self._values_us[shot.subscribers]
        for name, value_fs in quantities(shot) if shot.outcome == CAPTURED else ():
            if name.partition(" ")[0] == self._kind:
                values_us.append(value_fs / _FS_PER_US)
        now_s = time.monotonic()
        is_due = now_s - self._shown_s >= _EVERY_S or self._count == self._total
        if self._terminal or is_due:
            line = self._line()
            self._print(f"{self._erase()}{line}" if self._terminal else f"{line}\n")
            self._shown_s, self._shown = now_s, line

    def end(self) -> None:
        """Leave the last line, and begin a new one."""
        if self._terminal and self._shown is not None:
            self._print("\n")
        self._shown = None

    def _line(self) -> str:
        done = _BAR * self._count // max(1, self._total)
        bar = "#" * done + "." * (_BAR - done)
        if self._colours:
            bar = f"\033[32m{bar}\033[0m"
        place = f"N = {self._subscribers}  " if self._subscribers else ""
        text = f"{place}shot {self._count}/{self._total}"
        values_us = self._values_us[self._subscribers or 0]
        if values_us:
            spread = f" +- {np.std(values_us, ddof=1):.1f}" if len(values_us) > 1 else ""
            mean = f"{self._kind} {np.mean(values_us):.1f}{spread} us"
            text += f"  {mean} (n = {len(values_us)})"
        if self._failed:
            text += f"  {self._failed} missed"
        if not self._terminal:
            return text
        room = shutil.get_terminal_size().columns - _BAR - 4
        return f"[{bar}] {text[: max(room, 0)]}"

    def _erase(self) -> str:
        return "\r\033[K" if self._terminal else ""

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the output is closed; the run continues
            self._terminal = False
