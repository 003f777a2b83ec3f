"""Ctrl-C and SIGTERM end a run between two steps, never while a file is written."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(BaseException):
    """A signal ends the run; handlers of ordinary errors do not catch this exception."""


class Signals:
    """Raises InterruptedRunError at the first signal, but not inside `held`.

    Later signals are ignored: the run must clean up, which takes some seconds. Outside the main
    thread, where Python has no signals, this class does nothing.
    """

    def __init__(self) -> None:
        self._held = False
        self._came = False
        self._raised = False

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Handle the signals for the length of a with block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal wait until the end of the with block."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came:
            self._raise()

    def ignore(self) -> None:
        """Ignore signals from now on: the run ends."""
        self._raised = True

    def _raise(self) -> None:
        if not self._raised:
            self._raised = True
            raise InterruptedRunError

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._held:
            self._came = True
        else:
            self._raise()
