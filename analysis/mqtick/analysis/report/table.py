"""What a report is made of, whatever it is written as: tables, sentences and formulas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mqtick.analysis.report.numbers import interval_of, plain, value_of
from mqtick.analysis.statistics.estimate import Estimate


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
class Column:
    """A column: its title, its unit where it has one of its own, whether it holds words."""

    title: str
    unit: str = ""
    words: bool = False

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


def word_columns(*titles: str) -> tuple[Column, ...]:
    """Return columns of words."""
    return tuple(Column(title, words=True) for title in titles)


def number_columns(*titles: str) -> tuple[Column, ...]:
    """Return columns of numbers without a unit of their own."""
    return tuple(map(Column, titles))


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people.

    Attributes:
        title: what it shows, with the unit of the columns that have none.
        columns: in their order.
        rows: of as many cells as there are columns.
        head: whether a row's first cell is its heading.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    head: bool = True


def table(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Iterable[Cell | str | int]],
    *,
    head: bool = True,
) -> Table:
    """Make a table of cells, of texts, which may hold anything, and of counts."""
    return Table(title, tuple(columns), tuple(tuple(map(_cell, row)) for row in rows), head)


def _cell(value: Cell | str | int) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(plain(value) if isinstance(value, str) else f"{value:,}")


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
