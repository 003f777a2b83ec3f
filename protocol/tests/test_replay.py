"""The guard against replayed time messages, and serial numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Replay, is_newer
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Leap, Time

NOW_NS = 1_781_234_567 * 10**9
SECOND = 10**9
FIRST = Time(0, 100, NOW_NS, None, 0, 1, Leap.NONE, StampSource.NONE, 3)


def later(by: int, generation: int = 3) -> Time:
    return replace(
        FIRST,
        sequence=(FIRST.sequence + by) % 2**32,
        transmit_ns=NOW_NS + by * SECOND,
        generation=generation,
    )


def refused(replay: Replay, message: Time, now_ns: int | None) -> str:
    with pytest.raises(DecodeError) as refusal:
        replay.accept(message, now_ns)
    return refusal.value.reason


def test_a_message_is_accepted_once() -> None:
    replay = Replay(SECOND)
    replay.accept(FIRST, NOW_NS)
    assert refused(replay, FIRST, NOW_NS) == "replayed"
    replay.accept(later(1), NOW_NS + SECOND)
    assert refused(replay, FIRST, NOW_NS) == "replayed"
    # Loss is no reason to refuse.
    replay.accept(later(60), NOW_NS + 60 * SECOND)


def test_a_stated_time_outside_the_tolerance_is_refused_and_changes_nothing() -> None:
    replay = Replay(5 * SECOND)
    for now_ns in (NOW_NS + 5 * SECOND + 1, NOW_NS - 5 * SECOND - 1):
        assert refused(replay, FIRST, now_ns) == "stated-time"
    replay.accept(FIRST, NOW_NS + 5 * SECOND)


def test_while_the_local_clock_is_unknown_any_stated_time_is_accepted() -> None:
    replay = Replay(SECOND)
    replay.accept(FIRST, None)
    assert refused(replay, FIRST, None) == "replayed"


def test_a_later_sequence_with_an_earlier_time_is_refused() -> None:
    replay = Replay(SECOND)
    replay.accept(FIRST, NOW_NS)
    backwards = replace(later(1), transmit_ns=NOW_NS)
    assert refused(replay, backwards, NOW_NS) == "backwards"


def test_a_new_generation_begins_anew_and_an_old_one_does_not_come_back() -> None:
    replay = Replay(SECOND)
    replay.accept(later(5), None)
    replay.accept(replace(FIRST, sequence=0, generation=4), None)
    assert refused(replay, FIRST, None) == "replayed"


def test_servers_do_not_disturb_each_other() -> None:
    replay = Replay(SECOND)
    replay.accept(later(5), None)
    replay.accept(replace(FIRST, server=1), None)
    assert refused(replay, FIRST, None) == "replayed"


def test_what_is_remembered_of_a_server_is_bounded() -> None:
    replay = Replay(SECOND)
    for generation in range(256):
        replay.accept(replace(FIRST, generation=generation), None)
    assert refused(replay, replace(FIRST, generation=248), None) == "replayed"
    replay.accept(replace(FIRST, generation=247), None)


def test_the_generation_unheard_for_longest_is_forgotten_first() -> None:
    replay = Replay(SECOND)
    for generation in range(8):
        replay.accept(later(1, generation), None)
    replay.accept(later(2, 0), None)
    replay.accept(later(1, 8), None)
    assert refused(replay, later(2, 0), None) == "replayed"
    replay.accept(later(1, 1), None)


def test_the_sequence_may_wrap() -> None:
    replay = Replay(SECOND)
    before = replace(FIRST, sequence=2**32 - 1)
    replay.accept(before, None)
    replay.accept(replace(later(1), sequence=0), None)
    assert refused(replay, before, None) == "replayed"


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_newer_is_serial_number_arithmetic(one: int, other: int) -> None:
    # RFC 1982, 3.2, as it is written there; half the circle apart, neither is newer.
    half = 2**31
    expected = (other < one and one - other < half) or (one < other and other - one > half)
    assert is_newer(one, other) == expected
    assert not (is_newer(one, other) and is_newer(other, one))


def test_half_the_circle_ahead_is_not_newer() -> None:
    assert is_newer(2**31 - 1, 0)
    assert not is_newer(2**31, 0)
    assert not is_newer(0, 2**31)
    assert not is_newer(7, 7)


def test_a_tolerance_that_refuses_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="every message would be refused"):
        Replay(0)
