"""The way to an instrument: PyVISA, with a block reader of our own.

PyVISA's reads until a termination character take one call an octet where the data are full of line
feeds, and cannot tell a line feed in the data from the end; ours counts.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import pyvisa
from pyvisa.constants import InterfaceType
from pyvisa.errors import VisaIOError

from mqtick.lab.block import read_block
from mqtick.lab.conversation import Block, InstrumentError, Pause, Query, Reply, Step, Write

__all__ = ["Transport", "VisaTransport"]

_CHUNK = 1 << 20
_BLANK_LINES = 3


class Transport(Protocol):
    """Plays the steps of a conversation."""

    name: str

    def play(self, step: Step) -> Reply:
        """Do one step; InstrumentError when the instrument does not answer."""

    def reopen(self) -> None:
        """Connect anew, so that nothing of an answer that came too late is left."""

    def close(self) -> None:
        """Let go of the instrument."""


class VisaTransport:
    """An instrument by its VISA resource name: SOCKET, VXI-11, HiSLIP or USBTMC.

    `backend` is PyVISA's ("@py" is pyvisa-py, "" the vendor's library). InstrumentError when it
    cannot be opened.
    """

    def __init__(self, resource: str, *, timeout_s: float = 3.0, backend: str = "@py") -> None:
        self.name = resource
        self._timeout_ms = int(timeout_s * 1000)
        self._backend = backend
        self._resource: Any = None
        self._after_block = False
        self._open()

    def _open(self) -> None:
        try:
            self._manager = pyvisa.ResourceManager(self._backend)
            self._resource = self._manager.open_resource(
                self.name,
                open_timeout=self._timeout_ms,
                timeout=self._timeout_ms,
                write_termination="\n",
                read_termination="\n",
            )
        except (VisaIOError, ValueError, OSError) as error:
            raise InstrumentError(
                f"{self.name} cannot be opened ({_why(error)}). Is the instrument on, is the name "
                "right, and is its socket switched on? Example: TCPIP::192.168.1.5::5025::SOCKET."
            ) from error
        self._after_block = False
        self._is_socket = (
            self._resource.interface_type == InterfaceType.tcpip
            and self._resource.resource_class == "SOCKET"
        )

    def play(self, step: Step) -> Reply:
        """Do one step."""
        try:
            match step:
                case Pause(seconds):
                    time.sleep(seconds)
                case Write(command):
                    self._resource.write(command)
                case Query(command):
                    self._resource.write(command)
                    return self._line()
                case Block():
                    self._resource.write(step.command)
                    return self._blocks(step)
        except (VisaIOError, OSError) as error:
            raise InstrumentError(
                f"{self.name} did not do {_shown(step)} ({_why(error)})."
            ) from error
        except UnicodeDecodeError as error:
            raise InstrumentError(
                f"{self.name} answered {_shown(step)} with octets that are no text; what is left "
                "of an earlier answer stands in the way."
            ) from error
        return None

    def _line(self) -> str:
        line = str(self._resource.read())
        # A block ends with one line feed, or two, or none: what is left of it is no answer.
        for _ in range(_BLANK_LINES if self._after_block else 0):
            if line.strip():
                break
            line = str(self._resource.read())
        self._after_block = False
        return line

    def _blocks(self, step: Block) -> bytes:
        if self._is_socket:
            read = self._exactly
        else:  # these say where a message ends
            message = memoryview(self._resource.read_raw(_CHUNK))
            at = 0

            def read(count: int) -> bytes:
                nonlocal at
                piece = bytes(message[at : at + count])
                at += count
                if len(piece) < count:
                    raise InstrumentError(
                        f"{self.name} sent {len(piece)} octets of {count} that it announced."
                    )
                return piece

        parts = []
        for index in range(step.count):
            if index:
                read(1)  # the separator
            parts.append(read_block(read, step.prefix))
        self._after_block = self._is_socket
        return b"".join(parts)

    def _exactly(self, count: int) -> bytes:
        resource = self._resource
        termination = resource.read_termination
        resource.read_termination = None
        try:
            return bytes(resource.read_bytes(count, chunk_size=min(count, _CHUNK)))
        finally:
            resource.read_termination = termination

    def reopen(self) -> None:
        """Connect anew."""
        self.close()
        self._open()

    def close(self) -> None:
        """Close the session."""
        if self._resource is not None:
            resource, self._resource = self._resource, None
            resource.close()


def _why(error: Exception) -> str:
    if isinstance(error, VisaIOError):
        return str(error.description or error).rstrip(".")
    return str(error).rstrip(".") or type(error).__name__


def _shown(step: Step) -> str:
    return repr(getattr(step, "command", "a pause"))
