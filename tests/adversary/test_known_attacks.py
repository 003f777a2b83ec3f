"""Attacks that once moved the clock of a client with keys outside its bound, each by its name.

Each is told twice: with keys, where it must do nothing but cost availability, and without, where
whoever runs the broker says what time it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from attacks import Adversary, Forged, Move, attacked
from hostile_broker import Delivery, Honest
from play import Conditions, Play
from virtual_time import EPOCH_NS, MS, SECOND, US

from mqtick.client.sample import Kind, Reason, Sample, SampleVerdict
from mqtick.client.servers import MAXIMUM_SERVERS
from mqtick.protocol.precise import Leap, Reply

DAY_NS = 86_400 * SECOND


def with_attack(
    conditions: Conditions, *moves: Move, broadcast_key: bool = False, before_s: float = 0.0
) -> Play:
    """Play a scenario; the attack begins after so many seconds."""
    later = [move._replace(start_s=move.start_s + before_s) for move in moves]
    return attacked(conditions, later, broadcast_key=broadcast_key)


# -- nobody attacks --------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_without_an_attack_the_client_is_synchronised_to_microseconds(keys: bool) -> None:
    play = with_attack(Conditions(keys=keys))
    assert play.faults == []
    assert play.state == "synchronised"
    assert abs(play.error_ns or SECOND) < 10 * US
    assert play.handed_ns
    assert max(map(abs, play.handed_ns)) < 50 * US
    best = play.agent.best()
    assert best is not None
    assert (best[1].half_width_ns or SECOND) < 500 * US


# -- formats without tags --------------------------------------------------------------------------


def foreign_only(*, keys: bool) -> Play:
    """Nothing precise reaches the client; somebody publishes the time of tomorrow as 1451.1.6."""
    return with_attack(
        Conditions(keys=keys, duration_s=20.0),
        Move("drop", topics="tqrfs", roles=("client", "server")),
        Move("foreign", amount_ns=DAY_NS),
    )


def test_with_keys_a_format_without_tags_is_not_followed() -> None:
    play = foreign_only(keys=True)
    assert play.faults == []
    assert play.state == "unsynchronised"
    assert play.agent.foreign is None
    assert play.samples == []


def test_without_keys_a_format_without_tags_says_what_time_it_is() -> None:
    play = foreign_only(keys=False)
    assert play.state == "synchronised"
    assert (play.error_ns or 0) > DAY_NS - SECOND


# -- the follow-up of another reply ----------------------------------------------------------------

SPLICE = Move("other-correction", topics="qrf", roles=("client", "server"), amount_ns=300 * MS)


def test_with_keys_the_end_of_another_reply_moves_nothing() -> None:
    """It made +300 ms at a bound of 1 ms."""
    play = with_attack(Conditions(duration_s=40.0), SPLICE, before_s=8.0)  # once it promises a rate
    assert play.faults == []
    assert play.server.counters.refused["replayed"] > 0
    assert abs(play.error_ns or SECOND) < 300 * US


def test_without_keys_the_broker_makes_any_end_of_a_reply_himself() -> None:
    """Nobody verifies anything: he adds a second to every reply."""
    play = lied_to(Conditions(keys=False, duration_s=10.0))
    assert play.state == "synchronised"
    assert (play.error_ns or 0) == pytest.approx(SECOND, abs=MS)


class Lying(Honest):
    """Writes another transmit time into every reply."""

    def __init__(self, error_ns: int) -> None:
        self._error_ns = error_ns

    def change(self, deliveries: Sequence[Delivery]) -> Iterable[Delivery]:
        for delivery in deliveries:
            if delivery.role == "client" and "/r/" in delivery.topic:
                reply = Reply.decode(delivery.payload)
                reply = dataclasses.replace(reply, transmit_ns=reply.transmit_ns + self._error_ns)
                yield delivery._replace(payload=reply.body() + delivery.payload[-8:])
            else:
                yield delivery


def lied_to(conditions: Conditions) -> Play:
    play = Play(conditions)
    play.broker.attack = Lying(SECOND)
    with play.running():
        play.run()
    return play


def test_with_keys_a_reply_with_another_time_in_it_is_refused() -> None:
    play = lied_to(Conditions(duration_s=10.0))
    assert play.samples == []
    assert play.agent.refused["tag"] > 5
    assert play.state == "unsynchronised"


def test_a_request_is_answered_once_however_often_it_is_sent() -> None:
    play = with_attack(Conditions(duration_s=20.0), Move("ask-again"))
    assert play.server.counters.refused["replayed"] > 5
    assert play.faults == []


# -- the dates of the broker's certificate ---------------------------------------------------------

EXPIRED_S = (946_684_800, 978_307_200)
NO_FOLLOW_UPS = Move("drop", topics="f", roles=("client",))


def with_tls(*, keys: bool, dates_s: tuple[int, int], client_offset_ns: int = 0) -> Play:
    return with_attack(
        Conditions(
            keys=keys,
            duration_s=15.0,
            url="mqtts://hostile",
            certificate_dates_s=dates_s,
            client_offset_ns=client_offset_ns,
        ),
        NO_FOLLOW_UPS,
    )


def test_with_keys_an_expired_certificate_is_refused_although_follow_ups_are_withheld() -> None:
    play = with_tls(keys=True, dates_s=EXPIRED_S)
    assert play.line.connects == 1, "it is connected until the time is known"
    assert "certificate" in (play.agent.certificate.error or "")
    assert not play.line.connected
    assert play.state == "unsynchronised"
    assert play.handed_ns == []


def test_with_keys_a_valid_certificate_is_accepted_though_the_host_thinks_it_is_1970() -> None:
    since_1970_ns = EPOCH_NS - SECOND
    play = with_tls(keys=True, dates_s=(EXPIRED_S[0], 2**32), client_offset_ns=-since_1970_ns)
    assert play.agent.certificate.error is None
    assert play.line.connects == 1
    assert play.state == "synchronised"
    assert play.faults == []


def test_without_keys_an_expired_certificate_is_refused_by_the_hosts_own_clock() -> None:
    play = with_tls(keys=False, dates_s=EXPIRED_S)
    assert play.line.connects == 0


# -- broadcasts that another client has signed -----------------------------------------------------

NO_EXCHANGE = Move("drop", topics="qrf", roles=("client", "server"))
NO_TIME = Move("drop", topics="t", roles=("client",))


def forged(**says: Any) -> Play:
    """Everything is well for 20 s; then there are only broadcasts that somebody else signed."""
    settings = {"lucky_broadcasts_s": 1.0, "prefer_better_s": 10.0}
    play = Play(Conditions(duration_s=120.0, estimator=settings))
    adversary = Adversary(
        play,
        [NO_TIME._replace(start_s=20.0), NO_EXCHANGE._replace(start_s=20.0)],
        broadcast_key=True,
    )
    play.broker.attack = adversary

    def say() -> None:
        server, after_s = play.server, play.world.elapsed_ns / SECOND - 20
        values = {
            name: value(after_s) if callable(value) else value for name, value in says.items()
        }
        said = Forged(generation=server.generation, sequence=server.broadcast.sequence, **values)
        adversary.say_time(said)
        play.world.call_later(SECOND, say)

    with play.running():
        play.world.call_later(20 * SECOND + 300 * MS, say)
        play.run()
    return play


def one_way_samples(play: Play) -> list[int]:
    """Errors of the broadcasts that the client believed."""
    return [
        wall.sample.offset_ns
        for wall in play.samples
        if wall.sample.kind is Kind.ONE_WAY and wall.sample.verdict is SampleVerdict.USED
    ]


@pytest.mark.parametrize("root_distance_ns", [0, 4_396 * SECOND])
def test_a_forged_broadcast_does_not_say_how_good_the_servers_clock_is(
    root_distance_ns: int,
) -> None:
    """0 made `now` an interval that did not hold the time, the most made one of an hour."""
    play = forged(root_distance_ns=root_distance_ns)
    assert play.faults == []
    assert one_way_samples(play), "they are believed inside the interval"
    best = play.agent.best()
    assert best is not None
    assert best[1].root_distance_ns < MS


def test_servers_that_somebody_made_up_make_room_once_he_is_silent() -> None:
    """A server that comes later is followed again, but none pushes out one that was asked."""
    play = Play(Conditions(duration_s=10.0))
    play.broker.attack = adversary = Adversary(play, [], broadcast_key=True)
    numbers = range(MAXIMUM_SERVERS, 0, -1)
    with play.running():
        play.run()
        for number in numbers:
            adversary.say_time(Forged(number=number))
        play.run(1.0)
        assert [track.number for track in play.agent.tracks][:2] == [0, 2]
        assert len(play.agent.tracks) == MAXIMUM_SERVERS
        adversary.say_time(Forged(number=100))
        play.run(1.0)
        assert 100 not in {track.number for track in play.agent.tracks}
        play.run()
        for number in numbers:
            adversary.say_time(Forged(number=100 + number))
        play.run(1.0)
    assert play.faults == []
    assert play.state == "synchronised"
    assert [track.number for track in play.agent.tracks][:2] == [0, 102]


def test_a_forged_broadcast_announces_no_leap_second() -> None:
    play = forged(leap=Leap.INSERT)
    assert play.faults == []
    assert len(play.handed_ns) > 3


@pytest.mark.parametrize("early_ns", [MS, 100 * MS, 900 * MS])
def test_a_forged_broadcast_moves_nothing_out_of_the_interval(early_ns: int) -> None:
    """While no exchange succeeds, broadcasts steer: up to a second early, at chronyd too."""
    play = forged(error_ns=-early_ns)
    assert play.faults == []
    assert play.judged > 100


@pytest.mark.parametrize("ns_per_s", [-20 * US, -MS, 5 * US])
def test_forged_broadcasts_that_drift_do_not_carry_the_interval_away(ns_per_s: int) -> None:
    play = forged(error_ns=lambda after_s: -MS + round(ns_per_s * after_s))
    assert play.faults == []
    assert play.judged > 100


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_broadcast_under_the_servers_own_number_silences_nobody(keys: bool) -> None:
    """It made the server exit within 10 s. (Without keys a claim can be forged, too.)"""
    play = Play(Conditions(keys=keys, duration_s=30.0))
    adversary = Adversary(play, [], broadcast_key=keys)
    play.broker.attack = adversary

    def say() -> None:
        adversary.say_time(Forged(sequence=play.server.broadcast.sequence + 1000))
        play.world.call_later(SECOND, say)

    with play.running():
        play.world.call_later(0, say)
        play.run()
    assert play.server.broadcast.sent > 25
    assert play.server.counters.done["replies"] > 20
    assert play.faults == []


def test_without_keys_a_broadcast_alone_says_what_time_it_is() -> None:
    """Where exchanges are withheld from the start; it is called assumed, and is not bounded."""
    play = Play(Conditions(keys=False, duration_s=15.0))
    adversary = Adversary(play, [NO_TIME, NO_EXCHANGE])
    play.broker.attack = adversary
    sequence = itertools.count(1)

    def say() -> None:
        adversary.say_time(Forged(error_ns=DAY_NS // 48, sequence=next(sequence)))
        play.world.call_later(SECOND, say)

    with play.running():
        play.world.call_later(SECOND, say)
        play.run()
        best = play.agent.best()
    assert best is not None
    assert best[1].assumed
    assert (play.error_ns or 0) == pytest.approx(DAY_NS // 48, abs=MS)


# -- lies about order and loops --------------------------------------------------------------------

BOTH_ECHOES_LATE = Move("delay", topics="r", roles=("first", "last"), amount_ns=2 * MS)
CLIENT_LATE = Move("delay", topics="r", roles=("client",), amount_ns=2 * MS)
LOOP_LIE = Move("delay", topics="c", roles=("client",), amount_ns=2 * MS)
SERVER_LOOP_LIE = Move("delay", topics="l", roles=("server",), amount_ns=2 * MS)
WIDE = Move("delay", topics="q", amount_ns=3 * MS)
ECHO_LIES = {
    "echoes late": (WIDE, BOTH_ECHOES_LATE),
    "client late": (WIDE, CLIENT_LATE),
    "echoes and the client's loop late": (WIDE, BOTH_ECHOES_LATE, LOOP_LIE),
    "client and the server's loop late": (WIDE, CLIENT_LATE, SERVER_LOOP_LIE),
}


@pytest.mark.parametrize("lie", ECHO_LIES)
def test_a_broker_that_lies_about_echoes_narrows_nothing_that_is_guaranteed(lie: str) -> None:
    play = with_attack(Conditions(duration_s=60.0), *ECHO_LIES[lie])
    assert play.faults == []
    assert any(wall.sample.kind is Kind.ECHO for wall in play.samples)


def test_who_trusts_the_broker_is_told_what_it_likes_within_the_exchange() -> None:
    lies = ECHO_LIES["echoes late"]
    trusting = Conditions(duration_s=60.0, estimator={"trust_broker": True})
    play = with_attack(trusting, *lies)
    assert play.faults != []
    assert abs(play.error_ns or 0) < 10 * MS


# -- delays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", ["q", "r"])
@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_delay_on_one_way_moves_the_middle_and_the_interval_says_so(
    keys: bool, topics: str
) -> None:
    delayed = Move("delay", topics=topics, roles=("client", "server"), amount_ns=20 * MS)
    play = with_attack(Conditions(keys=keys), delayed)
    assert play.faults == []
    best = play.agent.best()
    assert best is not None
    assert abs(play.error_ns or 0) <= (best[1].bound_ns or 0)
    assert (best[1].half_width_ns or 0) > 9 * MS


def test_one_exchange_that_was_held_up_hands_chronyd_nothing_outside_the_interval() -> None:
    """Its wide interval agrees with the others; its middle was 150 ms off."""
    held = Move("delay", 10.0, 4.0, topics="r", roles=("client",), amount_ns=300 * MS)
    play = with_attack(Conditions(duration_s=30.0, estimator={"use_echo": False}), held)
    assert play.faults == []
    assert max(map(abs, play.handed_ns)) < 10 * MS


# -- stamps that the other end of the connection moves ---------------------------------------------

AWAY = Move("drop", topics="r", roles=("first",))
"""No echo comes, so the server waits long for the stamp of its reply."""
MOVED_STAMPS = {
    "T4 early": (Move("early-reply", topics="q", amount_ns=20 * MS),),
    "T2 early": (Move("early-request", topics="qr", amount_ns=2 * MS),),
    "T1 late": (Move("late-tail", topics="qr", roles=("client",), amount_ns=20 * MS),),
    "T3 late": (Move("late-tail", topics="qr", roles=("server",), amount_ns=2 * MS),),
    "T3 much too late": (
        Move("late-tail", topics="qr", roles=("server",), amount_ns=20 * MS),
        AWAY,
    ),
}


@pytest.mark.parametrize("fills", [False, True], ids=["version 1", "version 2"])
@pytest.mark.parametrize("moved", MOVED_STAMPS)
def test_a_stamp_that_the_broker_can_move_narrows_nothing(moved: str, fills: bool) -> None:
    """Octets that leave late, or come early: each made an interval of a millisecond elsewhere."""
    play = with_attack(Conditions(fills=fills, duration_s=30.0), *MOVED_STAMPS[moved])
    assert play.faults == []
    assert play.judged > 20


# -- lies about the time in the broker -------------------------------------------------------------

EVERYWHERE = "tqrfcl"
RESIDENCE_LIES = {
    "a little more": (Move("more-residence", topics="trf", amount_ns=30 * US),),
    "more, in replies only": (Move("more-residence", topics="r", amount_ns=60 * US),),
    "any": (Move("residence", topics=EVERYWHERE, amount_ns=MS),),
    "a correction": (Move("correction", topics=EVERYWHERE, amount_ns=60 * US),),
    "another count": (
        Move("copy", topics=EVERYWHERE),
        Move("correction", topics=EVERYWHERE, amount_ns=MS),
    ),
    "the trailer of another": (Move("other-trailer", topics=EVERYWHERE),),
    "now and then": (
        Move("unfill", topics=EVERYWHERE, share=0.3),
        Move("more-residence", topics="tqrf", share=0.5, amount_ns=50 * US),
    ),
    "to hide a delay": (
        Move("delay", topics="r", roles=("client",), amount_ns=MS),
        Move("more-residence", topics="q", roles=("server",), amount_ns=MS),
    ),
}


def residence_samples(play: Play, verdict: SampleVerdict = SampleVerdict.USED) -> list[Sample]:
    """The exchanges without the time in the broker that met this."""
    return [
        wall.sample
        for wall in play.samples
        if wall.sample.kind is Kind.RESIDENCE and wall.sample.verdict is verdict
    ]


def test_a_broker_that_says_how_long_messages_were_in_it_leaves_the_links() -> None:
    """A two-way exchange is off by what the broker did to it; the rest is the links' doing."""
    quiet = {"use_echo": False}
    silent = with_attack(Conditions(estimator=quiet))
    says = with_attack(Conditions(fills=True, estimator=quiet))
    assert silent.faults == says.faults == []
    assert residence_samples(silent) == []
    for sample in residence_samples(says):
        links_ns = 4 * says.conditions.least_link_ns
        assert 0 < sample.delay_ns < 1.6 * links_ns
    assert max(map(abs, says.handed_ns)) < max(map(abs, silent.handed_ns))


@pytest.mark.parametrize("lie", RESIDENCE_LIES)
def test_a_broker_that_lies_about_residence_narrows_nothing_that_is_guaranteed(lie: str) -> None:
    play = with_attack(Conditions(fills=True), *RESIDENCE_LIES[lie], before_s=5.0)
    assert play.faults == []
    assert residence_samples(play)
    assert play.state == "synchronised"


def test_a_broker_that_says_nothing_is_made_to_say_something_and_nothing_is_narrowed() -> None:
    """Somebody between it and the rest writes into every trailer, those of the loops too."""
    lie = Move("more-residence", topics=EVERYWHERE, amount_ns=40 * US)
    play = with_attack(Conditions(), lie)
    assert play.faults == []
    assert residence_samples(play)


HOLDING = Conditions(fills=True, shared_reads=0.3)
"""Of a part of the replies the client sees that they may have been held back."""
HELD = Move("delay", topics="r", roles=("client",), amount_ns=MS)


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("trust", [True, False], ids=["trusting", "doubting"])
def test_a_broker_that_states_residence_and_holds_replies_back_narrows_nothing_that_is_guaranteed(
    keys: bool, trust: bool
) -> None:
    """No echo is asked for where residence is stated, so none can be made of a late reply."""
    estimator = {"trust_broker_residence": trust, "trust_broker": True}
    conditions = dataclasses.replace(HOLDING, keys=keys, estimator=estimator)
    play = with_attack(conditions, HELD, before_s=5.0)
    assert play.faults == []
    assert residence_samples(play)


def test_without_keys_a_lie_about_residence_narrows_nothing_either() -> None:
    play = with_attack(Conditions(keys=False, fills=True), *RESIDENCE_LIES["any"])
    assert play.faults == []


def test_a_residence_that_exceeds_the_round_trip_is_refused_and_counted() -> None:
    lie = Move("more-residence", topics="r", roles=("client",), amount_ns=5 * MS)
    play = with_attack(Conditions(fills=True), lie, before_s=5.0)
    assert play.faults == []
    refused = residence_samples(play, SampleVerdict.REFUSED)
    assert len(refused) > 10
    assert {sample.reason for sample in refused} == {Reason.RESIDENCE}
    counted = play.agent.tracks[0].estimator.counters
    assert counted.of(kind=Kind.RESIDENCE, reason=Reason.RESIDENCE) == len(refused)


def test_who_trusts_what_brokers_say_has_an_interval_of_the_links_while_they_are_honest() -> None:
    quiet = {"use_echo": False}
    doubting = with_attack(Conditions(fills=True, estimator=quiet))
    trusting = with_attack(
        Conditions(fills=True, estimator={**quiet, "trust_broker_residence": True})
    )
    assert trusting.faults == doubting.faults == []
    one, other = trusting.agent.best(), doubting.agent.best()
    assert one is not None
    assert other is not None
    assert (one[1].half_width_ns or SECOND) < (other[1].half_width_ns or 0)


TWO_BROKERS = Conditions(
    fills=True,
    duration_s=30.0,
    estimator={"trust_broker_residence": True, "use_echo": False, "prefer_better_s": 0.0},
)


@pytest.mark.parametrize("topics", ["t", "q", "r", "tqrf"])
def test_a_bridge_that_restates_what_was_not_stated_makes_no_interval_false(topics: str) -> None:
    """Not even for who trusts it: what is left out counts as the links'."""
    play = with_attack(TWO_BROKERS, Move("restated", topics=topics, amount_ns=3 * MS))
    assert play.faults == []


def test_what_another_broker_did_not_state_is_not_taken_for_the_links() -> None:
    """Each reply waited in it for 3 ms: what was stated of the rest would be off by the half."""
    late = {"topics": "r", "roles": ("client",), "amount_ns": 3 * MS}
    honest = with_attack(TWO_BROKERS, Move("unstated", **late))
    bridged = with_attack(TWO_BROKERS, Move("restated", **late))
    assert honest.faults == bridged.faults == []
    assert residence_samples(honest) == []
    errors_ns = [abs(sample.delay_ns) for sample in residence_samples(bridged)]
    assert min(errors_ns) > 3 * MS


def test_who_trusts_what_brokers_say_is_told_what_they_like_within_the_exchange() -> None:
    trusting = Conditions(fills=True, estimator={"trust_broker_residence": True, "use_echo": False})
    wide = Move("delay", topics="q", amount_ns=3 * MS)
    lie = Move("more-residence", topics="r", roles=("client",), amount_ns=3 * MS)
    play = with_attack(trusting, wide, lie)
    assert play.faults != []
    assert abs(play.error_ns or 0) < 10 * MS
