"""Messages in their own time through the hardware broker's model, without its idle stretches."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.lab.hardware.copies import PUBLISHER, TRAILER_OCTETS, subscriber
from mqtick.lab.hardware.crossing import Copy, Message, cross, without_idle
from mqtick.lab.hardware.datagrams import CYCLE_FS, publish
from mqtick.lab.hardware.program import ModelError

FAKE = Path(__file__).with_name("fake_model.py")
FIRST_COPY, EACH = 30, 14
SECOND_FS = 10**15
PEERS = {subscriber(number): "a/t" for number in (1, 2, 3)}


def message(at_fs: int, number: int = 0, copies: int = 3) -> Message:
    return Message(at_fs, PUBLISHER, publish("a/t", bytes([number]) + bytes(40)), copies)


def entered(*cycles: int) -> list[int]:
    messages = [message(cycle * CYCLE_FS) for cycle in cycles]
    return without_idle(messages, first=7, link_gbps=10)


def test_a_message_is_taken_in_the_first_cycle_that_begins_after_it_came() -> None:
    assert entered(0) == entered(10**9) == [7]
    late, punctual = (
        without_idle([message(0), message(5 * CYCLE_FS + more)], first=7, link_gbps=10)
        for more in (1, 0)
    )
    assert (punctual, late) == ([7, 12], [7, 13])


def test_in_a_busy_stretch_every_cycle_is_run() -> None:
    assert entered(0, 3, 3, 200) == [7, 10, 10, 207]


def test_an_idle_second_is_left_out() -> None:
    first, second, third = entered(0, SECOND_FS // CYCLE_FS, SECOND_FS // CYCLE_FS + 2)
    assert 200 < second - first < 300
    assert third - second == 2


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 4000)), min_size=2, max_size=20))
def test_nothing_enters_early_or_while_copies_of_an_earlier_time_leave(
    drawn: list[tuple[int, int]],
) -> None:
    at, messages = 0, []
    for gap, copies in drawn:
        at += gap
        messages.append(message(at * CYCLE_FS, copies=copies))
    found = without_idle(messages, first=0, link_gbps=10)
    busy_until = 0
    for place, (before, after) in enumerate(pairwise(found)):
        gap, copies = drawn[place + 1][0], drawn[place][1]
        assert 0 <= after - before <= max(gap, 1)
        busy_until = max(busy_until, before) + copies * 14  # of 112 octets
        assert after - before == gap or after >= busy_until


def test_copies_leave_in_the_time_of_their_messages() -> None:
    at_fs = (SECOND_FS // CYCLE_FS) * CYCLE_FS
    all_copies = cross(FAKE, PEERS, [message(0, 1), message(at_fs, 2)], link_gbps=10)
    for began_fs, copies in zip((0, at_fs), all_copies, strict=True):
        assert [copy.at_fs - began_fs for copy in copies] == [
            (FIRST_COPY + EACH * place) * CYCLE_FS for place in range(3)
        ]
        assert [copy.receiver for copy in copies] == list(PEERS)


def test_a_subscriber_may_have_several_filters() -> None:
    filters = {peer: ["a/t", "b/+"] for peer in PEERS}
    (copies,) = cross(FAKE, filters, [message(0)], link_gbps=10)
    assert isinstance(copies[0], Copy)
    assert len(copies) == 3


def test_what_the_broker_fills_does_not_tell_messages_apart() -> None:
    assert len(message(0).key) == len(message(0).octets) - TRAILER_OCTETS
    with pytest.raises(ModelError, match="Two messages are alike"):
        cross(FAKE, PEERS, [message(0), message(SECOND_FS)], link_gbps=10)


def test_a_copy_too_few_is_a_sentence() -> None:
    with pytest.raises(ModelError, match="became 3 copies instead of 4"):
        cross(FAKE, PEERS, [message(0, copies=4)], link_gbps=10)
