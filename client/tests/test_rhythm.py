"""When the next time message is due, and when no message is in an exchange's way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.rhythm import Rhythm

SECOND, MS = 1_000_000_000, 1_000_000
BEGAN = 1_800_000_000_000_000_000
LEAD_NS = 100_000
FIRST = 7


def heard(
    delays_ns: list[int], interval_ns: int = 50 * MS, places: list[int] | None = None
) -> Rhythm:
    """Messages with these delays, all in a row unless places are given."""
    rhythm = Rhythm()
    for place, delay_ns in zip(places or range(len(delays_ns)), delays_ns, strict=True):
        passed_ns = place * interval_ns
        rhythm.note(FIRST + place, BEGAN + passed_ns, passed_ns + delay_ns)
    return rhythm


def test_one_message_foretells_nothing() -> None:
    assert heard([5 * MS]).due_ns is None
    assert Rhythm().wait_ns(0, 0) == heard([0]).wait_ns(0, 0) == 0


@pytest.mark.parametrize("interval_ns", [10 * MS, 50 * MS, 1000 * MS, 64_000 * MS])
def test_two_messages_foretell_the_third(interval_ns: int) -> None:
    found = heard([5 * MS, 5 * MS], interval_ns)
    assert found.due_ns == 5 * MS + 2 * interval_ns - LEAD_NS


@pytest.mark.parametrize(
    ("delays_ns", "places", "due_ns"),
    [
        ([300_000, 900_000, 200_000, 5 * MS], None, 4 * 50 * MS + 200_000),
        ([0, 0, 0, 0], [0, 1, 2, 4], 5 * 50 * MS),
        ([0] + [MS] * 16, None, 17 * 50 * MS + MS),
    ],
    ids=["least delayed", "one lost", "old delay forgotten"],
)
def test_it_is_ready_for_the_least_delayed_of_the_last_messages(
    delays_ns: list[int], places: list[int] | None, due_ns: int
) -> None:
    assert heard(delays_ns, places=places).due_ns == due_ns - LEAD_NS


@pytest.mark.parametrize("sequence", [3, FIRST + 1 + 16, 2**32 - 1])
def test_a_leap_of_the_sequence_begins_anew(sequence: int) -> None:
    found = heard([0, 0])
    found.note(sequence, BEGAN + 100 * MS, 100 * MS)
    assert found.due_ns is None
    found.note(sequence + 1, BEGAN + 150 * MS, 150 * MS)
    assert found.due_ns == 200 * MS - LEAD_NS


@pytest.mark.parametrize("interval_ns", [-50 * MS, 0, MS, 71_000 * MS])
def test_intervals_that_no_server_has_foretell_nothing(interval_ns: int) -> None:
    found = heard([0, 0], interval_ns)
    assert found.due_ns is None
    assert found.wait_ns(10 * SECOND, 0) == 0


@given(st.integers(0, 100 * SECOND), st.integers(0, 700 * MS))
def test_a_burst_that_waited_meets_no_broadcast(now_ns: int, length_ns: int) -> None:
    start_ns = now_ns + heard([0, 0], SECOND).wait_ns(now_ns, length_ns)
    phase_ns = start_ns % SECOND
    assert phase_ns >= 150 * MS
    assert phase_ns + length_ns <= 950 * MS


def test_those_who_wait_do_not_all_come_at_once() -> None:
    starts = {heard([0, 0], SECOND).wait_ns(10 * SECOND, 180 * MS) for _ in range(50)}
    assert len(starts) > 40
    assert max(starts) - min(starts) > 200 * MS


def test_nobody_waits_where_there_is_no_room() -> None:
    assert heard([0, 0], 100 * MS).wait_ns(10 * SECOND, 180 * MS) == 0
