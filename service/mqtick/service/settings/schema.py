"""Describes a configuration: nested frozen dataclasses, each field declared with a doc.

Example::

    @dataclass(frozen=True, slots=True)
    class Settings:
        interval_s: float = key(1.0, "Time between two time messages.", minimum=0.1, maximum=3600)
        chrony: Chrony = table(Chrony, "How samples reach chrony.")

This module only reads such classes. A wrong declaration (a default outside its own limits, a secret
as a key) is a programming error, and raises SchemaError.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Scalar = bool | int | float | str

_METADATA = "mqtick.settings"
_SECRET_WORDS = {"password", "passphrase", "secret", "token", "psk", "credentials", "pin_code"}
_SECRET_LAST_WORDS = {"key", "keys"}
# USER:PASSWORD@HOST, with a scheme or without; but not HOST:PORT/a@b, nor VISA's A::B.
_PASSWORD_IN_ADDRESS = re.compile(r"(\w[\w+.-]*://)?+[^:/@\s\[]*:(?!:|\d{1,5}(/|$))[^@]*@")


class SchemaError(TypeError):
    """A settings class is declared wrongly; the message says which field and why."""


class SettingsError(ValueError):
    """A configuration cannot be used; the message is a sentence with file and key path."""


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key, as its class declares it."""

    path: str  # dotted, from the root: "chrony.poll"
    name: str
    kind: type  # bool, int, float or str: of the value, or of each element of an array
    is_array: bool
    default: Any
    doc: str
    minimum: int | float | None
    maximum: int | float | None
    choices: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A settings class at its place: its keys first, then the tables inside it."""

    path: str  # "" for the root
    name: str
    doc: str
    cls: type
    keys: tuple[Key, ...]
    tables: tuple[Table, ...]
    named: tuple[Table, ...] = ()  # of each, users may make any number, with names of their own

    def walk(self) -> Iterator[Table]:
        """Yield this table, then every table inside it except `named`, in order of declaration."""
        yield self
        for inner in self.tables:
            yield from inner.walk()

    def all_keys(self) -> Iterator[Key]:
        """Yield every key of this table and of the tables inside it."""
        for inner in self.walk():
            yield from inner.keys


def key(
    default: T,
    doc: str,
    *,
    minimum: int | float | None = None,
    maximum: int | float | None = None,
    choices: tuple[Scalar, ...] = (),
) -> T:
    """Declare a field of a settings class.

    `doc` is one sentence for people. `minimum`, `maximum` (both inclusive) and `choices`
    hold for each element where the field is an array (`tuple[int, ...]`).
    """
    declared = {"doc": doc, "minimum": minimum, "maximum": maximum, "choices": choices}
    # Like dataclasses.field(), this is declared to return the type of its default.
    return dataclasses.field(default=default, metadata={_METADATA: declared})


def table(cls: type[T], doc: str) -> T:
    """Declare a nested table: a field that is itself a settings class."""
    return dataclasses.field(default_factory=cls, metadata={_METADATA: {"doc": doc}})


def tables(cls: type[T], doc: str) -> Mapping[str, T]:
    """Declare tables whose names the user chooses: a field `Mapping[str, cls]`.

    `[channel.left]` and `[channel.right]` become `{"left": ..., "right": ...}`; there are
    no flags for their keys.
    """
    return dataclasses.field(default_factory=dict, metadata={_METADATA: {"doc": doc, "of": cls}})


def describe(cls: type) -> Table:
    """Read a settings class; raises SchemaError if it is declared wrongly."""
    return _describe(cls, "", "", (cls.__doc__ or "").strip().partition("\n")[0])


def describe_named(named: Table, name: str) -> Table:
    """Read the class of one of the tables that the user names, at its place."""
    return _describe(named.cls, f"{named.path}.{name}", name, named.doc)


def _describe(cls: type, path: str, name: str, doc: str) -> Table:
    hints = typing.get_type_hints(cls)
    keys: list[Key] = []
    inside: list[Table] = []
    named: list[Table] = []
    for field in dataclasses.fields(cls):
        inner = f"{path}.{field.name}" if path else field.name
        declared = field.metadata.get(_METADATA)
        if not declared or not str(declared["doc"]).strip():
            raise SchemaError(
                f"{cls.__name__}.{field.name} must be declared with key(), table() or tables()"
            )
        hint = hints[field.name]
        if of := declared.get("of"):
            named.append(_describe(of, inner, field.name, declared["doc"]))
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            inside.append(_describe(hint, inner, field.name, declared["doc"]))
        else:
            keys.append(_describe_key(inner, field.name, hint, field.default, declared))
    return Table(path, name, doc, cls, tuple(keys), tuple(inside), tuple(named))


def _describe_key(path: str, name: str, hint: Any, default: Any, declared: dict[str, Any]) -> Key:
    _refuse_secret(path, name)
    is_array = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if is_array else hint
    if kind not in KIND_NAMES:
        raise SchemaError(
            f"{path}: {hint} cannot be a key; use bool, int, float, str, tuple[one of these, ...], "
            "or a nested settings class"
        )
    described = Key(path, name, kind, is_array, default, **declared)
    if problem := problem_with(described, default):
        raise SchemaError(f"{path}: its own default {problem}")
    return described


def _refuse_secret(path: str, name: str) -> None:
    """Raise SchemaError for a secret: it would be readable in the file, in --print-config and in
    the list of processes.
    """
    words = name.split("_")
    if words[-1] == "file":
        return
    if words[-1] in _SECRET_LAST_WORDS or _SECRET_WORDS.intersection(words):
        raise SchemaError(f"{path}: a secret must not be a key; name a file, {name}_file")


def problem_with(described: Key, value: object) -> str | None:
    """Return the error of a value, as the end of a sentence; None if it is valid.

    An `int` is valid for a float key; a `bool` is never a number.
    """
    if not described.is_array:
        return _problem_with_scalar(described, value)
    if not isinstance(value, (list, tuple)):
        return f"must be an array of {KIND_NAMES[described.kind]}s, not {name_value(value)}"
    for place, element in enumerate(value):
        if problem := _problem_with_scalar(described, element):
            return f"has an element {place} that {problem}"
    return None


KIND_NAMES: dict[type, str] = {
    bool: "boolean",
    int: "whole number",
    float: "number",
    str: "string",
}


def name_value(value: object) -> str:
    """Describe a value for the middle of a sentence, shortened for people."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (list, tuple)):
        return "an array"
    if isinstance(value, dict):
        return "a table"
    try:
        text = str(value)
    except ValueError:  # an int with more digits than Python prints
        text = "with thousands of digits"
    text = text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, str):
        return f'the string "{text}"'
    if isinstance(value, (int, float)):
        return f"the number {text}"
    return f"the {type(value).__name__} {text}"


def _problem_with_scalar(described: Key, value: object) -> str | None:
    kind = described.kind
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = is_number if kind is float else type(value) is kind
    if not fits:
        return f"must be a {KIND_NAMES[kind]}, not {name_value(value)}"
    if isinstance(value, str):
        if "\x00" in value or not _is_unicode(value):
            return "must be text without null characters or broken encoding"
        if _PASSWORD_IN_ADDRESS.match(value):
            return (
                "holds a password, which others could read: put it in a file and give that as "
                "password_file"
            )
    elif is_number:
        assert isinstance(value, (int, float))
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be finite, not {value}"
        if kind is float and isinstance(value, int) and abs(value) > 1 << 1023:
            return "must be finite, not an integer of hundreds of digits"
        if kind is int and not -(1 << 63) <= value < 1 << 63:
            return "must fit 64 bits"  # as TOML requires
        if described.minimum is not None and value < described.minimum:
            return f"is {value}, but at least {described.minimum} is needed"
        if described.maximum is not None and value > described.maximum:
            return f"is {value}, but at most {described.maximum} is allowed"
    if described.choices and value not in described.choices:
        listed = ", ".join(str(choice) for choice in described.choices)
        return f"is {name_value(value)}, but must be one of: {listed}"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def converted(described: Key, value: Any) -> Any:
    """Convert a valid value to the type that its class declares."""
    if described.is_array:
        return tuple(described.kind(element) for element in value)
    return described.kind(value)
