"""The figures of a report as CSV: for spreadsheets and programs, units in the columns' names."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from mqtick.analysis.measurement import Shot
from mqtick.analysis.report.numbers import plain
from mqtick.analysis.report.titles import names_of
from mqtick.analysis.results.result import Result, Row
from mqtick.analysis.statistics.estimate import Distribution, Estimate

__all__ = ["tables_of"]

_FS_PER_US: Final = 1_000_000_000
_FORMULA: Final = ("=", "+", "-", "@")
"""With these, a spreadsheet treats a text as a formula and runs it."""

Value = str | int | float | None


def tables_of(results: Sequence[Result]) -> dict[str, str]:
    """Return each table by its file name; one that would be empty is left out.

    The first column says which measurement a row belongs to. Text that a spreadsheet would
    treat as a formula begins with an apostrophe; a cell without value is empty.
    """
    named = list(zip(names_of(results), results, strict=True))
    tables = {
        "statistics.csv": _joined(named, _STATISTICS, _statistics),
        "shots.csv": _shots(named),
        "edges.csv": _joined(named, _EDGES, _edges),
        "pairs.csv": _joined(named, _PAIRS, _pairs),
        "verdicts.csv": _joined(named, _VERDICTS, _verdicts),
        "stability.csv": _joined(named, _STABILITY, _stability),
    }
    return {name: text for name, text in tables.items() if text}


_ESTIMATES: Final = ("mean", "sd", "median", "p5", "p95", "p99")
_STATISTICS: Final = (
    "measurement",
    "quantity",
    "clock",
    "subscribers",
    "values",
    "n",
    "effective_n",
    "missed",
    *(f"{name}{end}_us" for name in _ESTIMATES for end in ("", "_low", "_high")),
    "min_us",
    "max_us",
    "confidence",
    "published_software_mean_us",
    "published_software_sd_us",
    "published_hardware_mean_us",
    "published_hardware_sd_us",
)
_EDGES: Final = (
    "measurement",
    "shot",
    "subscribers",
    "node",
    "edge_us",
    "uncertainty_us",
    "direction",
    "quality",
    "samples_in_rise",
    "edges_found",
    "clipped",
    "source",
)
_PAIRS: Final = ("measurement", "from_node", "to_node", "n", "median_us")
_VERDICTS: Final = (
    "measurement",
    "limit",
    "source",
    "quantity",
    "statistic",
    "bound_us",
    "of",
    "state",
    "value_us",
    "value_low_us",
    "value_high_us",
    "n",
    "confidence",
    "sentence",
)
_STABILITY: Final = (
    "measurement",
    "clock",
    "measure",
    "tau_s",
    "value",
    "low",
    "high",
    "unit",
)


def _statistics(result: Result) -> Iterable[list[Value]]:
    for quantity in result.quantities:
        for row in quantity.rows:
            for kind, values in (("signed", row.signed), ("absolute", row.absolute)):
                start: list[Value] = [quantity.quantity, quantity.node, row.subscribers, kind]
                yield [*start, *_distribution(row, values), result.confidence, *_published(row)]


def _distribution(row: Row, values: Distribution | None) -> list[Value]:
    if values is None:
        return [0, None, row.missed, *[None] * (3 * len(_ESTIMATES) + 2)]
    deviation = values.deviation
    estimates = (values.mean, deviation, values.median, values.p5, values.p95, values.p99)
    parts = [part for each in estimates for part in _parts(each)]
    return [values.n, values.effective_n, row.missed, *parts, values.least, values.most]


def _parts(estimate: Estimate | None) -> list[Value]:
    return [None] * 3 if estimate is None else [estimate.value, estimate.low, estimate.high]


def _published(row: Row) -> list[Value]:
    known = row.published
    if known is None:
        return [None] * 4
    return [
        known.software_mean_us,
        known.software_deviation_us,
        known.hardware_mean_us,
        known.hardware_deviation_us,
    ]


def _edges(result: Result) -> Iterable[list[Value]]:
    for shot in result.measurement.shots:
        for node, mark in shot.marks.items():
            direction = "rising" if mark.rising else "falling"
            at = [_us(mark.instant_fs), _us(mark.uncertainty_fs), direction, mark.quality]
            rise = mark.samples_in_rise or None
            how = [rise, mark.found, int(mark.clipped), shot.source]
            yield [shot.number, shot.subscribers, node, *at, *how]


def _pairs(result: Result) -> Iterable[list[Value]]:
    pairs = result.pairs
    if pairs is None:
        return
    for i, one in enumerate(pairs.nodes):
        for j, other in enumerate(pairs.nodes):
            if i != j:
                yield [one, other, int(pairs.n[i, j]), float(pairs.median_us[i, j])]


def _verdicts(result: Result) -> Iterable[list[Value]]:
    for verdict in result.verdicts:
        limit = verdict.limit
        yield [
            limit.name,
            limit.source,
            limit.quantity,
            limit.statistic,
            limit.bound_us,
            verdict.of,
            verdict.state,
            *_parts(verdict.value),
            verdict.n,
            verdict.confidence,
            verdict.sentence,
        ]


def _stability(result: Result) -> Iterable[list[Value]]:
    for clock in result.clocks:
        for each in clock.deviations:
            unit = "1" if each.name == "ADEV" else "ns"
            for place in range(len(each.tau_s)):
                low = None if each.low is None else float(each.low[place])
                high = None if each.high is None else float(each.high[place])
                at, value = float(each.tau_s[place]), float(each.value[place])
                yield [clock.errors.name, each.name, at, value, low, high, unit]


def _shots(named: Sequence[tuple[str, Result]]) -> str:
    shots = [(name, shot) for name, result in named for shot in result.measurement.shots]
    if not shots:
        return ""
    clocks = list(dict.fromkeys(node for _, shot in shots for node in shot.clock_fs))
    nodes = list(dict.fromkeys(node for _, shot in shots for node in shot.marks))
    head = [
        *("measurement", "shot", "subscribers", "outcome", "reason", "started_utc"),
        *("latency_us", "skew_us"),
        *(f"clock_{node}_us" for node in clocks),
        *(f"{what}_{node}{unit}" for node in nodes for what, unit in _MARK),
        "source",
    ]
    return _written(head, (_shot(name, shot, clocks, nodes) for name, shot in shots))


_MARK: Final = (
    ("edge", "_us"),
    ("uncertainty", "_us"),
    ("direction", ""),
    ("edges_found", ""),
    ("clipped", ""),
)


def _shot(name: str, shot: Shot, clocks: Sequence[str], nodes: Sequence[str]) -> list[Value]:
    cells: list[Value] = [name, shot.number, shot.subscribers, shot.outcome, shot.reason]
    cells += [_utc(shot.started_ns), _us(shot.latency_fs), _us(shot.skew_fs)]
    cells += [_us(shot.clock_fs.get(node)) for node in clocks]
    for node in nodes:
        mark = shot.marks.get(node)
        if mark is None:
            cells += [None] * len(_MARK)
            continue
        direction = "rising" if mark.rising else "falling"
        cells += [_us(mark.instant_fs), _us(mark.uncertainty_fs), direction]
        cells += [mark.found, int(mark.clipped)]
    return [*cells, shot.source]


def _us(femtoseconds: int | None) -> Value:
    return None if femtoseconds is None else femtoseconds / _FS_PER_US


def _utc(started_ns: int | None) -> str:
    if started_ns is None:
        return ""
    try:
        whole = datetime.fromtimestamp(started_ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{started_ns % 1_000_000_000:09d}Z"


def _joined(
    named: Sequence[tuple[str, Result]],
    head: Sequence[str],
    rows_of: Callable[[Result], Iterable[list[Value]]],
) -> str:
    rows = [[name, *row] for name, result in named for row in rows_of(result)]
    return _written(head, rows) if rows else ""


def _written(head: Iterable[str], rows: Iterable[Iterable[Value]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in head])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        said = plain(value)
        return f"'{said}" if said.lstrip().startswith(_FORMULA) else said
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else ""
    return str(value)
