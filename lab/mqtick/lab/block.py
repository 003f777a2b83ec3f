"""Arbitrary blocks of IEEE 488.2 (8.7.9 definite, 8.7.10 indefinite), as instruments write them.

A block may hold any octet, line feeds too, so nothing here depends on a termination character.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqtick.lab.conversation import InstrumentError

__all__ = ["MAXIMUM_OCTETS", "definite_block", "read_block"]

MAXIMUM_OCTETS: Final = 1 << 31
"""A block that announces more than this is refused: no memory of an instrument is that large."""


def read_block(read: Callable[[int], bytes], prefix: bytes = b"") -> bytes:
    """Read one definite block from `read(n)`, which returns n octets or raises.

    What stands before the `#` must be `prefix` or blank. The length has one digit that may be
    hexadecimal (some write `#A` and ten digits), or brackets from 1 GB on (Rohde & Schwarz).
    What follows the data stays unread. InstrumentError when it is no block.
    """
    head = read(1)
    while head.isspace():  # left over from an answer with two line ends
        head = read(1)
    if prefix and head == prefix[:1]:
        rest = read(len(prefix) - 1)
        if rest != prefix[1:]:
            raise _no_block(head + rest)
        head = read(1)
    if head != b"#":
        raise _no_block(head)
    digits = read(1)
    if digits == b"(":
        text = b""
        while not text.endswith(b")") and len(text) <= 12:
            text += read(1)
        text = text.removesuffix(b")")
    elif digits in b"123456789ABCDEFabcdef":
        text = read(int(digits, 16))
    elif digits == b"0":
        raise InstrumentError(
            "The instrument announces a block without a length (#0), which ends nowhere on a "
            "socket; use VXI-11, HiSLIP or USB (a resource that ends with ::INSTR)."
        )
    else:
        raise _no_block(head + digits)
    if not text.isdigit() or int(text) > MAXIMUM_OCTETS:
        raise _no_block(b"#" + digits + text)
    return read(int(text)) if int(text) else b""


def _no_block(seen: bytes) -> InstrumentError:
    return InstrumentError(
        f"The instrument answered {seen!r} where a block of data (#, digits, length) should "
        "begin; it may be of another family than its name says: try --dialect."
    )


def definite_block(data: bytes, digits: int = 9) -> bytes:
    """Write a definite block with a length of so many digits, without a line end."""
    return b"#%d%0*d" % (digits, digits, len(data)) + data
