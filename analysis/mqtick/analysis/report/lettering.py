"""How wide text is, and how it is made to fit."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

__all__ = ["LINE", "SIZE", "printable", "text_inches", "wrapped"]

SIZE: Final = 9.0
"""Of text, in points."""
LINE: Final = SIZE * 1.25 / 72.0
"""Height of a line of text, in inches."""


@lru_cache(4096)
def _line_inches(line: str, size: float, bold: bool) -> float:
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(line, font, ismath=False)
    return float(width) / 72.0


def text_inches(text: str, size: float = SIZE, *, bold: bool = False) -> float:
    """Return how wide `text` is, in inches."""
    return max((_line_inches(line, size, bold) for line in text.split("\n")), default=0.0)


def printable(text: str) -> str:
    """Return `text` without what no page can hold: control characters, halves of surrogates."""
    return "".join(
        each
        if each.isprintable() or each == "\N{NO-BREAK SPACE}"
        else " "
        if each.isspace()
        else "\N{REPLACEMENT CHARACTER}"
        for each in text
    )


def wrapped(
    text: str, width: float, size: float = SIZE, lines: int = 3, *, bold: bool = False
) -> str:
    """Return `text` in at most `lines` lines of `width` inches; what is too long ends in ...

    A no-break space keeps a number and its unit together.
    """
    done: list[str] = []
    line = ""
    for word in printable(text).split(" "):
        longer = f"{line} {word}" if line else word
        if text_inches(longer, size, bold=bold) <= width:
            line = longer
            continue
        if line:
            done.append(line)
        line = _shortened(word, width, size, bold)
    done.append(line)
    if len(done) > lines:
        rest = " ".join(done[lines - 1 :])
        done = [*done[: lines - 1], _cut(rest, width, size, bold)]
    return "\n".join(done)


def _shortened(word: str, width: float, size: float, bold: bool) -> str:
    """Leave out the middle of a word: names of nodes differ at their end."""
    if text_inches(word, size, bold=bold) <= width:
        return word
    for kept in range(len(word) - 1, 1, -1):
        found = f"{word[: kept // 2]}…{word[len(word) - (kept + 1) // 2 :]}"
        if text_inches(found, size, bold=bold) <= width:
            return found
    return _cut(word, width, size, bold)


def _cut(text: str, width: float, size: float, bold: bool) -> str:
    if text_inches(text, size, bold=bold) <= width:
        return text
    while text and text_inches(text + "…", size, bold=bold) > width:
        text = text[:-1]
    return text.rstrip() + "…"
