"""Writing TOML: what the programs' configuration consists of, and nothing else."""

from __future__ import annotations

import json
import math
import re
from typing import TypeGuard

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key is text, but {key!r} is not: quote it")
    return key if BARE_KEY.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    # A JSON string is a TOML basic string too, but for the character "delete".
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item, where) for item in value) + "]"
    raise ValueError(
        f"{where} is {value!r}, and TOML has no such value: "
        "text, whole numbers, fractions, true, false and lists of these can be written"
    )


def _are_tables(value: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def dumps(settings: dict[str, object], table: str = "") -> str:
    """Write a dictionary as TOML; each dictionary in it becomes a table, in the order given.

    So does each in a list of dictionaries.
    """
    if not isinstance(settings, dict):
        raise ValueError(f"settings are a dictionary, but {settings!r} is not")
    lines = [
        f"{_key(key)} = {_value(value, table + str(key))}\n"
        for key, value in settings.items()
        if not isinstance(value, dict) and not _are_tables(value)
    ]
    for key, value in settings.items():
        name = table + _key(key)
        if isinstance(value, dict):
            lines.append(f"\n[{name}]\n{dumps(value, name + '.')}")
        elif _are_tables(value):
            lines += [f"\n[[{name}]]\n{dumps(each, name + '.')}" for each in value]
    return "".join(lines)
