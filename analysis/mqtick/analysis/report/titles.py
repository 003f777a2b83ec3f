"""What a report and its results are called; what was simulated says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.numbers import SPACE, plain
from mqtick.analysis.results.result import Result

__all__ = ["level", "names_of", "title_of", "title_of_all"]

_SIMULATED: Final = "SIMULATED: "
_TITLES_SHOWN: Final = 3


def title_of(result: Result) -> str:
    """Return the measurement's title; what was simulated begins with SIMULATED."""
    title = plain(result.measurement.title).strip() or result.measurement.kind.capitalize()
    if result.measurement.simulated and not title.startswith(_SIMULATED):
        return f"{_SIMULATED}{title}"
    return title


def names_of(results: Sequence[Result]) -> list[str]:
    """Return what to call each within a report; SIMULATED is left to the title if all are."""
    every = all(result.measurement.simulated for result in results)
    names = [title_of(result) for result in results]
    if every and len(results) > 1:
        names = [name.removeprefix(_SIMULATED) for name in names]
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def title_of_all(results: Sequence[Result]) -> str:
    """Return the title of the report; SIMULATED stands in it where anything was."""
    if len(results) == 1:
        return title_of(results[0])
    names = names_of(results)
    every = all(result.measurement.simulated for result in results)
    if len(results) <= _TITLES_SHOWN:
        return (_SIMULATED if every else "") + " beside ".join(names)
    some = any(result.measurement.simulated for result in results)
    start = _SIMULATED if every else "SIMULATED in part: " if some else ""
    return f"{start}{len(results)} measurements side by side"


def level(result: Result) -> str:
    """Return the confidence as "95 %", never broken."""
    return f"{result.confidence * 100:g}{SPACE}%"
