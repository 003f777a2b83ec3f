"""What a track makes of messages that come, fail to come, or should not have come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from track_bench import (
    KEYS,
    MS,
    NAME,
    OFFSET_NS,
    OTHER_KEYS,
    SECOND,
    TREE,
    US,
    WAY_NS,
    Bench,
    arrival,
    is_inside,
)

from mqtick.client.estimate import State
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind, Reason, SampleVerdict
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Leap


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def keyed() -> Bench:
    return Bench(KEYS)


# -- broadcasts ------------------------------------------------------------------------------------


def test_a_time_message_becomes_a_sample_when_its_follow_up_comes_with_the_next(
    bench: Bench,
) -> None:
    bench.hear(bench.time(1))
    assert bench.samples == []
    bench.clock.now_ns += SECOND
    bench.hear(bench.time(2, correction_ns=30 * US))
    (wall,) = bench.of(Kind.ONE_WAY)
    assert wall.sample.sequence == 1
    # It left 30 us later than it says, so it took 30 us less.
    assert wall.offset_ns == OFFSET_NS - WAY_NS + 30 * US


def test_a_time_message_counts_at_once_where_follow_ups_are_switched_off() -> None:
    bench = Bench(settings=EstimatorSettings(use_follow_up=False))
    bench.hear(bench.time(1))
    assert [wall.offset_ns for wall in bench.samples] == [OFFSET_NS - WAY_NS]


def test_a_lost_message_costs_the_one_before_it_and_is_counted(bench: Bench) -> None:
    for sequence in (1, 3, 4):
        bench.hear(bench.time(sequence))
        bench.clock.now_ns += SECOND
    assert [wall.sample.sequence for wall in bench.samples] == [3]
    assert bench.refused == {"no-follow-up": 1}


def test_sequences_wrap(bench: Bench) -> None:
    bench.hear_times(2**32 - 2, 4)
    assert [wall.sample.sequence for wall in bench.samples] == [2**32 - 2, 2**32 - 1, 0]
    assert not bench.refused


def test_a_retained_message_is_refused_however_good_it_looks(bench: Bench) -> None:
    bench.hear(bench.time(1), retain=True)
    bench.hear(bench.time(2))
    assert bench.samples == []
    assert bench.refused == {"retained": 1}


@pytest.mark.parametrize("payload", [b"", b"\x11" * 31, b"\x12" * 32])
def test_what_is_no_time_message_is_counted_and_ignored(bench: Bench, payload: bytes) -> None:
    bench.hear(payload)
    assert bench.samples == []
    assert sum(bench.refused.values()) == 1


def test_with_keys_a_broadcast_before_an_authenticated_exchange_is_refused(keyed: Bench) -> None:
    keyed.hear(keyed.time(0))
    assert keyed.track.heard_raw_ns == keyed.clock.now_ns, "it is still a sign of life"
    keyed.hear_times(1, 2)
    assert keyed.samples == []
    assert keyed.refused == {"before-exchange": 3}
    keyed.exchange()
    keyed.hear_times(4, 2)
    assert len(keyed.used(Kind.ONE_WAY)) == 1


@pytest.mark.parametrize(
    ("keys", "forger", "number", "reason"),
    [
        (KEYS, Bench(OTHER_KEYS), 0, "tag"),
        (KEYS, Bench(), 0, "unsigned"),
        (KEYS, Bench(KEYS, number=1), 0, "tag"),  # signed for another server's topic
        (None, Bench(), 1, "server"),
    ],
)
def test_a_broadcast_of_somebody_else_is_refused_and_is_no_sign_of_life(
    keys: Keyring | None, forger: Bench, number: int, reason: str
) -> None:
    bench = Bench(keys)
    bench.hear(forger.time(1, number=number))
    assert bench.refused == {reason: 1}
    assert bench.track.heard_raw_ns is None


def test_a_replayed_broadcast_is_refused(keyed: Bench) -> None:
    keyed.exchange()
    old = keyed.time(1)
    keyed.hear(old)
    keyed.hear_times(2, 3)
    before = len(keyed.samples)
    keyed.hear(old)
    assert keyed.refused == {"replayed": 1}
    assert len(keyed.samples) == before


@pytest.mark.parametrize("keys", [None, KEYS], ids=["no keys", "keys"])
def test_a_stray_sequence_silences_a_server_until_the_next_exchange_only(
    keys: Keyring | None,
) -> None:
    bench = Bench(keys)
    bench.exchange()
    bench.hear_times(1, 2)
    bench.hear(bench.time(2**30))
    bench.hear_times(3, 2)
    assert bench.refused["replayed"] == 2
    bench.exchange()
    bench.hear_times(5, 2)
    assert bench.refused["replayed"] == 2


def test_a_server_that_starts_again_under_its_old_generation_is_heard_and_gone_behind(
    keyed: Bench,
) -> None:
    keyed.go_behind_first_echo()
    keyed.hear_times(1000, 2)
    keyed.hear_times(1, 3)
    assert keyed.refused["replayed"] == 3
    keyed.echo_exchange()
    assert keyed.of(Kind.ECHO) == [], "its first echo subscribed after us"
    assert len(keyed.placing) == 2
    keyed.hear_times(4, 2)
    assert keyed.refused["replayed"] == 3


def test_a_time_an_hour_off_is_refused_and_moves_nothing(bench: Bench) -> None:
    bench.exchange()
    bench.hear_times(1, 3)
    before = bench.offset_ns
    bench.hear(bench.time(4, jump_ns=3601 * SECOND))
    bench.hear(bench.time(5, jump_ns=-3601 * SECOND))
    assert bench.refused["stated-time"] == 2
    assert bench.offset_ns == before


def test_a_smaller_jump_contradicts_the_interval_and_moves_nothing(bench: Bench) -> None:
    bench.exchange()
    bench.hear(bench.time(1, jump_ns=60 * SECOND))
    bench.hear(bench.time(2, jump_ns=60 * SECOND))
    assert bench.of(Kind.ONE_WAY) != []
    assert bench.used(Kind.ONE_WAY) == []
    assert abs((bench.offset_ns or 0) - OFFSET_NS) < WAY_NS


# -- generations -----------------------------------------------------------------------------------


def test_another_generation_in_a_broadcast_only_makes_the_client_ask(bench: Bench) -> None:
    bench.exchange()
    bench.hear_times(1, 2)
    before, resets = bench.offset_ns, bench.track.estimator.resets
    bench.hear(bench.time(3, generation=8))
    assert bench.track.wants_exchange
    assert bench.refused == {"generation": 1}
    assert bench.track.estimator.resets == resets
    assert bench.offset_ns == before
    assert bench.track.generation == 7


def test_another_generation_in_an_exchange_starts_anew(keyed: Bench) -> None:
    keyed.exchange()
    resets = keyed.track.estimator.resets
    keyed.generation = 8
    keyed.hear(keyed.time(1))
    keyed.exchange()
    assert keyed.track.estimator.resets == resets + 1
    assert keyed.track.generation == 8
    assert not keyed.track.wants_exchange
    assert keyed.track.authenticated
    keyed.hear_times(2, 2)
    assert len(keyed.used(Kind.ONE_WAY)) == 1


def test_where_no_exchange_is_made_a_broadcast_may_change_the_generation() -> None:
    bench = Bench(settings=EstimatorSettings(use_two_way=False))
    bench.hear_times(1, 2)
    bench.generation = 8
    bench.hear_times(1, 2)
    assert bench.track.generation == 8
    assert not bench.refused


# -- exchanges -------------------------------------------------------------------------------------


def test_an_exchange_tells_the_offset_and_its_interval(bench: Bench) -> None:
    bench.exchange()
    (wall,) = bench.used(Kind.TWO_WAY)
    assert wall.offset_ns == OFFSET_NS
    assert (wall.sample.lower_ns, wall.sample.upper_ns) == (OFFSET_NS - WAY_NS, OFFSET_NS + WAY_NS)
    assert bench.track.last_delay_ns == 2 * WAY_NS


def test_a_request_goes_to_the_servers_topic_with_a_nonce_of_its_own(keyed: Bench) -> None:
    for _ in range(3):
        keyed.track.ask()
    assert {topic for topic, *_ in keyed.sent} == {TREE.request(0, NAME)}
    nonces = {payload[6:14] for _, payload, _ in keyed.sent}
    sequences = [int.from_bytes(payload[2:6], "big") for _, payload, _ in keyed.sent]
    assert len(nonces) == 3
    assert sequences[2] - sequences[0] == 2


def test_the_sequence_of_requests_wraps(bench: Bench) -> None:
    bench.track._sequence = 2**32 - 2
    for _ in range(3):
        bench.exchange()
        bench.clock.now_ns += SECOND
    assert len(bench.used(Kind.TWO_WAY)) == 3
    assert bench.request.sequence == 1


def test_a_request_that_cannot_go_is_not_waited_for(bench: Bench) -> None:
    bench.connection.connected = False
    assert not bench.track.ask()
    bench.clock.now_ns += 10 * SECOND
    bench.track.expire()
    assert not bench.refused


def test_a_reply_to_nobody_is_refused() -> None:
    bench, asker = Bench(), Bench()
    bench.reply(asker.ask())
    assert bench.refused == {"unasked": 1}
    assert bench.samples == []


def test_another_client_of_our_name_is_noted_by_genuine_new_answers_only(
    keyed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(keyed.context.namesake, "note", noted.append)
    keyed.exchange()
    asker = Bench(KEYS)
    asker.track._sequence = (keyed.request.sequence + 2**30) % 2**32
    others = asker.ask()

    def answered(**how: Any) -> int:
        keyed.clock.now_ns += SECOND
        keyed.reply(others, **how)
        keyed.follow_up(others, **how)
        return len(noted)

    assert answered(keys=OTHER_KEYS) == 0
    assert answered() == 1
    keyed.follow_up(others)
    assert len(noted) == 1
    keyed.clock.now_ns += SECOND
    keyed.exchange()
    keyed.clock.now_ns -= 3 * SECOND
    assert answered() == 1, "somebody has recorded it"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"nonce": bytes(8)}, "tag"), ({"keys": OTHER_KEYS}, "tag"), ({"retain": True}, "retained")],
)
def test_a_wrong_reply_is_refused_and_the_true_one_still_counts(
    keyed: Bench, wrong: dict[str, Any], reason: str
) -> None:
    request = keyed.ask()
    keyed.reply(request, **wrong)
    assert keyed.refused == {reason: 1}
    keyed.follow_up(request)
    assert keyed.samples == []
    keyed.reply(request)
    keyed.follow_up(request)
    assert len(keyed.used(Kind.TWO_WAY)) == 1


def test_a_replayed_exchange_is_refused(keyed: Bench) -> None:
    keyed.exchange()
    old = keyed.request
    keyed.reply(old)
    keyed.follow_up(old)
    assert keyed.refused == {"unasked": 2}
    assert len(keyed.of(Kind.TWO_WAY)) == 1


def test_a_follow_up_of_another_reply_to_the_same_request_is_refused(keyed: Bench) -> None:
    """A broker had the request answered twice, the second time with a late transmit stamp."""
    request = keyed.ask()
    keyed.clock.now_ns += 600 * MS
    keyed.reply(request)
    forwarded = keyed.reply_tag
    keyed.reply(request)
    assert keyed.refused == {"unasked": 1}
    keyed.follow_up(request, correction_ns=600 * MS)
    assert keyed.refused == {"unasked": 1, "tag": 1}
    assert keyed.samples == []
    keyed.reply_tag = forwarded
    keyed.follow_up(request)
    assert len(keyed.of(Kind.TWO_WAY)) == 1


@pytest.mark.parametrize(
    ("correction_ns", "reason"),
    [
        (-MS, Reason.INVERTED),
        (3 * WAY_NS, Reason.NEGATIVE_DELAY),
        (300 * MS, Reason.NEGATIVE_DELAY),
    ],
)
def test_a_correction_that_the_exchange_does_not_allow_is_refused(
    bench: Bench, correction_ns: int, reason: Reason
) -> None:
    bench.reply(bench.ask())
    bench.follow_up(bench.request, correction_ns=correction_ns)
    assert [(wall.sample.verdict, wall.sample.reason) for wall in bench.of(Kind.TWO_WAY)] == [
        (SampleVerdict.REFUSED, reason)
    ]
    assert bench.offset_ns is None


def test_an_exchange_that_bounds_nothing_does_not_open_the_door_for_broadcasts(
    keyed: Bench,
) -> None:
    """A broker could delay every reply, and then broadcasts by as much as it likes."""
    keyed.exchange(way_ns=2 * SECOND)
    assert keyed.of(Kind.TWO_WAY)[0].sample.reason is Reason.DELAY
    keyed.hear_times(1, 6)
    assert keyed.refused == {"before-exchange": 6}
    assert keyed.estimate.state is State.UNSYNCHRONISED


@pytest.mark.parametrize("leap", [Leap.INSERT, Leap.DELETE])
def test_a_leap_second_is_believed_from_a_reply_only(keyed: Bench, leap: Leap) -> None:
    keyed.exchange()
    keyed.hear(keyed.time(1, leap=leap))
    keyed.hear(keyed.time(2, leap=leap))
    assert keyed.of(Kind.ONE_WAY)[-1].sample.leap == Leap.NONE
    assert keyed.track.leap == Leap.NONE
    keyed.reply(keyed.ask(), leap=leap)
    keyed.follow_up(keyed.request)
    assert keyed.of(Kind.TWO_WAY)[-1].sample.leap == leap


def test_an_exchange_over_a_connection_that_nobody_vouches_for_counts_for_nothing(
    keyed: Bench,
) -> None:
    keyed.vouched = False
    keyed.exchange()
    keyed.reply(keyed.ask())
    keyed.clock.now_ns += 10 * SECOND
    keyed.track.expire()
    assert keyed.samples == []
    assert not keyed.track.authenticated


def test_a_forged_follow_up_is_refused_and_the_true_one_still_counts(keyed: Bench) -> None:
    request = keyed.ask()
    keyed.reply(request)
    keyed.follow_up(request, correction_ns=100 * MS, keys=OTHER_KEYS)
    assert keyed.refused == {"tag": 1}
    keyed.follow_up(request)
    assert [wall.offset_ns for wall in keyed.used(Kind.TWO_WAY)] == [OFFSET_NS]


def test_a_follow_up_before_its_reply_is_refused(bench: Bench) -> None:
    bench.track.ask()
    bench.follow_up(bench.request)
    assert bench.refused == {"unasked": 1}


def test_an_exchange_whose_follow_up_is_lost_counts_without_it(bench: Bench) -> None:
    bench.reply(bench.ask())
    bench.track.expire()
    assert bench.samples == []
    bench.clock.now_ns += 4 * SECOND
    bench.track.expire()
    (wall,) = bench.used(Kind.TWO_WAY)
    assert wall.offset_ns == OFFSET_NS
    assert dict(wall.sample.readings)["t3"].source is StampSource.USER
    assert not bench.refused


def test_where_no_echo_comes_follow_ups_are_asked_for_and_once_in_64_requests_an_echo(
    bench: Bench,
) -> None:
    _get_no_echo(bench)
    for _ in range(128):
        request = bench.ask()
        assert request.wants_echo == (request.sequence % 64 == 0)
        bench.reply(request)
        if not request.wants_echo:
            bench.follow_up(request)
            t3 = dict(bench.of(Kind.TWO_WAY)[-1].sample.readings)["t3"]
            assert t3.source is StampSource.KERNEL


@pytest.mark.parametrize("comes", ["an echo", "a connection"])
def test_an_echo_that_comes_and_a_new_connection_have_echoes_asked_for_again(
    bench: Bench, comes: str
) -> None:
    _get_no_echo(bench)
    if comes == "an echo":
        while not bench.ask().wants_echo:
            pass
        bench.reply(bench.request)
        bench.echo(bench.request, first_ns=0, span_ns=10 * US, loop_ns=None)
    else:
        bench.track.connection_lost()
    assert all(bench.ask().wants_echo for _ in range(4))


def _get_no_echo(bench: Bench) -> None:
    for _ in range(4):
        request = bench.ask()
        assert request.wants_echo
        bench.reply(request)
        bench.clock.now_ns += 4 * SECOND
        bench.track.expire()


def test_a_request_without_a_reply_is_counted_after_a_while(bench: Bench) -> None:
    request = bench.ask()
    bench.clock.now_ns += 4 * SECOND
    bench.track.expire()
    assert bench.refused == {"no-reply": 1}
    bench.reply(request)
    assert bench.refused["unasked"] == 1


def test_requests_that_nobody_answers_do_not_pile_up(bench: Bench) -> None:
    for _ in range(100):
        bench.track.ask()
    assert bench.refused == {"no-reply": 36}


def test_a_reply_that_came_before_it_was_asked_for_is_refused(bench: Bench) -> None:
    bench.exchange(way_ns=-WAY_NS)
    (wall,) = bench.of(Kind.TWO_WAY)
    assert bench.used(Kind.TWO_WAY) == []
    assert wall.sample.reason in ("inverted", "negative-delay")


def test_the_time_of_a_server_that_is_not_synchronised_is_not_used(bench: Bench) -> None:
    request = bench.ask()
    bench.reply(request, leap=Leap.UNSYNCHRONISED)
    bench.follow_up(request)
    assert [wall.sample.reason for wall in bench.samples] == ["server-unsynchronised"]
    assert bench.track.leap == 3
    assert bench.offset_ns is None


def test_a_lost_connection_makes_late_answers_unasked(bench: Bench) -> None:
    bench.track.ask()
    bench.track.connection_lost()
    bench.reply(bench.request)
    assert bench.refused == {"unasked": 1}


# -- a clock that is slewed ------------------------------------------------------------------------


@given(st.integers(-5 * MS, 5 * MS), st.floats(0, 1), st.integers(-5 * MS, 5 * MS), st.booleans())
@example(-2 * MS, 0.0, 0, False)  # the client came late to read the reply
@example(2 * MS, 0.0, 0, True)
@example(0, 1.0, 2 * MS, False)  # what completes the exchange came late
def test_the_truth_is_in_the_interval_though_the_judged_clock_is_slewed_meanwhile(
    slewed_ns: int, before_arrival: float, incomplete: int, bracketed: bool
) -> None:
    under_way = round(before_arrival * slewed_ns)
    unread = slewed_ns - under_way
    bench = Bench()
    bench.go_behind_first_echo()
    bench.ask()
    bench.clock.slewed_ns += under_way
    bench.reply(bench.request, slewed_ns=unread)
    bench.clock.slewed_ns += incomplete
    if bracketed:
        bench.echo(bench.request, first_ns=WAY_NS - 5 * US, span_ns=10 * US, loop_ns=150 * US)
    else:
        bench.follow_up(bench.request)
    sample = bench.of(Kind.ECHO if bracketed else Kind.TWO_WAY)[-1].sample
    assert is_inside(OFFSET_NS, sample)
    # No wider than that takes: a clock that is not slewed costs nothing.
    assert sample.upper_ns - sample.lower_ns <= 2 * WAY_NS + 3 * abs(slewed_ns)


def test_a_slewed_clock_widens_an_echo_no_further_than_its_exchange(bench: Bench) -> None:
    bench.go_behind_first_echo()
    bench.ask()
    bench.clock.slewed_ns += 100 * US
    bench.reply(bench.request)
    # Far apart, so that the exchange alone is the limit.
    bench.echo(bench.request, first_ns=0, span_ns=4 * WAY_NS, loop_ns=150 * US)
    exchange, echo = bench.of(Kind.TWO_WAY)[-1].sample, bench.of(Kind.ECHO)[-1].sample
    assert echo.sequence == exchange.sequence
    assert (echo.lower_ns, echo.upper_ns) == (exchange.lower_ns, exchange.upper_ns)
    assert exchange.lower_ns is not None
    assert exchange.lower_ns < OFFSET_NS


@pytest.mark.parametrize("by_ns", [2 * MS, -2 * MS])
def test_the_truth_is_in_the_interval_though_broadcasts_wait_while_the_clock_is_slewed(
    bench: Bench, by_ns: int
) -> None:
    """By a tenth, and nothing but the assumed delay bounds it."""
    for sequence in range(1, 7):
        payload = bench.time(sequence)
        bench.clock.now_ns += 10 * US
        came = arrival(TREE.time(0), payload, bench.clock.time_ns())
        bench.clock.now_ns += 20 * MS
        bench.clock.slewed_ns += by_ns
        bench.track.on_time(came)
        bench.clock.now_ns += SECOND
    told = bench.estimate
    assert told.assumed
    assert told.state.is_known
    assert told.lower_ns <= OFFSET_NS <= told.upper_ns


# -- the echo --------------------------------------------------------------------------------------


def test_an_echo_counts_only_after_the_client_has_placed_itself_behind_it(bench: Bench) -> None:
    bench.echo_exchange()
    assert bench.of(Kind.ECHO) == []
    assert len(bench.used(Kind.TWO_WAY)) == 1
    (placed,) = bench.placing
    bench.clock.now_ns += SECOND
    bench.echo_exchange()
    assert len(bench.placing) == 1, "it is on its way there already"
    placed(True)
    bench.clock.now_ns += SECOND
    bench.echo_exchange()
    (wall,) = bench.used(Kind.ECHO)
    assert wall.offset_ns == pytest.approx(OFFSET_NS, abs=5 * US)


def test_a_request_from_before_the_placement_is_not_judged_by_the_echo(bench: Bench) -> None:
    bench.echo_exchange()
    request = bench.ask()
    bench.placing[0](True)
    bench.reply(request)
    bench.echo(request, first_ns=WAY_NS, span_ns=10 * US, loop_ns=150 * US)
    assert bench.of(Kind.ECHO) == []


def test_a_place_that_the_broker_refused_is_asked_for_again(bench: Bench) -> None:
    bench.echo_exchange()
    bench.placing[0](False)
    bench.clock.now_ns += SECOND
    bench.echo_exchange()
    assert len(bench.placing) == 2


@pytest.mark.parametrize("change", ["placement", "generation", "connection"])
def test_a_place_is_lost_with_the_echo_the_server_or_the_connection(
    bench: Bench, change: str
) -> None:
    bench.go_behind_first_echo()
    if change == "connection":
        bench.track.connection_lost()
    else:
        setattr(bench, change, 2)
    bench.clock.now_ns += SECOND
    bench.echo_exchange()
    assert bench.of(Kind.ECHO) == []
    assert len(bench.placing) == 2


@pytest.mark.parametrize("whose", ["the server's", "our own"])
def test_without_either_loop_no_echo_takes_the_place_of_its_exchange(
    bench: Bench, whose: str
) -> None:
    """On a long link of ours it would be off by the whole way down, which only the loops tell."""
    bench.go_behind_first_echo()
    if whose == "our own":
        bench.connection.loop_ns = None
    bench.echo_exchange(server_loop_ns=150 * US if whose == "our own" else None)
    assert bench.of(Kind.ECHO) == []
    assert bench.refused == {"loop-unknown": 1}
    assert len(bench.used(Kind.TWO_WAY)) == 2


def test_a_reply_that_the_broker_may_have_held_back_makes_no_echo(bench: Bench) -> None:
    bench.go_behind_first_echo()
    bench.echo_exchange(maybe_held=True)
    assert bench.of(Kind.ECHO) == []
    assert bench.refused == {"held": 1}
    assert len(bench.used(Kind.TWO_WAY)) == 2, "the exchange itself bounds the offset all the same"


def test_a_reset_forgets_that_the_server_was_authenticated(keyed: Bench) -> None:
    keyed.exchange()
    keyed.track.reset()
    assert not keyed.track.authenticated
    keyed.hear(keyed.time(1))
    assert keyed.refused == {"before-exchange": 1}
