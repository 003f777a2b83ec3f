"""Figures as SVG that may stand in a page, and as files; the same every time."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from mqtick.analysis.report.numbers import plain
from mqtick.analysis.report.style import INK, INKS, PAPER, drawing

_METADATA: Final[dict[str, Any]] = {
    # Without a date, and without the version of what drew it: the same input, the same file.
    "Date": None,
    "Creator": "mqtick-report",
}
_RESOLUTION: Final = 200
"""Of PNG files and of what is rasterised within others, in dots an inch."""


def png_of(figure: Figure, resolution: int = _RESOLUTION) -> bytes:
    """Return a figure as PNG, on light paper, with so many dots an inch."""
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format="png", dpi=resolution, metadata={"Software": "mqtick-report"})
    return buffer.getvalue()


def svg_file(svg: str) -> str:
    """Return what `svg_of` made for a page as a file: on light paper, without custom properties.

    Not every program that shows an SVG knows what these are.
    """
    svg = re.sub(r"var\(--figure-\w+,(#\w+)\)", r"\1", svg).replace("currentColor", INK.light)
    start = svg.index(">") + 1
    paper = f'<rect width="100%" height="100%" fill="{PAPER.light}"/>'
    head = svg[:start].replace('class="figure"', 'font-family="DejaVu Sans, sans-serif"', 1)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{paper}{svg[start:]}\n'


def svg_of(figure: Figure, alt: str = "", prefix: str = "") -> str:
    """Return a figure as one `<svg>` element to be put into a page.

    Its text is text in the page's font, its inks are the custom properties of `style.CSS` (light
    where a page does not set them), its ids are digests of `prefix` and what they stand for, and
    it refers to nothing outside itself. `alt` says in words what it shows.
    """
    buffer = io.StringIO()
    with drawing():
        mpl.rcParams["svg.hashsalt"] = f"mqtick {prefix} {plain(alt)}"
        figure.savefig(buffer, format="svg", facecolor="none", dpi=_RESOLUTION, metadata=_METADATA)
    text = buffer.getvalue()
    width, height = (72 * float(inches) for inches in figure.get_size_inches())
    body = text[text.index("<svg") :]
    body = body[body.index(">") + 1 : body.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # A style element would hold for the whole page.
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    body = _short(_own_fonts(_own_ids(body)))
    for ink in INKS:
        variable = "currentColor" if ink is INK else f"var(--figure-{ink.name},{ink.light})"
        body = re.sub(re.escape(ink.light) + r"\b", variable, body)
    label = f' role="img" aria-label="{escape(plain(alt))}"' if alt else ' aria-hidden="true"'
    size = f'width="{width / 72:g}in" height="{height / 72:g}in"'
    return (
        '<svg class="figure" xmlns="http://www.w3.org/2000/svg" stroke-linejoin="round" '
        f'viewBox="0 0 {width:g} {height:g}" {size}{label}>{body.strip()}</svg>'
    )


def _short(body: str) -> str:
    """Write places to a hundredth of a point: less than can be seen, and half as long."""

    def short(match: re.Match[str]) -> str:
        value = re.sub(r"(\.\d\d)\d+", r"\1", match[2])
        return f'{match[1]}="{" ".join(value.split())}"'

    body = re.sub(r"\b(d|x|y|transform)=\"([^\"]*)\"", short, body)
    return re.sub(r"\n\s*", "\n", body)


def _own_ids(body: str) -> str:
    """Drop ids that nothing refers to; the others are digests, with what makes them ours."""
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    return re.sub(r'\sid="([^"]*)"', lambda match: match[0] if match[1] in used else "", body)


def _own_fonts(body: str) -> str:
    """Give text the font of the page, in its own size and weight.

    Matplotlib writes them apart, or (before 3.11) as `font: bold 9px 'DejaVu Sans', ...`.
    """

    def own(match: re.Match[str]) -> str:
        parts = match[1].split("'")[0].split()
        size = next((part for part in parts if part.endswith("px")), "9px")
        bold = "bold" in parts or "700" in parts
        return f"font-size: {size}" + ("; font-weight: bold" if bold else "")

    body = re.sub(r"\bfont-family: [^;\"]*;? ?", "", body)
    return re.sub(r"\bfont: ([^;\"]*)", own, body)
