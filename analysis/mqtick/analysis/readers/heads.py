"""Text files of samples: a table of their makers' heads, over one parser.

Lines of key and value above the line of names may tell the interval, the number of rows, the units
and the model. Where only units stand above the rows, the names are looked for in the head.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

from mqtick.analysis.clocks.offset_text import delimiter_of
from mqtick.analysis.readers.columns import head_lines, is_text, plain_text, read_head
from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.heads_without_names import (
    gw_instek,
    hantek,
    infiniium,
    rigol,
    tektronix,
    yokogawa,
)
from mqtick.analysis.readers.plans import Head, plan_of
from mqtick.analysis.readers.text_capture import open_plan
from mqtick.analysis.readers.titles import rows_only, titles_in, titles_without_time
from mqtick.analysis.readers.told import interval_in
from mqtick.recording.capture import CaptureError, CaptureFile

__all__ = ["FORMATS"]

_MOST_LINES: Final = 200
_HEAD: Final = (
    "Put a line of names in front, with a time and its unit, for example: `time [s],publisher,"
    "first,last`, or `time [s],offset [ns]` for a clock's errors."
)


def _open(head: Head, path: Path) -> CaptureFile:
    lines = head_lines(read_head(path))[:_MOST_LINES]
    plan = head.plan(path, head.name, lines) if head.plan else None
    if plan is None:
        titles = titles_in(lines)
        if titles is None and interval_in(lines):
            titles = titles_without_time(lines)
        if titles is None:
            raise _without_titles(path, head, lines)
        plan = plan_of(path, head, lines, titles)
    return open_plan(path, plan)


def _without_titles(path: Path, head: Head, lines: list[str]) -> CaptureError:
    if head.maker:
        return CaptureError(
            f"{path} has the head of a file of {head.name} but no line of names with rows of "
            "numbers after it; it is cut off, or its waveforms were saved without times. Save it "
            "again, with times."
        )
    if head.name.startswith("Vivado"):
        return CaptureError(
            f"{path} numbers the samples of an ILA and does not say how fast its clock is. Put "
            "that in front, as a first line: `# sample rate: 100 MHz`."
        )
    row = rows_only(lines)
    clock = ""
    if delimiter_of(row) is not None:
        clock = " If these are a clock's errors, say their units instead: `--units s,ns`."
    above = next((n for n, line in enumerate(lines) if line.strip() == row), 0)
    if above and any(letter.isalpha() for letter in lines[above - 1]):
        return CaptureError(
            f"{path}: no column of {lines[above - 1].strip()[:80]!r} is called a time (time, "
            "t, seconds, x). Rename the column that is one, with its unit, for example to "
            f"`time [s]`; or, if none is, say in front how fast it was sampled: "
            f"`# sample rate: 1 MHz`.{clock}"
        )
    return CaptureError(
        f"{path} has rows of numbers ({row[:60]!r}) but no names above them, so it is not "
        f"known which is a time and which a channel. {_HEAD}{clock}"
    )


def _recognises(head: Head, octets: bytes) -> bool:
    octets = plain_text(octets)
    return is_text(octets) and (
        head.begins.search("\n".join(head_lines(octets)[:_MOST_LINES])) is not None
    )


def _is_table(octets: bytes) -> bool:
    octets = plain_text(octets)
    lines = head_lines(octets)[:_MOST_LINES] if is_text(octets) else []
    return titles_in(lines) is not None or rows_only(lines) != ""


_HEADS: Final = (
    Head(
        "Rigol CSV",
        "DS1042C, DS1052E, DS1054Z, DS1074Z, DS1102D, DS1102E, DS1204B, DS2000, DS2072A, DS4024",
        "Rigol",
        re.compile(
            r"\A(?:sep=.*\n)?(?:"
            r".*t0\s*=.*tInc\s*="  # MSO5000, DHO
            r"|(?:.*\n)?.*Number of Data points"  # converted from .wfm
            r"|X?,(?:CH ?\d|MATH|REF|D ?\d).*\n(?:Second|Sequence),"
            r"|X,(?:CH ?\d|MATH|REF|D ?\d) *\(.*\n *[-+.\d])",
            re.I,
        ),
        plan=rigol,
    ),
    Head(
        "Siglent CSV",
        "the first rows of SDS1202X-E, SDS1104X-E",
        "Siglent",
        re.compile(r"\ARecord Length,(?:Analog|Digital)\s*:|^Source,.*\nSecond,", re.M),
        triggered=None,
    ),
    Head(
        "Keysight InfiniiVision CSV",
        "an InfiniiVision (model not noted)",
        "Keysight",
        re.compile(r"\Ax-axis,", re.I),
    ),
    Head(
        "Keysight Infiniium CSV",
        "the first rows of an N8900A",
        "Keysight",
        re.compile(r"\A(?:.*\bChannel.*\n)?Revision:[\s\S]*^XInc:[\s\S]*^XOrg:", re.M),
        plan=infiniium,
    ),
    Head(
        "Tektronix CSV",
        "tm_data_types 0.5.0",
        "Tektronix",
        re.compile(
            r"\ARecord Length(?:,[^,\n]*){2}(?:, *[-+.\deE]+ *){2}(?:,|$)"  # TDS1000, TDS2000
            r"|\AModel,[\s\S]*^Sample Interval,[\s\S]*^TIME,",
            re.M,
        ),
        plan=tektronix,
    ),
    Head(
        "LeCroy CSV",
        "the first rows of an HDO9404",
        "LeCroy",
        re.compile(r"\ALECROY(?P<model>[^,; \n]*)[,; ][^,; \n]*[,; ]Waveform"),
    ),
    Head(
        "Rohde & Schwarz CSV",
        "an RTB2000 or alike (model not noted)",
        "Rohde & Schwarz",
        re.compile(r"\Ain s,"),
    ),
    Head(
        "GW Instek CSV", "", "GW Instek", re.compile(r"\AFormat,.*\nMemory Length,"), plan=gw_instek
    ),
    Head("Hantek CSV", "", "Hantek", re.compile(r"\A#timebase=\d+\(ps\)", re.I), plan=hantek),
    Head("Yokogawa CSV", "", "Yokogawa", re.compile(r'\A"?Header Size"?,\d+'), plan=yokogawa),
    Head(
        "OWON CSV",
        "",
        "OWON",
        re.compile(r"\AChannel *:,CH\d[\s\S]*^Time interval *:", re.M),
        triggered=False,
    ),
    Head(
        "UNI-T CSV",
        "",
        "UNI-T",
        re.compile(r"\A(?:Stop|Run|Auto),[\s\S]*^Sample Interval,", re.M | re.I),
        triggered=False,
    ),
    Head(
        "Vivado ILA CSV",
        "",
        "",
        re.compile(r"\A(?:[#;].*\n)*Sample in Buffer,Sample in Window,"),
        triggered=False,
    ),
    Head(
        "Saleae Logic CSV",
        "a Logic 2 export",
        "Saleae",
        # Channels that were given names: then nine decimals tell it from a file made by hand.
        re.compile(r"\ATime ?\[s\],(?:(?:.*,)?Channel |.*\n-?\d+\.\d{9}(?:,[01])+$)", re.M),
        triggered=False,
    ),
)
_PLAIN: Final = Head("CSV with named columns", "numpy", "", re.compile(""), triggered=None)

FORMATS: Final = (
    *(Format(h.name, h.tested, partial(_recognises, h), partial(_open, h)) for h in _HEADS),
    Format(_PLAIN.name, _PLAIN.tested, _is_table, partial(_open, _PLAIN)),
)
