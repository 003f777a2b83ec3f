"""Prints who passes what: `python -m broker.conformance.table --broker mosquitto`.

The arguments are those of the suite (`--broker mqtick=PATH`, `--address HOST:PORT`). `--write FILE`
puts the table between the two marks in that file instead, `--all` lists every statement.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from broker.conformance.statements import HERE, every_statement, not_tested

STANDARDS = {"MQTT": "3.1.1", "MQTT5": "5.0"}
SECTIONS = {
    "1": "strings and integers",
    "2": "packet format",
    "3.1": "CONNECT",
    "3.2": "CONNACK",
    "3.3": "PUBLISH",
    "3.4": "PUBACK",
    "3.5": "PUBREC",
    "3.6": "PUBREL",
    "3.7": "PUBCOMP",
    "3.8": "SUBSCRIBE",
    "3.9": "SUBACK",
    "3.10": "UNSUBSCRIBE",
    "3.11": "UNSUBACK",
    "3.12": "PINGREQ",
    "3.14": "DISCONNECT",
    "3.15": "AUTH",
    "4.1": "sessions kept",
    "4.2": "transport",
    "4.3": "QoS flows",
    "4.4": "sending again",
    "4.5": "receiving",
    "4.6": "order",
    "4.7": "topics",
    "4.8": "shared subscriptions (3.1.1: errors)",
    "4.9": "flow control",
    "4.12": "authentication",
    "4.13": "errors",
    "6": "WebSocket",
    "7": "conformance",
}


class Outcomes:
    """Notes for each statement what became of its tests."""

    def __init__(self) -> None:
        self.of: defaultdict[str, set[str]] = defaultdict(set)
        self.does: defaultdict[str, set[str]] = defaultdict(set)
        self.broker = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        said = dict(report.user_properties)
        self.broker = str(said.get("broker", self.broker))
        if report.when == "call" or report.failed or report.skipped:
            for statement in said.get("statements", ()):  # type: ignore[attr-defined]
                self._note(statement, report, said)

    def _note(self, statement: str, report: pytest.TestReport, said: dict[str, object]) -> None:
        if hasattr(report, "wasxfail"):
            # The other statements of that test are not judged by it.
            if statement in said["deviates"] and report.skipped:  # type: ignore[operator]
                self.of[statement].add("deviates")
                self.does[statement].add(report.wasxfail.removeprefix("reason: "))
        else:
            self.of[statement].add(report.outcome)

    def verdict(self, statement: str) -> str:
        """What the tests of a statement say together."""
        found = self.of[statement]
        for worst in ("failed", "deviates", "passed", "skipped"):
            if worst in found:
                return worst
        return "not tested"


def section(statement: str) -> tuple[str, str]:
    """The standard and the row of the table that a statement belongs to."""
    standard, number, _ = statement.split("-")
    chapter, part, _ = number.split(".")
    return standard, chapter if chapter in SECTIONS else f"{chapter}.{part}"


def table(outcomes: Outcomes) -> str:
    """The result as markdown."""
    lines = [f"Judged: {outcomes.broker}", ""]
    for standard, version in STANDARDS.items():
        numbers = [each for each in every_statement() if section(each)[0] == standard]
        verdicts = {each: outcomes.verdict(each) for each in numbers}
        judged = [each for each in numbers if verdicts[each] in ("passed", "deviates", "failed")]
        passed = [each for each in numbers if verdicts[each] == "passed"]
        lines += [
            f"MQTT {version}: {len(judged)} of {len(numbers)} statements tested, "
            f"{len(passed)} of them pass.",
            "",
            "| section | statements | tested | passed | not passed |",
            "|---|---|---|---|---|",
        ]
        for row in dict.fromkeys(section(each)[1] for each in numbers):
            here = [each for each in numbers if section(each)[1] == row]
            wrong = [each for each in here if each in judged and each not in passed]
            lines.append(
                f"| {row} {SECTIONS[row]} | {len(here)} | {len(set(here) & set(judged))} "
                f"| {len(set(here) & set(passed))} "
                f"| {', '.join(each.partition('-')[2] for each in wrong) or '-'} |"
            )
        lines.append("")
    wrong = [each for each in every_statement() if outcomes.verdict(each) in ("deviates", "failed")]
    if wrong:
        lines += ["| statement | what the broker does instead |", "|---|---|"]
        for each in wrong:
            does = (
                "; ".join(sorted(outcomes.does[each])) or "fails, and no deviation is written down"
            )
            lines.append(f"| {each} | {does} |")
    return "\n".join(lines).rstrip() + "\n"


def listing(outcomes: Outcomes) -> str:
    """Every statement with its verdict, and the reason where there is no test."""
    return "".join(
        f"{each:20} {outcomes.verdict(each):10} {not_tested().get(each, '')}".rstrip() + "\n"
        for each in every_statement()
    )


def write(path: Path, name: str, text: str) -> None:
    """Put the table between the marks of that broker, which have to be there."""
    begin, end = f"<!-- conformance of {name} -->", f"<!-- end of conformance of {name} -->"
    old = path.read_text()
    new, count = re.subn(
        rf"({re.escape(begin)}\n).*?({re.escape(end)})",
        lambda found: f"{found[1]}{text}{found[2]}",
        old,
        flags=re.DOTALL,
    )
    if count != 1:
        sys.exit(f"{path}: expected {begin} and {end} once")
    path.write_text(new)


def main() -> int:
    """Run the suite and print."""
    parser = argparse.ArgumentParser(
        prog="python -m broker.conformance.table", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into that file")
    parser.add_argument("--all", action="store_true", help="list every statement, too")
    chosen, rest = parser.parse_known_args()
    outcomes = Outcomes()
    code = pytest.main(["-q", "--tb=short", "--no-header", str(HERE / "tests"), *rest], [outcomes])
    if not outcomes.broker:
        print("No broker was judged.", file=sys.stderr)
        return 1
    if chosen.all:
        print(listing(outcomes))
    if chosen.write:
        write(chosen.write, outcomes.broker.split()[0], table(outcomes))
    else:
        print(table(outcomes), end="")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
