"""The connection to an instrument: PyVISA, with a block reader of our own.

PyVISA reads until a termination character. With many line feeds in the data that takes one call per
octet, and a line feed in the data looks like the end. Our reader counts octets.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final, Protocol

import pyvisa
from pyvisa.constants import InterfaceType, StatusCode
from pyvisa.errors import VisaIOError
from pyvisa.resources import MessageBasedResource

from mqtick.lab.scope.block import read_block
from mqtick.lab.scope.conversation import Block, InstrumentError, Pause, Query, Reply, Step, Write
from mqtick.lab.scope.transport_socket import line_received, mended, received

_CHUNK: Final = 1 << 16
_BLANK_LINES: Final = 3
_OPEN_TRIES: Final = 3
_OPEN_AGAIN_S: Final = 0.2


class Transport(Protocol):
    """Plays the steps of a conversation."""

    name: str

    def play(self, step: Step) -> Reply:
        """Do one step; InstrumentError if the instrument does not answer."""

    def reopen(self) -> None:
        """Reconnect, to discard the rest of a late answer."""

    def close(self) -> None:
        """Release the instrument."""


class VisaTransport:
    """An instrument by its VISA resource name: SOCKET, VXI-11, HiSLIP or USBTMC.

    `backend` is PyVISA's ("@py" is pyvisa-py, "" the vendor's library). InstrumentError when it
    cannot be opened. After any failure it reconnects before the next command, so that the rest
    of an answer is never mistaken for the next one.
    """

    def __init__(self, resource: str, *, timeout_s: float = 3.0, backend: str = "@py") -> None:
        self.name = resource
        self.reopened = 0
        """How often it had to reconnect."""
        self._timeout_ms = int(timeout_s * 1000)
        self._backend = backend
        self._resource: Any = None
        self._session: Any = None
        self._after_block = False
        self._out_of_step = False
        self._open()

    def _open(self) -> None:
        try:
            self._manager = pyvisa.ResourceManager(self._backend)
            self._resource = self._manager.open_resource(
                self.name,
                open_timeout=self._timeout_ms,
            )
            if not isinstance(self._resource, MessageBasedResource):
                raise ValueError("that is not the name of an instrument")
            self._resource.timeout = self._timeout_ms
            self._resource.write_termination = "\n"
            self._is_socket = (
                self._resource.interface_type == InterfaceType.tcpip
                and self._resource.resource_class == "SOCKET"
            )
            if self._is_socket:  # the other protocols mark the end of a message
                self._resource.read_termination = "\n"
                self._session = mended(self._resource)
        except Exception as error:  # pyvisa-py raises Exception itself for a socket
            self.close()
            raise InstrumentError(
                f"{self.name} cannot be opened ({_why(error)}). Is the instrument on, is the name "
                "right, and is its socket switched on? Example: TCPIP::192.168.1.5::5025::SOCKET."
            ) from error
        self._after_block = False
        self._out_of_step = False

    def play(self, step: Step) -> Reply:
        """Do one step."""
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if self._out_of_step or self._resource is None:
            self.reopen()
        self._out_of_step = True  # until the answer is complete
        try:
            reply = self._do(step)
        except (VisaIOError, TimeoutError) as error:
            if getattr(error, "error_code", StatusCode.error_timeout) != StatusCode.error_timeout:
                raise InstrumentError(
                    f"{self.name} did not do {step.command!r} ({_why(error)})."
                ) from error
            raise InstrumentError(
                f"{self.name} did not answer {step.command!r} in full within "
                f"{self._timeout_ms / 1000:g} s. It is busy, does not know the command, or is of "
                "a different family than its name says (--dialect); check its screen."
            ) from error
        except OSError as error:
            raise InstrumentError(
                f"The connection to {self.name} was lost at {step.command!r} ({_why(error)}); "
                "check the instrument and its cable."
            ) from error
        except UnicodeDecodeError as error:
            raise InstrumentError(
                f"{self.name} answered {step.command!r} with octets that are not text "
                f"({error.object[:16]!r}); is this the port of the oscilloscope's SCPI socket?"
            ) from error
        except InstrumentError:
            raise
        except Exception as error:  # pyvisa-py: RuntimeError (HiSLIP), EOFError, RPCError (VXI-11)
            raise InstrumentError(
                f"{self.name} failed at {step.command!r} ({_why(error)}); check the instrument "
                "and its cable."
            ) from error
        self._out_of_step = False
        return reply

    def _do(self, step: Write | Query | Block) -> Reply:
        self._resource.write(step.command)
        match step:
            case Query():
                return self._line()
            case Block():
                return self._block(step)
        return None

    def _line(self) -> str:
        line = self._any_line()
        # A block ends with one line feed, or two, or none: skip them before the next answer.
        for _ in range(_BLANK_LINES if self._after_block else 0):
            if line.strip():
                break
            line = self._any_line()
        self._after_block = False
        return line

    def _any_line(self) -> str:
        if self._session is not None:
            return line_received(self._session, self._timeout_ms / 1000).decode("ascii")
        return str(self._resource.read())

    def _block(self, step: Block) -> bytes:
        if self._is_socket:
            read, read_rest = self._exactly, None
        else:
            message = _Message(self._resource)
            read, read_rest = message.read, message.rest
        octets = read_block(read, step.prefix, read_rest)
        self._after_block = self._is_socket
        return octets

    def _exactly(self, count: int) -> bytes:
        resource = self._resource
        if self._session is not None:
            return received(self._session, count, self._timeout_ms / 1000)
        resource.read_termination = None
        try:
            return bytes(resource.read_bytes(count, chunk_size=min(count, _CHUNK)))
        finally:
            resource.read_termination = "\n"

    def reopen(self) -> None:
        """Reconnect; instruments with a single connection need a moment to end the last one."""
        self.close()
        self.reopened += 1
        for left in reversed(range(_OPEN_TRIES)):
            try:
                self._open()
                break
            except InstrumentError:
                if not left:
                    raise
                time.sleep(_OPEN_AGAIN_S)

    def close(self) -> None:
        """Close the session."""
        if self._resource is None:
            return
        resource, self._resource = self._resource, None
        with contextlib.suppress(Exception):  # the instrument may be gone already
            if self._out_of_step and not self._is_socket:
                resource.clear()  # IEEE 488.2 device clear: discards the current answer
        with contextlib.suppress(Exception):
            resource.close()


class _Message:
    """Reads from whole messages; some instruments send one block in several."""

    def __init__(self, resource: Any) -> None:
        self._resource = resource
        self._left = memoryview(b"")

    def read(self, count: int) -> bytes:
        """Return that many octets."""
        parts = [self._left[:count]]
        self._left = self._left[count:]
        missing = count - len(parts[0])
        while missing:
            message = memoryview(self._resource.read_raw(_CHUNK))
            if not message:
                raise TimeoutError
            parts.append(message[:missing])
            self._left = message[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)

    def rest(self) -> bytes:
        """Return the rest of the message."""
        rest, self._left = bytes(self._left), memoryview(b"")
        return rest


def _why(error: Exception) -> str:
    if isinstance(error, VisaIOError):
        return str(error.description or error).rstrip(".")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.rstrip(".")
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
