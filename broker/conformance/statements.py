"""The numbered statements of both standards, which of them nothing here tests, and why."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text())


@cache
def every_statement() -> tuple[str, ...]:
    """All numbers, `MQTT-` for 3.1.1 and `MQTT5-` for 5, in the order of the texts."""
    return tuple(
        f"{standard}-{section}-{number}"
        for standard, sections in _load("statements.toml").items()
        for section, numbers in sections.items()
        for number in (range(1, numbers + 1) if isinstance(numbers, int) else numbers)
    )


@cache
def not_tested() -> dict[str, str]:
    """The reason for each statement that no test is about."""
    return {
        statement: group["reason"]
        for group in _load("not_tested.toml")["group"]
        for statement in group["statements"]
    }


@dataclass(frozen=True)
class Deviation:
    """What a broker is known to do instead of what a statement says."""

    broker: str
    version: str
    """Where it was seen. Other versions may have it, this one has to."""
    tests: tuple[str, ...]
    """Names, with or without what is in brackets; without the version, in all of them."""
    statements: tuple[str, ...]
    does: str


def names(test: str) -> set[str]:
    """By which names a deviation may mean a test: `f[5-PUBACK]`, `f[PUBACK]`, `f`."""
    function, _, parameters = test.removesuffix("]").partition("[")
    rest = parameters.partition("-")[2]
    return {test, function, f"{function}[{rest}]"}


@cache
def deviations() -> tuple[Deviation, ...]:
    """Every known deviation of every broker."""
    return tuple(
        Deviation(
            broker,
            each["version"],
            tuple(each["tests"]),
            tuple(each["statements"]),
            each["does"],
        )
        for broker, entries in _load("deviations.toml").items()
        for each in entries
    )
