"""The base class of simulated families, which define their commands, preamble and codes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.simulator.model import Model, Physics
from mqtick.lab.scope.simulator.scpi import Scpi


class Front:
    """The language of one simulated instrument, above a `Model`.

    A subclass adds its commands in `__init__`. `*IDN?`, `*CLS`, `*RST`, `*OPC?`, `*WAI` are here.
    The serial number of every simulated instrument is SIMULATED.
    """

    name: ClassVar[str]
    identity: ClassVar[str]
    """MANUFACTURER,MODEL,SIMULATED,FIRMWARE"""
    physics: ClassVar[Physics] = Physics()
    """The properties of the family's instruments; tests and users may give others to the model."""
    block_end: ClassVar[bytes] = b"\n"
    """The octets after a block."""
    line_end: ClassVar[bytes] = b"\n"
    separator: ClassVar[bytes] = b";"
    """The separator between the answers to several queries of one line."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.scpi = Scpi()
        on = self.scpi.on
        on("*IDN?", lambda _: self.identity)
        on("*CLS", lambda _: self.scpi.errors.clear())
        on("*RST", lambda _: model.stop())
        on("*OPC?", lambda _: "1")
        self.ignore("*WAI")

    def ignore(self, *headers: str) -> None:
        """Add commands that are accepted, but have no effect."""
        for header in headers:
            self.scpi.on(header, lambda *_: None)

    def keep(
        self,
        header: str,
        owner: object,
        field: str,
        read: Callable[[str], Any] = float,
        write: Callable[[Any], str] | None = None,
    ) -> None:
        """Add a command that sets a field of `owner`; also its query, if `write` is given."""
        self.scpi.on(header, lambda text: setattr(owner, field, read(text)))
        if write is not None:
            self.scpi.on(f"{header}?", lambda _: write(getattr(owner, field)))

    def keep_input(
        self,
        header: str,
        field: str,
        read: Callable[[str], Any] = float,
        write: Callable[[Any], str] | None = None,
    ) -> None:
        """Add a command, with `<n>` in it, that sets a field of input n; also its query."""
        inputs = self.model.inputs
        self.scpi.on(header, lambda n, text: setattr(inputs[n], field, read(text)))
        if write is not None:
            self.scpi.on(f"{header}?", lambda n, _: write(getattr(inputs[n], field)))

    def answer(self, line: str) -> bytes:
        """Execute one line and return the answer, b"" for none."""
        answers = self.scpi.execute(line)
        if not answers:
            return b""
        ends_in_block = isinstance(answers[-1], bytes)
        octets = [answer.encode() if isinstance(answer, str) else answer for answer in answers]
        return self.separator.join(octets) + (self.block_end if ends_in_block else self.line_end)

    def block(self, data: bytes) -> bytes:
        """Write a block as the family does."""
        return definite_block(data)

    def screen(self) -> bytes:
        """Return a small PNG."""
        return png(np.full((48, 80), 32, np.uint8))


def boolean(text: str) -> bool:
    """Read ON, OFF or a number (SCPI-99, 7.3)."""
    upper = text.upper()
    return upper == "ON" or (upper != "OFF" and float(text) != 0)


def flag(value: bool) -> str:
    """Write 1 or 0."""
    return str(int(value))


def png(grey: np.ndarray) -> bytes:
    """Write rows of grey pixels as a PNG (ISO/IEC 15948)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
