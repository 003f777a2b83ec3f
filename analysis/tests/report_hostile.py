"""A result in which every text that comes from outside is hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from analysis.tests.report_samples import PATHOLOGICAL, clock_result, skew_result
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import Limit

SCRIPT: Final = "<script>alert(1)</script>"
IMAGE: Final = '"><img src=http://attacker.example/x onerror=alert(2)>'
FORMULA: Final = '=HYPERLINK("http://attacker.example")'
STEERS: Final = "\x1b[2J\x1b]0;owned\x07\u202etxt.exe\udcff\x00"
LONG: Final = "x" * 500
SLOW: Final = ("many shots", "many N", "many nodes", "clock over a day")
"""Of the pathological ones."""
NODES: Final = ("publisher", "rpi1", "rpi2", "rpi3")
NAMES: Final = (SCRIPT, IMAGE, FORMULA, STEERS, LONG)


ODD: Final = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PATHOLOGICAL
]
"""The pathological results by name, for a test of every one."""


def hostile_result() -> Result:
    """Return skew, latency, pairs and clocks; every name, reason and note is an attack."""
    skew, clock = skew_result(nodes=NODES), clock_result(40, clocks=("$<b>",), gap=None)
    result = replace(skew, quantities=skew.quantities + clock.quantities, clocks=clock.clocks)
    measurement = replace(
        result.measurement,
        title=SCRIPT + STEERS + "$x_1^{2",
        nodes=NAMES,
        shots=[
            replace(
                shot,
                reason=FORMULA if shot.reason else "",
                source=FORMULA,
                edges={f"{SCRIPT}{name}": mark for name, mark in shot.edges.items()},
            )
            for shot in result.measurement.shots
        ],
        damaged=[f"{name}: half a file" for name in NAMES],
        notes=[IMAGE + SCRIPT],
        provenance=[(SCRIPT, IMAGE), (FORMULA, STEERS), (LONG, LONG)],
    )
    limit = Limit(SCRIPT, "skew", "mean", 52.0, IMAGE)
    return replace(
        result,
        measurement=measurement,
        counts=replace(result.counts, reasons={IMAGE: 3, STEERS: 2, LONG: 1}),
        verdicts=tuple(
            replace(verdict, limit=limit, sentence=IMAGE + STEERS) for verdict in result.verdicts
        ),
    )
