"""Exchanges keep out of the broadcast's way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.rhythm import Rhythm

SECOND = 1_000_000_000
MS = 1_000_000


def heard(interval_ns: int = SECOND) -> Rhythm:
    rhythm = Rhythm()
    rhythm.note(5 * SECOND, next_in_row=False)
    rhythm.note(5 * SECOND + interval_ns, next_in_row=True)
    return rhythm


@given(st.integers(0, 100 * SECOND), st.integers(0, 700 * MS))
def test_a_burst_that_waited_meets_no_broadcast(now_ns: int, length_ns: int) -> None:
    start_ns = now_ns + heard().wait_ns(now_ns, length_ns)
    phase_ns = start_ns % SECOND
    assert phase_ns >= 150 * MS
    assert phase_ns + length_ns <= 950 * MS


def test_those_who_wait_do_not_all_come_at_once() -> None:
    starts = {heard().wait_ns(10 * SECOND, 180 * MS) for _ in range(50)}
    assert len(starts) > 40
    assert max(starts) - min(starts) > 200 * MS


def test_nobody_waits_where_there_is_no_room() -> None:
    assert heard(100 * MS).wait_ns(10 * SECOND, 180 * MS) == 0


def test_nobody_waits_before_the_interval_is_known() -> None:
    rhythm = Rhythm()
    assert rhythm.wait_ns(0, 0) == 0
    rhythm.note(0, next_in_row=False)
    rhythm.note(3 * SECOND, next_in_row=False)  # one or more were lost
    assert rhythm.wait_ns(3 * SECOND, 0) == 0
