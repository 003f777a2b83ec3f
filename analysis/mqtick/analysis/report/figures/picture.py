"""A picture of a report: its name, what it says, how it is drawn, which limits it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import Limit


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure of a report.

    Attributes:
        name: of its files, without ending, unique within a report: "growth-skew".
        title: a few words.
        caption: how to read it, in sentences.
        alt: what it shows, in words, for people who cannot see it.
        draw: draws it for a width in inches: 7.6 for a page, 3.7 for a phone.
    """

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[float], Figure]


def with_own_names(pictures: Iterable[Picture]) -> list[Picture]:
    """Give pictures names that can be files' names: letters, digits, dots and dashes, each once.

    A node may be called anything, `../a` and `a b` too.
    """
    found: dict[str, Picture] = {}
    for picture in pictures:
        plain = re.sub(r"[^A-Za-z0-9.-]+", "-", picture.name).strip("-.")[:80]
        name, count = plain, 1
        while name.lower() in found:
            count += 1
            name = f"{plain}-{count}"
        found[name.lower()] = replace(picture, name=name)
    return list(found.values())


def judged_limits(results: Sequence[Result], quantity: str) -> list[Limit]:
    """Return the different limits that were judged of a quantity, the tightest first."""
    found = {
        verdict.limit
        for result in results
        for verdict in result.verdicts
        if verdict.limit.quantity == quantity
    }
    return sorted(found, key=lambda limit: (limit.bound_us, limit.name))


def limits_of_values(results: Sequence[Result], quantity: str) -> list[Limit]:
    """Return those of the judged limits that single values keep or break, the tightest first.

    One of a mean or a deviation says nothing of where a single value may be.
    """
    limits = judged_limits(results, quantity)
    return [limit for limit in limits if limit.statistic not in ("mean", "sd")]
