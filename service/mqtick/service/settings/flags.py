"""A flag for every key: ``chrony.poll`` becomes ``--chrony-poll``, and wins over the file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mqtick.service.settings.schema import KIND_NAMES, Key, converted, describe, problem_with
from mqtick.service.settings.text import limits_of, toml_value

# Marks our entries in the namespace; a space distinguishes them from any other flag.
_PREFIX = "setting "


def add_flags(parser: argparse.ArgumentParser, cls: type, *, hidden: bool = False) -> None:
    """Give the parser one flag for each key of ``cls``, with doc, unit, limits and default.

    Booleans become ``--x`` and ``--no-x``; arrays take their elements separated by commas.  A
    flag that is not given leaves no trace, so the file decides.  A bad value ends the program
    with status 2 and a sentence, as argparse does.  ``hidden``: the parser's help is silent.
    """
    for described in describe(cls).walk():
        title = f"settings [{described.path}]" if described.path else "settings"
        doc = described.doc if described.path else None
        group = parser if hidden else parser.add_argument_group(title, doc)
        for known in described.keys:
            _add_flag(group, known, hidden=hidden)


def overrides_from(args: argparse.Namespace) -> dict[str, object]:
    """Return what the flags said, by dotted key path, for :func:`load`."""
    return {
        name.removeprefix(_PREFIX): value
        for name, value in vars(args).items()
        if name.startswith(_PREFIX)
    }


def flag_of(path: str) -> str:
    """Return the flag of a key: ``--chrony-poll`` of ``chrony.poll``."""
    return "--" + path.replace(".", "-").replace("_", "-")


def _add_flag(group: Any, known: Key, *, hidden: bool) -> None:
    text = f"{known.doc} {limits_of(known)}".strip()
    if known.default is not None:
        text += f" [default {toml_value(known.default)}]"
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
    """Return the text as the key's kind, or as text if it does not fit: the check then says so."""
    if known.kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if known.kind is str:
        return text
    try:
        return int(text) if known.kind is int else float(text)
    except ValueError:
        return text
