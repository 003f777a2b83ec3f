"""One finding of a doctor: what was found, what is expected, what to do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, ParamSpec

from mqtick.service.status_file import STALE_NS, Status, StatusError, read_status

P = ParamSpec("P")
Result = Literal["OK", "WARN", "FAIL"]
# Fewer refusals are not reported: a reply may be lost now and then. Nor are those of a program that
# has run for weeks, beside a hundred times as many messages that were good.
_WORTH_A_WORD = 3
_WORTH_A_SHARE = 0.01
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
    """Return a finding of a state that is worse or less safe than it could be."""
    return Check(name, "WARN", value, expectation, remedy)


def fail(name: str, value: str, expectation: str, remedy: str) -> Check:
    """Return a finding that keeps the program from doing its work."""
    return Check(name, "FAIL", value, expectation, remedy)


def guarded(
    name: str, probe: Callable[P, Check | Iterable[Check]], *args: P.args, **keywords: P.kwargs
) -> Iterator[Check]:
    """Yield the findings of a probe; an exception becomes a finding, so that other probes go on."""
    try:
        found = probe(*args, **keywords)
        yield from (found,) if isinstance(found, Check) else found
    except Exception as error:  # any exception: the user needs the other findings, too
        yield fail(
            name,
            f"the check itself broke: {type(error).__name__}: {error}",
            "an answer",
            "look at the other lines; if it persists, report this one as a bug",
        )


def report(checks: Iterable[Check], *, as_json: bool) -> bool:
    """Print the findings as they come; return whether none of them is FAIL."""
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            print(check.line(colours=colours), flush=True)
    if as_json:
        print(json.dumps([asdict(check) for check in found], indent=1))
    return not any(check.result == "FAIL" for check in found)


def known_status(path: str | os.PathLike[str], program: str) -> Status | StatusError:
    """Return the last status of a program, or the reason why it cannot be read."""
    try:
        return read_status(path, program)
    except StatusError as error:
        return error


def fresh_values(status: Status | StatusError) -> Mapping[str, Any]:
    """Return the values of a running program's status; empty if it is old or missing."""
    return {} if isinstance(status, StatusError) or status.is_old else status.values


def check_program(
    name: str, unit: str, status: Status | StatusError, unsynchronised: Callable[[str], Check]
) -> Check:
    """Check that a program runs, is connected and synchronised, by its own status.

    `unsynchronised(text)` makes the finding if it is not synchronised.
    """
    if isinstance(status, StatusError):
        return warn(name, str(status), f"a running {name}", f"systemctl status {unit}")
    if status.is_old:
        value = f"its status is {status.age_ns / 1e9:.0f} s old: {status.why_old()}"
        remedy = f"journalctl -u {unit}"
        return fail(name, value, f"at most {STALE_NS / 1e9:g} s", remedy)
    state = status.values.get("state")
    text = f"process {status.pid}, {state}"
    if not status.values.get("connected"):
        reason = status.values.get("last_error")
        return fail(name, f"{text}, not connected: {reason}", "connected", "see the broker below")
    return ok(name, text) if state == "synchronised" else unsynchronised(text)


def check_troubles(values: Mapping[str, Any]) -> Iterator[Check]:
    """Report the optional parts of a running program that do not work."""
    for part, why in values.get("troubles", {}).items():
        yield warn(part, why, "works", "the time goes on; it is tried again until it works")


def check_refusals(
    name: str, refused: Mapping[str, Any], remedies: Mapping[str, str], *, good: int = 0
) -> Iterator[Check]:
    """Explain the refusals, by reason, for which there is a remedy; so many others were `good`."""
    least = max(_WORTH_A_WORD, _WORTH_A_SHARE * good)
    for reason, remedy in remedies.items():
        if (count := refused.get(reason, 0)) >= least:
            yield warn(name, f"{count} {reason}", "none", remedy)
