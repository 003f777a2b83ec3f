"""The estimator in virtual time, where the truth is known. All figures are simulated.

`pytest client/tests/test_estimator_simulation.py -s` prints the table of docs/accuracy.md.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from mqtick.client.estimate import Estimate, State
from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.exchange import echo, one_way, two_way
from mqtick.client.sample import Kind, Origin, Reading, Reason, Sample, SampleVerdict
from mqtick.mqtt.stamps import StampSource

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000
EPOCH = 1_790_000_000 * SECOND


@dataclass(frozen=True)
class Conditions:
    """What the simulated world is like; the delays follow what was measured through Mosquitto."""

    wander: float = 1e-9
    interval_s: float = 8.0
    duration_s: int = 2000
    burst: tuple[int, int] = (1, 4)
    echo_constant_us: float = 0.0
    with_echo: bool = True
    with_two_way: bool = True
    with_exchanges: bool = True
    broadcasts: bool = True
    warm_up_s: int = 120


class World:
    """A crystal with an offset, a frequency error and a wandering frequency, and a broker."""

    def __init__(self, seed: int, conditions: Conditions, local_start_ns: int | None = None):
        self.random = random.Random(seed)
        self.conditions = conditions
        start = self.random.randrange(10**12, 10**15)
        self.start_ns = start if local_start_ns is None else local_start_ns
        self.base_ns = EPOCH - self.start_ns
        self.frequency = self.random.uniform(-50e-6, 50e-6)
        offset_ns = self.random.uniform(-1.0, 1.0) * SECOND
        self.offsets = [offset_ns]
        self.frequencies = [self.frequency]
        frequency = self.frequency
        for _ in range(conditions.duration_s + 60):
            offset_ns += frequency * SECOND
            frequency += conditions.wander * self.random.gauss(0, 1)
            self.offsets.append(offset_ns)
            self.frequencies.append(frequency)
        self.sequence = 0

    def offset_ns(self, local_ns: int) -> int:
        """True reference minus local."""
        second, rest = divmod(local_ns - self.start_ns, SECOND)
        here, there = self.offsets[second], self.offsets[second + 1]
        return self.base_ns + round(here + (there - here) * rest / SECOND)

    def local(self, elapsed_s: float) -> int:
        return self.start_ns + round(elapsed_s * SECOND)

    def origin(self) -> Origin:
        self.sequence += 1
        return Origin(sequence=self.sequence, root_distance_ns=1000, rate_change_ppb=750)

    def exchange(self, local_ns: int, settings: EstimatorSettings) -> list[Sample]:
        """A two-way exchange and its echo: RTT 250 to 2000 us, asymmetry 40 us +- 40 us."""
        draw = self.random
        round_trip = min(250_000 + 120_000 * draw.paretovariate(1.5) - 120_000, 2_000_000)
        error = 40_000 + 40_000 * draw.gauss(0, 1)
        error = min(max(error, -round_trip / 2), round_trip / 2)
        up, down = round(round_trip / 2 + error), round(round_trip / 2 - error)
        t2 = local_ns + up + self.offset_ns(local_ns)
        t3 = t2 + 150_000
        t4 = local_ns + up + 150_000 + down
        origin = self.origin()
        kernel = StampSource.KERNEL
        exchange = two_way(
            origin,
            Reading(local_ns, kernel),
            Reading(t2, kernel),
            Reading(t3, kernel),
            Reading(t4, kernel),
            settings,
        )
        if not self.conditions.with_echo:
            return [exchange]
        half, error = self.echo_error()
        middle = t4 + self.offset_ns(t4) + error
        bracketed = echo(
            origin,
            Reading(middle - half, kernel),
            Reading(middle + half, kernel),
            Reading(t4, kernel),
            settings,
            loop_client_ns=500_000,
            loop_server_ns=500_000,
            exchange=exchange,
        )
        return [exchange, bracketed] if self.conditions.with_two_way else [bracketed]

    def echo_error(self) -> tuple[int, int]:
        """Half width of the bracket (log-normal, 15 to 60 us) and the error inside it, in ns."""
        half = 30_000 * math.exp(0.42 * self.random.gauss(0, 1))
        while True:
            share = self.random.gauss(0, 0.36) + self.conditions.echo_constant_us * 1e3 / half
            if abs(share) <= 1:
                return round(half), round(half * share)

    def broadcast(self, local_ns: int, settings: EstimatorSettings) -> Sample:
        """A broadcast, 200 to 3000 us on its way."""
        delay = min(200_000 + round(self.random.expovariate(1 / 150_000)), 3_000_000)
        sent = local_ns + self.offset_ns(local_ns)
        return one_way(
            self.origin(),
            Reading(sent, StampSource.KERNEL),
            Reading(local_ns + delay, StampSource.KERNEL),
            settings,
        )

    def samples(self, settings: EstimatorSettings) -> Iterator[tuple[float, list[Sample]]]:
        """All samples in the order of time, with the seconds elapsed."""
        conditions, second = self.conditions, 0
        due = 2.0 if conditions.with_exchanges else math.inf
        while second < conditions.duration_s:
            second += 1
            if conditions.broadcasts:
                yield second, [self.broadcast(self.local(second), settings)]
            while due < second + 0.9:
                for number in range(self.random.randint(*conditions.burst)):
                    yield due, self.exchange(self.local(due + 0.05 * number), settings)
                due += conditions.interval_s * self.random.uniform(0.9, 1.1)


@dataclass
class Figures:
    """What came of a run, judged on a grid of one second."""

    errors_us: list[float] = field(default_factory=list)
    half_widths_us: list[float] = field(default_factory=list)
    outside: int = 0
    answers: int = 0
    narrow_us: list[float] = field(default_factory=list)
    """Half of the interval that rests on the broker's order; the whole one where it is no part."""
    narrow_outside: int = 0
    frequency_errors_ppb: list[float] = field(default_factory=list)
    frequency_pulls: list[float] = field(default_factory=list)
    estimators: list[Estimator] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.errors_us)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def judge(figures: Figures, world: World, estimate: Estimate, warm: bool) -> None:
    truth = world.offset_ns(estimate.local_ns)
    assert estimate.offset_ns is not None
    assert estimate.lower_ns is not None
    assert estimate.upper_ns is not None
    assert estimate.lower_ns <= estimate.offset_ns <= estimate.upper_ns
    figures.answers += 1
    figures.outside += not estimate.lower_ns <= truth <= estimate.upper_ns
    low, high = estimate.narrow_lower_ns, estimate.narrow_upper_ns
    if low is None or high is None:
        low, high = estimate.lower_ns, estimate.upper_ns
    figures.narrow_outside += not low <= truth <= high
    if not warm:
        return
    figures.errors_us.append(abs(estimate.offset_ns - truth) / 1e3)
    figures.half_widths_us.append((estimate.upper_ns - estimate.lower_ns) / 2e3)
    figures.narrow_us.append((high - low) / 2e3)
    second = (estimate.local_ns - world.start_ns) // SECOND
    error_ppb = abs(estimate.frequency_ppb - world.frequencies[second] * 1e9)
    figures.frequency_errors_ppb.append(error_ppb)
    figures.frequency_pulls.append(error_ppb / estimate.frequency_uncertainty_ppb)


Change = Callable[[World, Sample, float], Sample | None]


def run(
    conditions: Conditions = Conditions(),
    seeds: range = range(2),
    settings: EstimatorSettings | None = None,
    change: Change | None = None,
) -> Figures:
    """Feed an estimator in each of several worlds; `change` may spoil samples, or lose them."""
    settings = settings or EstimatorSettings()
    figures = Figures()
    for seed in seeds:
        world, estimator, second = World(seed, conditions), Estimator(settings), 1
        figures.estimators.append(estimator)
        for elapsed, samples in world.samples(settings):
            while second + 0.3 < elapsed:
                estimate = estimator.at(world.local(second + 0.3))
                if estimate.offset_ns is not None:
                    judge(figures, world, estimate, second > conditions.warm_up_s)
                second += 1
            for sample in samples:
                changed = change(world, sample, elapsed) if change else sample
                if changed is not None:
                    estimator.add(changed)
    return figures


@pytest.fixture(scope="module")
def table() -> Callable[[str, Figures], None]:
    """Print a row of figures; visible with `pytest -s`."""
    columns = ("median", "p95", "p99", "max", "half width", "outside", "assumed", "outside it")
    print(f"\n| simulated | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")

    def row(name: str, figures: Figures) -> None:
        quantiles = [figures.quantile(share) for share in (0.5, 0.95, 0.99, 1.0)]
        quantiles.append(statistics.median(figures.half_widths_us))
        cells = " | ".join(f"{value:.1f}" for value in quantiles)
        narrow = f"{statistics.median(figures.narrow_us):.1f} | {figures.narrow_outside}"
        print(f"| {name} | {cells} | {figures.outside} of {figures.answers} | {narrow} |")

    return row


Table = Callable[[str, Figures], None]


def test_the_simulated_echo_errs_as_the_measured_one() -> None:
    """Measured: median 6.9 us, p99 39 us, none outside its bracket."""
    world = World(0, Conditions())
    draws = [world.echo_error() for _ in range(20_000)]
    errors = sorted(abs(error) / 1e3 for _, error in draws)
    assert errors[10_000] == pytest.approx(6.9, rel=0.1)
    assert errors[19_800] == pytest.approx(39, rel=0.1)
    assert all(abs(error) <= half for half, error in draws)


# the goals


WANDERS = (1e-9, 1e-8)
GOALS = {
    **{f"echo, each {at:.0f} s": (Conditions(interval_s=at), 0, 5, 25) for at in (4.0, 8.0, 16.0)},
    "echo, each 16 s, no bursts": (Conditions(interval_s=16.0, burst=(1, 1)), 0, 5, 25),
    # A constant error of the echoes stays and is all that is added.
    "echo, each 8 s, constant -4 us": (Conditions(echo_constant_us=-4.0), 2, 6, 25),
    # Two-way samples alone leave their constant inside the interval.
    "two-way only, each 8 s": (Conditions(with_echo=False), 20, 60, 120),
    # They are off by their least delay.
    "broadcasts only, delay assumed": (Conditions(with_exchanges=False), 190, 260, 400),
}
"""Conditions, limits of the median, and limit of the 99th percentile at a wander of 1e-9, us."""


@pytest.mark.parametrize("wander", WANDERS)
@pytest.mark.parametrize("name", GOALS)
def test_the_time_is_known_within_microseconds(table: Table, name: str, wander: float) -> None:
    conditions, least_us, median_us, p99_us = GOALS[name]
    more = 1.0 if wander == 1e-9 else 1.2
    figures = run(replace(conditions, wander=wander), seeds=range(3))
    table(f"{name}, wander {wander:.0e}", figures)
    assert figures.outside == 0
    assert least_us <= figures.quantile(0.5) < more * median_us
    assert figures.quantile(0.99) < more * p99_us


def test_broadcasts_hold_the_time_after_exchanges_end(table: Table) -> None:
    conditions = Conditions(warm_up_s=700)

    def without_exchanges(world: World, sample: Sample, elapsed: float) -> Sample | None:
        return None if sample.kind.is_exchange and elapsed > 600 else sample

    figures = run(conditions, change=without_exchanges)
    table("broadcasts, delay learned, no exchange for 20 min", figures)
    assert figures.outside == 0
    assert figures.quantile(0.5) < 25.0
    assert figures.quantile(0.99) < 80.0
    learned = [estimator.path.delay_ns for estimator in figures.estimators]
    assert all(delay is not None and 190_000 < delay < 280_000 for delay in learned)


# what each part is worth


@pytest.mark.parametrize("wander", WANDERS)
def test_choosing_the_time_constant_is_nearly_as_good_as_knowing_it(
    table: Table, wander: float
) -> None:
    def fixed(time_constant_s: float) -> Figures:
        settings = EstimatorSettings(
            shortest_time_constant_s=time_constant_s, longest_time_constant_s=time_constant_s
        )
        figures = run(Conditions(wander=wander, burst=(1, 1)), settings=settings)
        table(f"time constant fixed at {time_constant_s:.0f} s, wander {wander:.0e}", figures)
        return figures

    chosen = run(Conditions(wander=wander, burst=(1, 1)))
    table(f"time constant chosen, wander {wander:.0e}", chosen)
    best = min(fixed(seconds).quantile(0.5) for seconds in (32.0, 128.0, 512.0))
    assert chosen.quantile(0.5) < 1.25 * best


@pytest.mark.parametrize(
    ("switch", "with_echo", "least_factor"),
    [
        ("use_lucky", True, 0.7),  # echoes are averaged either way
        ("use_lucky", False, 0.7),
        ("use_frequency", True, 3.0),
        ("use_echo", True, 5.0),
    ],
)
def test_switching_a_correction_off_is_safe_and_costs(
    table: Table, switch: str, with_echo: bool, least_factor: float
) -> None:
    conditions = Conditions(with_echo=with_echo)
    full = run(conditions)
    settings = replace(EstimatorSettings(), **{switch: False})
    figures = run(conditions, settings=settings)
    kind = "echo" if with_echo else "two-way only"
    table(f"{switch} = false, {kind}, each 8 s, wander 1e-09", figures)
    assert figures.outside == 0
    assert figures.quantile(0.5) > least_factor * full.quantile(0.5)


@pytest.mark.parametrize("share_down", [0.0, 0.5, 1.0])
def test_a_longer_link_is_corrected_if_symmetric_and_covered_if_not(share_down: float) -> None:
    extra_ns = 300_000  # how much longer the client's loop is than the server's
    error_ns = round(extra_ns * (0.5 - share_down))

    def longer_link(world: World, sample: Sample, elapsed: float) -> Sample | None:
        if sample.kind is not Kind.ECHO:
            return None
        assert sample.lower_ns is not None
        assert sample.upper_ns is not None
        return replace(
            sample,
            offset_ns=sample.offset_ns + error_ns,
            lower_ns=sample.lower_ns + error_ns - extra_ns // 2,
            upper_ns=sample.upper_ns + error_ns + extra_ns // 2,
        )

    trusting = EstimatorSettings(trust_broker=True)
    figures = run(Conditions(duration_s=600), change=longer_link, settings=trusting)
    assert figures.outside == 0
    assert figures.quantile(0.5) == pytest.approx(abs(error_ns) / 1e3, abs=5)


# convergence, gaps, trouble


@pytest.mark.parametrize("wander", WANDERS)
def test_the_frequency_converges_and_states_its_own_error(wander: float) -> None:
    figures = run(Conditions(wander=wander, warm_up_s=600), seeds=range(3))
    pulls = sorted(figures.frequency_pulls)
    assert statistics.median(figures.frequency_errors_ppb) < 100
    assert max(figures.frequency_errors_ppb) < 600
    assert math.sqrt(sum(pull * pull for pull in pulls) / len(pulls)) < 2.0


def test_the_first_minute_is_already_within_the_interval_and_useful() -> None:
    figures = run(Conditions(duration_s=60, warm_up_s=3), seeds=range(20))
    assert figures.outside == 0
    assert figures.quantile(0.5) < 15
    assert max(figures.half_widths_us) < 2000


@pytest.mark.parametrize("wander", WANDERS)
def test_in_holdover_the_bound_grows_and_still_holds_the_truth(wander: float) -> None:
    for seed in range(12):
        conditions = Conditions(wander=wander, duration_s=5000, broadcasts=False)
        world, estimator = World(seed, conditions), Estimator()
        for elapsed, samples in world.samples(estimator.settings):
            if elapsed > 900:
                break
            for sample in samples:
                estimator.add(sample)
        width = 0
        for second in range(1000, 4900, 10):
            estimate = estimator.at(world.local(second))
            assert estimate.lower_ns is not None
            assert estimate.upper_ns is not None
            assert estimate.state is State.HOLDOVER
            assert estimate.lower_ns <= world.offset_ns(estimate.local_ns) <= estimate.upper_ns
            assert estimate.upper_ns - estimate.lower_ns >= width
            width = estimate.upper_ns - estimate.lower_ns
        assert width < 100_000_000


@pytest.mark.parametrize("gap_s", [120, 900])
def test_after_a_gap_the_estimate_is_good_again_at_once(gap_s: int) -> None:
    conditions = Conditions(duration_s=2400, warm_up_s=1000 + gap_s + 20)

    def gap(world: World, sample: Sample, elapsed: float) -> Sample | None:
        return None if 1000 < elapsed < 1000 + gap_s else sample

    figures = run(conditions, seeds=range(4), change=gap)
    assert figures.outside == 0
    assert figures.quantile(0.5) < 5
    assert figures.quantile(0.99) < 25


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_falsetickers_are_refused_and_move_nothing(table: Table, share: float) -> None:
    """Some exchanges guarantee a wrong interval: off by 3 to 20 ms, more than any is wide."""

    def falsify(world: World, sample: Sample, elapsed: float) -> Sample | None:
        chance = random.Random(world.base_ns + sample.sequence)  # one lie an exchange
        if not sample.kind.is_exchange or chance.random() > share or elapsed < 60:
            return sample
        return shifted(sample, round(chance.choice([-1, 1]) * 10 ** chance.uniform(6.5, 7.3)))

    figures = run(Conditions(), change=falsify)
    table(f"{share:.0%} falsetickers, each 8 s, wander 1e-09", figures)
    assert figures.outside == 0
    assert figures.quantile(0.5) < 5
    assert figures.quantile(0.99) < 25
    assert all(each.counters.of(reason=Reason.CONTRADICTS) > 50 for each in figures.estimators)
    assert all(each.jumps == 0 for each in figures.estimators)


def test_a_rare_small_lie_is_tolerated(table: Table) -> None:
    """One exchange in a hundred guarantees an interval that is off by 30 to 200 us.

    Most of these overlap the true intervals: nothing tells them apart when they come.
    """

    def falsify(world: World, sample: Sample, elapsed: float) -> Sample | None:
        chance = random.Random(world.base_ns + sample.sequence)
        if not sample.kind.is_exchange or chance.random() > 0.01 or elapsed < 60:
            return sample
        return shifted(sample, round(chance.choice([-1, 1]) * chance.uniform(3e4, 2e5)))

    figures = run(Conditions(), change=falsify)
    table("1% small lies, each 8 s, wander 1e-09", figures)
    assert figures.outside == 0
    assert figures.quantile(0.99) < 25
    trusting = run(Conditions(), change=falsify, settings=EstimatorSettings(tolerated_faults=0))
    table("1% small lies, tolerated_faults = 0", trusting)
    assert trusting.outside > 0


def shifted(sample: Sample, by_ns: int) -> Sample:
    return replace(
        sample,
        offset_ns=sample.offset_ns + by_ns,
        lower_ns=None if sample.lower_ns is None else sample.lower_ns + by_ns,
        upper_ns=None if sample.upper_ns is None else sample.upper_ns + by_ns,
    )


def test_a_stepped_server_is_followed_only_after_confirmation() -> None:
    step_ns = 3600 * SECOND
    moved_at: list[float] = []

    def step(world: World, sample: Sample, elapsed: float) -> Sample | None:
        return shifted(sample, step_ns) if elapsed > 600 else sample

    for seed in range(4):
        world, estimator = World(seed, Conditions(duration_s=700)), Estimator()
        for elapsed, samples in world.samples(estimator.settings):
            for sample in samples:
                estimator.add(step(world, sample, elapsed) or sample)
            estimate = estimator.at(world.local(elapsed))
            if elapsed > 600 and estimator.jumps and len(moved_at) <= seed:
                moved_at.append(elapsed)
            if elapsed > 2:
                truth = world.offset_ns(estimate.local_ns) + estimator.jumps * step_ns
                assert estimate.lower_ns is not None
                assert estimate.upper_ns is not None
                assert estimate.lower_ns <= truth <= estimate.upper_ns
    assert len(moved_at) == 4
    assert all(610 < instant < 650 for instant in moved_at)


@pytest.mark.parametrize("start_ns", [0, -5 * 10**15, 2**31 - 10**9, 2**63 - 10**16])
def test_where_the_local_timeline_starts_makes_no_difference(start_ns: int) -> None:
    def errors(local_start_ns: int) -> list[int]:
        world, estimator = World(7, Conditions(), local_start_ns), Estimator()
        result = []
        for elapsed, samples in world.samples(estimator.settings):
            if elapsed > 200:
                break
            for sample in samples:
                assert estimator.add(sample).verdict is not SampleVerdict.REFUSED
            estimate = estimator.at(world.local(elapsed + 0.5))
            if estimate.offset_ns is not None:
                result.append(estimate.offset_ns - world.offset_ns(estimate.local_ns))
        return result

    assert errors(start_ns) == errors(10**12)
