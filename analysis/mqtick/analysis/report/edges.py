"""How the edges of each channel were found, and how certain their times are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mqtick.analysis.measurement import REFUSED, Measurement
from mqtick.analysis.report.numbers import NOTHING, in_words, short
from mqtick.analysis.report.table import Cell, Table, number_columns, table, word_columns
from mqtick.recording.edges import BETWEEN, FITTED, INTERPOLATED, Edge
from mqtick.recording.units import FS_PER_US

QUALITIES: Final = (FITTED, INTERPOLATED, BETWEEN)


@dataclass(frozen=True, slots=True)
class ChannelSummary:
    """The edges of one node's channel.

    Attributes:
        node: its name.
        edges: how many were used.
        by_quality: how many were found how, in the order of QUALITIES; the rest do not say.
        median_us, largest_us: of their uncertainty, either way; NaN without an edge.
        samples_in_rise: the median; NaN where it is not known.
        doubled, clipped: how many of them.
        missing: in how many shots that have edges this node has none.
    """

    node: str
    edges: int
    by_quality: tuple[int, ...]
    median_us: float
    largest_us: float
    samples_in_rise: float
    doubled: int
    clipped: int
    missing: int


def channels_of(measurement: Measurement) -> list[ChannelSummary]:
    """Return the edges of each channel, the nodes in the measurement's order."""
    shots = measurement.shots
    nodes = dict.fromkeys((*measurement.nodes, *(node for shot in shots for node in shot.edges)))
    used = [shot.edges for shot in shots if shot.outcome != REFUSED and shot.edges]
    return [
        _channel(
            node,
            [shot.edges[node] for shot in shots if node in shot.edges],
            sum(node not in marks for marks in used) if node in measurement.nodes else 0,
        )
        for node in nodes
    ]


def _channel(node: str, marks: list[Edge], missing: int) -> ChannelSummary:
    uncertain = np.array([mark.uncertainty_fs for mark in marks], np.float64) / FS_PER_US
    rises = [mark.samples_in_rise for mark in marks if mark.samples_in_rise > 0]
    return ChannelSummary(
        node,
        len(marks),
        tuple(sum(mark.quality == quality for mark in marks) for quality in QUALITIES),
        float(np.median(uncertain)) if marks else np.nan,
        float(uncertain.max()) if marks else np.nan,
        float(np.median(rises)) if rises else np.nan,
        sum(mark.found > 1 for mark in marks),
        sum(mark.clipped for mark in marks),
        missing,
    )


def edges_tables(measurement: Measurement) -> list[Table]:
    """Return a table with a row for each channel, nothing without an edge."""
    channels = [each for each in channels_of(measurement) if each.edges or each.missing]
    if not any(each.edges for each in channels):
        return []
    rows: list[list[Cell | str | int]] = [
        [
            each.node,
            each.edges,
            *each.by_quality,
            _uncertainty(each),
            short(each.samples_in_rise),
            each.doubled,
            each.clipped,
            each.missing,
        ]
        for each in channels
    ]
    title = (
        "The edges of each channel: how their instants were found (fitted to several samples, "
        "interpolated between two, or known only to lie between two), how far these may be off "
        "either way, and how many samples a rise takes; each edge is in edges.csv"
    )
    counts = ("samples in the rise", "doubled", "clipped", "missing")
    columns = number_columns("edges", *QUALITIES, "uncertainty, median", *counts)
    return [table(title, (*word_columns("channel"), *columns), rows)]


def _uncertainty(channel: ChannelSummary) -> Cell:
    if not channel.edges:
        return Cell(NOTHING)
    return Cell(in_words(channel.median_us), f"largest {in_words(channel.largest_us)}")
