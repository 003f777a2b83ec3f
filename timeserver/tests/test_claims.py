"""Two servers with one number: the one that has served longer goes on, and only it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import KEYS, MS, S, Stage, arrival

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Timer
from mqtick.protocol.auth import Keyring, Keys
from mqtick.protocol.precise import Claim
from mqtick.timeserver.claims import Claims

TIMEOUT = 4 * S
TOPIC = "mqtick/o/0/claim"
BOTH = pytest.mark.parametrize("keys", [KEYS.server(), Keys()], ids=["keys", "no keys"])


class World:
    """A broker and a clock that only `run` moves; `drops` says which claims get lost."""

    def __init__(self) -> None:
        self.now_ns = 1000 * S
        self.latency_ns = MS
        self.due: list[Timer] = []
        self.sides: list[Side] = []
        self.said: list[bytes] = []
        self.drops: Callable[[bytes], bool] = lambda _payload: False

    def later(self, delay_ns: int, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now_ns + delay_ns, call, precise=False)
        self.due.append(timer)
        return timer

    def say(self, payload: bytes, *, retain: bool = False) -> None:
        """Publish: everybody hears it who is there when it arrives."""
        self.said.append(payload)
        if not self.drops(payload):
            came = arrival(TOPIC, payload, retain=retain)
            self.later(self.latency_ns, lambda: self._deliver(came))

    def _deliver(self, came: Arrival) -> None:
        for side in self.sides:
            side.claims.on_claim(came)

    def run(self, duration_ns: int) -> None:
        end_ns = self.now_ns + duration_ns
        while self.due:
            first = min(self.due, key=lambda timer: timer.due_ns)  # the first of those put in first
            if first.due_ns > end_ns:
                break
            self.due.remove(first)
            self.now_ns = max(self.now_ns, first.due_ns)
            if first.callback is not None:
                first.callback()
        self.now_ns = end_ns

    @property
    def serving(self) -> list[Side]:
        return [side for side in self.sides if not side.claims.standing_by]


class Side(Stage):
    """One server, from its connection to `leave`."""

    def __init__(
        self, world: World, since_ns: int | None, keys: Keys, lot: int | None = None
    ) -> None:
        super().__init__()
        self.world, self.since_ns = world, since_ns
        self.loop.call_later = world.later
        self.claims = Claims(self, keys, TIMEOUT, since=lambda: self.since_ns)
        if lot is not None:
            self.claims.lot = lot
        self.there = True
        world.sides.append(self)
        self.claims.connecting()
        self.claims.connected()

    def publish(self, _topic: str, payload: bytes, _properties: bytes = b"") -> None:
        if self.there:
            self.world.say(payload)

    def leave(self) -> None:
        """Be switched off."""
        self.there = False
        self.world.sides.remove(self)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(time, "monotonic_ns", lambda: made.now_ns)
    return made


# -- among honest servers --------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("first", [0, 1], ids=["older first", "younger first"])
def test_of_two_the_one_that_has_served_longer_goes_on(
    world: World, keys: Keys, first: int
) -> None:
    sides = []
    for since_ns in ([5 * S, 9 * S], [9 * S, 5 * S])[first]:
        sides.append(Side(world, since_ns, keys))
        world.run(20 * S)
    older, younger = sides[first], sides[1 - first]
    assert world.serving == [older]
    assert "has served longer: this one stands by" in younger.claims.says
    assert "stands by for this one; give it a number of its own" in older.claims.says


def test_who_comes_later_stands_by_as_soon_as_it_has_its_answer(world: World) -> None:
    Side(world, 5 * S, KEYS.server())
    world.run(100 * S)
    second = Side(world, 9 * S, KEYS.server())
    assert second.claims.silent  # it has said nothing before
    world.run(2 * world.latency_ns)
    assert second.claims.standing_by
    assert second.claims.silent


def test_alone_it_begins_a_fifth_of_a_second_after_it_can_hear(world: World) -> None:
    server = Side(world, 5 * S, KEYS.server())
    world.run(S // 5 - 1)
    assert server.claims.silent
    world.run(1)
    assert not server.claims.silent
    server.claims.connecting()  # and where the subscription is never granted, after a while
    assert server.claims.silent
    world.run(TIMEOUT // 4)
    assert not server.claims.silent


@BOTH
def test_who_stood_by_goes_on_when_the_other_one_has_left(world: World, keys: Keys) -> None:
    older, younger = Side(world, 5 * S, keys), Side(world, 9 * S, keys)
    world.run(60 * S)
    older.leave()
    world.run(TIMEOUT // 2)
    assert younger.claims.standing_by
    world.run(TIMEOUT)
    assert not younger.claims.standing_by
    world.run(600 * S)
    assert younger.claims.says == ""


def test_who_is_not_synchronised_yields_to_who_is_also_where_it_was_first(world: World) -> None:
    first, second = Side(world, 5 * S, KEYS.server()), Side(world, 9 * S, KEYS.server())
    world.run(10 * S)
    assert world.serving == [first]
    first.since_ns = None
    world.run(3 * TIMEOUT)
    assert world.serving == [second]
    first.since_ns = 5 * S
    world.run(3 * TIMEOUT)
    assert world.serving == [first]


@pytest.mark.parametrize("since_ns", [None, 5 * S])
def test_lots_decide_between_equals(world: World, since_ns: int | None) -> None:
    sides = [Side(world, since_ns, KEYS.server(), lot) for lot in (7, 3)]
    world.run(10 * S)
    assert world.serving == [sides[1]]


servers = st.lists(
    st.tuples(
        st.none() | st.integers(1, 3), st.integers(0, 2**32 - 1), st.integers(0, 12 * TIMEOUT)
    ),
    min_size=2,
    max_size=5,
    unique_by=lambda one: one[1],
)


@settings(max_examples=25)
@given(servers, st.integers(0, TIMEOUT // 4), st.booleans())
def test_however_they_come_one_goes_on_and_it_is_the_oldest(
    those: list[tuple[int | None, int, int]], latency_ns: int, has_keys: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World()
        patch.setattr(time, "monotonic_ns", lambda: world.now_ns)
        world.latency_ns = latency_ns
        keys = KEYS.server() if has_keys else Keys()
        for since_ns, lot, at_ns in sorted(those, key=lambda one: one[2]):
            world.run(max(0, 1000 * S + at_ns - world.now_ns))
            Side(world, since_ns, keys, lot)
        world.run(3 * TIMEOUT)
        said = len(world.said)
        least = min(Claim(0, lot, since_ns, bytes(8)).rank for since_ns, lot, _ in those)
        for _ in range(8):  # and it stays so
            world.run(TIMEOUT // 4)
            (serving,) = world.serving
            assert Claim(0, serving.claims.lot, serving.since_ns, bytes(8)).rank == least
        # Everybody asks each quarter of the timeout, and everybody answers.
        assert len(world.said) - said <= 9 * len(those) ** 2


# -- what proves nothing ---------------------------------------------------------------------------


def stranger_every(world: World, side: Side, spacing_ns: int, times: int) -> None:
    for _ in range(times):
        side.claims.stranger()
        world.run(spacing_ns)


@BOTH
def test_time_messages_of_somebody_who_does_not_answer_silence_nobody(
    world: World, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    server = Side(world, 5 * S, keys)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            stranger_every(world, server, S // 10, 1)
            assert not server.claims.standing_by
        stranger_every(world, server, 60 * S, 60)
    assert server.refused == {"number-in-use": 160}
    assert "160 time messages under the number 0 were not ours" in server.claims.says
    assert ("check the access list, use keys" in server.claims.says) is not bool(keys.keys)
    assert len(caplog.records) == 1  # said once, not each
    world.run(601 * S)
    assert server.claims.says == ""


def test_what_was_recorded_of_an_older_server_changes_nothing(world: World) -> None:
    older, server = Side(world, 5 * S, KEYS.server()), Side(world, 9 * S, KEYS.server())
    world.run(30 * S)
    older.leave()
    recorded = list(world.said)
    world.run(2 * TIMEOUT)
    for payload in recorded:
        world.say(payload)
        world.run(S // 5)
        assert not server.claims.standing_by


def test_an_answer_that_is_sent_again_and_again_lasts_no_longer_than_its_question(
    world: World,
) -> None:
    older = Side(world, 5 * S, KEYS.server())
    server = Side(world, 9 * S, KEYS.server())
    world.run(10 * MS)
    older.leave()
    answers = [one for one in world.said if Claim.decode(one).since_ns == 5 * S]
    for _ in range(2 * TIMEOUT // (S // 10)):
        for answer in answers:
            world.say(answer)
        world.run(S // 10)
    assert not server.claims.standing_by


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (Keys(), "unsigned"),
        (KEYS.broadcast(), "tag"),
        (KEYS.client("kitchen"), "tag"),
        (Keyring(fleet=(bytes(32),)).server(), "tag"),
    ],
    ids=["none", "broadcast", "client", "another fleet"],
)
def test_whoever_has_no_fleet_key_cannot_claim(world: World, keys: Keys, reason: str) -> None:
    server, forger = Side(world, 5 * S, KEYS.server()), Side(world, S, keys)
    stranger_every(world, server, S // 10, 200)
    assert not server.claims.standing_by
    assert set(server.refused) == {"number-in-use", reason}
    assert forger.claims.lot != server.claims.lot


def test_a_claim_of_another_number_does_not_count(world: World) -> None:
    server = Side(world, 5 * S, KEYS.server())
    world.run(MS * 10)
    asked = Claim.decode(world.said[-1])
    forged = Claim(1, 1, 1, asked.nonce)
    world.say(KEYS.server().sign(forged.body(), "mqtick/o/1/claim"))
    world.say(KEYS.server().sign(forged.body(), TOPIC))
    world.say(world.said[0], retain=True)
    world.say(b"claim")
    world.run(S)
    assert not server.claims.standing_by
    assert server.refused == {"server": 2, "retained": 1, "version": 1}


def test_a_broker_that_keeps_claims_back_leaves_both_serving_and_both_say_so(world: World) -> None:
    sides = [Side(world, at, KEYS.server()) for at in (5 * S, 9 * S)]
    world.run(TIMEOUT)
    world.drops = lambda _payload: True
    for _ in range(20):
        for side in sides:
            side.claims.stranger()
        world.run(S)
    assert world.serving == sides
    assert all("no server answers for them; this one goes on" in one.claims.says for one in sides)
    assert all("the broker holds claims back" in one.claims.says for one in sides)


def test_without_keys_a_stranger_silences_a_server_only_while_he_goes_on_answering(
    world: World,
) -> None:
    server = Side(world, 5 * S, Keys())
    stranger = Side(world, 1, Keys())
    for _ in range(3):
        stranger_every(world, server, S, 10)
        assert server.claims.standing_by
    stranger.leave()
    stranger_every(world, server, S, 10)
    assert not server.claims.standing_by


# -- how often -------------------------------------------------------------------------------------


def test_a_question_is_answered_once_and_a_flood_of_them_not_at_all(world: World) -> None:
    server = Side(world, 5 * S, KEYS.server())
    world.run(S)
    said = len(world.said)
    questions = [
        KEYS.server().sign(Claim(0, 1, 1, bytes([n] * 8)).body(), TOPIC) for n in range(200)
    ]
    for payload in [questions[0]] * 50 + questions:
        world.say(payload)
    world.run(TIMEOUT // 8)
    ours = [one for one in world.said[said:] if Claim.decode(one).lot == server.claims.lot]
    assert len({Claim.decode(one).nonce for one in ours}) == len(ours)
    assert len(ours) == 8 + 1  # the burst, and a question of its own
    assert server.refused == {"rate": 192}


def test_alone_it_asks_once_for_each_connection(world: World) -> None:
    server = Side(world, 5 * S, KEYS.server())
    world.run(1000 * S)
    assert len(world.said) == 1
    server.claims.connected()
    world.run(1000 * S)
    assert len(world.said) == 2
    assert server.refused == {}


def test_any_claim_is_told_from_another_by_its_rank() -> None:
    def rank(lot: int, since_ns: int | None) -> tuple[bool, int, int]:
        return Claim(0, lot, since_ns, bytes(8)).rank

    assert rank(9, 1) < rank(1, 2) < rank(2, 2) < rank(1, None) < rank(2, None)
