"""brokers: throughput, fan-out and memory of brokers, beside bare system calls.

`mqtick-load` measures each broker in turn, and in the same run, block by block, its floor: a server
that forwards the same octets to the same sockets by bare system calls. Cost is the broker's
processor time a message delivered; window, burst and number of pairs are part of each quantity's
name. Those of mqtick-broker, Mosquitto, rumqttd and nats-server are measured that are installed.

    python -m bench.brokers                      3 rounds, of which the first has the crowd
    python -m bench.brokers --short              1 round, short blocks, smaller crowd: 2 minutes
    python -m bench.brokers --broker mosquitto   only this one (may be given more than once)
    python -m bench.brokers --scenario 1:100     only those with this in their name (the same)
    python -m bench.brokers --add ...            keep what the results file has of others
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.harness import Report, built, fresh, options, quantile, result_of, start_load
from demo.local_broker import Mosquitto, MqtickBroker, Nats, program

_DESCRIPTORS = 150_000
OURS, OURS_2, PEER = "mqtick-broker", "mqtick-broker, 2 threads", "Mosquitto"
FLOOR, FLOOR_2 = "floor", "floor, 2 threads"


class Peer(Mosquitto):
    """Mosquitto, with sessions on disk and limits that no measurement reaches."""

    def _configuration(self, anonymous: bool) -> str:
        keeps = f"persistence true\npersistence_location {self.folder}/\n"
        return super()._configuration(anonymous) + keeps


class Ours(MqtickBroker):
    """Our broker, with limits that no measurement reaches."""

    name = OURS
    threads = 1

    def _configuration(self, anonymous: bool) -> str:
        return (
            f"threads = {self.threads}\n{super()._configuration(anonymous)}"
            "[limits]\nconnections = 100000\nconnections_a_second = 0\n"
            "publishes_a_second_a_client = 0\nqueue_messages = 100000\n"
            f'[udp]\naddress = "127.0.0.1:{self.port}"\nsubnets = ["127.0.0.0/8"]\n'
            f'[store]\npath = "{self.folder / "store"}"\n'
        )


class Ours2(Ours):
    """The same with a second thread."""

    name = OURS_2
    threads = 2


class Rumqttd(Mosquitto):
    """rumqttd, with limits that no measurement reaches."""

    name = "rumqttd"
    missing = "rumqttd is not installed: cargo install rumqttd"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.config = self.config.rename(self.config.with_suffix(".toml"))

    def _configuration(self, anonymous: bool) -> str:
        return (
            "id = 0\n[router]\nid = 0\nmax_connections = 100000\nmax_outgoing_packet_count = 200\n"
            "max_segment_size = 104857600\nmax_segment_count = 10\n"
            f'[v4.1]\nname = "v4"\nlisten = "127.0.0.1:{self.port}"\nnext_connection_delay_ms = 0\n'
            "[v4.1.connections]\nconnection_timeout_ms = 60000\nmax_payload_size = 20480\n"
            "max_inflight_count = 100\ndynamic_filters = true\n"
        )

    def _program(self) -> str | None:
        return program("rumqttd")


_KINDS: dict[str, type[Mosquitto]] = {
    kind.name: kind for kind in (Ours, Ours2, Peer, Rumqttd, Nats)
}


@dataclass(frozen=True)
class Scenario:
    """One run of mqtick-load, and the figures that are taken from it.

    Attributes:
        takes: Key of a figure of mqtick-load, our name for it, and its unit.
        floor: Whether bare system calls are measured in turn.
        ours: The one of our brokers with which it is measured; None: with all brokers.
        once: Whether it is measured in the first round only, because it takes long.
    """

    name: str
    arguments: tuple[str, ...]
    takes: tuple[tuple[str, str, str], ...]
    floor: bool = True
    ours: type[Ours] | None = None
    once: bool = False


_COST = ("cost_ns", "processor time a message delivered", "ns")
_RATE = ("rate", "messages delivered", "1/s")
_LOST = ("lost", "messages lost in a block", "messages")
_SKEW = ("skew_p50_us", "first to last, p50", "us"), ("skew_p99_us", "first to last, p99", "us")
_FIRST = (
    ("first_p50_us", "publish to first copy, p50", "us"),
    ("first_p99_us", "publish to first copy, p99", "us"),
)
_IDLE = "idle connections"
_BATCHED, _SINGLE, _ACKED = (
    f"4 pairs, 64 octets, QoS {qos}, window 4,096, burst {burst}"
    for qos, burst in ((0, 32), (0, 1), (1, 32))
)
_KEPT = f"{_ACKED}, sessions kept"


_OVER_UDP = "1:100 over UDP, one message at a time"


def _fan_out(subscribers: int) -> str:
    return f"1:{subscribers:,}, one message at a time"


def scenarios(seconds: float, messages: int, crowd: int, idle: int) -> list[Scenario]:
    """Return the scenarios for each broker; the memory of a fresh one is the first."""

    def pairs(name: str, qos: int, burst: int, *more: str) -> Scenario:
        flags = ("pairs", "--pairs", "4", "--window", "4096", "--burst", str(burst))
        time = ("--qos", str(qos), "--seconds", str(seconds), "--repeats", "2")
        return Scenario(name, (*flags, *time, *more), (_COST, _RATE, _LOST))

    def fan_out(
        subscribers: int, count: int, repeats: int, *, once: bool = False, udp: bool = False
    ) -> Scenario:
        flags = ("fanout", "--subscribers", str(subscribers), "--messages", str(count))
        takes = (_COST, *_SKEW, *_FIRST, _LOST)
        name = _OVER_UDP if udp else _fan_out(subscribers)
        more = ("--repeats", str(repeats), *(["--udp"] if udp else []))
        return Scenario(name, (*flags, *more), takes, not once, Ours if udp else None, once)

    memory = ("pss_all_octets", "memory a connection (PSS)", "octets")
    return [
        Scenario(_IDLE, ("idle", "--connections", str(idle)), (memory,), floor=False),
        pairs(_BATCHED, 0, 32),
        pairs(_SINGLE, 0, 1),
        pairs(_ACKED, 1, 32),
        pairs(_KEPT, 1, 32, "--persistent"),
        fan_out(100, messages, 2),
        fan_out(600, max(10, messages // 4), 2),
        fan_out(100, messages, 2, udp=True),
        fan_out(crowd, 10, 1, once=True),
    ]


@dataclass
class Figures:
    """All values, by scenario, key and contestant. Ratios to the floor are of adjacent blocks."""

    values: defaultdict[tuple[str, str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    floors: defaultdict[tuple[str, str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    failed: dict[tuple[str, str], str] = field(default_factory=dict)

    def take(self, scenario: Scenario, who: str, result: dict[str, Any]) -> None:
        """Add the output of a run of mqtick-load."""
        for row in result["rows"]:
            key = row["key"]
            if key not in {key for key, _, _ in scenario.takes}:
                continue
            if row["who"] == "ratio":
                self.floors[scenario.name, key, who] += row["repeats"]
            else:
                floor = FLOOR_2 if who == OURS_2 else FLOOR
                name = who if row["who"] == "broker" else floor
                self.values[scenario.name, key, name] += row["repeats"]

    def median(self, scenario: str, key: str, who: str) -> float | None:
        """Return the median of all values of one broker; None if it was not measured."""
        found = self.values.get((scenario, key, who))
        return quantile(sorted(found), 0.5) if found else None


def load(scenario: Scenario, broker: Mosquitto) -> dict[str, Any]:
    """Run mqtick-load against a running broker; RuntimeError, with its text, if it fails."""
    assert broker.process is not None
    threads = getattr(broker, "threads", 1)
    floor = ("--floor", "--threads", threads) if scenario.floor else ()
    who = ("--broker", f"127.0.0.1:{broker.port}", "--broker-pid", broker.process.pid)
    return result_of(start_load(*scenario.arguments, *floor, *who))


def measure(kinds: Sequence[type[Mosquitto]], plan: Sequence[Scenario], rounds: int) -> Figures:
    """Measure all brokers, in random order in each round, each freshly started."""
    figures = Figures()
    began = time.monotonic()
    for number in range(rounds):
        for kind in random.sample(kinds, len(kinds)):
            with fresh(kind) as broker:
                for scenario in plan:
                    if scenario.ours and not isinstance(broker, scenario.ours):
                        continue
                    if scenario.once and number > 0:
                        continue
                    passed_s = time.monotonic() - began
                    text = f"round {number + 1} of {rounds}: {kind.name}: {scenario.name}"
                    print(f"{passed_s:6.0f} s: {text}", file=sys.stderr, flush=True)
                    try:
                        figures.take(scenario, kind.name, load(scenario, broker))
                    except RuntimeError as error:
                        figures.failed[kind.name, scenario.name] = str(error)
    return figures


def _goals(figures: Figures, crowd: int) -> Iterator[tuple[str, float | None, float | None, float]]:
    """Yield quantity, ours, peer's and the upper limit of ours / peer's; None: not measured."""

    def cost(scenario: str, who: str) -> float | None:
        return figures.median(scenario, "cost_ns", who)

    rate = figures.median(_BATCHED, "rate", OURS)
    yield f"{_BATCHED}: cost, ns / that of 3 million a second", cost(_BATCHED, OURS), 333.3, 1.0
    yield f"{_BATCHED}: published 930,275/s of 16 cores / ours of one", 930_275.0, rate, 1.0
    others = [who for who in _KINDS if who not in (OURS, OURS_2)]
    best = min((found for who in others if (found := cost(_BATCHED, who))), default=None)
    yield f"{_BATCHED}: cost / the best peer's", cost(_BATCHED, OURS), best, 1.0
    for scenario, goal in ((_BATCHED, 0.05), (_SINGLE, 0.1), (_ACKED, 0.2)):
        yield f"{scenario}: cost / Mosquitto's", cost(scenario, OURS), cost(scenario, PEER), goal
    yield f"{_BATCHED}: cost, 2 threads / 1", cost(_BATCHED, OURS_2), cost(_BATCHED, OURS), 1.1
    acked, kept = (figures.median(name, "rate", OURS) for name in (_ACKED, _KEPT))
    yield f"{_ACKED}: messages a second / with sessions kept", acked, kept, 2.0
    for subscribers in (100, 600):
        name = _fan_out(subscribers)
        for key, text, goal in (
            ("cost_ns", "cost a copy", 1.2),
            *((key, text, 1.15) for key, text, _ in _SKEW),
        ):
            for who, threads in ((OURS, ""), (OURS_2, ", 2 threads")):
                turns = figures.floors.get((name, key, who))
                ratio = quantile(sorted(turns), 0.5) if turns else None
                yield f"{name}{threads}: {text} / floor's, in turn", ratio, 1.0, goal
        for key, text, goal in (
            ("cost_ns", "cost a copy", 1.0),
            ("skew_p99_us", "first to last, p99", 0.5),
            *((key, text, 1.0) for key, text, _ in _FIRST),
        ):
            ours, peer = (figures.median(name, key, who) for who in (OURS, PEER))
            yield f"{name}: {text} / Mosquitto's", ours, peer, goal
    yield (
        "an idle connection's memory / 4 KiB",
        figures.median(_IDLE, "pss_all_octets", OURS),
        4096,
        1,
    )
    turns = figures.floors.get((_OVER_UDP, "skew_p50_us", OURS))
    ratio = quantile(sorted(turns), 0.5) if turns else None
    yield f"{_OVER_UDP}: first to last, p50 / a bare sendmmsg's, in turn", ratio, 1.0, 1.1
    ours = figures.median(_OVER_UDP, "skew_p50_us", OURS)
    peer = figures.median(_fan_out(100), "skew_p50_us", PEER)
    yield f"{_OVER_UDP}: first to last, p50 / Mosquitto's over TCP", ours, peer, 0.4
    name = _fan_out(crowd)
    ours, peer = (figures.median(name, "skew_p50_us", who) for who in (OURS, PEER))
    yield f"{name}: first to last, p50 / Mosquitto's", ours, peer, 0.5


def tell(figures: Figures, plan: Sequence[Scenario], crowd: int) -> Report:
    """Make the report of the measurements."""
    report = Report("brokers")
    for scenario in plan:
        for key, text, unit in scenario.takes:
            for who in (*_KINDS, FLOOR, FLOOR_2):
                if values := figures.values.get((scenario.name, key, who)):
                    report.add(f"{scenario.name}: {text}", unit, who, values, digits=1)
    for quantity, ours, peer, goal in _goals(figures, crowd):
        if ours and peer:
            report.compare(quantity, round(ours, 3), round(peer, 3), goal)
    return report


def main() -> None:
    """Run the benchmark."""
    short = {"rounds": 1, "seconds": 0.5, "messages": 60, "crowd": 2000, "idle": 1000}
    args = options(
        __doc__,
        short,
        rounds=3,
        seconds=2.0,
        messages=200,
        crowd=64_000,
        idle=10_000,
        broker=list[str](),
        scenario=list[str](),
        add=False,
    )
    built("mqtick-load")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, max(hard, _DESCRIPTORS)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        crowd = min(args.crowd, hard - 100)
        print(f"crowd of {crowd:,}: a process may open {hard:,} descriptors here (root: more)")
        args.crowd, args.idle = crowd, min(args.idle, crowd)
    kinds = []
    for name, kind in _KINDS.items():
        if args.broker and not any(name.lower().startswith(one.lower()) for one in args.broker):
            continue
        try:
            with fresh(kind):
                kinds.append(kind)
        except FileNotFoundError:
            print(f"not measured: {kind.missing}")
        except RuntimeError as error:
            print(f"not measured: {name}: {error}")
    whole = scenarios(args.seconds, args.messages, args.crowd, args.idle)
    wanted = args.scenario or [""]
    plan = [one for one in whole if any(part in one.name for part in wanted)]
    figures = measure(kinds, plan, args.rounds)
    report = tell(figures, plan, args.crowd)
    if args.add:
        measured = {row.quantity for row in report.rows} | {one.quantity for one in report.ratios}
        report.keep(lambda quantity: quantity not in measured)
    report.finish()
    for (who, scenario), text in figures.failed.items():
        print(f"failed: {who}: {scenario}: {text}")


if __name__ == "__main__":
    main()
