"""Verdicts as JUnit's XML, which continuous integration shows as tests."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from mqtick.analysis.report.numbers import plain
from mqtick.analysis.report.titles import names_of
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import FAILS, HOLDS

__all__ = ["junit_of"]


def junit_of(results: Sequence[Result]) -> bytes:
    """Return one suite for each measurement and one test for each verdict.

    A limit that is not proven is a failure of another type, as the exit code has it.
    """
    suites = ET.Element("testsuites", name="mqtick-report")
    for result, name in zip(results, names_of(results), strict=True):
        bad = [verdict for verdict in result.verdicts if verdict.state != HOLDS]
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=_said(name),
            tests=str(len(result.verdicts)),
            failures=str(len(bad)),
            errors="0",
            skipped="0",
        )
        for verdict in result.verdicts:
            limit = verdict.limit
            of = f" of {verdict.of}" if verdict.of else ""
            case = ET.SubElement(
                suite,
                "testcase",
                classname=_said(name),
                name=_said(f"{limit.name}: {limit.statistic} |{limit.quantity}|{of}"),
            )
            if verdict.state == HOLDS:
                ET.SubElement(case, "system-out").text = _said(verdict.sentence)
                continue
            kind = "limit not met" if verdict.state == FAILS else "not proven"
            failure = ET.SubElement(case, "failure", type=kind, message=_said(verdict.sentence))
            failure.text = _said(limit.source)
    ET.indent(suites)
    octets: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return octets + b"\n"


def _said(text: str) -> str:
    """Return a text that may stand in XML: a lone half of a pair may not."""
    return plain(text).encode("utf-8", "replace").decode()
