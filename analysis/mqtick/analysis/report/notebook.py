"""Figures of a report for notebooks, which show them by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.svg import png_of
from mqtick.analysis.results.result import Result

_MM_PER_INCH = 25.4


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure that a notebook shows as the value of a cell; `figure` is Matplotlib's."""

    figure: Figure = field(repr=False)
    caption: str

    def _repr_png_(self) -> bytes:
        return png_of(self.figure)


def figure(results: Result | Sequence[Result], name: str, width_mm: float = 180.0) -> Shown:
    """Draw a figure of a result, or one that compares several, as the report has it.

    ValueError says which names there are.
    """
    several = [results] if isinstance(results, Result) else list(results)
    pictures = {picture.name: picture for picture in pictures_of(several)}
    if name not in pictures:
        raise ValueError(f"There is no figure {name!r}; there is: {', '.join(pictures)}.")
    picture = pictures[name]
    return Shown(picture.draw(width_mm / _MM_PER_INCH), f"{picture.title}. {picture.caption}")
