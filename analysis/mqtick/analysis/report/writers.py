"""A table as HTML, Markdown, LaTeX, text and CSV, and words as the first three take them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from mqtick.analysis.report.numbers import SPACE, plain, printed
from mqtick.analysis.report.table import Cell, Table
from mqtick.analysis.report.words import MARKS

# -- HTML ------------------------------------------------------------------------------------

_LONG: Final = 60
"""From this many characters on, a cell of words asks for a wider column."""
_BROKEN: Final = 16
"""From this many characters on, a word may be broken on paper, which nobody can scroll."""


def html(text: str) -> str:
    """Return a text as it stands in a page."""
    return escape(printed(text))


def html_state(state: str) -> str:
    """Return a verdict's state with its mark."""
    name = state.replace(" ", "-")
    return f'<span class="state {name}">{MARKS.get(state, "")} {html(state)}</span>'


def html_table(table: Table, name: str) -> str:
    """Return a table that can be scrolled; `name` is the id of its caption."""
    heads = "".join(
        f'<th scope="col"{_class(each.heading, each.words)}>{html(each.heading)}</th>'
        for each in table.columns
    )
    rows = "".join(_html_row(table, row) for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}"><table>'
        f'<caption id="{name}"><span>{html(table.title)}</span></caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _html_row(table: Table, row: Sequence[Cell]) -> str:
    cells = "".join(
        _html_cell(cell, column.words, head=table.head and place == 0)
        for place, (cell, column) in enumerate(zip(row, table.columns, strict=True))
    )
    return f"<tr>{cells}</tr>"


def _html_cell(cell: Cell, words: bool, *, head: bool) -> str:
    said = html_state(cell.state) if cell.state else html(cell.text)
    below = f"<small>{html(cell.below)}</small>" if cell.below else ""
    kind = _class(cell.text, words, warns=cell.warns)
    return f'<th scope="row"{kind}>{said}{below}</th>' if head else f"<td{kind}>{said}{below}</td>"


def _class(text: str, words: bool, *, warns: bool = False) -> str:
    longest = max(map(len, text.split()), default=0)
    wanted = {
        "words": words,
        "long": len(text) > _LONG,
        "broken": longest > _BROKEN,
        "warns": warns,
    }
    names = [name for name, is_so in wanted.items() if is_so]
    return f' class="{" ".join(names)}"' if names else ""


# -- Markdown --------------------------------------------------------------------------------

_MD: Final = re.compile(r"([\\`*_{}\[\]<>#|~@$&])")


def md(text: str) -> str:
    """Return a text on one line in which nothing is a command, a link or a name to be told."""
    return _MD.sub(r"\\\1", plain(text)).replace("\\@", "@\u200b")


def md_table(table: Table) -> str:
    """Return a table, its title above it: intervals stand in brackets behind their values."""
    heads = [md(each.heading) for each in table.columns]
    under = [":--" if each.words else "--:" for each in table.columns]
    rows = [heads, under, *([_md_cell(cell) for cell in row] for row in table.rows)]
    return f"{md(table.title)}:\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _md_cell(cell: Cell) -> str:
    below = f" ({cell.below})" if cell.below else ""
    return md(f"{cell.text}{below}{'!' if cell.warns else ''}")


# -- LaTeX -----------------------------------------------------------------------------------

_SIGNS: Final = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    # In the font that LaTeX begins with, these four stand for other signs.
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': "''",
    "\N{NO-BREAK SPACE}": "~",
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    "µ": r"\ensuremath{\mu}",
    "τ": r"\ensuremath{\tau}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "–": "--",
    "…": r"\dots{}",
    "\N{REPLACEMENT CHARACTER}": "?",
}
_TEX: Final = re.compile("[" + re.escape("".join(_SIGNS)) + "]")
_LOWERED: Final = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_RULES: Final = "".join(
    f"\\providecommand{{\\{name}rule}}{{\\hline}}%\n" for name in ("top", "mid", "bottom")
)
"""Those of the package booktabs where a document has it, else plain lines."""


def tex(text: str) -> str:
    """Return a text in which nothing is a command: names of nodes may be anything.

    Letters of other scripts stay as they are, for an engine that knows them.
    """
    escaped = _TEX.sub(lambda found: _SIGNS[found[0]], plain(text))
    return re.sub(
        "[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+",
        lambda found: rf"\ensuremath{{^{{{found[0].translate(_LOWERED)}}}}}",
        escaped,
    )


_POINTS: Final = ((r"\small", 4.6, 6.0), (r"\footnotesize", 4.1, 3.0))
"""Sizes, with the width of a letter and of what stands on both sides of a column, in LaTeX's pt:
Computer Modern's, which is wider than Times."""
_SMALL: Final = 3.7
"""Of a letter in \\scriptsize."""


def latex_table(table: Table, label: str, width_pt: float = 252.0) -> str:
    """Return a table as a float with its caption: intervals stand small below their values.

    As `table` where it fits a column of that width, in smaller letters if need be; else as `table*`
    over two columns.
    """
    columns = "".join("l" if each.words else "r" for each in table.columns)
    cells = [[Cell(each.heading) for each in table.columns], *table.rows]
    letters = [
        (max(len(cell.text) for cell in column), max(len(cell.below) for cell in column))
        for column in zip(*cells, strict=True)
    ]
    widths = {
        (size, beside): sum(max(n * each, below * _SMALL) + 2 * beside for n, below in letters)
        for size, each, beside in _POINTS
    }
    fits = [how for how, width in widths.items() if width <= width_pt]
    (size, beside), star = (fits[0], "") if fits else (_POINTS[-1][::2], "*")
    lines = [
        rf"\begin{{table{star}}}",
        rf"  \centering{size}\setlength{{\tabcolsep}}{{{beside:g}pt}}",
        rf"  \caption{{{tex(table.title)}.}}",
        rf"  \label{{tab:{label}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        f"    {_latex_row([tex(each.heading) for each in table.columns])}",
        r"    \midrule",
    ]
    for row in table.rows:
        values = [tex(cell.text) + ("*" if cell.warns else "") for cell in row]
        lines.append(f"    {_latex_row(values)}")
        if any(cell.below for cell in row):
            small = [rf"{{\scriptsize {tex(cell.below)}}}" if cell.below else "" for cell in row]
            lines.append(f"    {_latex_row(small)}")
    lines += [r"    \bottomrule", r"  \end{tabular}", rf"\end{{table{star}}}", ""]
    return _RULES + "\n".join(lines)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


# -- text ------------------------------------------------------------------------------------

_ROWS_SHOWN: Final = 24
_LETTERS: Final = 24
"""Of a cell: names of clocks may be long."""
_ASCII: Final = str.maketrans({"µ": "u", "–": "-", "−": "-", SPACE: " "})
"""A terminal may have nothing but ASCII for what we say."""


def text(words: str) -> str:
    """Return words for a terminal."""
    words = re.sub(
        "(·?)10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)",
        lambda found: f"{'' if found[1] else '1'}e{found[2].translate(_LOWERED)}",
        words,
    )
    return plain(words).translate(_ASCII)


def text_table(table: Table, headings: Sequence[str]) -> list[str]:
    """Return these columns of a table as lines, without what stands small in it."""
    known = [each.heading for each in table.columns]
    places = [known.index(head) for head in headings if head in known]
    rows = table.rows
    shown = rows if len(rows) <= _ROWS_SHOWN else (*rows[: _ROWS_SHOWN - 1], rows[-1])
    lines = [[known[place] for place in places]]
    for row in shown:
        lines.append([text(row[at].text)[:_LETTERS] + "!" * row[at].warns for at in places])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = [
        "  ".join(
            cell.ljust(width) if table.columns[place].words else cell.rjust(width)
            for place, cell, width in zip(places, line, widths, strict=True)
        )
        for line in lines
    ]
    if len(rows) > len(shown):
        drawn.append(f"  {len(rows) - len(shown)} other rows are in the report")
    return drawn


# -- CSV -------------------------------------------------------------------------------------

Value = str | int | float | None
_FORMULA: Final = ("=", "+", "-", "@")
"""With these, a spreadsheet treats a text as a formula and runs it."""


def csv_table(rows: Iterable[Mapping[str, Value]]) -> str:
    """Return a line for each row, below one with the columns, which all rows share; "" of none.

    Text that a spreadsheet would treat as a formula begins with an apostrophe; a cell without value
    is empty.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for place, row in enumerate(rows):
        if not place:
            writer.writerow(map(_csv_cell, row))
        writer.writerow(map(_csv_cell, row.values()))
    return written.getvalue()


def _csv_cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        said = plain(value)
        return f"'{said}" if said.lstrip().startswith(_FORMULA) else said
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else ""
    return str(value)
