"""What hosts say, made harmless: numbers that are numbers, texts that stay in their cell."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_FORBIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Categories of Unicode: what controls a terminal, turns writing around, or shows nothing."""
_LARGEST = 1 << 62


def text_of(value: object, longest: int = 300) -> str:
    """Return a text on one line that steers no terminal; what is longer is cut and says so."""
    if not isinstance(value, str):
        return ""
    shown = "".join(
        " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}" if _is_bad(letter) else letter
        for letter in value[: 4 * longest]
    )
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


def _is_bad(letter: str) -> bool:
    return unicodedata.category(letter) in _FORBIDDEN


def whole_of(value: object) -> int | None:
    """Return a whole number of a size that a duration has; anything else is None."""
    return value if type(value) is int and abs(value) < _LARGEST else None


def dict_of(value: object) -> dict[str, Any]:
    """Return a dictionary; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return a list; anything else is an empty one."""
    return value if isinstance(value, list) else []


def json_of(text: object) -> dict[str, Any]:
    """Return the object that a text says in JSON; an empty one if it says none."""
    try:
        return dict_of(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
