"""Which edges belong to which event, whatever the instants are."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording.edges import MOST_EDGES, Edge
from mqtick.recording.judge import Origin, judge
from mqtick.recording.layout import Advice, Channel, Layout, Trigger
from mqtick.recording.look import ChannelEdges, look
from mqtick.recording.shot import Shot
from mqtick.recording.transitions import Transitions
from recording.tests.wave_parts import wave


def layout(kind: str, *names: str, slope: str = "rising", delay_fs: int = 0) -> Layout:
    """Describe what somebody saved by hand: the publisher, or the reference clock, is the first."""
    return Layout(
        kind,
        {name: Channel("", 0, name, "", delay_fs) for name in names},
        {"": Trigger(names[0], slope)},
        publisher=names[0],
        first="" if kind == "clock" else names[1],
        last=names[2] if len(names) > 2 else "",
        advice=Advice("record more", "with --edge both"),
    )


ORDER = layout("latency", "publisher", "first")
CLOCK = layout("clock", "reference", "pi")

gaps = st.lists(st.integers(10**9, 10**15), min_size=2, max_size=12)


def pulses(instants: list[int], width: int = 1000) -> ChannelEdges:
    """Return the edges of pulses."""
    return ChannelEdges(
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
    found = judge(ORDER, seen, Origin.START)
    assert [each.edges["first"].instant_fs for each in found] == late
    assert [each.origins_fs for each in found] == [(at,) for at in events]


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
    found = judge(CLOCK, seen, Origin.START)
    assert [each.edges["pi"].instant_fs for each in found] == errors


@given(
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.booleans()), max_size=20),
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.booleans()), max_size=20),
    st.sampled_from(("rising", "falling", "both")),
    st.sampled_from((Origin.START, Origin.TRIGGER)),
    st.sampled_from((ORDER, CLOCK)),
)
def test_every_edge_of_the_reference_is_an_event_or_the_nearest_is(
    reference: list[tuple[int, bool]],
    other: list[tuple[int, bool]],
    slope: str,
    origin: Origin,
    of: Layout,
) -> None:
    seen = {
        name: ChannelEdges([Edge(at, rising) for at, rising in sorted(edges)])
        for name, edges in zip(of.channels, (reference, other), strict=True)
    }
    directed = replace(of, triggers={"": replace(of.triggers[""], slope=slope)})
    found = judge(directed, seen, origin)
    wanted = [rising for _, rising in reference if slope == "both" or rising == (slope == "rising")]
    name, another = of.channels
    if not wanted:
        assert [bool(each.reason) for each in found] == [True]
    else:
        assert len(found) == (len(wanted) if origin is Origin.START else 1)
        assert all(each.edges[name].instant_fs == 0 for each in found)
        assert all((another in each.edges) != bool(each.reason) for each in found)


US = 10**9


def one(publisher: ChannelEdges, first: ChannelEdges, slope: str = "rising") -> Shot:
    """Return the shot of a triggered capture of 1 ms."""
    seen = {
        "publisher": replace(publisher, end_fs=1000 * US),
        "first": replace(first, end_fs=1000 * US),
    }
    (shot,) = judge(layout("latency", *seen, slope=slope), seen, Origin.TRIGGER)
    return shot


def rising(*instants_us: int) -> ChannelEdges:
    return ChannelEdges([Edge(at * US, True, 7) for at in instants_us])


def test_an_old_answer_before_the_trigger_is_not_taken() -> None:
    assert one(rising(0), rising(-300, 80)).edges["first"].instant_fs == 80 * US
    assert one(rising(0), rising(-45, 20)).edges["first"].instant_fs == 20 * US
    assert one(rising(0), rising(-40, 160)).edges["first"].instant_fs == -40 * US


def test_the_other_direction_counts_only_where_both_do() -> None:
    falling = ChannelEdges([Edge(2 * US, False)])
    missed = one(rising(0), falling)
    assert "either direction counts with --edge both" in missed.reason
    assert set(missed.edges) == {"publisher"}
    assert one(rising(0), falling, "both").edges["first"].instant_fs == 2 * US


def test_a_publisher_that_bounces_loses_no_shot() -> None:
    event = one(rising(0, 1, 2), rising(100))
    assert event.reason == ""
    assert event.edges["first"].instant_fs == 100 * US
    assert event.edges["publisher"].found == 3


def test_the_answer_to_a_later_event_of_the_record_is_not_taken() -> None:
    event = one(rising(0, 300), rising(350))
    assert "an answer to another event" in event.reason
    assert event.edges["publisher"].found == 1


def test_what_is_known_of_an_edge_is_kept() -> None:
    edge = Edge(5 * US, True, 7, "fitted", 3.5, clipped=True)
    mark = one(rising(0), ChannelEdges([edge])).edges["first"]
    assert (mark.quality, mark.samples_in_rise, mark.clipped) == ("fitted", 3.5, True)


def test_a_cable_is_taken_off_whatever_the_instants_count_from() -> None:
    for origin in Origin:
        late = replace(
            ORDER, channels=ORDER.channels | {"first": Channel("", 0, "first", "", 2 * US)}
        )
        seen = {"publisher": look(wave(0)), "first": look(wave(50))}
        (plain,), (moved,) = (judge(each, seen, origin) for each in (ORDER, late))
        assert moved.latency_fs == (plain.latency_fs or 0) - 2 * US
        assert moved.edges["first"].quality == plain.edges["first"].quality
        assert moved.edges["first"].uncertainty_fs == plain.edges["first"].uncertainty_fs


def test_a_bus_of_five_million_changes_takes_no_memory() -> None:
    changes = 5_000_000
    instants = np.arange(changes, dtype=np.int64)
    bus = Transitions("D0", 0, instants, (instants % 2 == 0).astype(np.int8))
    tracemalloc.start()
    try:
        seen = look(bus)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert not seen.edges
    assert "5,000,000 edges" in seen.why_not
    assert f"{MOST_EDGES:,}" in seen.why_not


@pytest.mark.slow
def test_three_nodes_with_as_many_edges_as_may_be_take_less_than_half_a_gigabyte() -> None:
    size, of = 10_000, layout("skew", "publisher", "first", "last")
    instants = np.arange(size, dtype=np.int64) * 1000
    line = Transitions("D0", 0, instants, (np.arange(size) % 2 == 0).astype(np.int8))
    tracemalloc.start()
    try:
        seen = {name: look(line) for name in of.channels}
        events = judge(of, seen, Origin.START)
        assert tracemalloc.get_traced_memory()[1] * MOST_EDGES / size < 500 * 10**6
    finally:
        tracemalloc.stop()
    assert len(events) == size // 2
    assert not any(event.reason for event in events)


@pytest.mark.slow
def test_events_without_an_answer_are_said_in_a_time_that_grows_with_the_record_only() -> None:
    """Looking at every edge for each of them took 44 s for a hundred thousand changes."""
    size = 60_000
    line = np.arange(size, dtype=np.int64) * 10**9
    levels = (np.arange(size) % 2 == 0).astype(np.int8)
    seen = {
        "publisher": look(Transitions("D0", 0, line, levels)),
        "first": look(Transitions("D1", 0, line[: size // 2] + 10**8, levels[: size // 2])),
    }
    began_s = time.process_time()
    shots = judge(layout("latency", "publisher", "first"), seen, Origin.START)
    assert time.process_time() - began_s < 30
    assert [bool(shot.reason) for shot in shots] == [False] * (size // 4) + [True] * (size // 4)
