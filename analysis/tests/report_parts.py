"""Parts of which results for tests are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.deviation import Deviation
from mqtick.analysis.clocks.masks import MaskVerdict
from mqtick.analysis.clocks.summary import ClockSummary, Holdover
from mqtick.analysis.measurement import (
    CAPTURED,
    MISSED,
    Example,
    Mark,
    Measurement,
    Shot,
    TimeErrors,
)
from mqtick.analysis.results.published import PUBLISHED
from mqtick.analysis.results.result import Counts, Pairs, QuantityResult, Result, Row
from mqtick.analysis.statistics.drift import Drift
from mqtick.analysis.statistics.estimate import Distribution, Estimate
from mqtick.analysis.statistics.growth import Line
from mqtick.analysis.statistics.limit import FAILS, HOLDS, NOT_PROVEN, Limit, Verdict

Array = npt.NDArray[np.float64]
STARTED_NS: Final = 1_795_000_000_000_000_000
FS: Final = 1_000_000_000


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
        marks = {nodes[0]: Mark(0, True, 20_000)}
        for place, name in enumerate(nodes[1:]):
            share = place / max(len(nodes) - 2, 1)
            instant = latency + float(value) * share
            marks[name] = Mark(int(instant * FS), True, 4_000_000)
        shots.append(
            Shot(
                len(shots) + 1,
                int(numbers[index]),
                started_ns=started,
                marks=marks,
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


def made_distribution(values: Array) -> Distribution:
    chance = np.random.default_rng(len(values))
    n = len(values)
    drawn = values[chance.integers(0, n, (60, n))] if n <= 500 else None

    def estimate(of: Callable[[Array, int | None], Any]) -> Estimate:
        value = float(of(values, None))
        if n < 3 or drawn is None:
            return Estimate(value)
        low, high = np.percentile(of(drawn, 1), [2.5, 97.5])
        return Estimate(value, float(low), float(high))

    def quantile(q: float) -> Callable[[Array, int | None], Any]:
        return lambda array, axis: np.percentile(array, q, axis=axis)

    return Distribution(
        n,
        n * 0.8,
        estimate(lambda array, axis: np.mean(array, axis=axis)),
        estimate(lambda array, axis: np.std(array, axis=axis, ddof=1)) if n > 1 else None,
        estimate(quantile(50)),
        estimate(quantile(5)),
        estimate(quantile(95)),
        estimate(quantile(99)),
        float(values.min()),
        float(values.max()),
    )


def made_quantity(
    name: str,
    node: str,
    values: Array,
    numbers: npt.NDArray[np.int64],
    seconds: Array,
    missed: int,
    *,
    growth: bool = True,
) -> QuantityResult:
    different = sorted(set(numbers.tolist()))
    rows = []
    for number in different:
        own = values[numbers == number]
        rows.append(
            Row(
                number,
                missed if number == different[0] else 0,
                made_distribution(own),
                made_distribution(np.abs(own)),
                PUBLISHED.get((name, number)),
            )
        )
    line = None
    if growth and len(different) > 1:
        slope, constant = np.polyfit(numbers, values, 1)
        noise = float(np.std(values)) / max(len(values), 1) ** 0.5
        width = float(np.ptp(numbers))
        line = Line(
            Estimate(float(constant), float(constant) - noise, float(constant) + noise),
            Estimate(float(slope), float(slope) - noise / width, float(slope) + noise / width),
            len(values),
            tuple(different),
        )
    known = ~np.isnan(seconds)
    drift = None
    if known.sum() > 5 and np.ptp(seconds[known]) > 0:
        slope = float(np.polyfit(seconds[known], values[known], 1)[0])
        total = slope * float(np.ptp(seconds[known]))
        drift = Drift(
            Estimate(slope * 3600, slope * 2400, slope * 4800), total, abs(total) > values.std()
        )
    return QuantityResult(
        name,
        node,
        tuple(rows),
        line,
        drift,
        0.008,
        values,
        numbers,
        seconds,
        np.arange(1, len(values) + 1),
    )


def made_example(shots: Sequence[Shot], chance: np.random.Generator) -> Example:
    shot = next(shot for shot in shots if shot.outcome == CAPTURED)
    instants = [mark.instant_fs / FS for mark in shot.marks.values()]
    width = max(max(instants) - min(instants), 1.0)
    traces = {}
    for name, mark in shot.marks.items():
        at = mark.instant_fs / FS
        coarse = np.linspace(min(instants) - 0.2 * width, max(instants) + 0.2 * width, 700)
        us = np.unique(np.concatenate([coarse, at + np.linspace(-0.05, 0.05, 300)]))
        volts = 3.3 / (1 + np.exp(-np.clip((us - at) / 0.004, -60, 60)))
        traces[name] = (us, volts + 0.03 * chance.standard_normal(len(us)))
    return Example(shot.number, traces, shot.marks)


def made_pairs(nodes: Sequence[str], chance: np.random.Generator) -> Pairs:
    own = list(nodes[1:])
    offsets = np.linspace(0, 120, len(own)) + 5 * chance.standard_normal(len(own))
    median = offsets[None, :] - offsets[:, None]
    return Pairs(tuple(own), median, np.full((len(own), len(own)), 40, np.int64))


def made_clock_summary(
    errors: TimeErrors, interval_s: float, gap: tuple[float, float] | None
) -> ClockSummary:
    converged = 200.0 * interval_s if len(errors.seconds) > 250 else None
    after = errors.error_ns[errors.seconds >= (converged or 0.0)] / 1000.0
    absolute = made_distribution(np.abs(after))
    signed = made_distribution(after)
    tau = np.array([], np.float64)
    if len(errors.seconds) >= 16:
        most = np.log10(len(errors.seconds) / 4)
        tau = interval_s * np.unique(np.round(np.logspace(0, most, 24)))
    spread = max(float(np.std(after)) * 1000, 1e-3)
    white = spread / np.sqrt(tau / interval_s) + 0.03 * spread * np.sqrt(tau / interval_s)
    deviations = (
        (
            Deviation("MTIE", tau, spread * (5 + np.log1p(tau / interval_s))),
            Deviation("TDEV", tau, white, white * 0.85, white * 1.3),
            Deviation(
                "ADEV", tau, 1.7e-9 * white / tau, 1.5e-9 * white / tau, 2.2e-9 * white / tau
            ),
        )
        if len(tau)
        else ()
    )
    masks = (
        (
            MaskVerdict("G.8272 PRTC-A", "MTIE", False, 31.0, float(tau[0])),
            MaskVerdict("G.8272 PRTC-A", "TDEV", False, 12.0, float(tau[0])),
        )
        if len(tau)
        else ()
    )
    holdovers = (Holdover(gap[0], gap[1], 7100.0),) if gap is not None else ()
    outside = (
        None
        if errors.lower_ns is None or errors.upper_ns is None
        else int(np.sum((errors.lower_ns > 0) | (errors.upper_ns < 0)))
    )
    return ClockSummary(
        errors,
        signed.mean,
        signed.deviation or Estimate(0.0),
        float(np.abs(after).max()),
        absolute,
        converged,
        interval_s,
        deviations,
        masks,
        holdovers,
        outside,
    )


def made_result(
    measurement: Measurement,
    quantities: Sequence[QuantityResult],
    limits: Sequence[Limit],
    pairs: Pairs | None = None,
) -> Result:
    verdicts = [
        _verdict(limit, quantity, row)
        for limit in limits
        for quantity in quantities
        if quantity.quantity == limit.quantity
        for row in quantity.rows
    ]
    worst = {FAILS: 0, NOT_PROVEN: 1, HOLDS: 2}
    missed = sum(shot.outcome == MISSED for shot in measurement.shots)
    total = len(measurement.shots)
    counts = Counts(
        total,
        total - missed,
        missed,
        reasons={"no edge of last in its window": missed} if missed else {},
    )
    return Result(
        measurement,
        0.95,
        counts,
        tuple(quantities),
        pairs,
        (),
        tuple(sorted(verdicts, key=lambda verdict: worst[verdict.state])),
    )


def _verdict(limit: Limit, quantity: QuantityResult, row: Row) -> Verdict:
    found = row.absolute
    assert found is not None
    value = found.mean if limit.statistic == "mean" else found.p99
    of = quantity.node or f"N = {row.subscribers}"
    high = value.value if value.high is None else value.high
    low = value.value if value.low is None else value.low
    state = HOLDS if high < limit.bound_us else FAILS if low > limit.bound_us else NOT_PROVEN
    sentence = {
        HOLDS: f"{of}: {value.value:.4g} us is below {limit.bound_us:g} us.",
        FAILS: f"{of}: {value.value:.4g} us is not below {limit.bound_us:g} us.",
        NOT_PROVEN: f"{of}: {found.n} shots leave both possible; it takes 299 for p99 at 95 %.",
    }[state]
    return Verdict(limit, of, state, value, found.n, 0.95, sentence)
