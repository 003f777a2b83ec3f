"""Which edges belong to which event, whatever the instants are."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.tests.wave_parts import wave
from mqtick.analysis.captures.events import Event, Parts, Seen, events_of, look
from mqtick.analysis.signals.edges import MOST_EDGES, Edge
from mqtick.analysis.signals.transitions import Transitions

ORDER = Parts("latency", ("publisher", "first"), "publisher", "first")
CLOCK = Parts("clock", ("reference", "pi"), "reference")

gaps = st.lists(st.integers(10**9, 10**15), min_size=2, max_size=12)


def pulses(instants: list[int], width: int = 1000) -> Seen:
    """Return the edges of pulses."""
    return Seen(
        [edge for at in instants for edge in (Edge(at, True, 7), Edge(at + width, False, 7))]
    )


@settings(max_examples=50)
@given(gaps, st.data())
def test_every_latency_up_to_nine_tenths_of_the_period_is_found(
    steps: list[int], data: st.DataObject
) -> None:
    events = list(itertools.accumulate(steps))
    shortest = min(steps[1:])
    late = [data.draw(st.integers(-shortest // 30, shortest * 9 // 10)) for _ in events]
    first = [at + each for at, each in zip(events, late, strict=True)]
    seen = {"publisher": pulses(events), "first": pulses(first)}
    found, others = events_of(ORDER, seen, "rising", triggered=False)
    assert [each.marks["first"].instant_fs for each in found] == late
    assert [each.origin_fs for each in found] == events
    assert others == 0


@settings(max_examples=50)
@given(gaps, st.data())
def test_every_time_error_below_half_the_period_is_found(
    steps: list[int], data: st.DataObject
) -> None:
    events = list(itertools.accumulate(steps))
    most = min(steps[1:]) // 2 - 2
    errors = [data.draw(st.integers(-most, most)) for _ in events]
    seen = {
        "reference": pulses(events),
        "pi": pulses(sorted(at + each for at, each in zip(events, errors, strict=True)), 1),
    }
    found, _ = events_of(CLOCK, seen, "rising", triggered=False)
    assert [each.marks["pi"].instant_fs for each in found] == errors


@given(
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.booleans()), max_size=20),
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.booleans()), max_size=20),
    st.sampled_from(("rising", "falling", "both")),
    st.booleans(),
    st.sampled_from((ORDER, CLOCK)),
)
def test_every_edge_of_the_reference_is_an_event_or_counted(
    reference: list[tuple[int, bool]],
    other: list[tuple[int, bool]],
    slope: str,
    triggered: bool,
    parts: Parts,
) -> None:
    seen = {
        name: Seen([Edge(at, rising) for at, rising in sorted(edges)])
        for name, edges in zip(parts.nodes, (reference, other), strict=True)
    }
    found, others = events_of(parts, seen, slope, triggered=triggered)
    wanted = [rising for _, rising in reference if slope == "both" or rising == (slope == "rising")]
    if not wanted:
        assert [bool(each.reason) for each in found] == [True]
    else:
        assert len(found) + others == len(wanted)
        assert all(each.marks[parts.reference].instant_fs == 0 for each in found)
        assert all((parts.nodes[1] in each.marks) != bool(each.reason) for each in found)


US = 10**9


def one(publisher: Seen, first: Seen, slope: str = "rising") -> Event:
    """Return the event of a triggered capture of 1 ms."""
    seen = {
        "publisher": replace(publisher, span_fs=1000 * US),
        "first": replace(first, span_fs=1000 * US),
    }
    (event,), _ = events_of(ORDER, seen, slope, triggered=True)
    return event


def rising(*instants_us: int) -> Seen:
    return Seen([Edge(at * US, True, 7) for at in instants_us])


def test_an_old_answer_before_the_trigger_is_not_taken() -> None:
    assert one(rising(0), rising(-300, 80)).marks["first"].instant_fs == 80 * US
    assert one(rising(0), rising(-45, 20)).marks["first"].instant_fs == 20 * US
    assert one(rising(0), rising(-40, 160)).marks["first"].instant_fs == -40 * US


def test_the_other_direction_counts_only_where_both_do() -> None:
    falling = Seen([Edge(2 * US, False)])
    missed = one(rising(0), falling)
    assert "in the other direction (--edge both)" in missed.reason
    assert set(missed.marks) == {"publisher"}
    assert one(rising(0), falling, "both").marks["first"].instant_fs == 2 * US


def test_a_publisher_that_bounces_loses_no_shot() -> None:
    event = one(rising(0, 1, 2), rising(100))
    assert event.reason == ""
    assert event.marks["first"].instant_fs == 100 * US
    assert event.marks["publisher"].found == 3


def test_the_answer_to_a_later_event_of_the_record_is_not_taken() -> None:
    event = one(rising(0, 300), rising(350))
    assert "did not answer this time" in event.reason
    assert event.marks["publisher"].found == 1


def test_what_is_known_of_an_edge_is_kept() -> None:
    edge = Edge(5 * US, True, 7, "fitted", 3.5, clipped=True)
    mark = one(rising(0), Seen([edge])).marks["first"]
    assert (mark.quality, mark.samples_in_rise, mark.clipped) == ("fitted", 3.5, True)


def test_edges_keep_their_quality_when_a_cable_is_taken_off() -> None:
    (plain,), (moved,) = (look(wave(50), fs, 0.5).edges for fs in (0, 2 * US))
    assert moved.instant_fs == plain.instant_fs - 2 * US
    assert (moved.quality, moved.uncertainty_fs) == (plain.quality, plain.uncertainty_fs)
    assert moved.quality


def test_a_bus_of_five_million_changes_takes_no_memory() -> None:
    changes = 5_000_000
    instants = np.arange(changes, dtype=np.int64)
    bus = Transitions("D0", 0, instants, (instants % 2 == 0).astype(np.int8))
    tracemalloc.start()
    try:
        seen = look(bus, 0, 0.5)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert not seen.edges
    assert "5,000,000 edges" in seen.why_not
    assert f"{MOST_EDGES:,}" in seen.why_not


@pytest.mark.slow
def test_three_nodes_with_as_many_edges_as_may_be_take_less_than_400_mb() -> None:
    size, parts = (
        10_000,
        Parts("skew", ("publisher", "first", "last"), "publisher", "first", "last"),
    )
    instants = np.arange(size, dtype=np.int64) * 1000
    line = Transitions("D0", 0, instants, (np.arange(size) % 2 == 0).astype(np.int8))
    tracemalloc.start()
    try:
        seen = {name: look(line, 0, 0.5) for name in parts.nodes}
        events, _ = events_of(parts, seen, "rising", triggered=False)
        assert tracemalloc.get_traced_memory()[1] * MOST_EDGES / size < 400 * 10**6
    finally:
        tracemalloc.stop()
    assert len(events) == size // 2
    assert not any(event.reason for event in events)
