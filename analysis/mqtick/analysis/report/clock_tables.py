"""Tables of clocks: constant part and spread, stability, masks, holdover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from mqtick.analysis.clocks.stability import Deviation
from mqtick.analysis.clocks.summary import ClockSummary
from mqtick.analysis.report.numbers import NOTHING, number, plain, short, unit_for_clocks
from mqtick.analysis.report.table import (
    Block,
    Cell,
    Column,
    Listing,
    Paragraph,
    Table,
    estimate_cell,
    number_columns,
    table,
    word_columns,
)
from mqtick.analysis.statistics.limit import FAILS, HOLDS

_TAUS_SHOWN: Final = 8
_HOLDOVERS_SHOWN: Final = 10


def clock_blocks(clocks: Sequence[ClockSummary], level: str) -> list[Block]:
    """Return everything about the clocks; `level` is the confidence as "95 %"."""
    blocks: list[Block] = [clocks_table(clocks, level)]
    notes = [f"{plain(each.errors.name)}: {plain(note)}" for each in clocks for note in each.notes]
    if notes:
        blocks.append(Listing(tuple(notes)))
    blocks += [_stability(clock, level) for clock in clocks if clock.deviations]
    names = ", ".join(plain(clock.errors.name) for clock in clocks if not clock.deviations)
    if names:
        blocks.append(Paragraph(f"{names}: too few samples for MTIE, TDEV and ADEV."))
    if any(clock.masks for clock in clocks):
        blocks += [_masks(clocks), _mask_sources(clocks)]
    if any(clock.holdovers for clock in clocks):
        blocks.append(_holdovers(clocks))
    return blocks


def clocks_table(clocks: Sequence[ClockSummary], level: str) -> Table:
    """Return constant part, spread and size of each clock's error."""
    unit = unit_for_clocks(clocks)
    rows = []
    for clock in clocks:
        converged = clock.converged_after_s
        rows.append(
            (
                Cell(plain(clock.errors.name), plain(clock.errors.source)),
                len(clock.errors.seconds),
                short(clock.interval_s, 4),
                "never" if converged is None else short(converged, 4),
                estimate_cell(clock.constant_us, unit.per_us),
                estimate_cell(clock.spread_us, unit.per_us),
                estimate_cell(clock.absolute.p99, unit.per_us),
                number(clock.most_us * unit.per_us),
                NOTHING if clock.outside is None else clock.outside,
            )
        )
    return table(
        f"Time error of each clock, in {unit.name}, with {level} intervals; constant part, spread "
        "and |TE| cover the time after convergence",
        (
            *word_columns("clock"),
            *number_columns("samples"),
            Column("every", "s"),
            Column("converged after", "s"),
            *number_columns(
                "constant part", "spread", "p99 |TE|", "max|TE|", "outside their interval"
            ),
        ),
        rows,
    )


def _stability(clock: ClockSummary, level: str) -> Table:
    taus = np.unique(np.concatenate([each.tau_s for each in clock.deviations]))
    if len(taus) > _TAUS_SHOWN:
        chosen = np.unique(np.round(np.linspace(0, len(taus) - 1, _TAUS_SHOWN)).astype(int))
        taus = taus[chosen]
    return table(
        f"Stability of {plain(clock.errors.name)} over observation intervals, {level} intervals "
        "(MTIE is a maximum and has none); all of them are in stability.csv",
        [
            Column("τ", "s"),
            *(Column(each.name, "" if each.name == "ADEV" else "ns") for each in clock.deviations),
        ],
        ([short(tau, 4), *(_at(each, tau) for each in clock.deviations)] for tau in taus.tolist()),
    )


def _at(deviation: Deviation, tau_s: float) -> Cell:
    places = np.flatnonzero(deviation.tau_s == tau_s)
    if not len(places):
        return Cell(NOTHING)
    place = int(places[0])
    below = ""
    if deviation.low is not None and deviation.high is not None:
        low, high = float(deviation.low[place]), float(deviation.high[place])
        if math.isfinite(low) and math.isfinite(high):
            below = f"{short(low)} to {short(high)}"
    return Cell(short(float(deviation.value[place])), below)


def _masks(clocks: Sequence[ClockSummary]) -> Table:
    rows = []
    for clock in clocks:
        for each in clock.masks:
            state = {True: HOLDS, False: FAILS, None: ""}[each.holds]
            untold = "no observation interval in common"
            if each.worst_ratio is not None:
                untold = "not shown: too few samples, or too uncertain ones"
            worst = short(each.worst_ratio), short(each.worst_tau_s, 4)
            verdict = Cell(state or untold, state=state)
            rows.append((clock.errors.name, each.mask, each.measure, verdict, *worst))
    return table(
        "Masks of standards, over the time observed; the worst ratio is measure / mask: below "
        "1 the mask is met",
        (
            *word_columns("clock", "mask", "measure", "verdict"),
            *number_columns("worst ratio"),
            Column("at τ", "s"),
        ),
        rows,
    )


def _mask_sources(clocks: Sequence[ClockSummary]) -> Listing:
    sources = {
        (plain(each.mask), plain(each.source)): None
        for clock in clocks
        for each in clock.masks
        if each.source
    }
    return Listing(tuple(f"{mask}: {source}" for mask, source in sources))


def _holdovers(clocks: Sequence[ClockSummary]) -> Table:
    rows = []
    left = 0
    for clock in clocks:
        left += max(len(clock.holdovers) - _HOLDOVERS_SHOWN, 0)
        for gap in clock.holdovers[:_HOLDOVERS_SHOWN]:
            length = gap.end_s - gap.begin_s
            rate = gap.change_ns / length if length > 0 else math.nan
            when = short(gap.begin_s, 4), short(length, 4)
            rows.append((clock.errors.name, *when, number(gap.change_ns / 1000), number(rate)))
    more = f"; {left:,} shorter ones are left out" if left else ""
    return table(
        f"Holdover: gaps without measurements, and how the error changed over them{more}",
        (
            *word_columns("clock"),
            Column("begin", "s"),
            Column("length", "s"),
            Column("change", "µs"),
            Column("change", "ns/s"),
        ),
        rows,
    )
