"""One edge at each whole second: on time or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.pins import LatencyClass, Output, PinSettings, Pps, PpsEdge, monotonic_raw_ns
from mqtick.pins import pps as pps_module
from mqtick.pins.pps import LATE_LIMIT_NS, LEAD_NS, REHEARSE_NS

SECOND_NS = 1_000_000_000
READ_NS = 100
EPOCH_NS = 1_800_000_000 * SECOND_NS


class World:
    """A raw clock that advances by 100 ns at each reading, a disciplined clock, and a line."""

    name = "simulated line"
    latency_class = LatencyClass.SIMULATED

    def __init__(self, offset_ns: int = EPOCH_NS, skew_ppm: int = 0, **settings: object) -> None:
        self.raw_ns = 5_000_000_000
        self.offset_ns = offset_ns
        self.skew_ppm = skew_ppm
        self.synchronised = True
        self.failing_level: bool | None = None
        self.edges: list[int] = []
        self.level = False
        self.rehearsed: list[int] = []
        self.at_raw_ns: dict[int, Callable[[], None]] = {}
        wish = PinSettings(**settings)  # type: ignore[arg-type]
        self.output = Output(self, wish, self.now)

    def now(self) -> int:
        self.raw_ns += READ_NS
        for due_ns in [due_ns for due_ns in self.at_raw_ns if due_ns <= self.raw_ns]:
            self.at_raw_ns.pop(due_ns)()
        return self.raw_ns

    def raw_of_time(self, time_ns: int) -> int | None:
        if not self.synchronised:
            return None
        since_ns = time_ns - self.offset_ns
        return since_ns - since_ns * self.skew_ppm // 1_000_000

    def set(self, level: bool) -> None:
        if level is self.failing_level:
            raise OSError("the wire is cut")
        (self.rehearsed if level == self.level else self.edges).append(self.raw_ns)
        self.level = level

    def close(self) -> None:
        pass

    def pps(self) -> Pps:
        return Pps(
            self.output,
            self.raw_of_time,
            now=self.now,
            rough_time_ns=lambda: EPOCH_NS - 86_400 * SECOND_NS,
        )

    def sleep_until(self, raw_ns: int) -> None:
        self.raw_ns = max(self.raw_ns, raw_ns)

    def due(self, pps: Pps) -> int:
        due_ns = pps.next_due_ns()
        assert due_ns is not None
        return due_ns

    def step(self, pps: Pps, late_ns: int = 0) -> PpsEdge | None:
        """Do what an event loop does: sleep until it is due, and hand over."""
        self.sleep_until(self.due(pps) + late_ns)
        return pps.run(self.raw_ns)


def raw_of(world: World, time_ns: int) -> int:
    raw_ns = world.raw_of_time(time_ns)
    assert raw_ns is not None
    return raw_ns


def test_it_hands_over_one_lead_before_the_next_whole_second() -> None:
    world = World()
    pps = world.pps()
    assert world.due(pps) == 6 * SECOND_NS - LEAD_NS
    assert world.due(pps) == 6 * SECOND_NS - LEAD_NS


def test_it_begins_with_a_second_that_leaves_the_whole_lead() -> None:
    for before_ns, second_ns in [(LEAD_NS + 1000, 6 * SECOND_NS), (LEAD_NS - 1000, 7 * SECOND_NS)]:
        world = World()
        world.sleep_until(6 * SECOND_NS - before_ns)
        assert world.due(world.pps()) == second_ns - LEAD_NS


@pytest.mark.slow
@given(
    st.integers(0, 2 * SECOND_NS),
    st.integers(-500, 500),
)
def test_edges_come_at_each_whole_second_and_not_before(offset_ns: int, skew_ppm: int) -> None:
    world = World(EPOCH_NS + offset_ns, skew_ppm)
    pps = world.pps()
    seconds = []
    for _ in range(5):
        edge = world.step(pps)
        assert edge is not None
        assert edge.second_ns % SECOND_NS == 0
        assert edge.target_raw_ns == raw_of(world, edge.second_ns)
        assert 0 <= edge.before_ns - edge.target_raw_ns <= 3 * READ_NS
        assert edge.before_ns <= world.edges[-1] <= edge.after_ns
        seconds.append(edge.second_ns)
    assert seconds == list(range(seconds[0], seconds[0] + 5 * SECOND_NS, SECOND_NS))
    assert (pps.made, pps.missed, pps.failed) == (5, 0, 0)


def test_a_little_late_within_the_limit_is_made_at_once() -> None:
    world = World()
    edge = world.step(world.pps(), late_ns=LEAD_NS + LATE_LIMIT_NS // 2)
    assert edge is not None


def test_too_late_is_left_out_and_counted_and_the_next_comes_on_time() -> None:
    world = World()
    pps = world.pps()
    assert world.step(pps, late_ns=LEAD_NS + LATE_LIMIT_NS + 1) is None
    assert world.edges == []
    assert pps.missed == 1
    assert world.due(pps) == 7 * SECOND_NS - LEAD_NS
    assert world.step(pps) is not None
    assert (pps.made, pps.missed) == (1, 1)


def test_held_up_while_spinning_is_too_late_as_well() -> None:
    world = World()
    pps = world.pps()

    def hold_up() -> None:
        world.raw_ns += 5_000_000

    world.at_raw_ns[6 * SECOND_NS - 1000] = hold_up
    assert world.step(pps) is None
    assert world.edges == []
    assert pps.missed == 1


def test_held_up_just_before_the_edge_is_counted_as_late() -> None:
    world = World()
    pps = world.pps()

    def hold_up() -> None:
        world.raw_ns += LATE_LIMIT_NS + 1

    world.at_raw_ns[6 * SECOND_NS + 1] = hold_up  # the spin has ended at 6 s + 0
    edge = world.step(pps)
    assert edge is not None
    assert edge.before_ns - edge.target_raw_ns > LATE_LIMIT_NS
    assert (pps.made, pps.late, pps.missed) == (1, 1, 0)


def test_the_edge_is_rehearsed_if_there_is_time_and_only_then() -> None:
    world = World()
    pps = world.pps()
    world.step(pps)
    assert len(world.rehearsed) == 1
    assert world.rehearsed[0] < 6 * SECOND_NS
    assert len(world.edges) == 1
    world.step(pps, late_ns=LEAD_NS - REHEARSE_NS)
    assert len(world.rehearsed) == 1
    assert (pps.made, pps.late) == (2, 0)


def test_each_second_of_a_long_stall_is_counted() -> None:
    world = World()
    pps = world.pps()
    world.step(pps)
    world.sleep_until(world.raw_ns + 10 * SECOND_NS)
    assert world.due(pps) < world.raw_ns
    assert pps.run(world.raw_ns) is None
    assert pps.missed == 10
    edge = world.step(pps)
    assert edge is not None
    assert edge.second_ns == EPOCH_NS + 17 * SECOND_NS


def test_too_early_returns_at_once_without_an_edge() -> None:
    world = World()
    pps = world.pps()
    before_ns = world.raw_ns
    assert pps.run(world.raw_ns) is None
    assert world.raw_ns == before_ns
    assert (pps.made, pps.missed, world.edges) == (0, 0, [])


def test_a_better_estimate_moves_the_edge_but_never_doubles_it() -> None:
    world = World()
    pps = world.pps()
    first = world.step(pps)
    world.offset_ns -= 300_000  # the second that just was now lies ahead again
    second = world.step(pps)
    assert first is not None
    assert second is not None
    assert second.second_ns == EPOCH_NS + 7 * SECOND_NS
    assert second.target_raw_ns == 7 * SECOND_NS + 300_000
    assert pps.missed == 0


def test_a_clock_that_is_not_synchronised_makes_no_edges() -> None:
    world = World()
    pps = world.pps()
    world.synchronised = False
    assert pps.next_due_ns() is None
    assert pps.run(6 * SECOND_NS) is None
    world.synchronised = True
    assert world.step(pps) is not None


def test_losing_synchronisation_between_due_and_run_makes_no_edge_and_misses_none() -> None:
    world = World()
    pps = world.pps()
    world.sleep_until(world.due(pps))
    world.synchronised = False
    assert pps.run(world.raw_ns) is None
    world.sleep_until(20 * SECOND_NS)
    assert pps.next_due_ns() is None
    world.synchronised = True
    assert world.due(pps) == 21 * SECOND_NS - LEAD_NS
    assert (pps.made, pps.missed, world.edges) == (0, 0, [])


def test_a_clock_stepped_back_starts_anew_instead_of_waiting_an_hour() -> None:
    world = World()
    pps = world.pps()
    world.step(pps)
    world.offset_ns -= 3600 * SECOND_NS + 250_000_000
    assert world.due(pps) <= world.raw_ns + SECOND_NS
    edge = world.step(pps)
    assert edge is not None
    assert edge.second_ns % SECOND_NS == 0
    assert edge.second_ns < EPOCH_NS - 3500 * SECOND_NS
    assert pps.missed == 0


def test_a_clock_stepped_forward_misses_what_was_due_and_not_an_hour() -> None:
    world = World()
    pps = world.pps()
    world.step(pps)
    world.offset_ns += 3600 * SECOND_NS
    assert world.step(pps) is None
    assert pps.missed == 1
    edge = world.step(pps)
    assert edge is not None
    assert edge.second_ns > EPOCH_NS + 3600 * SECOND_NS


@pytest.mark.parametrize("width_us", [50, 200])
def test_a_pulse_that_fails_does_not_cost_the_next_one(width_us: int) -> None:
    world = World(mode="pulse", width_us=width_us)
    pps = world.pps()
    world.failing_level = True
    assert world.step(pps) is None
    world.failing_level = None
    assert world.step(pps) is not None
    assert (pps.made, pps.failed, world.output.errors) == (1, 1, 1)


def test_an_output_that_fails_is_counted_and_the_next_second_is_tried() -> None:
    world = World()
    pps = world.pps()
    world.failing_level = True
    assert world.step(pps) is None
    world.failing_level = None
    assert world.step(pps) is not None
    assert (pps.made, pps.missed, pps.failed) == (1, 0, 1)
    assert world.output.errors == 1


def test_with_the_real_clock_an_edge_is_within_its_limit_or_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pps_module, "SECOND_NS", SECOND_NS // 100)
    world = World()
    output = Output(world, PinSettings(), monotonic_raw_ns)
    pps = Pps(output, lambda time_ns: time_ns, rough_time_ns=lambda: 0)
    for _ in range(5):
        due_ns = pps.next_due_ns()
        assert due_ns is not None
        while monotonic_raw_ns() < due_ns:
            pass
        edge = pps.run(monotonic_raw_ns())
        assert edge is None or edge.before_ns >= edge.target_raw_ns
    assert pps.made + pps.missed >= 5
