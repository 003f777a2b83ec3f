"""Conversations with an instrument, without I/O.

A dialect is a set of generators: they yield commands to send, and get the answers. So a dialect can
be tested with pairs of command and reply. The owner of a connection (`Oscilloscope`) plays them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class InstrumentError(Exception):
    """An instrument cannot be reached, or has failed; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Write:
    """Send a command that has no answer."""

    command: str


@dataclass(frozen=True, slots=True)
class Query:
    """Send a command and read one line; the reply is that line without its ending."""

    command: str


@dataclass(frozen=True, slots=True)
class Block:
    """Send a command and read an IEEE 488.2 block; the reply is its octets.

    `prefix` is what comes before the `#` and is discarded (Siglent's `C1:WF DAT2,`).
    """

    command: str
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait: the instrument needs time, and does not report when it is ready."""

    seconds: float


Step = Write | Query | Block | Pause
Reply = str | bytes | None
Conversation = Generator[Step, Reply, T]


def write(*commands: str) -> Conversation[None]:
    """Send commands."""
    for command in commands:
        yield Write(command)


def query(command: str) -> Conversation[str]:
    """Send a query, and return the line without blanks around it."""
    reply = yield Query(command)
    assert isinstance(reply, str)
    return reply.strip()


def block(command: str, *, prefix: bytes = b"") -> Conversation[bytes]:
    """Ask for binary data, and return its octets."""
    reply = yield Block(command, prefix)
    assert isinstance(reply, bytes)
    return reply


def pause(seconds: float) -> Conversation[None]:
    """Wait."""
    yield Pause(seconds)
