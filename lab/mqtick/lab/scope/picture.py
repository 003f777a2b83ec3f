"""Reads pictures that an instrument sends without the header of a block.

Both formats mark their end: BMP in its file header, PNG by its last chunk (ISO/IEC 15948, 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAXIMUM_OCTETS: Final = 1 << 26
"""A longer picture is refused: no instrument has such a screen."""
_PNG: Final = b"\x89PNG\r\n\x1a\n"


def read_picture(head: bytes, read: Callable[[int], bytes]) -> bytes | None:
    """Read the rest of a BMP or PNG whose first octet is `head`; None when it is neither."""
    if head == b"B":
        start = head + read(5)
        size = int.from_bytes(start[2:6], "little")
        if not start.startswith(b"BM") or not len(start) <= size <= MAXIMUM_OCTETS:
            return None
        return start + read(size - len(start))
    if head == _PNG[:1]:
        picture = head + read(len(_PNG) - 1)
        if picture != _PNG:
            return None
        while len(picture) < MAXIMUM_OCTETS:
            chunk = read(8)
            size = int.from_bytes(chunk[:4], "big")
            if size > MAXIMUM_OCTETS:
                return None
            picture += chunk + read(size + 4)  # the check sum, too
            if chunk[4:] == b"IEND":
                return picture
    return None
