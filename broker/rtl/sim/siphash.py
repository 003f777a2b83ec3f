"""SipHash-2-4, as Aumasson and Bernstein describe it (2012)."""

from __future__ import annotations

from functools import lru_cache

MASK = (1 << 64) - 1


def _rotate(word: int, left: int) -> int:
    return (word << left | word >> 64 - left) & MASK


def _round(v: list[int]) -> None:
    for a, b, left in ((0, 1, 13), (2, 3, 16)):
        v[a] = (v[a] + v[b]) & MASK
        v[b] = _rotate(v[b], left) ^ v[a]
    v[0] = _rotate(v[0], 32)
    for a, b, left in ((2, 1, 17), (0, 3, 21)):
        v[a] = (v[a] + v[b]) & MASK
        v[b] = _rotate(v[b], left) ^ v[a]
    v[2] = _rotate(v[2], 32)


@lru_cache(65_536)  # tokens are asked for again and again
def siphash(key: bytes, message: bytes) -> bytes:
    """Hash under a key of 16 octets; return eight, in the authors' (little-endian) order."""
    keys = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    v = [
        keys[at % 2] ^ word
        for at, word in enumerate(
            (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
        )
    ]
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        _round(v)
        _round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        _round(v)
    return (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
