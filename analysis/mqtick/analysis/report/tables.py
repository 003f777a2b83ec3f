"""The figures of a report as CSV: for spreadsheets and programs, units in the columns' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from mqtick.analysis.measurement import Shot
from mqtick.analysis.report.as_json import as_json
from mqtick.analysis.report.words import names_of
from mqtick.analysis.report.writers import Value, csv_table
from mqtick.analysis.results.result import Result
from mqtick.recording.edges import Edge
from mqtick.recording.units import FS_PER_US

Rows = Iterable[dict[str, Value]]


def tables_of(results: Sequence[Result]) -> dict[str, str]:
    """Return each table by its file name; one that would be empty is left out.

    The first column says which measurement a row belongs to.
    """
    names = names_of(results)
    told = list(zip(names, as_json(results)["results"], strict=True))
    shots = [
        (name, shot)
        for name, result in zip(names, results, strict=True)
        for shot in result.measurement.shots
    ]

    def joined(rows_of: Callable[[dict[str, Any]], Rows]) -> str:
        return csv_table({"measurement": name, **row} for name, one in told for row in rows_of(one))

    tables = {
        "statistics.csv": joined(_statistics),
        "shots.csv": csv_table(_shots(shots)),
        "edges.csv": csv_table(_edges(shots)),
        "pairs.csv": joined(_pairs),
        "verdicts.csv": joined(lambda one: map(_flat, one["verdicts"])),
        "comparison.csv": joined(_compared),
        "stability.csv": joined(_stability),
    }
    return {name: text for name, text in tables.items() if text}


_ESTIMATES: Final = ("mean", "sd", "median", "p5", "p95", "p99")
_NO_VALUES: Final[dict[str, Any]] = {
    "n": 0,
    "effective_n": None,
    **{f"{name}_us": {"value": None, "low": None, "high": None} for name in _ESTIMATES},
    "min_us": None,
    "max_us": None,
}
_PUBLISHED: Final = ("software_mean_us", "software_sd_us", "hardware_mean_us", "hardware_sd_us")


def _statistics(result: dict[str, Any]) -> Rows:
    for quantity in result["quantities"]:
        for row in quantity["rows"]:
            known = row["published"] or dict.fromkeys(_PUBLISHED)
            for kind in ("signed", "absolute"):
                values = _flat(row[kind] or _NO_VALUES)
                yield {
                    "quantity": quantity["quantity"],
                    "clock": quantity["clock"],
                    "subscribers": row["subscribers"],
                    "values": kind,
                    "n": values.pop("n"),
                    "effective_n": values.pop("effective_n"),
                    "missed": row["missed"],
                    **values,
                    "confidence": result["confidence"],
                    **{f"published_{name}": value for name, value in known.items()},
                }


def _flat(structure: dict[str, Any]) -> dict[str, Value]:
    """Make three columns of each estimate: x_us, x_low_us and x_high_us."""
    flat: dict[str, Value] = {}
    for name, value in structure.items():
        if isinstance(value, dict):
            stem = name.removesuffix("_us")
            flat[name] = value["value"]
            flat |= {f"{stem}_{end}_us": value[end] for end in ("low", "high")}
        else:
            flat[name] = value
    return flat


def _pairs(result: dict[str, Any]) -> Rows:
    pairs = result["pairs"]
    if pairs is None:
        return
    for i, one in enumerate(pairs["nodes"]):
        for j, other in enumerate(pairs["nodes"]):
            if i != j:
                n, median = pairs["n"][i][j], pairs["median_us"][i][j]
                yield {"from_node": one, "to_node": other, "n": n, "median_us": median}


def _compared(result: dict[str, Any]) -> Rows:
    for each in result["compared"]:
        ratio = each.pop("ratio")
        yield {**_flat(each), "ratio": ratio["value"]} | {
            f"ratio_{end}": ratio[end] for end in ("low", "high")
        }


def _stability(result: dict[str, Any]) -> Rows:
    for clock in result["clocks"]:
        for each in clock["deviations"]:
            columns = {
                name: each[name] or [None] * len(each["tau_s"])
                for name in ("tau_s", "value", "low", "high")
            }
            for values in zip(*columns.values(), strict=True):
                yield {
                    "clock": clock["clock"],
                    "measure": each["measure"],
                    **dict(zip(columns, values, strict=True)),
                    "unit": each["unit"],
                }


def _edges(shots: Sequence[tuple[str, Shot]]) -> Rows:
    for name, shot in shots:
        for node, mark in shot.edges.items():
            yield {
                "measurement": name,
                "shot": shot.number,
                "subscribers": shot.subscribers,
                "node": node,
                "edge_us": _us(mark.instant_fs),
                "uncertainty_us": _us(mark.uncertainty_fs),
                "direction": _direction(mark),
                "quality": mark.quality,
                "samples_in_rise": mark.samples_in_rise or None,
                "edges_found": mark.found,
                "clipped": int(mark.clipped),
                "source": shot.source,
            }


def _shots(shots: Sequence[tuple[str, Shot]]) -> Rows:
    clocks = list(dict.fromkeys(node for _, shot in shots for node in shot.clock_fs))
    nodes = list(dict.fromkeys(node for _, shot in shots for node in shot.edges))
    for name, shot in shots:
        row: dict[str, Value] = {
            "measurement": name,
            "shot": shot.number,
            "subscribers": shot.subscribers,
            "outcome": shot.outcome,
            "reason": shot.reason,
            "started_utc": _utc(shot.started_ns),
            "latency_us": _us(shot.latency_fs),
            "skew_us": _us(shot.skew_fs),
            **{f"clock_{node}_us": _us(shot.clock_fs.get(node)) for node in clocks},
        }
        for node in nodes:
            mark = shot.edges.get(node)
            row[f"edge_{node}_us"] = _us(mark.instant_fs) if mark else None
            row[f"uncertainty_{node}_us"] = _us(mark.uncertainty_fs) if mark else None
            row[f"direction_{node}"] = _direction(mark) if mark else None
            row[f"edges_found_{node}"] = mark.found if mark else None
            row[f"clipped_{node}"] = int(mark.clipped) if mark else None
        yield {**row, "source": shot.source}


def _direction(mark: Edge) -> str:
    return "rising" if mark.rising else "falling"


def _us(femtoseconds: int | None) -> Value:
    return None if femtoseconds is None else femtoseconds / FS_PER_US


def _utc(started_ns: int | None) -> str:
    if started_ns is None:
        return ""
    try:
        whole = datetime.fromtimestamp(started_ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{started_ns % 1_000_000_000:09d}Z"
