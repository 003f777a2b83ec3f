"""How wide text is, and how it is made to fit."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font

from mqtick.analysis.report.numbers import plain

__all__ = ["LINE", "SIZE", "lines_of", "text_inches", "wrapped"]

SIZE: Final = 9.0
"""Of text, in points."""
LINE: Final = SIZE * 1.25 / 72.0
"""Height of a line of text, in inches."""
_SCALE: Final = 100.0


@lru_cache(4096)
def _em(letter: str, bold: bool) -> float:
    """Return how far a letter moves the next one, in units of its size.

    Without kerning, which is next to nothing; whole lines would have to be laid out for it.
    """
    font = _font(bold)
    font.set_size(_SCALE, 72)
    # The glyph of what the font does not have is a box, number 0.
    return font.load_glyph(font.get_char_index(ord(letter))).linearHoriAdvance / 65536 / _SCALE


@lru_cache(2)
def _font(bold: bool) -> FT2Font:
    weight = "bold" if bold else "normal"
    return get_font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))


def text_inches(text: str, size: float = SIZE, *, bold: bool = False) -> float:
    """Return how wide `text` is, in inches."""
    return max(sum(_em(sign, bold) for sign in line) for line in text.split("\n")) * size / 72.0


def lines_of(
    text: str, width: float, size: float = SIZE, *, bold: bool = False, broken: bool = True
) -> list[str]:
    """Return a text in lines of `width` inches; words that are wider are broken, or shortened.

    A no-break space keeps a number and its unit together.
    """
    done: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if text_inches(longer, size, bold=bold) <= width:
                line = longer
                continue
            if line:
                done.append(line)
            line = word if broken else _shortened(word, width, size, bold)
            while broken and text_inches(line, size, bold=bold) > width and len(line) > 1:
                count = _fitting(line, width, size, bold)
                done.append(line[:count])
                line = line[count:]
        done.append(line)
    return done


def wrapped(
    text: str, width: float, size: float = SIZE, lines: int = 3, *, bold: bool = False
) -> str:
    """Return `text` in at most `lines` lines of `width` inches; what is too long ends in ..."""
    done = lines_of(plain(text), width, size, bold=bold, broken=False)
    if len(done) > lines:
        rest = " ".join(done[lines - 1 :])
        done = [*done[: lines - 1], _cut(rest, width, size, bold)]
    return "\n".join(done)


def _fitting(word: str, width: float, size: float, bold: bool) -> int:
    """Return how many letters of a word fit, one at least."""
    low, high = 1, len(word)
    while low < high:
        middle = (low + high + 1) // 2
        if text_inches(word[:middle], size, bold=bold) <= width:
            low = middle
        else:
            high = middle - 1
    return low


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
    room = width - text_inches("…", size, bold=bold)
    return text[: _fitting(text, room, size, bold)].rstrip() + "…"
