"""The 346 octets that simulated Siglent instruments send as WAVEDESC, and their bitmap.

Source: SDS series programming guide EN11D, :WAVeform:PREamble, table 1; the older instruments'
from LeCroy's template (TMPL?), as pymeasure reads it.
"""

from __future__ import annotations

import struct

import numpy as np

__all__ = ["bmp", "wavedesc"]


def wavedesc(fields: dict[int, tuple[str, float]]) -> bytes:
    """Write numbers (a `struct` letter and a value) at their offsets, little endian."""
    data = bytearray(346)
    data[0:8] = b"WAVEDESC"
    data[16:23] = b"WAVEACE"
    data[76:87] = b"Siglent SDS"
    struct.pack_into("<i", data, 0x24, len(data))
    for offset, (kind, value) in fields.items():
        whole = kind in "hi"
        struct.pack_into("<" + kind, data, offset, int(value) if whole else value)
    return bytes(data)


def bmp(grey: np.ndarray) -> bytes:
    """Write rows of grey pixels as a bitmap with 24 bits a pixel; the width divides by 4."""
    height, width = grey.shape
    pixels = np.repeat(grey[::-1, :, np.newaxis], 3, axis=2).astype(np.uint8).tobytes()
    size = 54 + len(pixels)
    head = struct.pack("<2sIHHI", b"BM", size, 0, 0, 54)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return head + info + pixels
