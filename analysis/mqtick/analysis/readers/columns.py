"""Columns of numbers from a text file: in blocks, fast where the rows are sound.

A sound block is parsed by numpy. Where a block has an empty cell, a word or a row that is too
short, its rows are read one by one, and what is not a number becomes NaN: no cell moves up.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from mqtick.analysis.instants import since_1970
from mqtick.analysis.readers.time_base import Floats, Grid
from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import EXACT_S, opened, read_so_far

MAX_OCTETS: Final = 200_000_000
"""A file whose numbers would take more octets of memory than this is refused."""

_HEAD: Final = 1 << 16
_BLOCK: Final = 1 << 20
_SPARE: Final = 1.05
_QUOTED: Final = re.compile(rb'^"[-+]?\d+,\d+"(?:,"[-+]?\d+,\d+")*\r?$', re.M)
_LONGEST_LINE: Final = 1 << 16
_SAMPLES: Final = 64
_OVERRANGE: Final = 9e36
"""Instruments write 9.9E+37 where there is no number, or where it is beyond the range."""

_INFINITY: Final = ("\u221e", "\u221e".encode().decode("latin-1"))
"""PicoScope's mark of overrange, in a head and in rows."""

_NO_NUMBERS: Final = {"nan", "n/a", "na", "null", "none"}
_MOST_WORDS: Final = 100
_CONTROL: Final = bytes(set(range(32)) - {9, 10, 13, 12, 26})


def is_text(head: bytes) -> bool:
    """Whether the first octets of a file are text, whatever its suffix."""
    return bool(head) and head.translate(None, _CONTROL) == head


def read_head(path: Path) -> bytes:
    """Return the first octets of a file, where its head is; CaptureError."""
    with text_opened(path) as stream:
        return stream.read(_HEAD)


@contextlib.contextmanager
def text_opened(path: Path) -> Iterator[BinaryIO]:
    """Open a text file as `plain_text` has it; CaptureError."""
    with opened(path) as stream:
        head = stream.read(_HEAD)
        stream.seek(0)
        if plain_text(head) == head:
            yield stream
        elif (size := path.stat().st_size) > MAX_OCTETS:
            raise CaptureError(
                f"{path} has {size:,} octets, and in its form (UTF-16, decimal commas in quotes, "
                f"lines that end with CR) {MAX_OCTETS:,} are read. Save it in UTF-8, with points."
            )
        else:
            yield io.BytesIO(plain_text(stream.read()))


def plain_text(octets: bytes) -> bytes:
    """Return text in UTF-8, with LF at the ends of lines, and no quotes around decimal commas."""
    wide = _wide(octets)
    if wide:
        octets = octets.decode(wide, "ignore").lstrip("\ufeff").encode()
    if b"\n" not in octets and octets.count(b"\r") > 1:
        octets = octets.replace(b"\r", b"\n")
    if _QUOTED.search(octets[:_HEAD]):
        lines = octets.split(b"\n")
        octets = b"\n".join(
            line.replace(b'","', b";").replace(b'"', b"")
            if b'"' in line
            else line.replace(b",", b";")
            for line in lines
        )
    return octets


def _wide(octets: bytes) -> str:
    """Return the encoding of text in UTF-16, with or without a mark, "" of any other."""
    for encoding, mark, high in (("utf-16-le", b"\xff\xfe", 1), ("utf-16-be", b"\xfe\xff", 0)):
        zeros, letters = octets[high:512:2], octets[1 - high : 512 : 2]
        if octets[:2] == mark or (len(zeros) > 8 and not any(zeros) and 0 not in letters):
            return encoding
    return ""


def head_lines(head: bytes) -> list[str]:
    """Return the lines of a head without their ends; the last one (maybe cut off) only if alone.

    Other encodings than UTF-8 are read as Latin-1: only units (u, Ohm) and names differ.
    """
    try:
        text = head.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError:
        text = head.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if len(lines) > 1 else lines


def cells_of(line: str, delimiter: str = ",") -> list[str]:
    """Return the cells of a line, without quotes and the spaces around them."""
    cells = line.split(delimiter) if delimiter else line.split()
    if '"' in line and delimiter:  # which may stand between quotes too
        with contextlib.suppress(csv.Error):
            cells = next(csv.reader([line.strip("\r\n")], delimiter=delimiter), [""])
    return [cell.strip().strip('"').strip() for cell in cells]


def number(cell: str) -> float:
    """Return the number in a cell, infinite where it is the mark of overrange, else NaN."""
    if "_" in cell:
        return np.nan
    for infinity in _INFINITY:
        cell = cell.replace(infinity, "inf")
    try:
        value = float(cell)
    except ValueError:
        return np.nan
    return value if abs(value) < _OVERRANGE else float(np.copysign(np.inf, value))


def is_number(cell: str) -> bool:
    """Whether a cell has a number, finite or the mark of overrange."""
    return not np.isnan(number(cell))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of samples: its name, its place from 0, and the factor to volts."""

    name: str
    column: int
    to_volts: float = 1.0


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """What the head of a text file says of its rows.

    Attributes:
        format, instrument: as CaptureFile has them.
        first_row: how many lines there are before the rows.
        channels: the columns of samples.
        time_column: the column of times, None where time is counted in rows from `grid`.
        to_seconds: the factor from that column to seconds.
        index_column: the column of sample numbers, which `grid` counts, None where it is the row.
        grid: the time base, where the head has it.
        unit_assumed: whether nothing says that this column is in s.
        interval_s: the interval if the head tells it in addition to a time column, else 0.
        rows: how many rows the head announces, 0 where it does not.
        delimiter: between the cells, "" for white space.
        decimal_comma: whether 1,5 is one and a half.
        triggered: whether time 0 is the trigger; None: where it lies within the record.
        heading: the names, which may be repeated among the rows.
        notes: what a reader of the report has to know of the columns.
    """

    format: str
    instrument: str
    first_row: int
    channels: tuple[Column, ...]
    time_column: int | None = 0
    to_seconds: float = 1.0
    unit_assumed: bool = False
    index_column: int | None = None
    grid: Grid | None = None
    interval_s: float = 0.0
    rows: int = 0
    delimiter: str = ","
    decimal_comma: bool = False
    triggered: bool | None = True
    heading: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> int | None:
        """The column that is kept in 64 bits, because it counts or has times; None: there is none.

        The others have 32 bits, which is more than any converter.
        """
        return self.index_column if self.grid else self.time_column

    @property
    def columns(self) -> tuple[int, ...]:
        """The cells that are read of every row, from 0."""
        first = () if self.exact is None else (self.exact,)
        return tuple(dict.fromkeys((*first, *(each.column for each in self.channels))))

    @property
    def factor(self) -> float:
        """What the numbers of the exact column are multiplied by."""
        return 1.0 if self.grid else self.to_seconds

    def octets(self, rows: int) -> int:
        """Return how much memory that many rows take, at most (while codes are made of them)."""
        samples = len(self.columns) - (self.exact is not None)
        return rows * (4 * samples + (8 if self.exact is not None else 2))


@dataclass(slots=True)
class Rows:
    """The numbers of a file, by the number of their column, and what its rows look like.

    `size` is that of the file in octets: room is made for as much as its first rows suggest. What
    is not written to takes no memory. `origin` is what was subtracted from the exact column,
    `words` the first lines that have words where it should have a number: they are no rows.
    """

    layout: CsvLayout
    size: int = 0
    count: int = 0
    octets_read: int = 0
    columns: dict[int, Floats] = field(default_factory=dict)
    first_lines: list[str] = field(default_factory=list)
    last_lines: list[str] = field(default_factory=list)
    origin: Decimal | None = None
    words: list[str] = field(default_factory=list)

    def column(self, column: int, first: int = 0, last: int | None = None) -> Floats:
        """Return one column as it is kept, or its rows from `first` to before `last`."""
        return self.columns[column][first : self.count if last is None else last]

    def taken(self, column: int) -> Floats:
        """Return a column for the last time, which frees its memory for what is made of it."""
        found = self.column(column)
        self.columns.pop(column)
        return found

    def _keep(self, part: Floats) -> None:
        count = self.count + len(part)
        for place, column in enumerate(self.layout.columns):
            exact = column == self.layout.exact
            kept = self.columns.get(column, np.empty(0))
            if count > kept.size:
                rows = int(_SPARE * count * max(self.size / self.octets_read, 1))
                grown: Floats = np.empty(rows, np.float64 if exact else np.float32)
                grown[: self.count] = kept[: self.count]
                self.columns[column] = kept = grown
            kept[self.count : count] = part[:, place] * (self.layout.factor if exact else 1.0)
        self.count = count

    def resolution(self, column: int) -> float:
        """Return what the last digit of a column stands for, where it is coarsest (least exact)."""
        ends = (self.first_lines, self.last_lines)
        finest = [_finest(self._cell(line, column) for line in lines) for lines in ends]
        factor = self.layout.factor if column == self.layout.exact else 1.0
        return factor * max((each for each in finest if each), default=0.0)

    def _cell(self, line: str, column: int) -> str:
        cells = cells_of(line, self.layout.delimiter)
        return since_1970(cells[column]) if column < len(cells) else ""

    def add(self, block: bytes, path: Path) -> None:
        """Parse a block of whole lines."""
        text = block.decode("latin-1")
        if "\0" in text:
            raise CaptureError(
                f"{path} has octets among its rows that are not text; it is damaged, or not a CSV "
                "file."
            )
        if self.layout.decimal_comma:
            if "." in text:
                self._refuse_points(text, path)
            text = text.replace(",", ".")
        if not self.first_lines:
            self.first_lines = text[: 1 << 13].splitlines()[:_SAMPLES]
            self.origin = self._origin()
        self.last_lines = text[-(1 << 13) :].splitlines()[1:][-_SAMPLES:] or [text.strip()]
        part = self._parsed(text)
        self.octets_read += len(block)
        if part.size:
            self._keep(part)
        if self.layout.octets(self.count) > MAX_OCTETS:
            raise CaptureError(
                f"{path} has more than {MAX_OCTETS // self.layout.octets(1):,} rows of "
                f"{len(self.layout.columns)} numbers, which is more than is read from a text file. "
                "Save a shorter record, fewer channels, or a binary format."
            )

    def _origin(self) -> Decimal | None:
        """Return the first number of the exact column if it is too large to be kept."""
        if self.layout.exact is None:
            return None
        cells = (self._cell(line, self.layout.exact) for line in self.first_lines)
        first = next((cell for cell in cells if math.isfinite(number(cell))), "0")
        is_far = abs(number(first)) * self.layout.factor > EXACT_S
        return Decimal(first) if is_far and not self.layout.grid else None

    def _since(self, cell: str) -> float:
        """Return a number of the exact column, less its origin."""
        cell = since_1970(cell.strip())
        if self.origin is None or not math.isfinite(number(cell)):
            return number(cell)
        return float(Decimal(cell.strip()) - self.origin)

    def _refuse_points(self, text: str, path: Path) -> None:
        """CaptureError where numbers with a decimal comma have points too."""
        for line in text.splitlines():
            for column in self.layout.columns:
                if _GROUPED.fullmatch(cell := self._cell(line, column)):
                    raise CaptureError(f"{path}: the number {cell!r} has {_GROUPS}")

    def refuse_groups(self, path: Path) -> None:
        """CaptureError where 1.000 stands among whole numbers, and may be a thousand."""
        if self.layout.decimal_comma or self.layout.delimiter not in (";", "\t"):
            return
        lines = [*self.first_lines, *self.last_lines]
        for column in self.layout.columns:
            cells = {cell for line in lines if (cell := self._cell(line, column))}
            grouped = {cell for cell in cells if _THOUSANDS.fullmatch(cell)}
            if grouped and grouped < cells and all(map(_WHOLE.fullmatch, cells - grouped)):
                raise CaptureError(f"{path}: the number {min(grouped)!r} may have {_GROUPS}")

    def _parsed(self, text: str) -> Floats:
        if not text.strip():
            return np.empty((0, len(self.layout.columns)))
        since: dict[int | str, Callable[[str], float]] = {}
        if self.origin is not None and self.layout.exact is not None:
            since[self.layout.exact] = self._since
        for fill in (False, True):
            whole = _holes_filled(text, self.layout.delimiter) if fill else text
            try:
                values = np.loadtxt(
                    io.StringIO(whole),
                    delimiter=self.layout.delimiter or None,
                    usecols=self.layout.columns,
                    comments=None,
                    converters=since or None,
                    encoding=None,
                    ndmin=2,
                )
            except (ValueError, IndexError, DecimalException):
                continue
            with np.errstate(invalid="ignore"):
                over = np.abs(values) >= _OVERRANGE
            values[over] = np.copysign(np.inf, values[over])
            if self.layout.exact is None or not np.isnan(values[:, 0]).any():
                return values
            return values[~np.isnan(values).all(axis=1)]
        return self._one_by_one(text)

    def _one_by_one(self, text: str) -> Floats:
        rows = []
        columns, exact = self.layout.columns, self.layout.exact
        for line in text.split("\n"):
            if not line.strip():
                continue
            cells = cells_of(line, self.layout.delimiter)
            if self._is_words(cells):
                self.words += [line] if len(self.words) < _MOST_WORDS else []
                continue
            row = [
                (self._since if c == exact else number)(cells[c]) if c < len(cells) else np.nan
                for c in columns
            ]
            # Where time is counted in rows, each counts, without a number too.
            if exact is None or not all(np.isnan(value) for value in row):
                rows.append(row)
        return np.array(rows, np.float64).reshape(len(rows), len(columns))

    def _is_words(self, cells: list[str]) -> bool:
        exact = self.layout.exact
        if exact is None or exact >= len(cells) or cells[exact].casefold() in _NO_NUMBERS:
            return False
        return cells[exact][:1].isalpha() and not is_number(cells[exact])

    def whole(self, line: str) -> bool:
        """Whether a line without an end may be whole: as many cells, and the last one as long."""
        cells = cells_of(line, self.layout.delimiter)
        if not cells or not self.last_lines:
            return False
        known = [cells_of(each, self.layout.delimiter) for each in self.last_lines]
        lengths = [len(each[-1]) for each in known if len(each) == len(cells)]
        return bool(lengths) and len(cells[-1]) >= min(lengths)


def _holes_filled(text: str, delimiter: str) -> str:
    """Write NaN in empty cells, so that a block with an unused channel is still parsed fast."""
    if not delimiter:
        return text
    for _ in range(2):  # of three delimiters in turn, a pass finds the first two
        text = text.replace(2 * delimiter, f"{delimiter}nan{delimiter}")
    return text.replace(f"{delimiter}\r", f"{delimiter}nan\r").replace(
        f"{delimiter}\n", f"{delimiter}nan\n"
    )


_GROUPED: Final = re.compile(r"[-+]?[\d.,]*\.[\d.,]*(?:[eE][-+]?\d+)?")
_THOUSANDS: Final = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+")
_WHOLE: Final = re.compile(r"[-+]?\d{1,3}")
_GROUPS: Final = (
    "a point between its thousands. Save the numbers without, since a point is a decimal point "
    "elsewhere."
)
_DIGITS: Final = re.compile(r"[-+]?\d*\.?(\d*)(?:[eE]([-+]?\d{1,3}))?$")


def _finest(cells: Iterable[str]) -> float:
    """Return what the last digit of the most exact of these numbers stands for, 0 if none."""
    found = []
    for cell in cells:
        match = _DIGITS.match(cell)
        if match and number(cell):
            found.append(float(f"1e{int(match[2] or 0) - len(match[1])}"))
    return min(found, default=0.0)


def read_rows(path: Path, layout: CsvLayout, notes: list[str]) -> Rows:
    """Read the rows of numbers; CaptureError where there are none, or too many.

    A last line that was cut off is left out, and a note says so.
    """
    rows = Rows(layout, size=path.stat().st_size)
    with text_opened(path) as stream:
        for _ in range(layout.first_row):
            stream.readline(_HEAD)
        rest = b""
        while block := stream.read(_BLOCK):
            block = rest + block
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            if len(rest) > _LONGEST_LINE:
                raise CaptureError(
                    f"{path} has a line of more than {_LONGEST_LINE} octets, which no "
                    "instrument's CSV file has; it is damaged, or not a CSV file."
                )
            rows.add(block[:end], path)
            read_so_far(stream.tell(), rows.size)
    last = rest.decode("latin-1").replace(",", "." if layout.decimal_comma else ",")
    if last.strip("\x1a \t\r\0"):
        if rows.whole(last):
            rows.add(rest, path)
        else:
            notes.append("The last line of the file is cut off and was left out.")
    if not rows.count:
        raise CaptureError(
            f"{path} has a head but no row of numbers after it; the instrument had not finished "
            "saving it, or the copy failed. Save it again."
        )
    rows.refuse_groups(path)
    if rows.origin is not None:
        notes.append(f"The times were counted from the first one, {rows.origin:f}.")
    return rows
