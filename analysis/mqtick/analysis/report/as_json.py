"""A report for machines: one structure, units in its keys, never NaN.

    format                  "mqtick-report"
    version                 2; it grows when a key changes its meaning or goes away
    holds                   whether every verdict is "holds"; null where nothing was judged
    results[]               one for each measurement
      title, kind, simulated, confidence, nodes[], reference, first, last
      sentence              the answer in words
      counts                shots, captured, missed, refused, edges, and reasons by sentence
      edges[]               of each channel: how they were found, how sure their instants are
      quantities[]          quantity, clock, uncertainty_us, rows[], growth, drift
        rows[]              subscribers (null: not known), missed, signed, absolute, published
        growth              a_us, b_us_per_subscriber, n, subscribers[]
        drift               us_per_hour, total_us, significant
      pairs                 nodes[], median_us[][] (column's node minus the row's), n[][]
      clocks[]              clock, source, samples, constant_us, spread_us, max_us, absolute, ...
      verdicts[]            limit, source, quantity, statistic, bound_us, of, state, value_us, n
      compared[]            with the first measurement: quantity, subscribers (null: of growth),
                            statistic, reference_us, value_us, difference_us, ratio, p, test,
                            shown, limit, state
      damaged[], notes[]    sentences
      by_hand[]             sentences: how edges were found and paired, where overridden by the user
      provenance[]          label, text

The file report.json has also files[]: the figures and tables next to it.

An estimate is {"value", "low", "high"}; low and high are null where there is no interval. Single
values are not here: they are in shots.csv.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from mqtick.analysis.clocks.stability import Deviation
from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report.edges import QUALITIES, ChannelSummary, channels_of
from mqtick.analysis.report.headline import headlines_of
from mqtick.analysis.report.numbers import plain
from mqtick.analysis.results.result import Comparison, QuantityResult, Result, RowOfN
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.limit import HOLDS, Verdict

FORMAT: Final = "mqtick-report"
VERSION: Final = 2


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return the results for machines (the module says how); `json.dumps` takes it as it is."""
    states = [verdict.state for result in results for verdict in result.verdicts]
    states += [each.state for result in results for each in result.compared if each.limit]
    sentences = [headline.sentence for headline in headlines_of(results)]
    structure = {
        "format": FORMAT,
        "version": VERSION,
        "holds": all(state == HOLDS for state in states) if states else None,
        "results": [
            _result(result, sentence) for result, sentence in zip(results, sentences, strict=True)
        ],
    }
    cleaned: dict[str, Any] = _clean(structure)
    return cleaned


def _result(result: Result, sentence: str) -> dict[str, Any]:
    measurement = result.measurement
    pairs = result.pairs
    return {
        "title": measurement.title,
        "kind": measurement.kind,
        "simulated": measurement.simulated,
        "confidence": result.confidence,
        "nodes": list(measurement.nodes),
        "reference": measurement.reference,
        "first": measurement.first,
        "last": measurement.last,
        "sentence": sentence,
        "counts": asdict(result.counts),
        "edges": [_edges(channel) for channel in channels_of(measurement) if channel.edges],
        "quantities": [_quantity(quantity) for quantity in result.quantities],
        "pairs": None
        if pairs is None
        else {
            "nodes": list(pairs.nodes),
            "median_us": pairs.median_us.tolist(),
            "n": pairs.n.tolist(),
        },
        "clocks": [_clock(clock) for clock in result.clocks],
        "verdicts": [_verdict(verdict) for verdict in result.verdicts],
        "compared": [_compared(each) for each in result.compared],
        "damaged": list(measurement.damaged),
        "notes": list(measurement.notes),
        "by_hand": list(measurement.edge_overrides),
        "provenance": [{"label": label, "text": text} for label, text in measurement.provenance],
        "timebase_ppm": measurement.timebase_ppm,
        "channel_uncertainty_us": measurement.channel_uncertainty_fs / 1e9,
    }


def _edges(channel: ChannelSummary) -> dict[str, Any]:
    return {
        "channel": channel.node,
        "edges": channel.edges,
        **{
            name.replace(" ", "_"): count
            for name, count in zip(QUALITIES, channel.by_quality, strict=True)
        },
        "median_uncertainty_us": channel.median_us,
        "largest_uncertainty_us": channel.largest_us,
        "samples_in_rise": channel.samples_in_rise,
        "doubled": channel.doubled,
        "clipped": channel.clipped,
        "missing": channel.missing,
    }


def _quantity(quantity: QuantityResult) -> dict[str, Any]:
    line, drift = quantity.growth, quantity.drift
    return {
        "quantity": quantity.quantity,
        "clock": quantity.node,
        "uncertainty_us": quantity.uncertainty_us,
        "rows": [_row(row) for row in quantity.rows],
        "growth": None
        if line is None
        else {
            "a_us": _estimate(line.a),
            "b_us_per_subscriber": _estimate(line.b),
            "n": line.n,
            "subscribers": list(line.subscribers),
        },
        "drift": None
        if drift is None
        else {
            "us_per_hour": _estimate(drift.us_per_hour),
            "total_us": drift.total_us,
            "significant": bool(drift.significant),
        },
    }


def _row(row: RowOfN) -> dict[str, Any]:
    known = row.published
    return {
        "subscribers": row.subscribers,
        "missed": row.missed,
        "signed": _distribution(row.signed),
        "absolute": _distribution(row.absolute),
        "published": None
        if known is None
        else {
            "software_mean_us": known.software_mean_us,
            "software_sd_us": known.software_deviation_us,
            "hardware_mean_us": known.hardware_mean_us,
            "hardware_sd_us": known.hardware_deviation_us,
        },
    }


def _distribution(values: Distribution | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {
        "n": values.n,
        "effective_n": values.effective_n,
        "mean_us": _estimate(values.mean),
        "sd_us": _estimate(values.deviation),
        "median_us": _estimate(values.median),
        "p5_us": _estimate(values.p5),
        "p95_us": _estimate(values.p95),
        "p99_us": _estimate(values.p99),
        "min_us": values.least,
        "max_us": values.most,
    }


def _compared(each: Comparison) -> dict[str, Any]:
    return {
        "quantity": each.quantity,
        "subscribers": each.subscribers or None,
        "statistic": each.statistic,
        "reference_us": _estimate(each.reference),
        "value_us": _estimate(each.value),
        "difference_us": _estimate(each.difference),
        "ratio": _estimate(each.ratio),
        "p": each.p,
        "test": each.test or None,
        "shown": each.shown,
        "limit": each.limit or None,
        "state": each.state or None,
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    if estimate is None:
        return None
    return asdict(estimate)


def _clock(clock: ClockSummary) -> dict[str, Any]:
    return {
        "clock": clock.errors.name,
        "source": clock.errors.source,
        "samples": len(clock.errors.seconds),
        "interval_s": clock.interval_s,
        "converged_after_s": clock.converged_after_s,
        "constant_us": _estimate(clock.constant_us),
        "spread_us": _estimate(clock.spread_us),
        "max_us": clock.most_us,
        "absolute": _distribution(clock.absolute),
        "outside_their_interval": clock.outside,
        "notes": list(clock.notes),
        "deviations": [_deviation(each) for each in clock.deviations],
        "masks": [asdict(each) for each in clock.masks],
        "holdovers": [asdict(each) for each in clock.holdovers],
    }


def _deviation(each: Deviation) -> dict[str, Any]:
    return {
        "measure": each.name,
        "unit": "1" if each.name == "ADEV" else "ns",
        "tau_s": each.tau_s.tolist(),
        "value": each.value.tolist(),
        "low": None if each.low is None else each.low.tolist(),
        "high": None if each.high is None else each.high.tolist(),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    limit = verdict.limit
    return {
        "limit": limit.name,
        "source": limit.source,
        "quantity": limit.quantity,
        "statistic": limit.statistic,
        "bound_us": limit.bound_us,
        "of": verdict.of,
        "state": verdict.state,
        "value_us": _estimate(verdict.value),
        "n": verdict.n,
        "confidence": verdict.confidence,
        "sentence": verdict.sentence,
    }


def _clean(value: Any) -> Any:
    """Put null for what is not a number, and remove unprintable characters."""
    match value:
        case dict():
            return {plain(str(key)): _clean(each) for key, each in value.items()}
        case list():
            return [_clean(each) for each in value]
        case str():
            return plain(value)
        case bool() | int() | None:
            return value
    number = float(value)
    return number if math.isfinite(number) else None
