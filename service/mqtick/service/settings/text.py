"""Settings as commented TOML: what --print-config prints, and what the package ships."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from mqtick.service.settings.schema import Key, Table, describe
from mqtick.service.units import SUFFIXES, suffix_of

_WIDTH = 98


def render(settings: object) -> str:
    """Return the settings as complete TOML, with the doc of each key as a comment.

    Loading the text gives the same settings again.  A key that is not set appears as a comment.
    """
    lines: list[str] = []
    for described in describe(type(settings)).walk():
        lines += _heading(described)
        holder = _holder(settings, described.path)
        for known in described.keys:
            value = getattr(holder, known.name)
            lines += _comment(known)
            # TOML has no null: what is not set stays a comment.
            mark, shown = ("#", known.example) if value is None else ("", value)
            lines += [f"{mark}{known.name} = {toml_value(shown)}", ""]
        for named in described.named:
            lines += _render_named(named, getattr(holder, named.name))
    return "\n".join(lines).strip("\n") + "\n"


def commented_example(cls: type) -> str:
    """Return the file that is shipped in /etc: every key commented out, with its default.

    Removing the ``#`` before any one of the keys gives a valid file.  Comments for people begin
    with ``# `` (a space), keys with ``#`` and no space.
    """
    lines: list[str] = []
    for described in describe(cls).walk():
        lines += _heading(described)
        for known in described.keys:
            shown = known.example if known.default is None else known.default
            lines += _comment(known)
            lines += [f"#{known.name} = {toml_value(shown)}", ""]
    return "\n".join(lines).strip("\n") + "\n"


def _render_named(named: Table, given: Mapping[str, object]) -> list[str]:
    """Explain the keys in the first of the tables only, and leave out defaults in the others."""
    lines = _wrapped(named.doc) if given else []
    for place, (name, holder) in enumerate(given.items()):
        lines += [f"[{named.path}.{name}]", ""] if place == 0 else [f"[{named.path}.{name}]"]
        for known in named.keys:
            value = getattr(holder, known.name)
            if place == 0:
                lines += [*_comment(known), f"{known.name} = {toml_value(value)}", ""]
            elif value != known.default:
                lines += [f"{known.name} = {toml_value(value)}"]
        lines += [""] if place else []
    return lines


def _holder(settings: object, path: str) -> object:
    for name in path.split(".") if path else ():
        settings = getattr(settings, name)
    return settings


def _heading(described: Table) -> list[str]:
    lines = _wrapped(described.doc)
    if described.path:
        lines.append(f"[{described.path}]")
    return [*lines, ""] if lines else []


def _comment(known: Key) -> list[str]:
    return _wrapped(f"{known.doc} {limits_of(known)}".strip())


def _wrapped(text: str) -> list[str]:
    # A doc is one paragraph: its own line breaks mean nothing.
    return ["# " + line for line in textwrap.wrap(" ".join(text.split()), _WIDTH)]


def limits_of(known: Key) -> str:
    """Say unit, limits and choices of a key, in parentheses, or nothing."""
    facts: list[str] = []
    if unit := suffix_of(known.name):
        facts.append(SUFFIXES[unit])
    if known.minimum is not None and known.maximum is not None:
        facts.append(f"{known.minimum} to {known.maximum}")
    elif known.minimum is not None:
        facts.append(f"at least {known.minimum}")
    elif known.maximum is not None:
        facts.append(f"at most {known.maximum}")
    if known.choices:
        facts.append("one of: " + ", ".join(str(choice) for choice in known.choices))
    if known.default is None:
        facts.append("not set by default")
    return f"({'; '.join(facts)})" if facts else ""


def toml_value(value: Any) -> str:
    """Return a value as TOML; floats get the shortest text that reads back as the same number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be a setting: settings are finite")
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(_escaped(value)) + '"'
    return "[" + ", ".join(toml_value(element) for element in value) + "]"


_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        if character in _SHORT_ESCAPES:
            yield _SHORT_ESCAPES[character]
        elif ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0:
            yield f"\\u{ord(character):04x}"
        else:
            yield character
