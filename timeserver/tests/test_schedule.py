"""When time messages leave: at whole multiples of the interval, and late is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqtick.timeserver.schedule import Lateness, next_deadline_ns

MS = 1_000_000
S = 1000 * MS
NOW = 1_781_234_567 * S

instants = st.integers(0, 2**32 * S)
intervals = st.integers(10 * MS, 64 * S)


@given(instants, intervals)
def test_a_deadline_is_the_next_whole_multiple_of_the_interval(now: int, interval: int) -> None:
    deadline = next_deadline_ns(now, interval)
    assert deadline % interval == 0
    assert now < deadline <= now + interval


def test_lateness_is_counted_from_the_deadline() -> None:
    lateness = Lateness()
    for late_us in (100, 300, 200):
        lateness.note(NOW, NOW + late_us * 1000, S)
    assert (lateness.count, lateness.mean_ns) == (3, 200_000)
    assert (lateness.last_ns, lateness.maximum_ns) == (200_000, 300_000)
    assert lateness.missed == 0


def test_whole_intervals_that_passed_are_missed_deadlines() -> None:
    lateness = Lateness()
    lateness.note(NOW, NOW + 3 * S + 5 * MS, S)
    assert lateness.missed == 3


def test_before_the_first_message_there_is_no_lateness() -> None:
    assert Lateness().mean_ns == 0


def test_a_message_that_was_a_little_early_is_not_late() -> None:
    lateness = Lateness()
    lateness.note(NOW, NOW - 50_000, S)
    assert (lateness.last_ns, lateness.missed) == (0, 0)
