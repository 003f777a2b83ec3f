"""Words, tables and figures for LaTeX: they need no package but pgf, and any engine reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mqtick.analysis.report.blocks import Cell, Table
from mqtick.analysis.report.numbers import plain

__all__ = ["float_of", "table_of", "tex"]

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
_SPECIAL: Final = re.compile("[" + re.escape("".join(_SIGNS)) + "]")
_RAISED: Final = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_RULES: Final = "".join(f"\\providecommand{{\\{n}rule}}{{\\hline}}%\n" for n in ("top", "mid"))
_BOTTOM: Final = "\\providecommand{\\bottomrule}{\\hline}%\n"
"""Those of the package booktabs where a document has it, else plain lines."""


def tex(text: str) -> str:
    """Return a text in which nothing is a command: names of nodes may be anything.

    Letters of other scripts stay as they are, for an engine that knows them.
    """
    escaped = _SPECIAL.sub(lambda found: _SIGNS[found[0]], plain(text))
    return re.sub(
        "[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+",
        lambda found: rf"\ensuremath{{^{{{found[0].translate(_RAISED)}}}}}",
        escaped,
    )


def table_of(table: Table, label: str) -> str:
    """Return a table as a float with its caption: intervals stand small below their values."""
    columns = "".join("l" if place in table.words else "r" for place in range(len(table.headings)))
    lines = [
        r"\begin{table}",
        r"  \centering\small",
        rf"  \caption{{{tex(table.caption)}.}}",
        rf"  \label{{tab:{label}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        f"    {_row([tex(head) for head in table.headings])}",
        r"    \midrule",
    ]
    for row in table.rows:
        lines.append(f"    {_row([_value(cell) for cell in row])}")
        if any(cell.below for cell in row):
            small = [rf"{{\scriptsize {tex(cell.below)}}}" if cell.below else "" for cell in row]
            lines.append(f"    {_row(small)}")
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]
    return _RULES + _BOTTOM + "\n".join(lines)


def float_of(name: str, caption: str, *, is_pgf: bool) -> str:
    """Return a figure as a float with its caption, to be found beside its files."""
    drawn = rf"\input{{{name}.pgf}}" if is_pgf else rf"\includegraphics{{{name}}}"
    return (
        f"\\begin{{figure}}\n  \\centering\n  {drawn}\n"
        f"  \\caption{{{tex(caption)}}}\n  \\label{{fig:{name}}}\n\\end{{figure}}\n"
    )


def _value(cell: Cell) -> str:
    return tex(cell.text) + ("*" if cell.warns else "")


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
