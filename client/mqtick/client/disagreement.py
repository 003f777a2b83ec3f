"""Servers that cannot all be right: intervals, root distances included, that do not meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from mqtick.client.estimate import Estimate

__all__ = ["Claim", "Disagreement", "claim_of", "disagreements"]


class Claim(NamedTuple):
    """Where UTC lies according to one server: reference minus local, ns."""

    server: str
    lower_ns: int
    upper_ns: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two servers, at least one of which is wrong."""

    servers: tuple[str, str]
    gap_ns: int
    """How far their intervals are apart."""


def claim_of(server: str, estimate: Estimate) -> Claim | None:
    """Return what a server's estimate says of UTC; None while a limit is unknown."""
    lower_ns, upper_ns, root_ns = estimate.lower_ns, estimate.upper_ns, estimate.root_distance_ns
    if not estimate.state.is_known or lower_ns is None or upper_ns is None:
        return None
    return Claim(server, lower_ns - root_ns, upper_ns + root_ns)


def disagreements(claims: Iterable[Claim | None]) -> list[Disagreement]:
    """Return every pair whose intervals, at one local instant, have nothing in common."""
    found = []
    for one, other in combinations(filter(None, claims), 2):
        gap_ns = max(one.lower_ns, other.lower_ns) - min(one.upper_ns, other.upper_ns)
        if gap_ns > 0:
            found.append(Disagreement((one.server, other.server), gap_ns))
    return found
