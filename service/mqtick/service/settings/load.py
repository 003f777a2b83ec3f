"""Loads settings: from TOML file and flags to one frozen dataclass, or an error sentence.

Declare the settings with `key`, `table` and `tables`, read them with
`load`, print them with `render`, and give the program a flag for each key with
`add_flags` and `overrides_from`.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

from mqtick.service.settings.schema import (
    Key,
    SettingsError,
    Table,
    converted,
    describe,
    describe_named,
    key,
    name_value,
    problem_with,
    tables,
)
from mqtick.service.settings.text import add_flags, overrides_from, render
from mqtick.service.units import stem_of

__all__ = ["SettingsError", "add_flags", "key", "load", "overrides_from", "render", "tables"]

T = TypeVar("T")

MAXIMUM_SIZE = 1 << 20
"""A file larger than this many octets is refused: it is not a configuration."""


def load(
    cls: type[T],
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> T:
    """Read the settings `cls` from a TOML file; `path` None means defaults only.

    `overrides` maps dotted key paths (`"chrony.poll"`) to values that win over the file.
    Raises SettingsError, with one sentence that names file and key path, for all errors: the file,
    its syntax, an unknown key, a wrong type, a value out of range. A class may check combinations
    of keys in its `__post_init__`: its ValueError becomes a SettingsError, too.
    """
    root = describe(cls)
    origin = "defaults" if path is None else os.fspath(path)
    try:
        values = {} if path is None else _read_table(root, root, _parse(origin), origin)
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(f"{origin}: {error}") from error
    known = {described.path: described for described in root.all_keys()}
    for name, value in (overrides or {}).items():
        if name not in known:
            raise SettingsError(f"override: {_unknown(root, root, name)}")
        values[name] = _checked(known[name], value, "override")
    try:
        built = _build(root, values)
    except ValueError as error:
        raise SettingsError(f"{origin}: {error}") from error
    assert isinstance(built, cls)
    return built


def _parse(path: str) -> dict[str, Any]:
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):  # opening it would wait for a writer
            raise SettingsError(f"{path}: is a pipe; name a file, which can be read again")
        with open(path, "rb") as file:
            octets = file.read(MAXIMUM_SIZE + 1)
    except FileNotFoundError:
        raise SettingsError(
            f"{path}: there is no such file; name another one, or create it from the example"
        ) from None
    except SettingsError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"{path}: cannot be read ({reason}); check its mode and owner, and those of its folder"
        ) from error
    if len(octets) > MAXIMUM_SIZE:
        raise SettingsError(
            f"{path}: is larger than {MAXIMUM_SIZE} octets; it is not a configuration"
        )
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        raise SettingsError(
            f"{path}: is not UTF-8 text: octet 0x{octets[error.start]:02x} in line {line}; "
            "save the file as UTF-8"
        ) from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{path}: is nested too deeply to be a configuration") from None
    except ValueError as error:  # TOMLDecodeError, and int() with more digits than Python allows
        raise SettingsError(f"{path}: is not TOML: {error}; correct that place") from None


def _read_table(
    root: Table, described: Table, content: Mapping[str, Any], origin: str
) -> dict[str, Any]:
    """Return checked values by dotted path."""
    values: dict[str, Any] = {}
    keys = {known.name: known for known in described.keys}
    tables = {known.name: known for known in described.tables}
    named = {known.name: known for known in described.named}
    for name, value in content.items():
        if name in keys:
            values[keys[name].path] = _checked(keys[name], value, origin)
        elif name in named:
            values[named[name].path] = _read_named(root, named[name], value, origin)
        elif name not in tables:
            raise SettingsError(f"{origin}: {_unknown(root, described, name)}")
        elif isinstance(value, dict):
            values.update(_read_table(root, tables[name], value, origin))
        else:
            inner = tables[name].path
            raise SettingsError(
                f"{origin}: {inner} must be a table, not {name_value(value)}; "
                f"write its keys below a line [{inner}]"
            )
    return values


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


def _read_named(root: Table, named: Table, content: object, origin: str) -> dict[str, Any]:
    """Return one object for each table that the user has named."""
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise SettingsError(
            f"{origin}: [{named.path}] holds tables with names of your own, and nothing else; "
            f"write the keys below a line [{named.path}.NAME]"
        )
    built = {}
    for name, inner in content.items():
        if not _NAME.fullmatch(name):
            raise SettingsError(
                f"{origin}: {named.path} is named {ascii(name)[:60]}, but a name is 1 to 32 of "
                "A-Z a-z 0-9 _ - and begins with a letter or digit; choose another one"
            )
        described = describe_named(named, name)
        built[name] = _build(described, _read_table(root, described, inner, origin))
    return built


def _checked(described: Key, value: object, origin: str) -> Any:
    problem = problem_with(described, value)
    if problem is None:
        return converted(described, value)
    raise SettingsError(
        f"{origin}: {described.path} {problem}; correct it, or remove it to use its default "
        f"{_name_default(described.default)}"
    )


def _name_default(default: object) -> str:
    """Describe a default briefly, for the end of a sentence."""
    if isinstance(default, tuple):
        return f"({len(default)} elements)" if default else "(empty)"
    if isinstance(default, bool):
        return str(default).lower()
    return f'"{default}"' if isinstance(default, str) else str(default)


def _unknown(root: Table, described: Table, name: str) -> str:
    place = f" in table [{described.path}]" if described.path else ""
    name = name if len(name) <= 60 else name[:57] + "..."
    shown = name if name.isidentifier() else ascii(name)
    here = [known.name for known in described.keys + described.tables + described.named]
    # Suggest the key that was most likely meant: with another unit, or in another table.
    meant = {stem_of(known.name): known.path for known in root.all_keys()}
    meant |= {stem_of(known): known for known in here}
    close = difflib.get_close_matches(stem_of(name.rpartition(".")[2]), meant, n=1)
    if close:
        return f"unknown key {shown}{place}; did you mean {meant[close[0]]}?"
    return f"unknown key {shown}{place}; the keys there are: {', '.join(here)}"


def _build(described: Table, values: Mapping[str, Any]) -> Any:
    arguments = {known.name: values[known.path] for known in described.keys if known.path in values}
    arguments |= {inner.name: _build(inner, values) for inner in described.tables}
    arguments |= {known.name: values.get(known.path, {}) for known in described.named}
    return described.cls(**arguments)
