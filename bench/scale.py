"""scale: how far it goes, from 600 hosts at one broker to 100,000 at 50 sites (simulated).

Messages and processor time by the formulas of docs/scale.md, whose constants other benchmarks have
measured; each message of 100,000 hosts simulated beside them; and clocks, stratum by stratum, by
the client's own estimator: each site's server and two of its 2,000 clients. One site is cut off
from the centre, another loses its broker.

    python -m bench.scale             (5 minutes)
    python -m bench.scale --short     5 sites, 5 minutes of simulated time
    python -m bench.scale --figure docs/images/scale.png
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bench.harness import Report, options, progress
from bench.scale_plan import Costs, Fleet, load, most_hosts
from bench.scale_world import Look, Node, Plan, site_traffic, strata

_SITES, _HOSTS = 50, 2_000
_SIZES = 600, 2_000, 100_000
_BROKERS = "mqtick-broker", "Mosquitto"
_SEED = 20_260
_FAR_US, _FAR_SHARE = 1_000.0, 0.02


def _us(looks: Iterable[Look], what: str = "error") -> list[float]:
    """Errors or bounds, in us."""
    if what == "bound":
        return [one.bound_ns / 1e3 for one in looks]
    return [abs(one.error_ns) / 1e3 for one in looks]


def plan_rows(report: Report) -> None:
    """Add the results of the formulas."""
    for broker in _BROKERS:
        costs = Costs.measured(broker)
        for hosts in _SIZES:
            found = load(Fleet(hosts), costs)
            name = f"{hosts:,} hosts at one broker"
            report.add(f"{name}: broker", "processors", broker, [found.broker], digits=3)
        most, first = most_hosts(costs)
        report.add(
            f"hosts until a program takes half a processor: the {first}", "hosts", broker, [most]
        )
    costs = Costs.measured()
    for hosts in _SIZES:
        share = load(Fleet(hosts), costs).server
        name = f"{hosts:,} hosts at one broker"
        report.add(f"{name}: time server", "processors", "mqtick-timeserver", [share], digits=3)
        fleet = Fleet(hosts)
        report.add(f"{name}: messages to it", "1/s", "formula", [fleet.ingress], digits=0)
        report.add(f"{name}: copies from it", "1/s", "formula", [fleet.egress], digits=0)
        node = load(fleet, costs).node
        report.add(f"{name}: a node before it", "processors", "mqtick-join", [node], digits=3)
    for name, who, value in (
        *(("a broker, a copy", who, Costs.measured(who).broker_us) for who in _BROKERS),
        ("a time server, an exchange", "mqtick", costs.server_us),
        ("a node, a message of a client", "mqtick-join", costs.node_in_us),
        ("a node, a copy", "mqtick-join", costs.node_out_us),
        ("a node, a message of another site", "mqtick-join", costs.node_site_us),
        ("a client, a second", "mqtick", costs.client_share * 1e6),
    ):
        report.add(f"processor time: {name}", "us", who, [value], simulated=False)


def traffic_rows(report: Report, sites: int, seconds: int) -> None:
    """Simulate each message of all hosts, and compare with the formulas."""
    costs, fleet = Costs.measured(), Fleet(_HOSTS)
    found = []
    for number in range(sites):
        progress(f"messages of site {number + 1} of {sites}")
        found.append(site_traffic(fleet, costs, seconds, np.random.default_rng(_SEED + number)))
    name = f"{sites * _HOSTS:,} hosts at {sites} sites"
    expected = load(fleet, costs)
    copies = [one.copies / seconds for one in found]
    report.add(f"{name}: copies a second at a site", "1/s", "simulated", copies, digits=0)
    report.add(
        f"{name}: broker", "processors", "simulated", [one.broker for one in found], digits=3
    )
    report.add(
        f"{name}: time server", "processors", "simulated", [one.server for one in found], digits=3
    )
    for text, waits in (
        ("a request in the broker", [one.request_us for one in found]),
        ("a reply in the broker", [one.reply_us for one in found]),
        ("a copy of a time message in the broker", [one.time_us for one in found]),
    ):
        every = np.concatenate(waits)
        drawn = np.random.default_rng(_SEED).choice(every, min(len(every), 100_000), replace=False)
        report.add(f"{name}: {text}", "us", "simulated", drawn.tolist(), digits=1)
    mean = sum(one.broker for one in found) / len(found)
    report.compare("broker's processor time, simulated / formula", mean, expected.broker, 1.05)
    mean = sum(one.server for one in found) / len(found)
    report.compare("server's processor time, simulated / formula", mean, expected.server, 1.05)


def clock_rows(report: Report, sites: int, seconds: int) -> dict[bool, tuple[list[Node], ...]]:
    """Simulate the clocks, and add their errors."""
    costs = Costs.measured()
    draw = np.random.default_rng(_SEED)
    centre = site_traffic(Fleet(sites), costs, 120, draw)
    traffic = [site_traffic(Fleet(_HOSTS), costs, 20, draw) for _ in range(min(5, sites))]
    third = seconds / 3
    plan = Plan(
        sites=sites,
        seconds=seconds,
        cut_s=(third, 2 * third),
        lost_s=(third, third + 120),
        # A message comes in at the first node, and leaves at the second one.
        hop_us=costs.node_in_us + costs.node_site_us + costs.node_out_us,
    )
    far = replace(plan, centre_us=_FAR_US, asymmetry=_FAR_SHARE, cut_s=(0, 0), lost_s=(0, 0))
    progress("clocks of sites that are far away")
    servers, clients = strata(far, centre, traffic, residence=True, seed=_SEED)
    for text, group in (("server", servers), ("clients", clients)):
        looks = [look for node in group for look in node.looks]
        name = f"sites {_FAR_US / 1e3:g} ms away, ways unequal by {_FAR_SHARE:.0%}: {text}"
        report.add(f"{name}: |time error|", "us", "residence on", _us(looks))
        report.add(f"{name}: bound", "us", "residence on", _us(looks, "bound"))
        outside = 100 * sum(look.outside for look in looks) / len(looks)
        report.add(f"{name}: outside its bound", "%", "residence on", [outside], digits=4)
    every = [look for node in servers + clients for look in node.looks]
    nodes: dict[bool, tuple[list[Node], ...]] = {}
    for residence in (False, True):
        progress(f"clocks, residence {'on' if residence else 'off'}")
        servers, clients = strata(plan, centre, traffic, residence=residence, seed=_SEED)
        nodes[residence] = servers, clients
        every += [look for node in servers + clients for look in node.looks]
        who = "residence on" if residence else "residence off"
        per = plan.clients
        for text, group in (
            ("stratum 2, a site's server", servers[2:]),
            ("stratum 3, a client", clients[2 * per :]),
        ):
            looks = [look for node in group for look in node.looks]
            report.add(f"{text}: |time error|", "us", who, _us(looks))
            report.add(f"{text}: bound", "us", who, _us(looks, "bound"))
            outside = 100 * sum(look.outside for look in looks) / len(looks)
            report.add(f"{text}: outside its bound", "%", who, [outside], digits=4)
        for text, group, until in (
            ("a site cut off: its server", servers[:1], plan.cut_s),
            ("a site cut off: its clients", clients[:per], plan.cut_s),
            ("a site without broker: its clients", clients[per : 2 * per], plan.lost_s),
        ):
            last = [
                look
                for node in group
                for look in node.looks
                if until[1] - 10 <= look.at_s < until[1]
            ]
            name = f"{text}, after {until[1] - until[0]:.0f} s"
            report.add(f"{name}: |time error|", "us", who, _us(last))
            report.add(f"{name}: bound", "us", who, _us(last, "bound"))
            looks = [look for node in group for look in node.looks]
            outside = 100 * sum(look.outside for look in looks) / len(looks)
            report.add(f"{text}: ever outside its bound", "%", who, [outside], digits=4)
    report.add("looks at a clock", "1", "all of these runs", [len(every)], digits=0)
    outside = sum(look.outside for look in every)
    report.add("of these outside its bound", "1", "all of these runs", [outside], digits=0)
    return nodes


def figure(path: str, nodes: dict[bool, tuple[list[Node], ...]], seconds: int) -> None:
    """Draw processors by hosts, and errors and bounds by time."""
    from matplotlib import pyplot  # noqa: PLC0415 - only where a figure is asked for

    drawn, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.8))
    hosts = np.geomspace(100, 100_000, 60)
    for broker, colour in zip(_BROKERS, ("#1b6ca8", "#a02040"), strict=True):
        costs = Costs.measured(broker)
        shares = [load(Fleet(int(count)), costs).broker for count in hosts]
        left.loglog(hosts, shares, color=colour, label=broker)
    servers = [load(Fleet(int(count)), Costs.measured()).server for count in hosts]
    left.loglog(hosts, servers, color="#c77700", label="mqtick-timeserver")
    left.axhline(1, color="#888", lw=0.8)
    left.axvline(_HOSTS, color="#888", lw=0.8, ls=":")
    left.text(_HOSTS * 1.06, 0.015, f"{_HOSTS:,} at a site", fontsize=8)
    left.text(110, 1.08, "one processor", fontsize=8)
    left.set(xlabel="hosts at one broker", ylabel="processors", title="What a fleet costs")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=3, frameon=False, fontsize=9)
    servers_on, clients_on = nodes[True]
    right.axvspan(seconds / 3, 2 * seconds / 3, color="#eee")
    lines = (
        (servers_on[0], "its server", "#a02040"),
        (clients_on[0], "its client", "#c77700"),
        (clients_on[-1], "a client elsewhere", "#1b6ca8"),
    )
    for node, text, colour in lines:
        at = [look.at_s for look in node.looks]
        right.semilogy(at, _us(node.looks, "bound"), color=colour, label=f"{text}: bound")
        error = np.maximum(_us(node.looks), 0.05)
        right.semilogy(at, error, color=colour, lw=0.9, ls=":", label=f"{text}: |error|")
    title = f"A site is cut off for {seconds / 3:.0f} s (simulated, residence on)"
    right.set(xlabel="time, s", ylabel="|error| and bound, us", title=title)
    # In each column: the bound and the error of the same host.
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=3, frameon=False, fontsize=9)
    drawn.tight_layout()
    drawn.savefig(path, dpi=110)


def main() -> None:
    """Run it."""
    short = {"sites": 5, "seconds": 300, "messages_s": 20}
    args = options(__doc__, short, sites=_SITES, seconds=900, messages_s=60, figure="")
    report = Report("scale", simulated=True)
    plan_rows(report)
    traffic_rows(report, args.sites, args.messages_s)
    nodes = clock_rows(report, args.sites, args.seconds)
    report.finish()
    if args.figure:
        figure(args.figure, nodes, args.seconds)


if __name__ == "__main__":
    main()
