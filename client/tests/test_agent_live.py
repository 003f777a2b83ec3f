"""The agent against a real broker and real servers, and against those who wish it ill."""

from __future__ import annotations

import time

import pytest
from live_world import SECOND, US, World, world

from mqtick.client import agent as agent_module
from mqtick.client.foreign import ForeignTrack
from mqtick.client.precise import PreciseTrack
from mqtick.client.sample import Kind
from mqtick.client.servers import MAXIMUM_SERVERS
from mqtick.client.status import status
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol import namesakes
from mqtick.protocol.auth import KeyFileError, Keyring
from mqtick.protocol.precise import Leap, Time

__all__ = ["world"]  # a fixture

pytestmark = pytest.mark.needs("mosquitto")

KEYS = Keyring(fleet=(b"fleet key of 24 octets..",))
OTHER_KEYS = Keyring(fleet=(b"another key of 26 octets..",))
HOUR_NS = 3600 * SECOND


@pytest.fixture
def rogue(world: World) -> Connection:
    """The connection of somebody else at the broker."""
    connection = world.follow(name="rogue").agent.connection
    world.run(lambda: connection.connected)
    return connection


with_keys = pytest.mark.parametrize("world", [KEYS], indirect=True, ids=["keys"])


def time_message(sequence: int, *, ahead_ns: int, generation: int = 7) -> bytes:
    """Return what a rogue without keys sends on the topic of server 0."""
    message = Time(
        0, sequence, time.time_ns() + ahead_ns, 0, 0, 1, Leap.NONE, StampSource.KERNEL, generation
    )
    return Keyring().broadcast().sign(message.body(), "mqtick/t/0")


# -- how soon and how well -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("fast", "limit_s"), [(True, 1.0), (False, 5.0)])
def test_the_first_usable_offset_is_there_soon(world: World, fast: bool, limit_s: float) -> None:
    world.settle(world.serve(interval_s=1.0))
    client = world.follow(fast=fast)
    assert world.run(lambda: client.knows_time) < limit_s
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_the_true_offset_stays_inside_the_bound(world: World) -> None:
    world.serve()
    client = world.follow(exchange_interval_s=0.5, exchange_burst=2)
    world.run(lambda: client.knows_time)
    for _ in range(15):
        world.run_for(0.2)
        client.assert_truth_in_bound()
    assert client.good(Kind.TWO_WAY) > 8
    assert client.good(Kind.ONE_WAY) > 4
    best = client.agent.best()
    assert best is not None
    assert best[1].offset_ns == pytest.approx(client.truth_ns(), abs=1000 * US)
    (row,) = status(client.agent, {})["servers"]
    ways = row["offset_ns"] - row["earliest_offset_ns"], row["latest_offset_ns"] - row["offset_ns"]
    assert row["bound_ns"] == max(ways)


@pytest.mark.slow
@with_keys
def test_keys_are_rotated_without_a_message_refused(world: World) -> None:
    (old,), (new,) = KEYS.fleet, OTHER_KEYS.fleet
    server, client = world.serve(), world.follow()
    world.run(lambda: client.exchanges and client.good(Kind.ONE_WAY))
    for ring in ((old, new), (new, old), (new,)):
        for party in (client.agent, server):
            party.use_keys(Keyring(fleet=ring))
            exchanges, broadcasts = client.exchanges, client.good(Kind.ONE_WAY)
            client.agent.tracks[0].wants_exchange = True
            world.run(lambda: client.exchanges > exchanges)  # noqa: B023
            world.run(lambda: client.good(Kind.ONE_WAY) > broadcasts)  # noqa: B023
            assert client.knows_time
    assert client.agent.refused["tag"] == client.agent.refused["unsigned"] == 0
    assert server.counters.refused["tag"] == 0
    assert client.agent.connection.connects == 1
    assert status(client.agent, {})["keys"] == OTHER_KEYS.broadcast().names
    client.assert_truth_in_bound()


@pytest.mark.slow
@with_keys
def test_keys_that_lack_a_purpose_change_nothing(world: World) -> None:
    server, client = world.serve(), world.follow()
    for party in (client.agent, server):
        with pytest.raises(KeyFileError):
            party.use_keys(Keyring(client_only=(b"a key of enough octets..",)))
    world.run(lambda: client.good(Kind.ONE_WAY))
    assert client.agent.key_names == KEYS.broadcast().names


@pytest.mark.slow
def test_two_servers_are_two_tracks_and_the_better_one_is_used(world: World) -> None:
    world.serve(number=3, trusted_root_distance_us=900.0)
    world.serve(number=5, trusted_root_distance_us=5.0)
    client = world.follow()
    world.run(lambda: len(client.agent.tracks) == 2 and client.exchanges >= 4)
    world.run(
        lambda: all(
            track.estimator.at(client.clock.raw_ns()).state.is_known
            for track in client.agent.tracks
        )
    )
    assert [track.number for track in client.agent.tracks] == [3, 5]
    best = client.agent.best()
    assert best is not None
    assert best[0].number == 5
    client.assert_truth_in_bound()


# -- coming and going ------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_reconnect_leaves_one_rhythm_of_requests(world: World) -> None:
    world.serve(client_requests_per_s=100.0)
    client = world.follow(exchange_interval_s=0.5, exchange_burst=1, start_burst=1)
    world.run(lambda: client.knows_time)
    for _ in range(3):
        client.agent.connection.drop("for the test")
        world.run(lambda: client.agent.connection.connected)
    world.run_for(1.5)
    before = client.asked
    world.run_for(3.0)
    assert 4 <= client.asked - before <= 9  # every 0.4 to 0.6 s


@pytest.mark.slow
def test_a_server_that_was_away_for_long_and_comes_back_is_asked_again(world: World) -> None:
    server = world.serve()
    client = world.follow(server_timeout_s=1.0, exchange_interval_s=1.0)
    world.run(lambda: client.good(Kind.ONE_WAY))
    generation = server.generation
    world.stop(server)
    world.run_for(1.5)
    again = world.serve()
    again.generation = (generation + 1) % 256
    (track,) = client.agent.tracks
    assert isinstance(track, PreciseTrack)
    world.run(lambda: track.generation == again.generation, limit_s=4.0)
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_a_server_that_only_a_status_names_is_not_asked_for_ever(
    world: World, rogue: Connection
) -> None:
    topic = "mqtick/s/9"
    rogue.publish_retained(topic, b'{"state":"synchronised"}')
    client = world.follow(server_timeout_s=1.0, exchange_interval_s=0.2, exchange_burst=1)
    world.run(lambda: client.asked > 0)
    world.run_for(1.5)
    asked = client.asked
    world.run_for(1.0)
    assert client.asked == asked


@pytest.mark.slow
def test_the_format_of_others_is_followed_only_until_precise_time_is_heard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LISTEN_NS", SECOND // 10)
    other = world.serve(formats=("1451.1.6",), prefix="elsewhere")
    client = world.follow()
    world.run(lambda: client.knows_time)
    (track,) = client.agent.tracks
    assert isinstance(track, ForeignTrack)
    client.assert_truth_in_bound()
    world.stop(other)
    world.serve()
    world.run(lambda: client.agent.foreign is None)
    world.run(lambda: client.knows_time)
    assert [track.number for track in client.agent.tracks] == [0]


# -- those who wish ill ----------------------------------------------------------------------------


def test_statuses_of_servers_that_are_not_there_make_nobody_leave(
    world: World, rogue: Connection
) -> None:
    client = world.follow()
    world.run(lambda: client.agent.connection.connected)
    world.run_for(0.2)  # its subscriptions are in place
    for number in range(100, 200):
        rogue.publish(f"mqtick/s/{number}", b'{"state":"synchronised"}')
    world.run(lambda: len(client.agent.tracks) == MAXIMUM_SERVERS)
    world.run_for(0.2)
    assert [track.number for track in client.agent.tracks] == list(range(100, 116))
    world.serve(number=7)
    world.run(lambda: client.knows_time)
    assert client.agent.tracks[0].number == 7, "its time makes room for it"


@with_keys
def test_a_rogue_alone_is_never_believed_where_there_are_keys(
    world: World, rogue: Connection
) -> None:
    client = world.follow()
    world.run(lambda: client.agent.connection.connected)
    world.run_for(0.2)  # its subscriptions are in place
    for sequence in range(10):
        rogue.publish("mqtick/t/0", time_message(sequence, ahead_ns=HOUR_NS))
        world.run_for(0.02)
    assert client.agent.refused["unsigned"] == 10
    assert client.agent.tracks == []


@with_keys
def test_a_list_of_servers_that_is_full_of_claims_still_has_room_for_a_real_one(
    world: World, rogue: Connection
) -> None:
    for number in range(100, 140):
        rogue.publish_retained(f"mqtick/s/{number}", b'{"state":"synchronised"}')
    client = world.follow()
    world.run(lambda: len(client.agent.tracks) == 16)
    world.serve()
    world.run(lambda: client.knows_time)
    assert client.agent.tracks[0].number == 0
    assert len(client.agent.tracks) <= 16


def test_a_retained_time_message_is_refused(world: World, rogue: Connection) -> None:
    rogue.publish_retained("mqtick/t/0", time_message(1, ahead_ns=-HOUR_NS))
    # A broker sends it to those who subscribe later; MQTT 5 can forbid it to, MQTT 3.1.1 cannot.
    client = world.follow(mqtt_version="3.1.1")
    world.run(lambda: client.agent.refused["retained"])
    assert client.agent.tracks == []
    world.serve()
    world.run(lambda: client.knows_time)
    client.assert_truth_in_bound()


@pytest.mark.slow
@with_keys
def test_two_clients_with_one_name_are_noticed_by_both_and_by_the_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namesakes, "_OCCASION_NS", SECOND // 5)
    server = world.serve()
    one, other, third = (
        world.follow(name=name, exchange_interval_s=0.3, exchange_burst=1, start_burst=1)
        for name in ("pi7", "pi7", "pi8")
    )
    twice = lambda client: status(client.agent, {})["name_heard_twice"]  # noqa: E731
    named = lambda: server.responder.namesakes.names(time.monotonic_ns())  # noqa: E731
    world.run(lambda: twice(one) and twice(other) and named(), 30.0)
    assert named() == ["pi7"]
    assert not twice(third)
