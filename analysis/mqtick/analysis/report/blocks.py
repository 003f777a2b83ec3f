"""What a report is made of, whatever it is written as: page or text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqtick.analysis.report.numbers import interval_of, value_of
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN

__all__ = [
    "MARKS",
    "Block",
    "Cell",
    "Formula",
    "Listing",
    "Paragraph",
    "Section",
    "Table",
    "estimate_cell",
]


MARKS: Final = {HOLDS: "✓", FAILS: "✗", NOT_PROVEN: "?"}
"""Before a verdict's state, for those who do not see its colour."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: what it says, what stands small below it, a verdict's state, or a warning."""

    text: str
    below: str = ""
    state: str = ""
    warns: bool = False


def estimate_cell(estimate: Estimate | None, per_us: float = 1.0) -> Cell:
    """Return an estimate with its interval below, in a unit of which `per_us` make 1 us."""
    return Cell(value_of(estimate, per_us), interval_of(estimate, per_us))


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people.

    Attributes:
        caption: what it shows, with the unit.
        headings: of its columns.
        rows: of as many cells as there are headings.
        words: the columns that hold words, by index; the others hold numbers.
        head: whether a row's first cell is its heading.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = frozenset({0})
    head: bool = True


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences; `code` where they are to be copied as they stand."""

    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula in plain characters, on a line of its own."""

    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Sentences one below the other."""

    items: tuple[str, ...]


Block = Table | Paragraph | Formula | Listing


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]
