"""What a pipeline shows: a summary in Markdown, and verdicts as JUnit's XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from mqtick.analysis.report.headline import headlines_of
from mqtick.analysis.report.numbers import NOTHING, interval_of, plain, value_of
from mqtick.analysis.report.statistics_tables import short_tables
from mqtick.analysis.report.words import MARKS, names_of, title_of_all
from mqtick.analysis.report.writers import md, md_table
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import FAILS, HOLDS

_NOTES_SHOWN: Final = 10


def markdown_of(results: Sequence[Result]) -> str:
    """Return the answer, the verdicts, the statistics and the notes, for a pull request."""
    parts = [f"## {md(title_of_all(results))}"]
    for result, headline in zip(results, headlines_of(results), strict=True):
        if len(results) > 1:
            parts.append(f"### {md(headline.title)}")
        parts.append(md(headline.sentence))
        verdicts = [
            f"- {MARKS[verdict.state]} **{verdict.state}**: {md(verdict.sentence)}"
            for verdict in headline.verdicts
        ]
        if verdicts:
            parts.append("\n".join(verdicts))
        notes = [*result.measurement.damaged, *result.measurement.notes]
        if notes:
            shown = [f"- {md(note)}" for note in notes[:_NOTES_SHOWN]]
            if len(notes) > _NOTES_SHOWN:
                shown.append(f"- and {len(notes) - _NOTES_SHOWN} more: see the report")
            parts.append("\n".join(["What was left out or assumed:", "", *shown]))
    tables = [md_table(table).rstrip("\n") for table in short_tables(results).values()]
    if tables:
        inner = "\n\n".join(tables)
        parts.append(f"<details><summary>Statistics</summary>\n\n{inner}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def junit_of(results: Sequence[Result]) -> bytes:
    """Return one suite for each measurement and one test for each verdict, those on ratios too.

    A limit that is not proven is a failure of another type, as the exit code has it.
    """
    suites = ET.Element("testsuites", name="mqtick-report")
    for result, name in zip(results, names_of(results), strict=True):
        cases = [
            (
                f"{each.limit.name}: {each.limit.statistic} |{each.limit.quantity}|"
                + (f" of {each.of}" if each.of else ""),
                each.state,
                each.sentence,
                each.limit.source,
            )
            for each in result.verdicts
        ]
        cases += [
            (
                f"{each.limit} against {names_of(results)[0]}, N = {each.subscribers or NOTHING}",
                each.state,
                f"The ratio is {value_of(each.ratio)} ({interval_of(each.ratio) or NOTHING}).",
                "",
            )
            for each in result.compared
            if each.limit
        ]
        bad = [state for _, state, _, _ in cases if state != HOLDS]
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=_xml(name),
            tests=str(len(cases)),
            failures=str(len(bad)),
            errors="0",
            skipped="0",
        )
        for said, state, sentence, source in cases:
            case = ET.SubElement(suite, "testcase", classname=_xml(name), name=_xml(said))
            if state == HOLDS:
                ET.SubElement(case, "system-out").text = _xml(sentence)
                continue
            kind = "limit not met" if state == FAILS else "not proven"
            failure = ET.SubElement(case, "failure", type=kind, message=_xml(sentence))
            failure.text = _xml(source)
    ET.indent(suites)
    octets: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return octets + b"\n"


def _xml(text: str) -> str:
    """Return a text that may stand in XML: a lone half of a pair may not."""
    return plain(text).encode("utf-8", "replace").decode()
