"""Every event of one record: pairs whose truth is known, and what pairs with nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording.edge_overrides import EdgeOverrides
from mqtick.recording.edges import Edge
from mqtick.recording.every_event import windows_of
from mqtick.recording.layout import Channel, Layout, Trigger
from mqtick.recording.look import ChannelEdges, look_at_all
from mqtick.recording.pairing import LEFT_OUT, Tally, describe, pair
from mqtick.recording.shot import CAPTURED, MISSED, Shot
from mqtick.recording.waveform import Waveform

US = 10**9
PERIOD = 1000 * US


def layout(kind: str = "latency", within_us: int = 0, slope: str = "rising") -> Layout:
    names = ("publisher", "first")
    return Layout(
        kind,
        {name: Channel("", 0, name, "") for name in names},
        {"": Trigger("publisher", slope)},
        publisher="publisher",
        first="" if kind == "clock" else "first",
        within_fs=within_us * US,
    )


def edges(instants: Sequence[int]) -> list[Edge]:
    """Pulses of 20 us."""
    both = [(at, True) for at in instants] + [(at + 20 * US, False) for at in instants]
    return [Edge(at, rising, 7) for at, rising in sorted(both)]


def seen(publisher: Sequence[int], first: Sequence[int], end: int = 0) -> dict[str, ChannelEdges]:
    last = end or max([*publisher, *first], default=0) + PERIOD
    ends = {"begin_fs": min([*publisher, *first], default=0) - PERIOD, "end_fs": last}
    return {
        name: ChannelEdges(edges(at), "" if at else "Flat.", interval_fs=1000, **ends)
        for name, at in (("publisher", publisher), ("first", first))
    }


def paired(of: Layout, found: dict[str, ChannelEdges]) -> tuple[list[Shot], Tally]:
    tally = Tally()
    return pair(of, found, tally), tally


def latencies_us(shots: Sequence[Shot]) -> list[int | None]:
    return [None if each.latency_fs is None else each.latency_fs // US for each in shots]


# ---- one fault each


def test_a_hundred_messages_are_a_hundred_measurements() -> None:
    events = [number * PERIOD for number in range(100)]
    late = [100 + 3 * number for number in range(100)]
    answers = [at + us * US for at, us in zip(events, late, strict=True)]
    shots, tally = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == late
    assert not tally


def test_an_event_without_an_answer_is_missed_and_its_neighbours_keep_theirs() -> None:
    events = [number * PERIOD for number in range(10)]
    answers = [at + 100 * US for number, at in enumerate(events) if number != 4]
    shots, tally = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == [100] * 4 + [None] + [100] * 5
    assert shots[4].outcome == MISSED
    assert "first has no edge that belongs to the event" in shots[4].reason
    ((what, count),) = tally.items()
    assert (what[0], count) == ("first", 1)
    assert "may be the late answer" in what[1]


def test_a_doubled_edge_of_the_publisher_is_no_event() -> None:
    events = [number * PERIOD for number in range(10)]
    doubled = sorted([*events, events[3] + 40 * US, events[7] + 30 * US])
    answers = [at + 100 * US for at in events]
    shots, tally = paired(layout(), seen(doubled, answers))
    assert latencies_us(shots) == [100] * 10
    assert shots[3].edges["publisher"].found == 2
    assert describe(tally) == [
        "publisher: 2 edges within 50 us after another one, left out as doubled."
    ]


def test_where_every_edge_of_the_publisher_is_doubled_the_events_are_still_found() -> None:
    events = [number * PERIOD for number in range(10)]
    doubled = sorted(events + [at + 2 * US for at in events] + [at + 4 * US for at in events])
    shots, tally = paired(layout(), seen(doubled, [at + 100 * US for at in events]))
    assert latencies_us(shots) == [100] * 10
    assert sum(tally.values()) == 20


def test_a_doubled_answer_counts_by_its_first_edge() -> None:
    events = [number * PERIOD for number in range(10)]
    answers = [at + late * US for at in events for late in (100, 150)]
    shots, _ = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == [100] * 10
    assert {each.edges["first"].found for each in shots} == {2}


def test_an_early_answer_that_is_doubled_counts_by_its_first_edge_too() -> None:
    events = [number * PERIOD for number in range(10)]
    answers = [at + late * US for at in events for late in (-2, 0)]
    shots, _ = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == [-2] * 10


def test_a_late_answer_makes_the_next_event_ambiguous_and_not_quick() -> None:
    events = [number * PERIOD for number in range(10)]
    late = [100] * 4 + [1020] + [100] * 5
    answers = [at + us * US for at, us in zip(events, late, strict=True)]
    shots, _ = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == [100] * 4 + [None, None] + [100] * 4
    assert "first has 2 edges after this event and none after the one before" in shots[5].reason


def test_an_answer_beyond_the_window_belongs_to_nobody() -> None:
    events = [number * PERIOD for number in range(10)]
    late = [100] * 4 + [700] + [100] * 5
    answers = [at + us * US for at, us in zip(events, late, strict=True)]
    shots, tally = paired(layout(within_us=500), seen(events, answers))
    assert latencies_us(shots) == [100] * 4 + [None] + [100] * 5
    assert "none is within 500 us of it" in shots[4].reason
    assert ("first", "of no event: none is within 500 us before") in tally


def test_an_answer_to_an_event_that_was_not_recorded_is_no_answer_to_the_one_before() -> None:
    events = [number * PERIOD for number in range(10) if number != 5]
    answers = [number * PERIOD + 100 * US for number in range(10)]
    shots, tally = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == [100] * 9
    assert [name for name, _ in tally] == ["first"]


def test_an_answer_before_the_first_event_is_counted() -> None:
    events = [number * PERIOD for number in range(1, 10)]
    answers = [at + 100 * US for at in [0, *events]]
    shots, tally = paired(layout(), seen(events, answers))
    assert latencies_us(shots) == [100] * 9
    assert "1 edge before the first event" in describe(tally)[0]


def test_the_last_event_is_left_out_where_the_record_ends_before_its_answer() -> None:
    events = [number * PERIOD for number in range(10)]
    answers = [at + 100 * US for at in events[:-1]]
    shots, tally = paired(layout(), seen(events, answers, end=events[-1] + 50 * US))
    assert latencies_us(shots) == [100] * 9
    assert tally[LEFT_OUT, "at an end of the record, without an answer within it: left out"]
    whole, _ = paired(layout(), seen(events, answers, end=events[-1] + 2 * PERIOD))
    assert whole[-1].outcome == MISSED


def test_an_answered_event_at_the_end_of_the_record_counts() -> None:
    events = [number * PERIOD for number in range(10)]
    answers = [at + 100 * US for at in events]
    shots, _ = paired(layout(), seen(events, answers, end=events[-1] + 130 * US))
    assert latencies_us(shots) == [100] * 10


def test_a_clock_may_be_early_or_late_by_the_window() -> None:
    events = [number * PERIOD for number in range(10)]
    off = [300, -300, 450, -450, 0, 10, -10, 99, -99, 5]
    ticks = sorted(at + us * US for at, us in zip(events, off, strict=True))
    shots, _ = paired(layout("clock"), seen(events, ticks))
    assert [each.clock_fs["first"] // US for each in shots] == off
    near, _ = paired(layout("clock", within_us=100), seen(events, ticks))
    assert [each.outcome for each in near] == [
        CAPTURED if -100 <= us < 100 else MISSED for us in off
    ]


def test_one_event_is_a_shot_and_none_is_a_missed_one() -> None:
    assert latencies_us(paired(layout(), seen([0], [100 * US]))[0]) == [100]
    assert latencies_us(paired(layout(within_us=500), seen([0], [100 * US]))[0]) == [100]
    for within in (0, 500):
        (shot,) = paired(layout(within_us=within), seen([], [100 * US]))[0]
        assert shot.outcome == MISSED
        assert "publisher has no edge" in shot.reason


def test_pins_that_toggle_make_an_event_of_each_direction() -> None:
    events = [number * PERIOD for number in range(8)]
    toggling = [Edge(at, number % 2 == 0, 7) for number, at in enumerate(events)]
    answers = [replace(edge, instant_fs=edge.instant_fs + 100 * US) for edge in toggling]
    found = {"publisher": ChannelEdges(toggling), "first": ChannelEdges(answers)}
    assert latencies_us(paired(layout(slope="either"), found)[0]) == [100] * 8


# ---- made-up records with known truth

late_us = st.integers(-40, 900)
"""An answer may be a twentieth of a period early, and comes before the next event's is due."""


@settings(max_examples=150)
@given(st.data())
def test_nothing_is_silently_wrong(data: st.DataObject) -> None:
    """Lost events and answers, doubled edges of both: each latency is true, each loss is said."""
    size = data.draw(st.integers(4, 40))
    jitter = data.draw(st.lists(st.integers(-20, 20), min_size=size, max_size=size))
    sent = [(1000 * number + each) * US for number, each in enumerate(jitter)]
    late = data.draw(st.lists(late_us, min_size=size, max_size=size))
    heard = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    bounced = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    twice = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    truth = dict(zip(sent, late, strict=True))
    publisher = sorted(
        [*sent, *(at + 3 * US for at, is_so in zip(sent, bounced, strict=True) if is_so)]
    )
    first = []
    for at, us, is_heard, is_twice in zip(sent, late, heard, twice, strict=True):
        if is_heard:
            first += [at + us * US] + [at + us * US + 2 * US] * is_twice
    shots, tally = paired(layout(), seen(publisher, sorted(first)))
    for shot in shots:
        if shot.outcome == CAPTURED:
            assert shot.latency_fs == truth[shot.origins_fs[0]] * US
        elif any(heard):
            assert shot.reason
    captured = sum(shot.outcome == CAPTURED for shot in shots)
    ambiguous = sum("may be a late answer" in shot.reason for shot in shots)
    if any(heard):
        assert captured + ambiguous == sum(heard)
    left_out = sum(n for (name, _), n in tally.items() if name == LEFT_OUT)
    assert len(shots) + left_out == size
    assert sum(n for (_, what), n in tally.items() if "doubled" in what) == sum(bounced)


@settings(max_examples=100)
@given(
    st.lists(st.integers(-(9 * 10**18), 9 * 10**18), max_size=30),
    st.lists(st.integers(-(9 * 10**18), 9 * 10**18), max_size=30),
    st.sampled_from(("latency", "clock")),
    st.sampled_from((0, 1, 10**9)),
)
def test_whatever_the_instants_are_each_edge_is_in_one_place(
    publisher: list[int], first: list[int], kind: str, within_us: int
) -> None:
    of = layout(kind, within_us)
    found = {
        "publisher": ChannelEdges([Edge(at, True) for at in sorted(publisher)]),
        "first": ChannelEdges([Edge(at, True) for at in sorted(first)]),
    }
    shots, tally = paired(of, found)
    assert shots
    windows = windows_of(of, found["publisher"].edges)
    assert len(windows.events) + windows.doubled == len(publisher) or windows.begin_fs is None
    if windows.begin_fs is not None and windows.end_fs is not None:
        assert (windows.begin_fs[1:] >= windows.end_fs[:-1]).all()
        used = sum(each.edges["first"].found for each in shots if "first" in each.edges)
        strays = sum(n for (_, what), n in tally.items() if "of no event" in what)
        assert used + strays == len(first)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.25))
def test_noisy_waveforms_give_the_latencies_that_were_put_in(seed: int, noise_v: float) -> None:
    random = np.random.default_rng(seed)
    late = random.uniform(50, 400, 20)
    signals = {
        name: pulse_train(shift, noise_v, random)
        for name, shift in (("publisher", np.zeros(20)), ("first", late))
    }
    of = layout()
    shots, tally = paired(of, look_at_all(of, signals))
    assert len(shots) == 20
    assert not tally
    for shot, true_us in zip(shots, late, strict=True):
        assert shot.latency_fs is not None
        uncertain = sum(edge.uncertainty_fs for edge in shot.edges.values())
        assert abs(shot.latency_fs - true_us * US) <= uncertain + US


def pulse_train(late_us: np.ndarray, noise_v: float, random: np.random.Generator) -> Waveform:  # type: ignore[type-arg]
    """Twenty pulses of 3.3 V and 200 us, 1 ms apart, sampled each microsecond."""
    at = np.arange(21_000.0) - 500
    volts = random.normal(0, noise_v, at.size)
    for number, late in enumerate(late_us):
        begin = 1000 * number + late
        volts += 3.3 * (np.clip(at - begin + 0.5, 0, 1) - np.clip(at - begin - 200, 0, 1))
    codes = np.clip(np.round(volts / 0.02) + 100, 0, 4095).astype(np.uint16)
    return Waveform(codes, 0.02, 100, US, -500 * US)


def test_the_window_by_hand_limits_the_events() -> None:
    random = np.random.default_rng(1)
    signals = {
        name: pulse_train(np.full(20, late), 0.02, random)
        for name, late in (("publisher", 0.0), ("first", 90.0))
    }
    of = replace(layout(), edge_overrides=EdgeOverrides({}, 2500 * US, 7500 * US))
    shots, _ = paired(of, look_at_all(of, signals))
    assert [round(shot.origins_fs[0] / US) for shot in shots] == [3000, 4000, 5000, 6000, 7000]
