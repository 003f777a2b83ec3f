"""Finds servers that cannot all be right: their intervals, root distances included, do not meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from mqtick.client.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two servers, at least one of which is wrong.

    Attributes:
        gap_ns: The gap between their intervals.
    """

    servers: tuple[str, str]
    gap_ns: int


def disagreements(estimates: Mapping[str, Estimate]) -> list[Disagreement]:
    """Return every pair of servers whose intervals of UTC, at one local instant, do not meet."""
    claims = [
        (server, each.lower_ns - each.root_distance_ns, each.upper_ns + each.root_distance_ns)
        for server, each in estimates.items()
        if each.state.is_known and each.lower_ns is not None and each.upper_ns is not None
    ]
    found = []
    for (one, *its), (other, *theirs) in combinations(claims, 2):
        gap_ns = max(its[0], theirs[0]) - min(its[1], theirs[1])
        if gap_ns > 0:
            found.append(Disagreement((one, other), gap_ns))
    return found
