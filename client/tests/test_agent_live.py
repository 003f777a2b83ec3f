"""The agent against a real broker and real servers, and against those who wish it ill."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from mqtick.client import agent as agent_module
from mqtick.client.agent import Agent
from mqtick.client.config import Settings
from mqtick.client.foreign import ForeignTrack
from mqtick.client.sample import Kind
from mqtick.client.status import status
from mqtick.client.status_text import status_lines
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import Source
from mqtick.protocol.auth import KeyFileError, Keyring
from mqtick.protocol.clocks import SystemClock, VirtualClock, VirtualClockSettings
from mqtick.protocol.precise import Leap, Time

sys.path.insert(0, str(Path(__file__).parent))
from live_world import HAS_BROKER, SECOND, US, World

pytestmark = pytest.mark.skipif(
    not HAS_BROKER, reason="mosquitto is not installed; install it with: apt install mosquitto"
)

KEYS = Keyring(fleet=(b"fleet key of 24 octets..",))
OTHER_KEYS = Keyring(fleet=(b"another key of 26 octets..",))
HOUR_NS = 3600 * SECOND


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(keyring: Keyring | None = None) -> World:
        world = World(tmp_path, keyring)
        made.append(world)
        world.mosquitto.start()
        return world

    yield make
    for world in made:
        world.close()


class Rogue:
    """Somebody else at the broker, with a plain MQTT library."""

    def __init__(self, world: World) -> None:
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.connect("127.0.0.1", world.mosquitto.port)
        self.client.loop_start()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, retain=retain).wait_for_publish(5)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def rogues() -> Iterator[Callable[[World], Rogue]]:
    made: list[Rogue] = []

    def make(world: World) -> Rogue:
        made.append(Rogue(world))
        return made[-1]

    yield make
    for rogue in made:
        rogue.close()


def time_message(sequence: int, *, ahead_ns: int, generation: int = 7) -> bytes:
    """Return what a rogue without keys sends on the topic of server 0."""
    message = Time(
        0, sequence, time.time_ns() + ahead_ns, 0, 0, 1, Leap.NONE, Source.KERNEL, generation
    )
    return Keyring().broadcast().sign(message.body(), "mqtick/t/0")


# -- how soon and how well -------------------------------------------------------------------------


@pytest.mark.slow
def test_the_first_usable_offset_is_there_within_a_second_with_fast(
    worlds: Callable[..., World],
) -> None:
    world = worlds()
    world.settle(world.serve(interval_s=1.0))
    client = world.follow(fast=True)
    assert world.run(lambda: client.knows_time) < 1.0
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_the_first_usable_offset_is_there_within_five_seconds_by_default(
    worlds: Callable[..., World],
) -> None:
    world = worlds()
    world.serve(interval_s=1.0)
    client = world.follow(fast=False)
    assert world.run(lambda: client.knows_time) < 5.0
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_the_true_offset_stays_inside_the_bound(worlds: Callable[..., World]) -> None:
    world = worlds()
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
def test_with_keys_the_time_is_authenticated(worlds: Callable[..., World]) -> None:
    world = worlds(KEYS)
    world.serve()
    client = world.follow()
    world.run(lambda: client.good(Kind.ONE_WAY))
    (track,) = client.agent.tracks
    assert track.authenticated
    assert all(wall.sample.authenticated for wall in client.samples)
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_a_server_with_other_keys_is_not_believed(worlds: Callable[..., World]) -> None:
    world = worlds(KEYS)
    world.serve(keyring=OTHER_KEYS)
    client = world.follow()
    world.run_for(1.5)
    assert client.samples == []
    assert not client.knows_time
    assert client.agent.refused["tag"] >= 4


@pytest.mark.slow
def test_keys_are_rotated_without_a_message_refused(worlds: Callable[..., World]) -> None:
    (old,), (new,) = KEYS.fleet, OTHER_KEYS.fleet
    world = worlds(KEYS)
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
def test_keys_that_lack_a_purpose_change_nothing(worlds: Callable[..., World]) -> None:
    world = worlds(KEYS)
    server, client = world.serve(), world.follow()
    for party in (client.agent, server):
        with pytest.raises(KeyFileError):
            party.use_keys(Keyring(client_only=(b"a key of enough octets..",)))
    world.run(lambda: client.good(Kind.ONE_WAY))
    assert client.agent.key_names == KEYS.broadcast().names


@pytest.mark.slow
def test_two_servers_are_two_tracks_and_the_better_one_is_used(
    worlds: Callable[..., World],
) -> None:
    world = worlds()
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
def test_a_broker_that_is_killed_and_comes_back_is_found_again(
    worlds: Callable[..., World],
) -> None:
    world = worlds()
    world.serve()
    client = world.follow(exchange_interval_s=0.5, exchange_burst=1)
    world.run(lambda: client.knows_time)
    assert world.mosquitto.process is not None
    world.mosquitto.process.kill()
    world.run(lambda: not client.agent.connection.connected)
    client.assert_truth_in_bound()
    assert world.mosquitto.process.wait(5) is not None
    world.mosquitto.start()
    before = client.exchanges
    world.run(lambda: client.agent.connection.connected)
    world.run(lambda: client.exchanges > before)
    assert client.agent.connection.connects == 2
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_each_reconnect_leaves_one_rhythm_of_requests(worlds: Callable[..., World]) -> None:
    world = worlds()
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
def test_a_server_that_was_away_for_long_and_comes_back_is_asked_again(
    worlds: Callable[..., World],
) -> None:
    world = worlds()
    server = world.serve()
    client = world.follow(server_timeout_s=1.0, exchange_interval_s=1.0)
    world.run(lambda: client.good(Kind.ONE_WAY))
    generation = server.generation
    world.stop(server)
    world.run_for(1.5)
    again = world.serve()
    again.generation = (generation + 1) % 256
    before = client.exchanges
    world.run(lambda: client.exchanges > before, limit_s=4.0)
    (track,) = client.agent.tracks
    assert track.generation == again.generation  # type: ignore[union-attr]
    client.assert_truth_in_bound()


@pytest.mark.slow
def test_a_server_that_only_a_status_names_is_not_asked_for_ever(
    worlds: Callable[..., World], rogues: Callable[..., Rogue]
) -> None:
    world = worlds()
    topic = "mqtick/s/9"
    rogues(world).publish(topic, b'{"state":"synchronised"}', retain=True)
    client = world.follow(server_timeout_s=1.0, exchange_interval_s=0.2, exchange_burst=1)
    world.run(lambda: client.asked > 0)
    world.run_for(1.5)
    asked = client.asked
    world.run_for(1.0)
    assert client.asked == asked


@pytest.mark.slow
def test_the_format_of_others_is_followed_only_until_precise_time_is_heard(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LISTEN_NS", SECOND // 10)
    world = worlds()
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

FLOOD = """
import sys, time
import paho.mqtt.client as paho
from mqtick.protocol.auth import Keyring
from mqtick.mqtt.stamps import Source
from mqtick.protocol.precise import Leap, Time
client = paho.Client(paho.CallbackAPIVersion.VERSION2)
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_start()
began_s, sent = time.monotonic(), 0
while sent < 20_000:
    while sent < min(20_000, (time.monotonic() - began_s) * 10_000):
        message = Time(0, sent, time.time_ns() + 3600 * 10**9, 0, 0, 1, Leap.NONE, Source.KERNEL, 7)
        client.publish("mqtick/t/0", Keyring().broadcast().sign(message.body(), "mqtick/t/0"))
        sent += 1
    time.sleep(0.001)
client.disconnect()
client.loop_stop()
"""


@pytest.mark.slow
def test_ten_thousand_messages_a_second_are_counted_and_the_time_is_kept(
    worlds: Callable[..., World],
) -> None:
    world = worlds()
    server = world.serve()
    world.settle(server)
    client = world.follow(exchange_interval_s=0.5, exchange_burst=2)
    world.run(lambda: client.exchanges > 4)
    before = client.exchanges
    with subprocess.Popen([sys.executable, "-c", FLOOD, str(world.mosquitto.port)]) as flood:
        world.run(lambda: flood.poll() is not None, limit_s=20)
    world.run_for(1.0)
    client.assert_truth_in_bound()
    refused = client.agent.refused
    assert refused["rate"] > 10_000
    # What is below the rate is refused for what it says, and makes no sample that counts.
    assert refused["rate"] + refused["stated-time"] + refused["generation"] > 19_000
    assert client.exchanges > before
    assert len(client.agent.tracks) == 1
    world.run(lambda: client.good(Kind.ONE_WAY), limit_s=5)


@pytest.mark.slow
def test_a_rogue_that_states_another_hour_moves_nothing(
    worlds: Callable[..., World], rogues: Callable[[World], Rogue]
) -> None:
    world = worlds()
    server = world.serve()
    world.settle(server)
    client = world.follow(exchange_interval_s=0.5, exchange_burst=1)
    world.run(lambda: client.good(Kind.ONE_WAY))
    rogue = rogues(world)
    resets = client.agent.tracks[0].estimator.resets
    for sequence in range(20):
        for generation in (server.generation, 99):
            rogue.publish(
                "mqtick/t/0",
                time_message(2**20 + sequence, ahead_ns=HOUR_NS, generation=generation),
            )
        world.run_for(0.05)
        client.assert_truth_in_bound()
    assert client.agent.tracks[0].estimator.resets == resets
    refused = client.agent.refused  # whichever of its faults is seen first
    assert refused["rate"] + refused["stated-time"] + refused["generation"] >= 20
    # Its samples, where it names the right generation, contradict every exchange.
    assert all(abs(offset_ns) < SECOND for offset_ns in client.good_offsets_ns())
    before = client.good(Kind.ONE_WAY)
    world.run(lambda: client.good(Kind.ONE_WAY) > before + 1, limit_s=5)


def test_a_rogue_alone_is_never_believed_where_there_are_keys(
    worlds: Callable[..., World], rogues: Callable[[World], Rogue]
) -> None:
    world = worlds(KEYS)
    client = world.follow()
    world.run(lambda: client.agent.connection.connected)
    world.run_for(0.2)  # its subscriptions are in place
    rogue = rogues(world)
    for sequence in range(10):
        rogue.publish("mqtick/t/0", time_message(sequence, ahead_ns=HOUR_NS))
        world.run_for(0.02)
    assert client.agent.refused["unsigned"] == 10
    assert client.agent.tracks == []


def test_a_list_of_servers_that_is_full_of_claims_still_has_room_for_a_real_one(
    worlds: Callable[..., World], rogues: Callable[[World], Rogue]
) -> None:
    world = worlds(KEYS)
    rogue = rogues(world)
    for number in range(100, 140):
        rogue.publish(f"mqtick/s/{number}", b'{"state":"synchronised"}', retain=True)
    client = world.follow()
    world.run(lambda: len(client.agent.tracks) == 16)
    world.serve()
    world.run(lambda: client.knows_time)
    assert client.agent.tracks[0].number == 0
    assert len(client.agent.tracks) <= 16


def test_a_retained_time_message_is_refused(
    worlds: Callable[..., World], rogues: Callable[[World], Rogue]
) -> None:
    world = worlds()
    rogues(world).publish("mqtick/t/0", time_message(1, ahead_ns=-HOUR_NS), retain=True)
    # A broker sends it to those who subscribe later; MQTT 5 can forbid it to, MQTT 3.1.1 cannot.
    client = world.follow(mqtt_version="3.1.1")
    world.run(lambda: client.agent.refused["retained"])
    assert client.agent.tracks == []
    world.serve()
    world.run(lambda: client.knows_time)
    client.assert_truth_in_bound()


def test_a_client_name_with_a_wildcard_is_refused_before_anything_is_published() -> None:
    with pytest.raises(ValueError, match="'kitchen#1' is not a client name"):
        Agent(
            Settings(),
            Loop(),
            parse_broker_url("mqtt://localhost"),
            SystemClock(),
            Keyring(),
            "kitchen#1",
        )


@pytest.mark.slow
def test_a_broker_that_accepts_and_stalls_is_tried_again_and_holds_up_nothing() -> None:
    loop = Loop()
    latest_ns = 0

    def beat(due_ns: int) -> None:
        nonlocal latest_ns
        latest_ns = max(latest_ns, time.monotonic_ns() - due_ns)
        again_ns = time.monotonic_ns() + SECOND // 50
        loop.call_at(again_ns, lambda: beat(again_ns))

    def tick() -> None:
        agent.tick()
        loop.call_later(SECOND, tick)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        broker = replace(parse_broker_url(f"mqtt://127.0.0.1:{port}"), connect_timeout_s=0.2)
        clock = VirtualClock(VirtualClockSettings.starting_now())
        agent = Agent(Settings(), loop, broker, clock, Keyring(), "pi7")
        agent.start()
        tick()
        beat(time.monotonic_ns())
        end_s = time.monotonic() + 8
        while agent.connection.attempts < 2 and time.monotonic() < end_s:
            loop.turn(0.02)
        values: dict[str, Any] = status(agent, {})
        agent.close()
        loop.close()
    assert values["attempts"] >= 2
    assert latest_ns < SECOND // 5
    text = "\n".join(status_lines(values))
    assert "accepted but did not answer within 0.2 s" in text
