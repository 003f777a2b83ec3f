"""Settings as people write and read them: commented TOML, and a flag for every key.

`render` is what --print-config prints, `commented_example` what the package ships. The flag of
`chrony.poll` is `--chrony-poll`, and wins over the file.
"""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mqtick.service.settings.schema import (
    KIND_NAMES,
    Key,
    Table,
    converted,
    describe,
    problem_with,
)
from mqtick.service.units import SUFFIXES, suffix_of

_WIDTH = 98
# Marks our entries in the namespace; a space distinguishes them from any other flag.
_PREFIX = "setting "


def render(settings: object) -> str:
    """Return the settings as complete TOML, with the doc of each key as a comment.

    Loading the text gives the same settings again.
    """
    return _render(describe(type(settings)), settings, "")


def commented_example(cls: type) -> str:
    """Return the file that is shipped in /etc: every key commented out, with its default.

    Removing the `#` before any one of the keys gives a valid file. Comments for people begin
    with `# ` (a space), keys with `#` and no space.
    """
    return _render(describe(cls), cls(), "#")


def _render(root: Table, settings: object, mark: str) -> str:
    lines: list[str] = []
    for described in root.walk():
        lines += _heading(described)
        holder = _holder(settings, described.path)
        for known in described.keys:
            lines += [*_comment(known), mark + _line(known, holder), ""]
        for named in described.named:
            lines += _render_named(named, getattr(holder, named.name))
    return "\n".join(lines).strip("\n") + "\n"


def _render_named(named: Table, given: Mapping[str, object]) -> list[str]:
    """Explain the keys in the first of the tables only, and leave out defaults in the others."""
    lines = _wrapped(named.doc) if given else []
    for place, (name, holder) in enumerate(given.items()):
        lines += [f"[{named.path}.{name}]", ""] if place == 0 else [f"[{named.path}.{name}]"]
        for known in named.keys:
            if place == 0:
                lines += [*_comment(known), _line(known, holder), ""]
            elif getattr(holder, known.name) != known.default:
                lines.append(_line(known, holder))
        lines += [""] if place else []
    return lines


def _line(known: Key, holder: object) -> str:
    return f"{known.name} = {toml_value(getattr(holder, known.name))}"


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
    # A doc is one paragraph: its own line breaks have no meaning.
    return ["# " + line for line in textwrap.wrap(" ".join(text.split()), _WIDTH)]


def limits_of(known: Key) -> str:
    """Return unit, limits and choices of a key, in parentheses; empty if it has none."""
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


def add_flags(parser: argparse.ArgumentParser, cls: type, *, hidden: bool = False) -> None:
    """Give the parser one flag for each key of `cls`, with doc, unit, limits and default.

    Booleans become `--x` and `--no-x`; arrays take their elements separated by commas. A flag that
    is not given sets nothing, so the file decides. A bad value ends the program with status 2 and a
    sentence, as argparse does. `hidden`: the parser's help does not list the flags.
    """
    for described in describe(cls).walk():
        title = f"settings [{described.path}]" if described.path else "settings"
        doc = described.doc if described.path else None
        group = parser if hidden else parser.add_argument_group(title, doc)
        for known in described.keys:
            _add_flag(group, known, hidden=hidden)


def overrides_from(args: argparse.Namespace) -> dict[str, object]:
    """Return the values of the given flags, by dotted key path, for `load`."""
    return {
        name.removeprefix(_PREFIX): value
        for name, value in vars(args).items()
        if name.startswith(_PREFIX)
    }


def flag_of(path: str) -> str:
    """Return the flag of a key: `--chrony-poll` of `chrony.poll`."""
    return "--" + path.replace(".", "-").replace("_", "-")


def _add_flag(group: Any, known: Key, *, hidden: bool) -> None:
    text = f"{known.doc} {limits_of(known)}".strip() + f" [default {toml_value(known.default)}]"
    common = {
        "dest": _PREFIX + known.path,
        "default": argparse.SUPPRESS,
        "help": argparse.SUPPRESS if hidden else text.replace("%", "%%"),
    }
    if known.kind is bool and not known.is_array:
        group.add_argument(flag_of(known.path), action=argparse.BooleanOptionalAction, **common)
        return
    word = KIND_NAMES[known.kind].split()[-1].upper()
    metavar = f"{word},..." if known.is_array else word
    group.add_argument(flag_of(known.path), type=_reader(known), metavar=metavar, **common)


def _reader(known: Key) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value: object
        if known.is_array:
            value = [_scalar(known, part.strip()) for part in text.split(",")] if text else []
        else:
            value = _scalar(known, text)
        if problem := problem_with(known, value):
            raise argparse.ArgumentTypeError(f"{known.path} {problem}")
        return converted(known, value)

    return read


def _scalar(known: Key, text: str) -> object:
    """Convert the text to the key's type; else return it as text, which the check will refuse."""
    if known.kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if known.kind is str:
        return text
    try:
        return int(text) if known.kind is int else float(text)
    except ValueError:
        return text
