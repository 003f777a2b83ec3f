"""A simulated fleet of sites: its messages in brokers and servers, and the clocks of its hosts.

Each site is a broker and a time server with one processor each, which handle messages in turn
(first come, first served); the time for each is from `bench/scale_plan.py`. Links take about 30 us,
on average the same in both directions. All random numbers come from a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.scale_plan import REPLY_COPIES, Costs, Fleet
from mqtick.client.config import Settings
from mqtick.client.estimator import Estimator
from mqtick.client.exchange import two_way, without_broker
from mqtick.client.sample import Origin, Reading
from mqtick.mqtt.stamps import StampSource

Floats = NDArray[np.float64]
_LINK_US, _LINK_SPREAD_US = 30.0, 5.0
_FOLLOW_UP_US = 3_000.0
_CLEAR_S = 0.15, 0.95
"""Exchanges begin in this part of a second: clients avoid the time message."""
_STAMP_NS = 2_000
"""The kernel's own delay, which no residence includes: bench/results/one-way.md."""
_WANDER_PPB = 10.0


def served(arrivals: Floats, service: Floats) -> Floats:
    """Return when a server with one queue has done each piece of work, in us.

    Lindley's recursion: done[k] = max(arrival[k], done[k-1]) + service[k].
    """
    order = np.argsort(arrivals, kind="stable")
    work = np.cumsum(service[order])
    begun = np.maximum.accumulate(arrivals[order] - (work - service[order]))
    done = np.empty_like(work)
    done[order] = begun + work
    return done


@dataclass
class Traffic:
    """The messages of one site.

    Attributes:
        request_us: For each exchange, how long its request was in the broker.
        reply_us: For each exchange, how long its reply was in the broker, up to the client's copy.
        time_us: For each copy of a time message, how long it was in the broker.
        broker, server: Used shares of their processors.
    """

    request_us: Floats
    reply_us: Floats
    time_us: Floats
    broker: float
    server: float
    copies: int


def asked_us(hosts: int, seconds: int, draw: np.random.Generator) -> Floats:
    """Return when all clients ask: bursts with random phases, which avoid the time message."""
    settings = Settings()
    burst, every_s = settings.exchange_burst, settings.exchange_interval_s
    spacing_s = settings.exchange_spacing_ms / 1e3
    bursts = math.ceil(seconds / (0.8 * every_s)) + 1
    pauses = every_s * draw.uniform(0.8, 1.2, (hosts, bursts))
    at_s = draw.uniform(0, every_s, (hosts, 1)) + np.cumsum(pauses, axis=1) - every_s
    low, high = _CLEAR_S[0], _CLEAR_S[1] - (burst - 1) * spacing_s
    unclear = (at_s % 1 < low) | (at_s % 1 > high)
    moved = np.floor(at_s) + draw.uniform(low, high, at_s.shape)
    at_s = np.where(unclear, moved, at_s)
    every = at_s[:, :, None] + spacing_s * np.arange(burst)
    flat = every[(every >= 0) & (every < seconds)].ravel()
    return np.asarray(flat * 1e6, dtype=np.float64)


def site_traffic(fleet: Fleet, costs: Costs, seconds: int, draw: np.random.Generator) -> Traffic:
    """Simulate one site's messages."""
    asked = asked_us(fleet.hosts, seconds, draw)
    count, copy = len(asked), costs.broker_us
    replies = REPLY_COPIES if fleet.echo else 1
    told = np.repeat(np.arange(1, seconds) * 1e6, fleet.hosts)
    # The waits of requests and replies depend on each other: three passes are enough.
    answered = asked + costs.server_us
    work = np.concatenate(
        [np.full(count, copy), np.full(count, replies * copy), np.full(count, copy)]
    )
    work = np.concatenate([work, np.full(len(told), copy)])
    link = _LINK_US + draw.exponential(_LINK_SPREAD_US, count)
    for _ in range(3):
        follow_up = answered + _FOLLOW_UP_US
        came = np.concatenate([asked + link, answered + _LINK_US, follow_up + _LINK_US, told])
        done = served(came, work)
        answered = served(done[:count] + _LINK_US, np.full(count, costs.server_us))
    waited = done - came
    return Traffic(
        request_us=waited[:count],
        # The client's copy is the third of four.
        reply_us=waited[count : 2 * count] - (copy if fleet.echo else 0),
        time_us=waited[3 * count :],
        broker=float(work.sum() / 1e6 / seconds),
        server=count * costs.server_us / 1e6 / seconds + costs.server_idle_share,
        copies=int(count * (2 + replies) + len(told)),
    )


class Clock:
    """A free-running clock: a constant frequency error, and a random walk of the frequency."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._ppb = draw, draw.uniform(-20_000, 20_000)
        self._at_ns, self._ahead_ns = 0, 0.0

    def read(self, true_ns: int) -> int:
        """Return the reading at a true instant; instants must come in order."""
        passed_s = max(0, true_ns - self._at_ns) / 1e9
        self._ahead_ns += self._ppb * passed_s
        self._ppb += self._draw.gauss(0, _WANDER_PPB * math.sqrt(passed_s))
        self._at_ns = max(true_ns, self._at_ns)
        return true_ns + round(self._ahead_ns)


class Look(NamedTuple):
    """A client's time compared with the truth.

    Attributes:
        error_ns: Its time minus true time.
        bound_ns: Half its interval, its server's own error included.
    """

    at_s: float
    error_ns: int
    bound_ns: int

    @property
    def outside(self) -> bool:
        """Whether the truth was not in the interval."""
        return abs(self.error_ns) > self.bound_ns


@dataclass
class Node:
    """A host whose clock follows a server: a client, or the server of a site.

    Attributes:
        reference: Error and root distance of its server's clock at a true instant, in ns.
        cut: Begin and end, in s, of the time in which no exchange succeeds.
        hop_us: Delay that relays add in each direction.
        link_us: Delay of both links of one direction together.
        asymmetry: The share of `link_us` by which the way there is longer, and that back shorter.
    """

    reference: Callable[[int], tuple[int, int]]
    traffic: Traffic
    residence: bool
    draw: random.Random
    cut: tuple[float, float] = (0.0, 0.0)
    hop_us: float = 0.0
    link_us: float = 2 * _LINK_US
    asymmetry: float = 0.0
    looks: list[Look] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.estimator = Estimator()
        self.clock = Clock(self.draw)
        self._sequence = 0

    def exchange(self, true_ns: int) -> None:
        """Make one exchange, and note the result."""
        place = self.draw.randrange(len(self.traffic.request_us))
        request_ns, reply_ns = (
            int(1e3 * (found[place] + self.hop_us))
            for found in (self.traffic.request_us, self.traffic.reply_us)
        )

        def link(share: float) -> int:
            spread_us = self.draw.expovariate(1 / _LINK_SPREAD_US)
            return int(1e3 * (share * self.link_us + spread_us)) + self.draw.randrange(_STAMP_NS)

        there, back = link(1 + self.asymmetry) + request_ns, link(1 - self.asymmetry) + reply_ns
        answer_ns = 400_000
        at = (true_ns, true_ns + there, true_ns + there + answer_ns)
        end_ns = at[2] + back
        t1, t4 = self.clock.read(true_ns), self.clock.read(end_ns)
        (error_2, distance), (error_3, _) = self.reference(at[1]), self.reference(at[2])
        t2, t3 = at[1] + error_2, at[2] + error_3
        self._sequence += 1
        origin = Origin(
            sequence=self._sequence, root_distance_ns=distance, rate_change_ppb=750, stratum=1
        )

        def kernel(instant_ns: int) -> Reading:
            return Reading(instant_ns, StampSource.KERNEL)

        settings = self.estimator.settings
        sample = two_way(origin, kernel(t1), kernel(t2), kernel(t3), kernel(t4), settings)
        self.estimator.add(sample)
        if self.residence:
            inside = kernel(request_ns), kernel(reply_ns)
            self.estimator.add(without_broker(sample, inside[0], inside[1], settings))

    def time(self, true_ns: int) -> tuple[int, int] | None:
        """Return the error of its time and its bound at a true instant; None: no time."""
        local_ns = self.clock.read(true_ns)
        found = self.estimator.at(local_ns)
        if found.offset_ns is None or found.bound_ns is None:
            return None
        error_ns = local_ns + found.offset_ns - true_ns
        return error_ns, found.bound_ns + found.root_distance_ns

    def look(self, true_ns: int) -> None:
        """Note its time compared with the truth."""
        if (found := self.time(true_ns)) is not None:
            self.looks.append(Look(true_ns / 1e9, *found))


def bursts_ns(seconds: int, draw: random.Random) -> Iterator[int]:
    """Yield when one client asks."""
    settings = Settings()
    at_s = draw.uniform(1, 2)
    count = settings.start_burst
    while at_s < seconds:
        yield from (
            round((at_s + number * settings.exchange_spacing_ms / 1e3) * 1e9)
            for number in range(count)
        )
        at_s += settings.exchange_interval_s * draw.uniform(0.8, 1.2)
        count = settings.exchange_burst


@dataclass(frozen=True)
class Plan:
    """The parameters of the simulated clocks.

    Attributes:
        cut_s: Begin and end of the time in which the first site is cut off from the centre.
        lost_s: Begin and end of the time in which the second site has no broker.
        hop_us: Delay that nodes between a site and the centre add in each direction.
        centre_us: Delay from a site to the centre, one way.
        asymmetry: The largest share of `centre_us` by which the two ways differ from their mean.
    """

    sites: int = 50
    clients: int = 2
    seconds: int = 900
    cut_s: tuple[float, float] = (300.0, 600.0)
    lost_s: tuple[float, float] = (300.0, 420.0)
    hop_us: float = 0.0
    centre_us: float = 2 * _LINK_US
    asymmetry: float = 0.0


def strata(
    plan: Plan, centre: Traffic, sites: list[Traffic], *, residence: bool, seed: int
) -> tuple[list[Node], list[Node]]:
    """Simulate servers of sites, which follow the centre, and clients, which follow them."""
    draw = random.Random(seed)
    perfect = (0, 0)
    servers, clients = [], []
    for number in range(plan.sites):
        cut = plan.cut_s if number == 0 else (0.0, 0.0)
        server = Node(
            lambda _: perfect,
            centre,
            residence,
            random.Random(draw.random()),
            cut,
            plan.hop_us,
            plan.centre_us,
            draw.uniform(-plan.asymmetry, plan.asymmetry),
        )
        servers.append(server)
        lost = plan.lost_s if number == 1 else (0.0, 0.0)
        for _ in range(plan.clients):
            clients.append(_client(server, sites[number % len(sites)], residence, draw, lost))
    events: list[tuple[int, int, int]] = []
    nodes = servers + clients
    for place, node in enumerate(nodes):
        begin_ns = 0 if place < plan.sites else 30_000_000_000
        times = (begin_ns + at_ns for at_ns in bursts_ns(plan.seconds, node.draw))
        for at_ns in times:
            if at_ns < plan.seconds * 1e9 and not node.cut[0] <= at_ns / 1e9 < node.cut[1]:
                events.append((at_ns, 0, place))
        events += [(second * 1_000_000_000, 1, place) for second in range(60, plan.seconds)]
    for at_ns, what, place in sorted(events):
        if what:
            nodes[place].look(at_ns)
        else:
            nodes[place].exchange(at_ns)
    return servers, clients


def _client(
    server: Node, traffic: Traffic, residence: bool, draw: random.Random, lost: tuple[float, float]
) -> Node:
    def reference(true_ns: int) -> tuple[int, int]:
        return server.time(true_ns) or (0, 0)

    return Node(reference, traffic, residence, random.Random(draw.random()), lost)
