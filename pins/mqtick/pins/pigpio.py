"""Pins through the pigpio daemon, by the package `pigpio`: Raspberry Pi 1 to 4 and Zero only.

The package waits for an answer without a limit, so it is called in a thread of its own: a daemon
that hangs costs an edge its time limit, and never the program.

The daemon has no authentication: start it with -l (this machine only) or -n ADDRESS.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
import threading
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from mqtick.pins.base import LatencyClass, PinError, PinSettings
from mqtick.pins.board import COMPATIBLE, Controller, recognise

MAX_USER_GPIO: Final = 31


class PigpioLine:
    """One GPIO of the daemon. An answer is awaited for each edge, so its bracket is valid."""

    latency_class = LatencyClass.DAEMON

    def __init__(self, settings: PinSettings) -> None:
        """Connect and make the GPIO an output at its inactive level; raises PinError if not.

        Blocks as long as the daemon hangs: call it in a thread that may wait.
        """
        self._where = f"{settings.host}:{settings.port}"
        self.name = f"pigpio GPIO {settings.line} at {self._where}"
        self._gpio, self._width_us = settings.line, settings.width_us
        self._timeout_s = settings.timeout_ms / 1000
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        module = _load()
        self._pi = module.pi(settings.host, settings.port, show_errors=False)
        if not self._pi.connected:
            raise PinError(
                f"No pigpio daemon can be reached at {self._where}, so no pin is driven; start it "
                "(`systemctl start pigpiod`) or, where it no longer exists (Raspberry Pi OS "
                "trixie), use the back end gpiod or gpiomem."
            )
        try:
            # Its thread for notifications, which we do not need, spins when the daemon ends (1.78).
            self._pi._notify.stop()
            if not supports(self._pi.get_hardware_revision() & 0xFFFF_FFFF):
                raise unsupported(f"the board at {self._where}")
            self._pi.write(self._gpio, settings.inactive_level)
            self._pi.set_mode(self._gpio, module.OUTPUT)
        except Exception as trouble:  # the package raises many types
            self._stop()
            raise trouble if isinstance(trouble, PinError) else self._error(trouble) from trouble
        threading.Thread(target=self._work, name="pigpio", daemon=True).start()

    def set(self, level: bool) -> None:
        """Set the GPIO high or low, and wait for the daemon's answer."""
        self._ask(self._pi.write, level)

    def pulse(self, level: bool) -> None:
        """Let the daemon make a pulse of settings.width_us, 1 to 100 us, and wait for it."""
        self._ask(self._pi.gpio_trigger, self._width_us, level)

    def close(self) -> None:
        """Disconnect; the GPIO stays an output at the level it has."""
        self._jobs.put(None)

    def _ask(self, command: Callable[..., Any], *values: int) -> None:
        answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._jobs.put((answer, command, *values))
        try:
            trouble = answer.get(timeout=self._timeout_s)
        except queue.Empty:
            raise self._error(
                f"no answer within {self._timeout_s * 1000:.0f} ms; whether it did what it was "
                "asked is not known"
            ) from None
        if trouble is not None:
            raise self._error(trouble) from trouble

    def _work(self) -> None:
        """Carry out one command after the other, each as long as the daemon takes."""
        while (job := self._jobs.get()) is not None:
            answer, command, *values = job
            try:
                command(self._gpio, *values)
            except Exception as trouble:
                answer.put(trouble)
            else:
                answer.put(None)
        self._stop()

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # the daemon may be gone
            self._pi.stop()

    def _error(self, what: object) -> PinError:
        return PinError(
            f"The pigpio daemon at {self._where}: {what}; `journalctl -u pigpiod` and `pigs hwver` "
            "on that machine say more."
        )


def _load() -> Any:
    try:
        return importlib.import_module("pigpio")
    except ImportError as trouble:
        raise PinError(
            f"The Python package pigpio cannot be loaded ({trouble}), so no pin is opened; install "
            "it with `pip install 'mqtick[pigpio]'`, or choose another back end."
        ) from trouble


def open_pin(settings: PinSettings, *, compatible: Path = COMPATIBLE) -> PigpioLine:
    """Connect to the daemon and make the GPIO an output; raises PinError if that is not possible.

    `compatible` is the file by which this board is recognised, where the daemon is on this board.
    """
    if settings.line > MAX_USER_GPIO:
        raise PinError(
            f"line is {settings.line}, but the pigpio daemon drives GPIO 0 to {MAX_USER_GPIO}, so "
            "it is not asked; choose one of those."
        )
    if is_local(settings.host) and recognise(compatible).controller is Controller.RP1:
        raise unsupported(f"this board ({recognise(compatible).model})")
    return PigpioLine(settings)


def supports(revision: int) -> bool:
    """Say whether pigpio can drive the pins of a board with this revision code.

    Raspberry Pi documentation, "Raspberry Pi revision codes": bit 23 marks a new-style code, whose
    bits 12 to 15 are the processor: 3 is the BCM2711, 4 the BCM2712 with the RP1.
    """
    return not revision >> 23 & 1 or revision >> 12 & 0xF <= 3


def unsupported(board: str) -> PinError:
    """Say that pigpio does not work there, and what does."""
    return PinError(
        f"pigpio does not support the RP1 of the Raspberry Pi 5 family, and {board} has one, "
        "so no pin is opened; use the back end gpiod or gpiomem."
    )


def is_local(host: str) -> bool:
    """Say whether a host is certainly this machine."""
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host.lower() in {"", "localhost", "localhost.localdomain"}
