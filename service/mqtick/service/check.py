"""One finding of a doctor: what was found, what is expected, what to do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Check", "fail", "guarded", "ok", "report", "warn"]

Result = Literal["OK", "WARN", "FAIL"]
_COLOURS = {"OK": "\033[32m", "WARN": "\033[33m", "FAIL": "\033[31m"}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    result: Result
    """OK: as it should be; WARN: worse or less safe than it could be; FAIL: not good enough."""
    value: str
    expectation: str = ""
    remedy: str = ""

    def line(self, *, colours: bool = False) -> str:
        """Return the finding as a person reads it."""
        before, after = (_COLOURS[self.result], "\033[0m") if colours else ("", "")
        text = f"{before}{self.result:<4}{after} {self.name}: {self.value}"
        if self.expectation:
            text += f" (expected {self.expectation})"
        return f"{text} -> {self.remedy}" if self.remedy else text


def ok(name: str, value: str) -> Check:
    """Return a finding that needs no attention."""
    return Check(name, "OK", value)


def warn(name: str, value: str, expectation: str, remedy: str) -> Check:
    """Return a finding that makes things worse or less safe than they could be."""
    return Check(name, "WARN", value, expectation, remedy)


def fail(name: str, value: str, expectation: str, remedy: str) -> Check:
    """Return a finding that stands in the way of what the program is for."""
    return Check(name, "FAIL", value, expectation, remedy)


def guarded(name: str, probe: Callable[[], Check | Iterable[Check]]) -> Iterator[Check]:
    """Yield what a probe finds; a probe that breaks is itself a finding, and the others go on."""
    try:
        found = probe()
        yield from (found,) if isinstance(found, Check) else found
    except Exception as error:  # whatever it is, the person with the problem needs the rest too
        yield fail(
            name,
            f"the check itself broke: {type(error).__name__}: {error}",
            "an answer",
            "look at the other lines; if it persists, report this one as a bug",
        )


def report(checks: Iterable[Check], *, as_json: bool) -> bool:
    """Print the findings as they come; return whether none of them stands in the way."""
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            print(check.line(colours=colours), flush=True)
    if as_json:
        print(json.dumps([asdict(check) for check in found], indent=1))
    return not any(check.result == "FAIL" for check in found)
