"""The figures of a report: which ones a result has, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report.figures.clock_spread import clock_spread_picture
from mqtick.analysis.report.figures.clock_time import clock_time_picture
from mqtick.analysis.report.figures.compare import compare_pictures
from mqtick.analysis.report.figures.ecdf import ecdf_picture
from mqtick.analysis.report.figures.growth import growth_picture
from mqtick.analysis.report.figures.holdover import holdover_picture
from mqtick.analysis.report.figures.over_time import over_time_picture
from mqtick.analysis.report.figures.pairs import pairs_picture
from mqtick.analysis.report.figures.picture import Picture, with_own_names
from mqtick.analysis.report.figures.stability import stability_picture
from mqtick.analysis.report.figures.waveforms import waveforms_picture
from mqtick.analysis.results.result import QuantityResult, Result

__all__ = ["Picture", "pictures_of"]

_CLOCKS: Final = 4
"""Clocks with figures of their own: the worst ones; all are in the tables."""


def pictures_of(results: Sequence[Result]) -> list[Picture]:
    """Return the pictures for which there is data, the most telling one first.

    For one result, all of its own; for several, those that compare them.
    """
    if len(results) > 1:
        return compare_pictures(results)
    found: list[Picture | None] = []
    for result in results:
        for quantity in result.quantities:
            if not quantity.node:
                found += _of_quantity(result, quantity)
        for clock in _worst(result):
            found += _of_clock(result, clock)
        found += [waveforms_picture(result), pairs_picture(result)]
    return with_own_names(picture for picture in found if picture is not None)


def _of_quantity(result: Result, quantity: QuantityResult) -> list[Picture | None]:
    growth = growth_picture(result, quantity)
    rest = [ecdf_picture(result, quantity), over_time_picture(result, quantity)]
    several = sum(row.subscribers is not None for row in quantity.rows) > 1
    # With one N, a point next to published points says less than the distribution.
    return [growth, *rest] if several else [rest[0], growth, rest[1]]


def _worst(result: Result) -> list[ClockSummary]:
    order = sorted(range(len(result.clocks)), key=lambda i: -result.clocks[i].most_us)
    return [result.clocks[index] for index in sorted(order[:_CLOCKS])]


def _of_clock(result: Result, clock: ClockSummary) -> list[Picture | None]:
    own = [each for each in result.quantities if each.node == clock.errors.name]
    return [
        clock_time_picture(result, clock),
        clock_spread_picture(result, clock),
        *(ecdf_picture(result, each) for each in own[:1]),
        stability_picture(result, clock),
        holdover_picture(result, clock),
    ]
