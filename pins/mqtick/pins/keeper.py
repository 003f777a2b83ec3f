"""Keeps an output usable: its line is opened in a thread, and opened again after it broke."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mqtick.pins.base import LatencyClass, Line, PinError, PinSettings
from mqtick.pins.discovery import open_line
from mqtick.pins.output import Output

_log = logging.getLogger(__name__)
_FIRST_S = 0.5
"""How long to wait for the first attempt, which takes milliseconds where nothing is wrong."""
_RETRY_S = 5.0


class _NoLine:
    """Stands in for a line that is not open: each edge fails, and says why."""

    latency_class = LatencyClass.CLOSED

    def __init__(self, settings: PinSettings) -> None:
        self.name = f"{settings.backend} line {settings.line}"
        self.trouble = "it is not open yet"

    def set(self, _level: bool) -> None:
        raise PinError(self.trouble)

    def close(self) -> None:
        pass


class Keeper:
    """An output whose line may be missing, hang or break while the program goes on.

    PinError only for settings that no line can have.
    """

    def __init__(
        self, settings: PinSettings, opener: Callable[[PinSettings], Line] = open_line
    ) -> None:
        self._settings, self._opener = settings, opener
        self._none = _NoLine(settings)
        self._old: Line = self._none
        self._found: Line | Exception | None = None
        self.output = Output(self._none, settings)
        self._begin()
        self._thread.join(_FIRST_S)
        self.tend()

    @property
    def trouble(self) -> str:
        """Why the line is not open; empty if it is."""
        return self._none.trouble

    def tend(self) -> None:
        """Take over a line that was opened, open one again that broke; call it once a second."""
        if self._thread.is_alive():
            self._say("its back end has not answered yet")
            return
        found, self._found = self._found, None
        if isinstance(found, Exception):
            self._say(str(found) or type(found).__name__)
        elif found is not None:
            self._say("")
            self.output.take(found)
        elif self.output.broken and not self.trouble:
            self._say(self.output.last_error)
            self._old = self.output.line
            self.output.take(self._none)
            self._begin()
        elif self.trouble and time.monotonic() - self._began_s >= _RETRY_S:
            self._begin()

    def _say(self, trouble: str) -> None:
        if trouble not in ("", self.trouble):
            _log.warning("%s is not driven: %s", self._none.name, trouble)
        self._none.trouble = trouble

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._open, name="pin", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        with contextlib.suppress(Exception):  # whatever a broken line raises
            self._old.close()
        try:
            self._found = self._opener(self._settings)
        except Exception as trouble:  # a PinError, or what another author's back end raises
            self._found = trouble


def keepers(**keys: Any) -> dict[str, Keeper]:
    """Return a keeper for each pin that is not switched off.

    The keys are dataclasses with the fields of `PinSettings`; their back end may be none.
    """
    return {
        name: Keeper(PinSettings(**asdict(each)))
        for name, each in keys.items()
        if each.backend != "none"
    }
