"""Computes how much five joined brokers in a row carry, if each broker and node has a processor.

The published benchmark (Banno et al. 2019): five topics, each with ten publishers and ten
subscribers, at one broker (alone) or spread over five sites:

    A  all of every topic at one site: what a node costs
    B  two publishers and two subscribers of every topic at each site: no locality
    C  all of one topic at each site
    D  eight and eight of one topic at each site, one and one of two others

The cost of each message is that in `Costs`. The limit is reached when the first processor is always
busy. Messages go along the row, once to each site that has subscribers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["PATTERNS", "Costs", "gain"]

SITES = TOPICS = 5
MEMBERS = 10  # publishers, and subscribers, of a topic
Members = Sequence[Sequence[int]]
"""For each topic: how many publishers each site has; it has the same number of subscribers."""


def _near(site: int, topic: int, counts: tuple[int, int, int]) -> int:
    """`counts`: members at the site of the topic, at the next site, and at the one after that."""
    distance = (site - topic) % SITES
    return counts[distance] if distance < len(counts) else 0


def _pattern(counts: tuple[int, int, int]) -> Members:
    topics = range(TOPICS)
    return [[_near(site, topic, counts) for site in range(SITES)] for topic in topics]


PATTERNS: dict[str, Members] = {
    "A": [[MEMBERS, *[0] * (SITES - 1)]] * TOPICS,
    "B": [[MEMBERS // SITES] * SITES] * TOPICS,
    "C": _pattern((10, 0, 0)),
    "D": _pattern((8, 1, 1)),
}


class Costs(NamedTuple):
    """Processor time in us.

    Attributes:
        alone_in: A broker without a node: for a message that is published.
        alone_out: A broker without a node: for each copy.
        broker_in: The broker behind a node: for a message that is published.
        broker_out: The broker behind a node: for each copy.
        client_in: A node: for a message that a client publishes.
        client_out: A node: for each copy.
        site_in: A node: for a message that comes from a neighbour and goes to the broker.
        site_out: A node: for a message that goes to a neighbour.
    """

    alone_in: float
    alone_out: float
    broker_in: float
    broker_out: float
    client_in: float
    client_out: float
    site_in: float
    site_out: float


def _carried(row: Sequence[int], origin: int) -> tuple[list[bool], list[int]]:
    """Which sites get a message of this topic, and to how many neighbours each one sends it."""
    wanting = [site for site in range(SITES) if row[site] and site != origin]
    first, last = min([origin, *wanting]), max([origin, *wanting])
    gets = [first <= site <= last and site != origin for site in range(SITES)]
    passes = [0] * SITES
    for site in range(first, last + 1):
        # Messages go away from the origin; the origin itself may send both ways.
        passes[site] = int(first < site <= origin) + int(origin <= site < last)
    return gets, passes


def gain(members: Members, costs: Costs) -> tuple[float, float]:
    """The limit of all sites over that of one broker alone: by brokers only, and with nodes."""
    brokers, nodes = [0.0] * SITES, [0.0] * SITES
    for row in members:
        for origin, publishers in enumerate(row):
            if not publishers:
                continue
            gets, passes = _carried(row, origin)
            for site in range(SITES):
                is_here = site == origin
                delivers = is_here or (gets[site] and row[site] > 0)
                copies = row[site] if delivers else 0
                if delivers:
                    brokers[site] += publishers * (costs.broker_in + copies * costs.broker_out)
                used = copies * costs.client_out + passes[site] * costs.site_out
                used += costs.client_in if is_here else costs.site_in * gets[site]
                nodes[site] += publishers * used
    alone = TOPICS * MEMBERS * (costs.alone_in + MEMBERS * costs.alone_out)
    return alone / max(brokers), alone / max(*brokers, *nodes)
