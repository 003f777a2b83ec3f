"""Prints who passes what: `python -m broker.conformance.table --broker mosquitto`.

`--broker` and `--udp` may come several times, for a column each; other arguments go to pytest
(`--address HOST:PORT`, `--patience SECONDS`). `--write FILE` puts the table between the two marks
in that file, `--all` lists every statement.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.conformance.statements import HERE, every_statement, not_tested

BEGIN, END = "<!-- conformance -->", "<!-- end of conformance -->"
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
    "4.8": "shared subscriptions",
    "4.9": "flow control",
    "4.12": "authentication",
    "4.13": "errors",
    "6": "WebSocket",
    "7": "conformance",
}
EARLIER = {"4.8": "errors"}
"""What 3.1.1 has under a number that means something else in 5."""


class Outcomes:
    """What became of the tests of each statement, with one broker."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.of: defaultdict[str, set[str]] = defaultdict(set)
        self.does: defaultdict[str, set[str]] = defaultdict(set)

    def note(self, statement: str, report: pytest.TestReport, deviates: Sequence[str]) -> None:
        """Count a test; of one that fails as expected, only the statements that are broken."""
        if hasattr(report, "wasxfail") and report.skipped:
            if statement in deviates:
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


class Collector:
    """Collects the outcomes of every broker that the tests judge."""

    def __init__(self) -> None:
        self.brokers: dict[str, Outcomes] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        said: dict[str, Any] = dict(report.user_properties)
        if "broker" in said and (report.when == "call" or report.failed or report.skipped):
            outcomes = self.brokers.setdefault(said["broker"], Outcomes(said["broker"]))
            for statement in said["statements"]:
                outcomes.note(statement, report, said.get("deviates", ()))


def section(statement: str) -> tuple[str, str]:
    """The standard and the row of the table that a statement belongs to."""
    standard, number, _ = statement.split("-")
    chapter, part, _ = number.split(".")
    return standard, chapter if chapter in SECTIONS else f"{chapter}.{part}"


def cell(outcomes: Outcomes, numbers: list[str]) -> str:
    """How many of these statements a broker passes, and which it does not."""
    verdicts = {each: outcomes.verdict(each) for each in numbers}
    judged = [each for each in numbers if verdicts[each] in ("passed", "deviates", "failed")]
    wrong = [each for each in judged if verdicts[each] != "passed"]
    if not judged:
        return "-"
    said = "all" if not wrong else f"{len(judged) - len(wrong)}, not "
    unjudged = f" ({len(judged)} judged)" if len(judged) < len(tested(numbers)) else ""
    return said + ", ".join(each.partition("-")[2] for each in wrong) + unjudged


def tested(numbers: list[str]) -> list[str]:
    """Those that a test is about."""
    return [each for each in numbers if each not in not_tested()]


def table(every_broker: list[Outcomes]) -> str:
    """The results as markdown, a column for each broker."""
    lines = []
    for standard, version in STANDARDS.items():
        numbers = [each for each in every_statement() if section(each)[0] == standard]
        brokers = [each for each in every_broker if cell(each, numbers) != "-"]
        lines += [
            f"MQTT {version}: {len(tested(numbers))} of {len(numbers)} statements are tested.",
            "",
            f"| section | statements | tested | {' | '.join(each.broker for each in brokers)} |",
            f"|---|---|---|{'---|' * len(brokers)}",
        ]
        for row in dict.fromkeys(section(each)[1] for each in numbers):
            here = [each for each in numbers if section(each)[1] == row]
            cells = " | ".join(cell(each, here) for each in brokers)
            title = EARLIER.get(row, SECTIONS[row]) if standard == "MQTT" else SECTIONS[row]
            lines.append(f"| {row} {title} | {len(here)} | {len(tested(here))} | {cells} |")
        sums = [
            str(sum(each.verdict(number) == "passed" for number in numbers)) for each in brokers
        ]
        total = f"| all | {len(numbers)} | {len(tested(numbers))} | {' | '.join(sums)} |"
        lines += [total, ""]
    wrong: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for outcomes in every_broker:
        for statement in every_statement():
            if outcomes.verdict(statement) == "failed":
                wrong[outcomes.broker, "fails; not looked into yet"].append(statement)
            elif outcomes.verdict(statement) == "deviates":
                for does in sorted(outcomes.does[statement]):
                    wrong[outcomes.broker, does].append(statement)
    if wrong:
        lines += ["| broker | what it does instead | statements |", "|---|---|---|"]
        lines += [
            f"| {broker} | {does} | {', '.join(statements)} |"
            for (broker, does), statements in wrong.items()
        ]
    return "\n".join(lines).rstrip() + "\n"


def listing(outcomes: Outcomes) -> str:
    """Every statement with its verdict, and the reason where there is no test."""
    return f"{outcomes.broker}\n" + "".join(
        f"{each:20} {outcomes.verdict(each):10} {not_tested().get(each, '')}".rstrip() + "\n"
        for each in every_statement()
    )


def write(path: Path, text: str) -> None:
    """Put the table between the marks, which have to be there."""
    new, count = re.subn(
        rf"({re.escape(BEGIN)}\n).*?({re.escape(END)})",
        lambda found: f"{found[1]}{text}{found[2]}",
        path.read_text(),
        flags=re.DOTALL,
    )
    if count != 1:
        sys.exit(f"{path}: expected {BEGIN} and {END} once")
    path.write_text(new)


def main() -> int:
    """Run the suite against each broker and print."""
    parser = argparse.ArgumentParser(
        prog="python -m broker.conformance.table", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--broker", action="append", help="mosquitto (default) or mqtick=PATH")
    parser.add_argument("--udp", action="append", help="reference (default), model or HOST:PORT")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into that file")
    parser.add_argument("--all", action="store_true", help="list every statement, too")
    chosen, rest = parser.parse_known_args()
    collector, code = Collector(), 0
    common = ["-q", "--no-header", "--tb=short", *rest]
    tests, over_udp = str(HERE / "tests"), str(HERE / "tests/test_udp.py")
    runs = [
        [tests, "--ignore", over_udp, "-n", "4", "--broker", broker]
        for broker in chosen.broker or ["mosquitto"]
    ]
    runs += [[over_udp, "--udp", which] for which in chosen.udp or ["reference"]]
    for arguments in runs:
        code |= int(pytest.main([*arguments, *common], [collector]))
    brokers = list(collector.brokers.values())
    if not brokers:
        print("No broker was judged.", file=sys.stderr)
        return 1
    if chosen.all:
        print("\n".join(map(listing, brokers)))
    if chosen.write:
        write(chosen.write, table(brokers))
    else:
        print(table(brokers), end="")
    return code


if __name__ == "__main__":
    sys.exit(main())
