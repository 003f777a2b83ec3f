"""Pins through the pigpio daemon, spoken to over its socket: Raspberry Pi 1 to 4 and Zero only.

Source: pigpio's "Socket Interface" page (abyz.me.uk/rpi/pigpio/sif.html). A request is four u32,
little endian (command, p1, p2, octets of the extension), then the extension. The answer is the
first three again and an i32 result, negative for an error. This module needs no pigpio package.

The daemon has no authentication: start it with -l (this machine only) or -n ADDRESS.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from mqtick.pins.base import LatencyClass, PinError, PinSettings
from mqtick.pins.board import COMPATIBLE, Controller, recognise

_MODES, _WRITE, _HWVER, _TRIG = 0, 4, 17, 37
_MODE_OUTPUT: Final = 1
_REQUEST: Final = struct.Struct("<4I")
_RESULT: Final = struct.Struct("<i")
ANSWER_OCTETS: Final = 16
ECHO_OCTETS: Final = 12
MAX_USER_GPIO: Final = 31
RETRY_NS: Final = 1_000_000_000
"""After a failed connection, wait this long before the next: an attempt may block the caller."""

_MEANING: Final = {
    -2: "GPIO not 0 to 31",
    -3: "GPIO not 0 to 53",
    -4: "mode not 0 to 7",
    -5: "level not 0 or 1",
    -41: "this GPIO is not permitted (not on this board, or left out by pigpiod -x)",
    -46: "pulse length not 1 to 100 us",
    -88: "unknown command",
}
"""Result codes of the commands used here (pigpio.h)."""
_FIRST_ERROR: Final = -1000  # revision codes may have bit 31 set too, but are far below this


class PigpioLine:
    """One GPIO of the daemon. An answer is awaited for each edge, so its bracket is valid.

    An answer that does not fit ends the connection, because the next would not fit either; the
    next edge connects again, but at most once a second.
    """

    latency_class = LatencyClass.DAEMON

    def __init__(self, settings: PinSettings) -> None:
        """Connect and make the GPIO an output at its inactive level; raises PinError if not."""
        gpio = settings.line
        self.name = f"pigpio GPIO {gpio} at {settings.host}:{settings.port}"
        self._address = (settings.host, settings.port)
        self._timeout_s = settings.timeout_ms / 1000
        self._output = _REQUEST.pack(_MODES, gpio, _MODE_OUTPUT, 0)
        self._write = [_REQUEST.pack(_WRITE, gpio, level, 0) for level in (0, 1)]
        self._trigger = [
            _REQUEST.pack(_TRIG, gpio, settings.width_us, 4) + struct.pack("<I", level)
            for level in (0, 1)
        ]
        self._answer = bytearray(ANSWER_OCTETS)
        self._view = memoryview(self._answer)
        self._socket: socket.socket | None = None
        self._retry_ns = 0
        try:
            self._connect()
            self._command(self._write[settings.inactive_level])
            self._command(self._output)
        except PinError:
            self.close()
            raise

    def set(self, level: bool) -> None:
        """Set the GPIO high or low (WRITE), and wait for the daemon's answer."""
        self._reconnect()
        self._command(self._write[level])

    def pulse(self, level: bool) -> None:
        """Let the daemon make a pulse of settings.width_us, 1 to 100 us (TRIG), and wait for it."""
        self._reconnect()
        self._command(self._trigger[level])

    def close(self) -> None:
        """Disconnect; the GPIO stays an output at the level it has."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        try:
            self._socket = socket.create_connection(self._address, self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # From now on without the resolver, which may block for much longer than the limit.
            self._address = self._socket.getpeername()[:2]
        except OSError as trouble:
            raise PinError(
                f"No pigpio daemon can be reached at {_where(self._address)} ({trouble}), so no "
                "pin is driven; start it (`systemctl start pigpiod`) or, where it no longer "
                "exists (Raspberry Pi OS trixie), use the back end gpiod or gpiomem."
            ) from trouble
        revision = self._ask(_REQUEST.pack(_HWVER, 0, 0, 0))
        if _FIRST_ERROR < revision < 0:
            raise self._error(f"answered HWVER with {_meaning(revision)}")
        if not supports(revision & 0xFFFF_FFFF):
            raise unsupported(f"the board at {_where(self._address)}")

    def _reconnect(self) -> None:
        if self._socket is not None:
            return
        now_ns = time.monotonic_ns()
        if now_ns < self._retry_ns:
            raise self._error("is not connected, and the last attempt was less than a second ago")
        self._retry_ns = now_ns + RETRY_NS
        try:
            self._connect()
            # The level is left alone: only the caller knows which edge comes next.
            self._command(self._output)
        except PinError:
            self.close()
            raise

    def _command(self, request: bytes) -> None:
        result = self._ask(request)
        if result:
            command, gpio, value, _ = _REQUEST.unpack_from(request)
            raise self._error(
                f"answered command {command} ({gpio}, {value}) with {_meaning(result)}"
            )

    def _ask(self, request: bytes) -> int:
        """Send one request and return the result in its answer."""
        connection = self._socket
        assert connection is not None
        try:
            connection.sendall(request)
            self._receive(connection)
        except TimeoutError as trouble:
            self.close()
            raise self._error(
                f"did not answer within {self._timeout_s * 1000:.0f} ms; whether it did what it "
                "was asked is not known"
            ) from trouble
        except OSError as trouble:
            self.close()
            raise self._error(f"broke the connection ({trouble})") from trouble
        if self._view[:ECHO_OCTETS] != request[:ECHO_OCTETS]:
            self.close()
            raise self._error(
                f"answered something else ({self._answer.hex()} to {request.hex()}), so it may "
                "not be a pigpio daemon"
            )
        return int(_RESULT.unpack_from(self._answer, ECHO_OCTETS)[0])

    def _receive(self, connection: socket.socket) -> None:
        """Fill the answer, within the time limit for all of it."""
        got = connection.recv_into(self._view)
        if 0 < got < ANSWER_OCTETS:  # rare: an answer is one packet
            end_s = time.monotonic() + self._timeout_s
            while 0 < got < ANSWER_OCTETS:
                connection.settimeout(max(end_s - time.monotonic(), 0.001))
                more = connection.recv_into(self._view[got:])
                got = got + more if more else 0
            connection.settimeout(self._timeout_s)
        if got == 0:
            raise ConnectionError("it closed it before the end of an answer")

    def _error(self, what: str) -> PinError:
        return PinError(
            f"The pigpio daemon at {_where(self._address)} {what}; `journalctl -u pigpiod` and "
            "`pigs hwver` on that machine say more."
        )


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


def _where(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _meaning(result: int) -> str:
    return f"{result} ({_MEANING.get(result, 'see pigpio.h')})"
