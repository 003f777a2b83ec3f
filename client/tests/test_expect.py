"""When the next time message is due, foretold from those that came."""

from __future__ import annotations

import pytest

from mqtick.client.expect import Expectation

MS = 1_000_000
BEGAN = 1_800_000_000_000_000_000
LEAD_NS = 100_000


def expectation_after(
    messages: list[tuple[int, int, int]],
) -> Expectation:
    expectation = Expectation()
    for sequence, stated_ns, came_ns in messages:
        expectation.note(sequence, stated_ns, came_ns)
    return expectation


def test_one_message_foretells_nothing() -> None:
    assert expectation_after([(7, BEGAN, 5 * MS)]).due_ns is None


@pytest.mark.parametrize("interval_ns", [10 * MS, 50 * MS, 1000 * MS, 64_000 * MS])
def test_two_messages_foretell_the_third(interval_ns: int) -> None:
    found = expectation_after([(7, BEGAN, 5 * MS), (8, BEGAN + interval_ns, 5 * MS + interval_ns)])
    assert found.due_ns == 5 * MS + 2 * interval_ns - LEAD_NS


def test_it_is_ready_for_the_least_delayed_of_the_last_messages() -> None:
    delays_ns = [300_000, 900_000, 200_000, 5 * MS]
    messages = [
        (place, BEGAN + place * 50 * MS, place * 50 * MS + delay_ns)
        for place, delay_ns in enumerate(delays_ns)
    ]
    assert expectation_after(messages).due_ns == 4 * 50 * MS + 200_000 - LEAD_NS


def test_a_lost_message_changes_nothing() -> None:
    places = [0, 1, 2, 4]
    messages = [(place, BEGAN + place * 50 * MS, place * 50 * MS) for place in places]
    assert expectation_after(messages).due_ns == 5 * 50 * MS - LEAD_NS


def test_many_messages_later_old_delays_are_forgotten() -> None:
    delays_ns = [0] + [MS] * 16
    messages = [
        (place, BEGAN + place * 50 * MS, place * 50 * MS + delay_ns)
        for place, delay_ns in enumerate(delays_ns)
    ]
    assert expectation_after(messages).due_ns == 17 * 50 * MS + MS - LEAD_NS


@pytest.mark.parametrize("sequence", [3, 8 + 16, 2**32 - 1])
def test_a_leap_of_the_sequence_begins_anew(sequence: int) -> None:
    found = expectation_after([(7, BEGAN, 0), (8, BEGAN + 50 * MS, 50 * MS)])
    assert found.due_ns is not None
    found.note(sequence, BEGAN + 100 * MS, 100 * MS)
    assert found.due_ns is None
    found.note(sequence + 1, BEGAN + 150 * MS, 150 * MS)
    assert found.due_ns == 200 * MS - LEAD_NS


@pytest.mark.parametrize("interval_ns", [-50 * MS, 0, MS, 71_000 * MS])
def test_intervals_that_no_server_has_foretell_nothing(interval_ns: int) -> None:
    found = expectation_after([(7, BEGAN, 0), (8, BEGAN + interval_ns, 50 * MS)])
    assert found.due_ns is None
