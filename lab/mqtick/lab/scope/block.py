"""Arbitrary blocks of IEEE 488.2 (8.7.9 definite, 8.7.10 indefinite), as instruments write them.

A block may hold any octet, line feeds too, so nothing here depends on a termination character.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.picture import read_picture

MAXIMUM_OCTETS: Final = 1 << 31
"""A block that announces more than this is refused: no instrument's memory is that large."""
_BLANKS: Final = 16
_BRACKETED_DIGITS: Final = 12


def read_block(
    read: Callable[[int], bytes],
    prefix: bytes = b"",
    read_rest: Callable[[], bytes] | None = None,
) -> bytes:
    """Read one block from `read(n)`, which returns n octets or raises.

    Before the `#` there may be blanks, and a header as long as `prefix` at most (its text depends
    on the instrument's settings and model). Instead of a block, a BMP or PNG may come without a
    header. The number of digits may be hexadecimal (some write `#A` and ten digits); from 1 GB on
    the length may be in brackets (Rohde & Schwarz).
    Octets after the data stay unread. `read_rest` returns the rest of a message, if the connection
    marks its end: only then a block without a length (#0) can be read.
    InstrumentError if it is not a block.
    """
    head = read(1)
    for _ in range(_BLANKS):  # the rest of an answer with two line endings
        if not head.isspace():
            break
        head = read(1)
    before = b""
    while head != b"#" and len(before) < len(prefix):
        before += head
        head = read(1)
    if head != b"#" or not before.decode("latin-1").isprintable():
        picture = None if before else read_picture(head, read)
        if picture is None:
            raise _no_block(before + head)
        return picture
    digits = read(1)
    if digits == b"(":
        text = b""
        while not text.endswith(b")") and len(text) <= _BRACKETED_DIGITS:
            text += read(1)
        length = text.removesuffix(b")")
    elif digits in b"123456789ABCDEFabcdef":
        text = length = read(int(digits, 16))
    elif digits == b"0" and read_rest is not None:
        return read_rest().removesuffix(b"\n")
    elif digits == b"0":
        raise InstrumentError(
            "The instrument announces a block without a length (#0), whose end cannot be "
            "seen on a socket; use VXI-11, HiSLIP or USB (a resource that ends with ::INSTR)."
        )
    else:
        raise _no_block(head + digits)
    if not length.isdigit():
        raise _no_block(b"#" + digits + text)
    if int(length) > MAXIMUM_OCTETS:
        raise InstrumentError(
            f"The instrument announces a block of {int(length)} octets, more than "
            f"{MAXIMUM_OCTETS}, which no memory can hold; the capture is refused. "
            "It may be of a different family than its name says: try --dialect."
        )
    return read(int(length)) if int(length) else b""


def _no_block(seen: bytes) -> InstrumentError:
    return InstrumentError(
        f"The instrument answered {seen!r} where a block of data (#, digits, length) should "
        "begin; the capture is refused. It may be of a different family than its name says: try "
        "--dialect."
    )


def definite_block(data: bytes, digits: int = 9) -> bytes:
    """Write a definite block with a length of that many digits, without a line end."""
    return b"#%d%0*d" % (digits, digits, len(data)) + data
