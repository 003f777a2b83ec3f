"""How many messages a fleet makes, and what they cost: docs/scale.md as a program.

    python -m bench.scale_plan 417 5000      a row for each number of hosts at one broker

Costs are processor time, in us, and come from `bench/results`: `Costs.measured`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bench.harness import RESULTS
from mqtick.client.config import Settings

REPLY_COPIES = 4
"""Copies of a reply: to the warmer, the first echo, the client and the last echo."""
_SERVER_ROWS = "the server, 600 clients ask"


class Fleet(NamedTuple):
    """Hosts at one broker with one time server.

    Attributes:
        interval_s: Time between two time messages.
        exchanges: Exchanges of one client per second.
        echo: Whether the server's echoes receive each reply.
    """

    hosts: int
    interval_s: float = 1.0
    exchanges: float = Settings().exchange_burst / Settings().exchange_interval_s
    echo: bool = True

    @property
    def answers(self) -> float:
        """Exchanges of all hosts per second."""
        return self.hosts * self.exchanges

    @property
    def ingress(self) -> float:
        """Messages a second to the broker: time, request, reply, follow-up or echo."""
        return 1 / self.interval_s + 3 * self.answers

    @property
    def egress(self) -> float:
        """Copies a second from the broker."""
        replies = REPLY_COPIES if self.echo else 1
        return self.hosts / self.interval_s + self.answers * (2 + replies)


@dataclass(frozen=True)
class Costs:
    """Processor time of each program.

    Attributes:
        broker_us: A broker: for each copy, one message at a time.
        server_us: The time server: for each exchange.
        server_idle_share: The time server without requests: share of one processor.
        client_share: A client with all its work: share of one processor.
        node_in_us: A node before a broker: for each message that a client publishes.
        node_out_us: A node: for each copy to a client.
        node_site_us: A node: for each message that comes from another site.
    """

    broker_us: float
    server_us: float
    server_idle_share: float
    client_share: float
    node_in_us: float
    node_out_us: float
    node_site_us: float

    @classmethod
    def measured(cls, broker: str = "mqtick-broker") -> Costs:
        """Take the costs from the results of bench/brokers.py, cost.py, fleet.py and join.py.

        ValueError if one of them was not measured.
        """

        def median(file: str, quantity: str, who: str) -> float:
            rows = json.loads((RESULTS / f"{file}.json").read_text())["rows"]
            for row in rows:
                if (row["quantity"], row["who"]) == (quantity, who):
                    return float(row["median"])
            raise ValueError(
                f"{file}.json does not say '{quantity}' of {who}: run python -m bench.{file}"
            )

        copy = "1:600, one message at a time: processor time a message delivered"
        name, idle = "mqtick-timeserver", "the server, nobody asks: processor"
        idle_share = median("cost", idle, name) / 100
        asked_share = median("cost", f"{_SERVER_ROWS}: processor", name) / 100
        replies = median("cost", f"{_SERVER_ROWS}: replies", name)
        return cls(
            broker_us=median("brokers", copy, broker) / 1e3,
            server_us=(asked_share - idle_share) / replies * 1e6,
            server_idle_share=idle_share,
            client_share=median("fleet", "idle client host, 10 min: processor", "mqtick-client")
            / 100,
            # Measured at a rate at which the node sleeps between messages, as in a fleet.
            node_in_us=median("join", "processor time: client, in", "the node"),
            node_out_us=median("join", "processor time: client, out", "the node"),
            node_site_us=median("join", "processor time: site, in", "the node"),
        )


class Load(NamedTuple):
    """Shares of one processor."""

    broker: float
    server: float
    node: float
    client: float


def load(fleet: Fleet, costs: Costs) -> Load:
    """Return what a fleet costs each of its programs."""
    return Load(
        broker=fleet.egress * costs.broker_us / 1e6,
        server=costs.server_idle_share + fleet.answers * costs.server_us / 1e6,
        node=(fleet.ingress * costs.node_in_us + fleet.egress * costs.node_out_us) / 1e6,
        client=costs.client_share,
    )


def most_hosts(costs: Costs, share: float = 0.5) -> tuple[int, str]:
    """Return how many hosts one broker with one server serves, and which program is the limit.

    `share`: the share of a processor that each program may use.
    """
    one, none = load(Fleet(1), costs), load(Fleet(0), costs)
    each = {
        name: (share - getattr(none, name)) / (getattr(one, name) - getattr(none, name))
        for name in ("broker", "server")
    }
    first = min(each, key=lambda name: each[name])
    return int(each[first]), first


def table(fleets: Iterable[int]) -> str:
    """Return the costs of fleets with these numbers of hosts, a line each, below two headings."""
    ours, mosquitto = Costs.measured(), Costs.measured("Mosquitto")
    lines = [
        "hosts at      messages to it  copies from it  processors of",
        "one broker       in a second     in a second  mqtick-broker  Mosquitto  time server",
    ]
    for hosts in fleets:
        fleet = Fleet(hosts)
        found = load(fleet, ours)
        lines.append(
            f"{hosts:<10,}  {fleet.ingress:16,.0f}  {fleet.egress:14,.0f}  {found.broker:13.3f}"
            f"  {load(fleet, mosquitto).broker:9.3f}  {found.server:11.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Messages and processors of a fleet.")
    parser.add_argument("hosts", nargs="+", type=int, help="hosts at one broker, from 1 on")
    sizes = parser.parse_args().hosts
    if min(sizes) < 1:
        parser.error(f"{min(sizes)} hosts are no fleet; give 1 or more")
    print(table(sizes))


if __name__ == "__main__":
    main()
