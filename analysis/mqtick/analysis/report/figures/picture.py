"""A picture of a report: what it is called, what it says, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

__all__ = ["Picture"]


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure of a report.

    Attributes:
        name: of its files, unique within a report: "growth-skew".
        title: a few words.
        caption: how to read it, in sentences.
        alt: what it shows, in words, for whoever does not see it.
        draw: draws it for a width in inches: 7.6 for a page, 3.7 for a phone.
    """

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[float], Figure]
