"""How the figures of a report are made, in short: formulas, sign, uncertainty, assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqtick.analysis.measurement import CLOCK, LATENCY, SKEW, Measurement
from mqtick.analysis.report.numbers import plain, short, unit_of
from mqtick.analysis.report.table import Block, Formula, Listing, Paragraph
from mqtick.analysis.report.words import level
from mqtick.analysis.results.result import QuantityResult, Result
from mqtick.recording.published import SOURCE

_ASSUMED_PPM: Final = Measurement("", "").timebase_ppm
"""Of an instrument of which nobody says it."""


def method_blocks(results: Sequence[Result]) -> list[Block]:
    """Return what a reader needs to judge the figures of these results."""
    kinds = {quantity.quantity for result in results for quantity in result.quantities}
    clocks = any(result.clocks for result in results)
    blocks: list[Block] = []
    if any(result.measurement.shots for result in results):
        blocks += _edges()
    blocks += _edge_overrides(results)
    if kinds & {SKEW, LATENCY}:
        blocks += _shots(kinds)
    if clocks or CLOCK in kinds:
        blocks += _clocks()
    return [*blocks, *_intervals(level(results[0])), *_uncertainty(results), _assumed(kinds)]


def _edges() -> list[Block]:
    return [
        Paragraph(
            "Edges. The low and the high state level of a record are the modes of its histogram; "
            "an edge is where the waveform passes halfway between them (IEEE 181). It is found "
            "between two samples by a cubic, or by one fitted to more samples where the edge spans "
            "more. The next edge counts only after the waveform has left a band around the middle, "
            "so that noise makes no edges. Missing, doubled and clipped edges are counted."
        )
    ]


def _edge_overrides(results: Sequence[Result]) -> list[Block]:
    """Say what the user overrides in finding and pairing edges."""
    blocks: list[Block] = []
    for result in results:
        measurement = result.measurement
        if measurement.edge_overrides:
            of = f" in {plain(measurement.title)}" if len(results) > 1 else ""
            blocks.append(Paragraph(f"By hand. How edges{of} are found was said, not found out:"))
            blocks.append(Listing(tuple(plain(each) for each in measurement.edge_overrides)))
    return blocks


def _shots(kinds: set[str]) -> list[Block]:
    blocks: list[Block] = [
        Paragraph("Quantities of one shot, cable delays subtracted from each t:")
    ]
    if LATENCY in kinds:
        blocks.append(Formula("latency = t(first subscriber) − t(publisher)"))
    if SKEW in kinds:
        blocks.append(Formula("skew = t(last subscriber) − t(first subscriber)"))
    blocks.append(
        Paragraph(
            "Positive means late: the edge named first came after the other one. N is the number "
            "of subscribers."
        )
    )
    if SKEW in kinds:
        blocks += [
            Paragraph(
                "First and last are by the order of subscription, not of arrival: a negative skew "
                "says that the node that subscribed last was served before the one that "
                "subscribed first. So skew has both signs, and |skew| is its size. Where a "
                "broker does not deliver in the order of subscription, other nodes may be further "
                "apart than these two."
            ),
            Formula("skew(N) = a + b · N"),
            Paragraph(
                "A robust line (Huber) through all shots: a is what the receivers and the network "
                "add whatever N is, b what the broker adds for each further subscriber. It passes "
                "through the bulk of the values, which for skewed values is below their mean."
            ),
        ]
    return blocks


def _clocks() -> list[Block]:
    return [
        Paragraph("Time error of a clock against the reference; positive: it is behind, late."),
        Formula("TE(t) = reference(t) − clock(t)"),
        Formula("TE = constant part (mean) + spread (standard deviation of what remains)"),
        Formula("MTIE(τ) = largest (max TE − min TE) in any window of length τ"),
        Formula("TDEV²(τ) = ⟨(x̄₃ − 2 x̄₂ + x̄₁)²⟩ / 6, x̄ means of TE over neighbouring τ"),
        Formula("ADEV²(τ) = ⟨(x₃ − 2 x₂ + x₁)²⟩ / (2 τ²), x being TE at distances of τ"),
        Paragraph(
            "Constant part, spread and |TE| cover the time after convergence: from the instant "
            "after which the error stayed within its own spread (ITU-T G.8260 has the terms)."
        ),
    ]


def _intervals(confidence: str) -> list[Block]:
    return [
        Paragraph(
            f"Intervals. Each is built to contain the true value with {confidence} confidence. "
            "That of a mean comes from a block bootstrap, that of a standard deviation from the "
            "kurtosis (Bonett), those of quantiles from the order of the values and the exact "
            "binomial chance. For very skewed values, those of mean and deviation contain it less "
            "often (docs/statistics.md has the coverage found). Where no value bounds a quantile, "
            "one end is unknown: “above 130” is all that can be said. Correlated shots count less: "
            "“worth” is how many independent shots they amount to."
        ),
        Paragraph(
            "Verdicts. A limit of a mean holds when the whole one-sided interval lies below it; "
            "one of a quantile when the share of values beyond it is small enough by the exact "
            "binomial test; one of a maximum when no value was beyond it. What the values leave "
            "open is not proven, which is not a pass: 20 shots cannot prove a p99; that takes 299 "
            "with none beyond it (95 %)."
        ),
    ]


def _uncertainty(results: Sequence[Result]) -> list[Block]:
    items = []
    for result in results:
        measurement = result.measurement
        if not measurement.shots:
            continue
        title = f"{plain(measurement.title)}: " if len(results) > 1 else ""
        parts = f"both edges, {_deskew(measurement)} and {_timebase(measurement)}"
        items += [
            f"{title}A single value of {_name(quantity)} may be off by "
            f"{_rough(quantity.uncertainty_us)} either way: {parts}."
            for quantity in result.quantities
        ]
    text = (
        "Instrument uncertainty. Errors of deskew and time base are the same in every shot: "
        "averaging does not reduce them."
    )
    return [Paragraph(text), Listing(tuple(items))] if items else []


def _deskew(measurement: Measurement) -> str:
    uncertain_us = measurement.channel_uncertainty_fs / 1e9
    if uncertain_us:
        return f"{_rough(uncertain_us)} between two channels after deskew,"
    return "nothing between two channels, because deskew was taken as exact (assumed),"


def _timebase(measurement: Measurement) -> str:
    assumed = " (assumed)" if measurement.timebase_ppm == _ASSUMED_PPM else ""
    whose = f" in each of {measurement.instruments} instruments" * (measurement.instruments > 1)
    return f"a time base{whose} that is off by up to {measurement.timebase_ppm:g} ppm{assumed}"


def _rough(value_us: float) -> str:
    """Say an uncertainty with two digits: more of them would claim to know it."""
    unit = unit_of([value_us])
    return f"{short(value_us * unit.per_us, 2)} {unit.name}"


def _name(quantity: QuantityResult) -> str:
    return f"the time error of {plain(quantity.node)}" if quantity.node else quantity.quantity


def _assumed(kinds: set[str]) -> Listing:
    items = [
        "Not in the statistics: shots that were missed. They may have been the latest ones, so "
        "verdicts count them as beyond the limit; refused shots were never tried.",
    ]
    if kinds & {SKEW, LATENCY}:
        items.append(
            "Assumed: the pin of a node changes when its program says so; what lies between the "
            "message and the pin is part of the figure."
        )
        items.append(f"Published figures: {SOURCE}.")
    return Listing(tuple(items))
