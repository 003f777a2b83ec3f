"""Phases that counters and their programs write: TICC, TimeLab, and one column of numbers.

Each of these readers is of one file: what a line says depends on those before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import count
from typing import Final

from mqtick.analysis.clocks.clock_log import Value

TICC: Final = re.compile(rb"^\d+\.\d{9,12} ch[AB]\s*$", re.M)
TIMELAB: Final = re.compile(rb"\ATIM [\s\S]*^TAU +[\d.]", re.M)
"""What is in a file of each and hardly anywhere else."""
_EDGE: Final = re.compile(r"(\d+)\.(\d{9,12}) ch([AB])\s*")
_KEY: Final = re.compile(r"([A-Z0-9]{3}) +(.*)")
_BEYOND_PS: Final = 5 * 10**11

Parser = Callable[[str], Value | None]


def ticc_reader() -> Parser:
    """Return what reads time stamps of a TAPR TICC: chB's edges against chA's, the reference.

    An edge that comes later is of a clock that is behind, so the error is B minus A.
    """
    last_ps: dict[str, int] = {}

    def read(line: str) -> Value | None:
        found = _EDGE.fullmatch(line)
        if found is None:
            return None
        # In floats, seconds of a week have no room for ps.
        last_ps[found[3]] = int(found[1]) * 10**12 + int(found[2].ljust(12, "0"))
        if len(last_ps) < 2 or abs(last_ps["B"] - last_ps["A"]) > _BEYOND_PS:
            return None
        reference_ps, clock_ps = last_ps.pop("A"), last_ps.pop("B")
        return Value("", reference_ps * 1e-12, (clock_ps - reference_ps) * 1e-3, math.nan)

    return read


def timelab_reader() -> Parser:
    """Return what reads a .tim of phases: keys with TAU and SCL, then a phase in s for each TAU."""
    fields: dict[str, str] = {}
    rows = count()

    def read(line: str) -> Value | None:
        if found := _KEY.fullmatch(line.strip()):
            fields[found[1]] = found[2]
        if not re.match(r"\s*[-+.\d]", line):
            return None
        if fields.get("DAT", "PHASE").strip().upper() != "PHASE":
            raise ValueError(f"it is of {fields['DAT'][:20]}, and phases are read")
        tau_s = float(fields.get("TAU", 0))
        if not tau_s > 0:
            raise ValueError("no TAU above 0 stands before it")
        phase_s = float(line) * float(fields.get("SCL", 1))
        return Value("", next(rows) * tau_s, phase_s * 1e9, math.nan)

    return read


def column_reader(tau_s: float, to_ns: float, heading: str = "") -> Parser:
    """Return what reads a column of errors, one every `tau_s`; `to_ns` is their unit in ns.

    `heading` is a line above it.
    """
    rows = count()

    def read(line: str) -> Value | None:
        if not line.strip() or line.startswith(("#", "%")) or line.strip() == heading:
            return None
        error_ns = float(line.replace(",", ".")) * to_ns
        return Value("", next(rows) * tau_s, error_ns, math.nan)

    return read
