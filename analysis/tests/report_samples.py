"""Results for tests of figures and pages: of values made up with a seed, never measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.measurement import (
    CAPTURED,
    CLOCK,
    LATENCY,
    MISSED,
    SKEW,
    Example,
    Measurement,
    Shot,
    TimeErrors,
)
from mqtick.analysis.results.analyse import analyse
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import Limit
from mqtick.recording.edges import Edge

Array = npt.NDArray[np.float64]
STARTED_NS: Final = 1_795_000_000_000_000_000
FS: Final = 1_000_000_000
SKEW_LIMIT: Final = Limit("published-skew", SKEW, "mean", 52.0, "IEEJ Trans. 17(2), 2022")
LATENCY_LIMIT: Final = Limit("published-latency", LATENCY, "mean", 300.0, "IEEJ Trans. 17(2), 2022")
CLOCK_LIMIT: Final = Limit("c37.118-60", CLOCK, "p99", 26.53, "IEEE C37.118.1")


@dataclass(frozen=True)
class Broker:
    """How a broker's skew and latency grow: a + b N, and how wide they spread."""

    skew_a_us: float = 40.0
    skew_b_us: float = 3.0
    spread_us: float = 30.0
    latency_us: float = 420.0


SOFTWARE: Final = Broker()
HARDWARE: Final = Broker(13.0, 0.063, 6.0, 88.0)


def made_shots(
    values: Array,
    numbers: npt.NDArray[np.int64],
    seconds: Array,
    latencies: Array | None,
    missed: int,
    nodes: Sequence[str],
) -> list[Shot]:
    shots = []
    every = max(len(values) // (missed + 1), 1)
    lost = 0
    for index, value in enumerate(values):
        started = None if np.isnan(seconds[index]) else STARTED_NS + int(seconds[index] * 1e9)
        latency = 300.0 if latencies is None else float(latencies[index])
        marks = {nodes[0]: Edge(0, True, 20_000)}
        for place, name in enumerate(nodes[1:]):
            share = place / max(len(nodes) - 2, 1)
            instant = latency + float(value) * share
            marks[name] = Edge(int(instant * FS), True, 4_000_000)
        shots.append(
            Shot(
                len(shots) + 1,
                int(numbers[index]),
                started_ns=started,
                edges=marks,
                latency_fs=None if latencies is None else int(latency * FS),
                skew_fs=int(value * FS),
            )
        )
        if lost < missed and (index + 1) % every == 0:
            lost += 1
            shots.append(
                Shot(
                    len(shots) + 1,
                    int(numbers[index]),
                    MISSED,
                    "no edge of last in its window",
                    None if started is None else started + 700_000_000,
                )
            )
    return shots


def made_example(shots: Sequence[Shot], chance: np.random.Generator) -> Example:
    shot = next(shot for shot in shots if shot.outcome == CAPTURED)
    instants = [mark.instant_fs / FS for mark in shot.edges.values()]
    width = max(max(instants) - min(instants), 1.0)
    traces = {}
    for name, mark in shot.edges.items():
        at = mark.instant_fs / FS
        coarse = np.linspace(min(instants) - 0.2 * width, max(instants) + 0.2 * width, 700)
        us = np.unique(np.concatenate([coarse, at + np.linspace(-0.05, 0.05, 300)]))
        volts = 3.3 / (1 + np.exp(-np.clip((us - at) / 0.004, -60, 60)))
        traces[name] = (us, volts + 0.03 * chance.standard_normal(len(us)))
    return Example(shot.number, traces, shot.edges)


def skew_result(
    n: int = 40,
    subscribers: Sequence[int] = (2, 10, 50, 100),
    *,
    broker: Broker = SOFTWARE,
    simulated: bool = True,
    title: str = "Mosquitto on the simulated bench",
    seed: int = 4,
    values_us: Array | None = None,
    seconds: Array | None = None,
    nodes: Sequence[str] = ("publisher", "rpi1", "rpi2"),
    missed: int = 2,
    latency: bool = True,
    example: bool = True,
    limits: Sequence[Limit] = (SKEW_LIMIT, LATENCY_LIMIT),
) -> Result:
    """Return a run of `n` shots at each N; `values_us` and `seconds` replace the made-up ones."""
    chance = np.random.default_rng(seed)
    numbers = np.repeat(np.array(subscribers, np.int64), n)
    if values_us is None:
        means = broker.skew_a_us + broker.skew_b_us * numbers
        values_us = means + broker.spread_us * (chance.gamma(2, 0.7, len(numbers)) - 1.4)
        values_us = np.where(chance.random(len(numbers)) < 0.08, -0.3 * values_us, values_us)
    if seconds is None:
        seconds = np.arange(len(numbers)) * 1.5
    latencies = broker.latency_us + broker.spread_us * chance.standard_normal(len(numbers))
    shots = made_shots(values_us, numbers, seconds, latencies if latency else None, missed, nodes)
    measurement = Measurement(
        title,
        SKEW,
        simulated,
        tuple(nodes),
        nodes[0],
        nodes[1],
        nodes[-1],
        shots,
        example=made_example(shots, chance) if example else None,
        provenance=[
            ("instrument", "RIGOL TECHNOLOGIES,DS1104Z,simulated,00.04.04"),
            ("broker", title),
            ("command", "mqtick-lab run --subscribers 2,10,50,100 --shots 40"),
        ],
    )
    return analyse(measurement, limits)


def latency_result(
    n: int = 60,
    *,
    simulated: bool = False,
    title: str = "Two nodes on the desk",
    values_us: Array | None = None,
    seconds: Array | None = None,
    subscribers: int = 1,
    seed: int = 6,
) -> Result:
    """Return latency alone, at one N."""
    chance = np.random.default_rng(seed)
    if values_us is None:
        values_us = 92.0 + chance.gamma(3, 5.0, n)
    if seconds is None:
        seconds = np.arange(len(values_us)) * 1.0
    shots = [
        Shot(
            index + 1,
            subscribers,
            started_ns=None if np.isnan(second) else STARTED_NS + int(second * 1e9),
            latency_fs=int(value * FS),
            edges={"publisher": Edge(0, True), "rpi1": Edge(int(value * FS), True)},
        )
        for index, (value, second) in enumerate(zip(values_us, seconds, strict=True))
    ]
    measurement = Measurement(
        title, LATENCY, simulated, ("publisher", "rpi1"), "publisher", "rpi1", "", shots
    )
    return analyse(measurement, (LATENCY_LIMIT,))


def clock_result(
    n: int = 3600,
    *,
    clocks: Sequence[str] = ("rpi1",),
    simulated: bool = True,
    interval_s: float = 1.0,
    gap: tuple[float, float] | None = (1800.0, 2100.0),
    intervals: bool = True,
    offset_us: float = 1.2,
    spread_us: float = 0.8,
    title: str = "Clients' clocks over an hour",
    seed: int = 8,
) -> Result:
    """Return clocks that converge, hold over a gap, and carry stated intervals."""
    chance = np.random.default_rng(seed)
    gap = gap if gap is not None and gap[1] < (n - 1) * interval_s else None
    time_errors = []
    for index, name in enumerate(clocks):
        seconds = np.arange(n) * interval_s
        noise = chance.standard_normal(n) * spread_us
        wander = np.cumsum(chance.standard_normal(n)) * spread_us * 0.02
        settling = 60.0 * spread_us * np.exp(-seconds / (40.0 * interval_s))
        error = 1000.0 * (offset_us * (index + 1) + noise + wander + settling)
        if gap is not None:
            after = seconds >= gap[1]
            error = error + np.where(
                after, 9000.0 * spread_us * np.exp(-(seconds - gap[1]) / (30 * interval_s)), 0.0
            )
            kept = (seconds <= gap[0]) | after
            seconds, error = seconds[kept], error[kept]
        half = 1000.0 * spread_us * (2.5 + 40.0 * np.exp(-seconds / (50 * interval_s)))
        time_errors.append(
            TimeErrors(
                name,
                seconds,
                error,
                error - half if intervals else None,
                error + half if intervals else None,
                STARTED_NS,
                "samples of the client",
            )
        )
    measurement = Measurement(
        title,
        CLOCK,
        simulated,
        ("reference", *clocks),
        "reference",
        time_errors=time_errors,
    )
    return analyse(measurement, (CLOCK_LIMIT,))


def compare_results() -> list[Result]:
    """Return a software and a hardware broker, each over N, to be shown beside each other."""
    return [
        skew_result(broker=SOFTWARE, title="Mosquitto 2.0", seed=1),
        skew_result(
            subscribers=(2, 10, 50, 100, 300, 600),
            broker=HARDWARE,
            title="Hardware broker",
            seed=2,
        ),
    ]


def mixed_result() -> Result:
    """Return skew over N of a group of nodes with pairs, and clocks as well."""
    skew = skew_result(nodes=("publisher", "rpi1", "rpi2", "rpi3", "rpi4")).measurement
    clocks = clock_result(clocks=("rpi1", "rpi2")).measurement
    return analyse(
        replace(skew, time_errors=clocks.time_errors), (SKEW_LIMIT, LATENCY_LIMIT, CLOCK_LIMIT)
    )


_RACK: Final = ("publisher", *(f"raspberry-pi-in-rack-{index}" for index in range(24)))


def _few(values: Sequence[float], **options: Any) -> Result:
    array = np.array(values, np.float64)
    return skew_result(1, range(2, 2 + len(array)), values_us=array, **options)


def same_n(values: Sequence[float] | Array, **options: Any) -> Result:
    array = np.asarray(values, np.float64)
    return skew_result(len(array), (2,), values_us=array, **options)


def _nothing() -> Result:
    shots = [Shot(i + 1, 2, MISSED, "no edge of last in its window.") for i in range(5)]
    nodes = ("publisher", "rpi1", "rpi2")
    return analyse(Measurement("Nothing came", SKEW, True, nodes, *nodes, shots), ())


_PATHOLOGICAL: Final[dict[str, Callable[[], Result]]] = {
    "one shot": lambda: same_n([47.3]),
    "two shots": lambda: same_n([47.3, 51.0], missed=0),
    "one N": lambda: skew_result(25, (2,)),
    "one shot at each N": lambda: _few([40.0, 55.0, 61.0]),
    "all equal": lambda: same_n([12.5] * 20),
    "all zero": lambda: same_n([0.0] * 20),
    "all negative": lambda: same_n(-40.0 - np.arange(30.0)),
    "both signs": lambda: same_n(np.linspace(-80, 90, 50)),
    "tiny spread": lambda: same_n(1000.0 + 1e-6 * np.arange(30.0)),
    "enormous spread": lambda: same_n(np.logspace(-3, 7, 60)),
    "nanoseconds": lambda: same_n(np.linspace(0.001, 0.009, 30)),
    "no instants": lambda: same_n(np.arange(20.0), seconds=np.full(20, np.nan)),
    "some instants": lambda: same_n(
        np.arange(20.0), seconds=np.where(np.arange(20) % 3 == 0, np.nan, np.arange(20.0))
    ),
    "no N": lambda: skew_result(20, (0,)),
    "many shots": lambda: skew_result(4000, (2, 10, 50, 100, 600)),
    "many N": lambda: skew_result(5, tuple(range(2, 62))),
    "neighbouring N": lambda: skew_result(8, (2, 3, 4, 5, 6, 7, 8, 9, 10, 600)),
    "many nodes": lambda: skew_result(nodes=_RACK),
    "nothing captured": _nothing,
    "limits of their own": lambda: skew_result(
        limits=[Limit(f"skew.p99<{b}us", SKEW, "p99", b) for b in (52.0, 53.0, 54.0, 100.0)]
    ),
    "three clocks": lambda: clock_result(clocks=("rpi1", "rpi2", "rpi3")),
    "clock without intervals": lambda: clock_result(200, gap=None, intervals=False),
    "clock with one sample": lambda: clock_result(1, gap=None),
    "clock with few samples": lambda: clock_result(5, gap=None, intervals=False),
    "clock over a day": lambda: clock_result(20_000, interval_s=4.0, gap=(30_000.0, 40_000.0)),
    "clock of nanoseconds": lambda: clock_result(300, gap=None, offset_us=0.004, spread_us=0.001),
    "clock that stands still": lambda: clock_result(100, gap=None, offset_us=0, spread_us=0),
    "long title": lambda: skew_result(
        title="A measurement whose title was written by somebody with very much to say <&> µ" * 2
    ),
}

PATHOLOGICAL: Final = {name: cache(make) for name, make in _PATHOLOGICAL.items()}
"""Each is made once."""
