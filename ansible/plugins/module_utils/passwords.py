"""Mosquitto 2's password file: `NAME:$7$ITERATIONS$SALT$HASH`, PBKDF2 with SHA-512, 64 octets."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

_ITERATIONS = 101
"""What mosquitto_passwd takes. Each connection costs it once, and our passwords are random."""
_SALT_OCTETS = 12
_MAXIMUM_ITERATIONS = 1_000_000


def mosquitto_passwords(users: Mapping[str, str], current: str) -> str:
    """Return the file for these users and passwords; lines of `current` that fit are kept."""
    kept = dict(line.split(":", 1) for line in current.splitlines() if ":" in line)
    lines = []
    for name, password in sorted(users.items()):
        fits = _fits(kept.get(name, ""), password)
        lines.append(f"{name}:{kept[name] if fits else _hashed(password)}\n")
    return "".join(lines)


def _hashed(password: str) -> str:
    salt = secrets.token_bytes(_SALT_OCTETS)
    found = _derive(password, salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${_base64(salt)}${_base64(found)}"


def _fits(line: str, password: str) -> bool:
    try:
        nothing, kind, count, salt, stored = line.split("$")
        iterations = int(count)
        if nothing or kind != "7" or not 0 < iterations <= _MAXIMUM_ITERATIONS:
            return False
        found = _derive(password, base64.b64decode(salt, validate=True), iterations)
        return hmac.compare_digest(found, base64.b64decode(stored, validate=True))
    except (ValueError, binascii.Error):
        return False  # another format, or a damaged line: it is made anew


def _derive(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode("ascii")
