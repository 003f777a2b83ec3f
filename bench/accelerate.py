"""accelerate: MQTT-SN copied in the kernel, past the broker; compared with the broker alone.

Two network namespaces with a link between them: brokers in one, `mqtick-load` in the other; delays
end with the kernel's receive stamp of a copy. The same mqtick-broker is measured with and without
mqtick-accelerate in each round, in random order with Mosquitto over TCP and a bare sendmmsg().

    python -m bench.accelerate             5 rounds: some minutes (root)
    python -m bench.accelerate --short     1 short round: under a minute
    python -m bench.accelerate --part fan  only these (latency, fan, crowd, residence);
                                           may be given more than once
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bench import accelerated_residence
from bench.harness import Report, built, medians, options, quantile, result_of, start_load
from demo.local_broker import Mosquitto, running
from demo.local_sensors import (
    BROKER_SIDE,
    CLIENT_SIDE,
    Accelerator,
    between_namespaces,
    in_the_kernel,
    inside,
)

FAST, PLAIN, PEER, FLOOR = "accelerated", "mqtick-broker", "Mosquitto, TCP", "bare sendmmsg"
_LIMIT_S = 120.0
_BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")
_USUAL_BACKLOG, _ROOM = 1000, 10_000
_SIZES = {100: 93, 200: 193}
"""Octets of an MQTT-SN message: octets of its payload."""
_PUBLISHED = {100: 0.586, 200: 0.481}
"""Median with by median without, as published."""
_SKEW = "100 subscribers: first to last, p50"
_TIME = "The time error of 100 clients through it: bench.time_error --accelerated."

Found = dict[str, float]


def _latency(octets: int) -> str:
    return f"{octets} octets at 1 ms, send() to copy"


_COMPARED = [
    *((f"{_latency(octets)}, {share}", PLAIN) for octets in _SIZES for share in ("p50", "p99")),
    (_SKEW, PEER),
    (_SKEW, PLAIN),
]
"""Quantities for which the ratio is also computed round by round, and the peer of that ratio."""


class Neighbour(Mosquitto):
    """Mosquitto beside the broker, in its namespace."""

    def _configuration(self, anonymous: bool) -> str:
        return super()._configuration(anonymous).replace("127.0.0.1", "0.0.0.0")

    def start(self) -> None:
        with inside(BROKER_SIDE):
            super().start()


@contextlib.contextmanager
def accelerated(folder: Path, at: tuple[str, int]) -> Iterator[Accelerator]:
    """Run mqtick-accelerate in front of the broker."""
    one = in_the_kernel(folder, at, "#")
    try:
        yield one
    finally:
        one.end()


class World:
    """The brokers, which run at the same time."""

    def __init__(self, folder: Path, open_ones: contextlib.ExitStack) -> None:
        self.folder = folder
        self.at = open_ones.enter_context(between_namespaces(folder))
        pids = subprocess.check_output(["ip", "netns", "pids", BROKER_SIDE], text=True).split()
        self.broker_pid = int(pids[0])
        self.pids = {FAST: self.broker_pid, PLAIN: self.broker_pid}
        self.places = {FAST: self.at[1], PLAIN: self.at[1]}
        with contextlib.suppress(FileNotFoundError):
            peer = open_ones.enter_context(running(Neighbour(folder)))
            assert peer.process is not None
            self.pids[PEER], self.places[PEER] = peer.process.pid, peer.port
        where = ("floor", "--udp", "--until-eof", "--address", self.at[0])
        with inside(BROKER_SIDE):
            floor = subprocess.Popen(
                [built("mqtick-load"), *where],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        open_ones.callback(floor.wait)
        open_ones.callback(_pipe(floor.stdin).close)
        self.pids[FLOOR] = floor.pid
        self.places[FLOOR] = int(_pipe(floor.stdout).readline().rpartition(":")[2])

    def fan_out(self, who: str, *arguments: object) -> Found:
        """Run mqtick-load through one of the brokers; RuntimeError, with its text, if it fails."""
        kind = {PEER: [], FLOOR: ["--udp"]}.get(who, ["--sn"])
        where = ("--broker", f"{self.at[0]}:{self.places[who]}", "--broker-pid", self.pids[who])
        flags = [*kind, *where, "--repeats", 1, *arguments]
        with contextlib.ExitStack() as open_ones:
            one = None
            if who == FAST:
                one = open_ones.enter_context(accelerated(self.folder, self.at))
                flags.append("--until-eof")
            with inside(CLIENT_SIDE):
                load = start_load("fanout", *flags)
            open_ones.callback(load.kill)
            before = _first_frames(load, one) if one else {}
            result = medians(result_of(load))
            found = {key: median for (key, whose), median in result.items() if whose == "broker"}
            if one:
                after = one.status()["frames"]
                kinds = ("no_rule", "waiting", "closed")
                passed = sum(after[name] - before[name] for name in kinds)
                found["passed"] = 100 * passed / (passed + after["hits"] - before["hits"])
            return found


def _first_frames(load: subprocess.Popen[str], one: Accelerator) -> dict[str, int]:
    """Wait until the kernel copies, and return the accelerator's counts of frames by then."""
    end = time.monotonic() + _LIMIT_S
    while load.poll() is None:
        status = one.status()
        if any(topic["open"] for topic in status["topics"]):
            return dict(status["frames"])
        if time.monotonic() > end:
            raise RuntimeError(f"the topic was not accelerated: {status['topics']}")
        time.sleep(0.02)
    return dict(one.status()["frames"])


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@contextlib.contextmanager
def _backlog(packets: int) -> Iterator[None]:
    """Set how many frames may wait for a core, for the length of a with block."""
    before = _BACKLOG.read_text()
    _BACKLOG.write_text(str(packets))
    try:
        yield
    finally:
        _BACKLOG.write_text(before)


def _udp(namespace: str, counter: str) -> int:
    """Return the kernel's counter of UDP datagrams in a namespace."""
    command = ["ip", "netns", "exec", namespace, "cat", "/proc/net/snmp"]
    lines = subprocess.check_output(command, text=True).splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp: "))
    return int(values[names.index(counter)])


def _no_room() -> int:
    """Return how many frames the kernel has dropped because a backlog or a socket was full."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines) + _udp(CLIENT_SIDE, "InErrors")


class Bench:
    """The measurements of a round, and all results."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale
        self.values: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.residence: dict[str, list[float]] = {}
        self.failed: list[str] = []

    def take(self, quantity: str, unit: str, who: str, value: float) -> None:
        """Keep a value of one round."""
        self.values[quantity, unit, who].append(value)

    def median(self, quantity: str, who: str) -> float | None:
        """Return the median of all rounds; None if there is no value."""
        for (name, _, whose), values in self.values.items():
            if (name, whose) == (quantity, who):
                return quantile(sorted(values), 0.5)
        return None

    def attempt(self, what: str, measure: Callable[[], None]) -> None:
        """Measure; failures are reported at the end, and the other measurements go on."""
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
        try:
            measure()
        except (RuntimeError, AssertionError, OSError, subprocess.CalledProcessError) as error:
            self.failed.append(f"{what}: {error}")
            print(f"  failed: {error}", file=sys.stderr, flush=True)

    def round(self, world: World, number: int, parts: Sequence[str]) -> None:
        """Measure each of these parts once."""
        for part in parts:
            if part == "residence" or (part == "crowd" and number >= self.scale.crowds):
                continue
            getattr(self, part)(world)

    def each(
        self, world: World, what: str, whos: Sequence[str], measure: Callable[[str], None]
    ) -> None:
        """Measure the contestants that are installed, in random order."""
        for who in random.sample(whos, len(whos)):
            if who in world.places:
                self.attempt(f"{what}: {who}", functools.partial(measure, who))

    def latency(self, world: World) -> None:
        """One publisher, one subscriber, a message each millisecond."""
        for octets, payload in _SIZES.items():
            what = _latency(octets)

            def measure(who: str, what: str = what, payload: int = payload) -> None:
                flags = ("--subscribers", 1, "--rate", 1000, "--size", payload)
                found = world.fan_out(who, *flags, "--messages", self.scale.messages)
                self.take(f"{what}, p50", "us", who, found["sent_p50_us"])
                self.take(f"{what}, p99", "us", who, found["sent_p99_us"])
                self.take(f"{what}: broker's processor a message", "ns", who, found["cost_ns"])
                self._whole(what, who, found)

            self.each(world, what, (FAST, PLAIN, PEER), measure)

    def _whole(self, what: str, who: str, found: Found) -> None:
        """Count copies that were lost, came twice or out of order, or passed through the broker."""
        wrong = found["lost"] + found["duplicates"] + found["disorder"]
        self.take(f"{what}: lost, twice or out of order", "copies", who, wrong)
        if who == FAST:
            self.take(f"{what}: through the broker all the same", "%", who, found["passed"])

    def fan(self, world: World) -> None:
        """One publisher, 100 and 600 subscribers, one message at a time."""
        for count in (100, 600):
            what = f"{count} subscribers"

            def measure(who: str, what: str = what, count: int = count) -> None:
                messages = max(20, self.scale.fan_messages * 100 // count)
                self._fan(world, who, what, count, messages)

            self.each(world, what, (FAST, PLAIN, PEER, FLOOR), measure)

    def _fan(self, world: World, who: str, what: str, count: int, messages: int) -> Found:
        flags = ("--subscribers", count, "--messages", messages, "--size", _SIZES[100])
        found = world.fan_out(who, *flags)
        for key, text in (("skew", "first to last"), ("first", "send() to first")):
            for share in ("p50", "p99"):
                self.take(f"{what}: {text}, {share}", "us", who, found[f"{key}_{share}_us"])
        slope = found["skew_p50_us"] / (count - 1)
        self.take(f"{what}: slope a subscriber", "us", who, slope)
        self.take(f"{what}: broker's processor a copy", "ns", who, found["cost_ns"])
        self._whole(what, who, found)
        return found

    def crowd(self, world: World) -> None:
        """4,000 subscribers, with the kernel's default backlog and with a large one."""
        count, messages = self.scale.crowd, self.scale.crowd_messages
        for room in (_USUAL_BACKLOG, _ROOM):
            what = f"{count:,} subscribers, netdev_max_backlog {room:,}"

            def measure(what: str = what, room: int = room) -> None:
                with _backlog(room):
                    before = _no_room()
                    patience = ("--patience", 0.5) if room == _USUAL_BACKLOG else ()
                    flags = ("--subscribers", count, "--messages", messages, *patience)
                    found = world.fan_out(FAST, *flags, "--size", _SIZES[100])
                    no_room = _no_room() - before
                share = 100 * found["lost"] / (count * messages)
                self.take(f"{what}: lost", "%", FAST, share)
                in_all = found["lost_in_all"]
                self.take(f"{what}: lost, warm-up included", "copies", FAST, in_all)
                self.take(f"{what}: no room, as the kernel counts", "frames", FAST, no_room)
                uncounted = max(0.0, in_all - no_room)
                self.take(f"{what}: lost and not counted", "copies", FAST, uncounted)
                if "skew_p50_us" in found:
                    skew_us = found["skew_p50_us"]
                    self.take(f"{what}: first to last, p50", "us", FAST, skew_us)
                    self.take(f"{what}: slope a subscriber", "us", FAST, skew_us / (count - 1))

            self.attempt(f"{what}: {FAST}", measure)

    def state_residence(self) -> None:
        """Compare the residences that copies state with the stamps of a packet socket."""
        with tempfile.TemporaryDirectory() as folder:
            found = accelerated_residence.measure(Path(folder), 100, self.scale.fan_messages)
        if not found:
            raise RuntimeError("no message had all its copies, each with its residence")
        copies = [copy for message in found for copy in message]

        def apart(values: Callable[[accelerated_residence.Copy], int]) -> list[float]:
            return [
                (max(map(values, message)) - min(map(values, message))) / 1e3 for message in found
            ]

        self.residence = {
            "residence of a copy, by the stamps": [one.stamps_ns / 1e3 for one in copies],
            "residence, stated less stamped": [
                (one.stated_ns - one.stamps_ns) / 1e3 for one in copies
            ],
            "first to last of 100, as they leave": apart(lambda one: one.left_ns),
            "first to last of 100, residence taken out": apart(
                lambda one: one.left_ns - one.stated_ns
            ),
        }

    def report(self) -> Report:
        """Make the report."""
        report = Report("accelerate")
        for (quantity, unit, who), values in self.values.items():
            report.add(quantity, unit, who, values)
        for quantity, values in self.residence.items():
            report.add(quantity, "us", FAST, values, digits=3)
        for what, peer in _COMPARED:
            ours = self.values.get((what, "us", FAST), [])
            others = self.values.get((what, "us", peer), [])
            if len(ours) == len(others) and all(others):
                ratios = [one / other for one, other in zip(ours, others, strict=True)]
                if len(ratios) > 1:
                    report.add(f"{what}: {FAST} / {peer}, by round", "", "ratio", ratios, digits=4)
        for quantity, mine, theirs, goal in self._goals():
            if mine is not None and theirs:
                report.compare(quantity, round(mine, 3), round(theirs, 3), goal)
        return report

    def _goals(self) -> Iterator[tuple[str, float | None, float | None, float]]:
        """Yield quantity, ours, peer's, and the upper limit of ours / peer's."""
        with_and_without = f"{FAST} / without"
        for octets in _SIZES:
            for share in ("p50", "p99"):
                what = f"{_latency(octets)}, {share}"
                was = f" (published: {_PUBLISHED[octets]})" if share == "p50" else ""
                ours, without = self.median(what, FAST), self.median(what, PLAIN)
                yield f"{what}: {with_and_without}{was}", ours, without, 0.2
        ours = self.median(_SKEW, FAST)
        yield f"{_SKEW}: {FAST} / {PEER}", ours, self.median(_SKEW, PEER), 0.06
        yield f"{_SKEW}: {with_and_without}", ours, self.median(_SKEW, PLAIN), 0.2
        slope = self.median("100 subscribers: slope a subscriber", FAST)
        yield "100 subscribers: slope a subscriber, us / 0.7", slope, 0.7, 1
        for what in (
            f"{_latency(100)}: broker's processor a message",
            "100 subscribers: broker's processor a copy",
        ):
            ours, without = self.median(what, FAST), self.median(what, PLAIN)
            yield f"{what}: {with_and_without}", ours, without, 0.05
        crowd = f"{self.scale.crowd:,} subscribers, netdev_max_backlog "
        for name in ("600 subscribers", f"{crowd}{_ROOM:,}"):
            ours = self.median(f"{name}: slope a subscriber", FAST)
            yield f"{name}: slope / that of 100", ours, slope, 1.2
        for room in (_USUAL_BACKLOG, _ROOM):
            name = f"{crowd}{room:,}"
            ours = self.median(f"{name}: lost and not counted", FAST)
            # Both sides plus one, because the limit is zero.
            one_more = None if ours is None else ours + 1
            yield f"{name}: lost and not counted, and one / 1", one_more, 1, 1


def main() -> None:
    """Run the benchmark."""
    parts = ("latency", "fan", "crowd", "residence")
    short = {
        "rounds": 1,
        "messages": 300,
        "fan_messages": 50,
        "crowd_messages": 5,
        "crowds": 1,
    }
    args = options(
        __doc__,
        short,
        rounds=5,
        messages=2000,
        fan_messages=200,
        crowd=4000,
        crowds=2,
        crowd_messages=20,
        part=list[str](),
    )
    if unknown := set(args.part) - set(parts):
        sys.exit(f"--part {' '.join(unknown)}: give some of {', '.join(parts)}.")
    if os.geteuid() != 0:
        sys.exit("network namespaces need root: run it with sudo.")
    built("mqtick-load")
    wanted = [part for part in parts if not args.part or part in args.part]
    bench = Bench(args)
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        with contextlib.ExitStack() as open_ones:
            folder = Path(open_ones.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            world = World(folder, open_ones)
            if PEER not in world.places and not number:
                print(f"not measured: {Neighbour.missing}")
            bench.round(world, number, wanted)
    if "residence" in wanted:
        bench.attempt("residence", bench.state_residence)
    bench.report().finish()
    print(_TIME)
    for line in bench.failed:
        print(f"failed: {line}")


if __name__ == "__main__":
    main()
