"""one-way: how wrong are 600 clients that only hear the time, through the hardware broker's RTL?

Simulated: broker (exact to its cycle), links and the clients' clocks. Measured in the same run: how
late this host's kernel stamps datagrams, and what NTP makes of such stamps (two chronyd).

    python -m bench.one_way              600 clients, 200 s of simulated time, 90 s of NTP
    python -m bench.one_way --short      60 clients, 150 s, 30 s
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from bench.harness import Report, options, progress
from bench.ntp_pair import errors_us, ntp_client
from bench.one_way_client import Client, Clocks, Found
from bench.one_way_world import Life, Plan, World
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.lab.hardware.program import ModelError, find_model
from mqtick.mqtt.stamps import KernelSocket, StampSource, Transmit

FOR_EXACT_STAMPS = EstimatorSettings(
    residence_sigma_us=0.02, lucky_broadcasts_s=0.0, shortest_time_constant_s=8.0
)
"""Settings for exact stamps; the defaults assume the errors of a kernel's stamps."""
_WHO, _ONE_WAY = "mqtick-client", "one-way with residence"
_NTP = "NTP between two chronyd (floor)"
_GOAL_NS, _GOAL_NTP = 20.0, 2.0
_SETTLED_S = 30.0
_UNTIL_ONE_WAY_S = 60.0
"""From the last exchange until only broadcasts are used: somewhat more than `prefer_better_s`."""
_OCTETS = 60


def stamp_noise_ns(datagrams: int) -> list[int]:
    """Return receive minus transmit stamp of datagrams over the loopback, at random times."""
    found = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        other.bind(("127.0.0.1", 0))
        other.settimeout(5.0)
        one.connect(other.getsockname())
        sender, receiver = KernelSocket(one), KernelSocket(other)
        for _ in range(datagrams):
            time.sleep(random.uniform(0.002, 0.014))
            sender.transmit = transmit = Transmit(time.time_ns())
            sender.send(bytes(_OCTETS))
            receiver.read_chunk()
            sender.drain_error_queue()
            if transmit.kernel_ns is not None and receiver.received.source is StampSource.KERNEL:
                found.append(receiver.received.realtime_ns - transmit.kernel_ns)
    return found


@dataclass(frozen=True, slots=True)
class Job:
    """A set of clients to replay.

    Attributes:
        compares: Whether an estimator without residences runs besides the client's own.
    """

    plan: Plan
    clocks: Clocks
    settings: EstimatorSettings
    lives: Sequence[tuple[int, Life]]
    compares: bool = False


def replay(job: Job) -> list[Found]:
    """Simulate these clients; return the errors of each."""
    plan, found = job.plan, []
    for number, life in job.lives:
        client = Client(number, life, job.clocks, job.settings, compares=job.compares)
        client.live(
            plan.seconds,
            (_SETTLED_S, plan.exchanges_s),
            (plan.exchanges_s + _UNTIL_ONE_WAY_S, plan.seconds),
        )
        found.append(client.found)
    return found


def replayed(job: Job) -> list[Found]:
    """Simulate the clients on all processors."""
    count = multiprocessing.cpu_count()
    shares = [replace(job, lives=job.lives[place::count]) for place in range(count)]
    with multiprocessing.Pool(count) as pool:
        return list(chain.from_iterable(pool.map(replay, shares)))


def measured(datagrams: int, warm_up_s: float, seconds: float) -> tuple[list[int], list[float]]:
    """Return this host's stamp noise, ns, and the errors of NTP, us, in the same minutes."""
    with tempfile.TemporaryDirectory() as name, ntp_client(Path(name)) as ntp:
        errors: list[float] = []
        watch = threading.Thread(target=lambda: errors.extend(errors_us(ntp, warm_up_s, seconds)))
        watch.start()
        noise = stamp_noise_ns(datagrams)
        watch.join()
    return noise, errors


def _rows(report: Report, how: str, found: Sequence[Found]) -> float:
    """Add the results of one kind of clients; return the median error of one-way, ns."""
    error = f"|time error|, {how}"
    told = [one.listening for one in found]
    row = report.add(error, "ns", _ONE_WAY, [abs(e) for one in told for e in one.errors])
    for who, figures in (
        ("while exchanges go on", [one.asking for one in found]),
        ("one-way, residence left in", [one.without for one in found]),
    ):
        errors = [abs(each) for one in figures for each in one.errors]
        if errors:
            report.add(error, "ns", who, errors)
    halves = [half for one in told for half in one.halves]
    assumed = [half for one in told for half in one.assumed_halves]
    outside = sum(one.outside > 0 for one in found)
    outside_assumed = sum(one.outside_assumed > 0 for one in found)
    for what, widths, number in (
        ("interval", halves, outside),
        ("assumed interval", assumed, outside_assumed),
    ):
        report.add(f"half the {what}, {how}", "ns", _ONE_WAY, widths)
        report.add(f"ever outside the {what}, {how}", f"of {len(found)} clients", _WHO, [number])
    return row.median


def measure(model: Path, plan: Plan, datagrams: int, ntp_s: float) -> Report:
    """Measure this host, simulate all clients with exact stamps, and with stamps like its own."""
    report = Report("one-way", simulated=True)
    progress("stamps and NTP")
    noise_ns, ntp_us = measured(datagrams, ntp_s / 2, ntp_s)
    late = "receive stamp minus transmit stamp, loopback"
    report.add(late, "ns", "kernel", noise_ns, simulated=False)
    progress("the broker")
    lives = list(enumerate(World(plan).run(model), start=1))
    exact = Job(plan, Clocks(), EstimatorSettings(), lives)
    default, exactly, kernel = "exact stamps", "exact stamps, settings for them", "kernel stamps"
    for_them = replace(exact, settings=FOR_EXACT_STAMPS)
    medians = {}
    for how, job in (
        (default, replace(exact, compares=True)),
        (exactly, for_them),
        (f"{exactly}, wander 10 ppb", replace(for_them, clocks=Clocks(wander_ppb=10.0))),
        (kernel, replace(exact, clocks=replace(exact.clocks, noise_ns=noise_ns))),
    ):
        progress(f"clients, {how}")
        medians[how] = _rows(report, how, replayed(job))
    report.compare(f"{default}: median error / 20 ns", medians[default], _GOAL_NS)
    report.compare(f"{exactly}: median error / 20 ns", medians[exactly], _GOAL_NS, 1.0)
    if ntp_us:
        errors = [abs(each) * 1e3 for each in ntp_us]
        ntp = report.add(f"|time error|, {kernel}", "ns", _NTP, errors, simulated=False)
        report.compare(f"{kernel}: median error / NTP, ns", medians[kernel], ntp.median, _GOAL_NTP)
    else:
        print("without chrony: nothing to compare with")
    return report


def main() -> int:
    """Run the benchmark."""
    args = options(
        __doc__,
        short={"clients": 60, "seconds": 150, "ntp_s": 20.0, "datagrams": 2_000},
        clients=600,
        seconds=200,
        exchanges_s=60.0,
        datagrams=8_000,
        ntp_s=60.0,
        model="",
    )
    plan = Plan(args.clients, args.seconds, args.exchanges_s)
    try:
        model = find_model(args.model)
        report = measure(model, plan, args.datagrams, args.ntp_s)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
