"""The time server on a real Mosquitto: what it publishes, and whom it answers."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from server_rig import ALL_FORMATS, PlainNode, Served

from demo.local_broker import Mosquitto, running
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Echo, FollowUp, Leap, Reply, Request, Time, decode
from mqtick.protocol.steps import StepDetector

pytestmark = pytest.mark.needs("mosquitto")

S = 1_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running(Mosquitto(tmp_path_factory.mktemp("b"))) as made:
        yield made


@pytest.fixture
def served(broker: Mosquitto, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server with a prefix of its own, so that what one test left does not reach another."""
    with Served(broker.url, prefix=prefix(request)) as made:
        made.until(lambda: made.done.get("times", 0) >= 2)  # its subscriptions came before them
        yield made


def prefix(request: pytest.FixtureRequest) -> str:
    return f"p{abs(hash(request.node.name)) % 10**6}"


def times(node: PlainNode, topic: str) -> list[Time]:
    return [Time.decode(message.payload) for message in node.on(topic)]


# -- the broadcast ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.alone
def test_time_leaves_at_whole_multiples_of_the_interval(broker: Mosquitto, served: Served) -> None:
    topic = served.server.tree.time(0)
    with PlainNode(broker.port, topic) as node:
        served.until(lambda: len(node.on(topic)) >= 12)
    stated = [message.transmit_ns for message in times(node, topic)]
    lateness = [(instant + S // 20) % (S // 10) - S // 20 for instant in stated]
    assert all(late > 0 for late in lateness)
    assert statistics.median(lateness) < 20_000_000
    assert [message.sequence for message in times(node, topic)] == list(
        range(times(node, topic)[0].sequence, times(node, topic)[0].sequence + len(stated))
    )


def test_each_message_corrects_the_one_before_by_the_kernels_stamp(
    broker: Mosquitto, served: Served
) -> None:
    topic = served.server.tree.time(0)
    with PlainNode(broker.port, topic) as node:
        served.until(lambda: len(node.on(topic)) >= 5)
    for message in times(node, topic)[2:]:
        assert message.correction_source == StampSource.KERNEL
        assert message.previous_correction_ns is not None
        assert 0 < message.previous_correction_ns < 50_000_000


@pytest.mark.slow
def test_time_is_of_quality_0_and_never_retained(broker: Mosquitto, request: Any) -> None:
    with (
        Served(broker.url, prefix=prefix(request), formats=ALL_FORMATS) as served,
        PlainNode(broker.port, "#") as node,
    ):
        syn = "_1451.1.6/BRSU/SYN"
        served.until(lambda: len(node.on(syn)) >= 3)
        live = [message for message in node.messages if not message.retain]
        assert {message.qos for message in live} == {0}
        with PlainNode(broker.port, "#") as late:
            served.until(lambda: late.on(syn))
            retained = {message.topic for message in late.messages if message.retain}
    assert {topic for topic in retained if "/s/" not in topic} == set()


@pytest.mark.slow
def test_without_chronyd_the_clock_is_unsynchronised_and_other_formats_are_silent(
    broker: Mosquitto, request: Any
) -> None:
    settings = {
        "trust_system_clock": False,
        "chronyd_host": "/nowhere/chronyd.sock",
        "formats": ALL_FORMATS,
    }
    with (
        Served(broker.url, prefix=prefix(request), **settings) as served,
        PlainNode(broker.port, "_1451.1.6/#", "location/#", f"{prefix(request)}/t/0") as node,
    ):
        topic = served.server.tree.time(0)
        served.run(2.6)
        node.say("_1451.1.6/RRS/REQ", "PTTEST/app0,1")
        served.until(lambda: served.refused.get("not-leading") and node.on("_1451.1.6/RRS/REQ"))
    message = times(node, topic)[-1]
    assert (message.leap, message.stratum) == (Leap.UNSYNCHRONISED, 15)
    assert {one.topic for one in node.messages} == {topic, "_1451.1.6/RRS/REQ"}
    assert "chrony" in served.server.reference.reason


def test_a_step_of_the_clock_begins_a_new_generation(broker: Mosquitto, served: Served) -> None:
    topic = served.server.tree.time(0)
    sets: list[bool] = []
    served.server._steps = StepDetector(was_set=lambda: bool(sets) and sets.pop())
    with PlainNode(broker.port, topic) as node:
        served.until(lambda: len(node.on(topic)) >= 3)
        before = times(node, topic)[-1]
        served.server.responder._pending["kitchen", 1] = Mock()  # its follow-up was not sent yet
        sets.append(True)
        served.until(lambda: times(node, topic)[-1].generation != before.generation)
        first = next(one for one in times(node, topic) if one.generation != before.generation)
        served.until(lambda: len(times(node, topic)) >= 8)
    assert first.generation == (before.generation + 1) % 256
    assert first.previous_correction_ns is None
    assert served.server.responder.pending == 0
    assert times(node, topic)[-1].generation == first.generation
    assert served.done["clock-steps"] == 1


# -- the status ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_status_is_retained_and_says_gone_after_a_goodbye(
    broker: Mosquitto, request: Any
) -> None:
    topic = f"{prefix(request)}/s/0"
    with PlainNode(broker.port, topic) as node:
        with Served(broker.url, prefix=prefix(request), trusted_stratum=2) as served:
            served.until(lambda: node.last(topic))
        node.until(lambda: len(node.on(topic)) == 2)
        time.sleep(0.1)  # the broker heard the goodbye: no last will comes after it
    first, last = (json.loads(message.payload) for message in node.on(topic))
    assert (first["state"], first["stratum"]) == ("synchronised", 2)
    assert last == {"state": "gone"}
    with PlainNode(broker.port, topic) as late:
        late.until(lambda: late.last(topic))
        assert late.messages[0].retain


@pytest.mark.slow
def test_a_status_that_somebody_overwrote_is_said_again(broker: Mosquitto, served: Served) -> None:
    topic = served.server.tree.status(0)
    with PlainNode(broker.port, topic) as node:
        served.until(lambda: node.last(topic))
        node.client.publish(topic, b'{"state":"gone"}', qos=1, retain=True)
        served.until(lambda: len(node.on(topic)) == 3)
        assert json.loads(node.on(topic)[-1].payload)["state"] == "synchronised"


# -- the exchange ----------------------------------------------------------------------------------


def ask(served: Served, node: PlainNode, sequence: int, *, echo: bool = False) -> None:
    topic = served.server.tree.request(0, "kitchen")
    body = Request(0, sequence, sequence.to_bytes(8, "big"), echo).body()
    node.say(topic, Keyring().client("kitchen").sign(body, topic))


def test_a_request_is_answered_with_kernel_stamps(broker: Mosquitto, served: Served) -> None:
    tree = served.server.tree
    reply, follow_up = tree.reply(0, "kitchen"), tree.follow_up(0, "kitchen")
    kernel = 0
    with PlainNode(broker.port, reply, follow_up) as node:
        for sequence in range(10):
            before_ns = time.time_ns()
            ask(served, node, sequence)
            served.until(lambda: len(node.on(follow_up)) == sequence + 1)  # noqa: B023
            answer = Reply.decode(node.on(reply)[-1].payload)
            follows = FollowUp.decode(node.on(follow_up)[-1].payload)
            assert before_ns < answer.receive_ns < answer.transmit_ns < time.time_ns()
            assert (answer.sequence, follows.sequence) == (sequence, sequence)
            assert follows.correction_source == StampSource.KERNEL
            assert 0 < (follows.correction_ns or 0) < 50_000_000
            kernel += answer.receive_source == StampSource.KERNEL
    # A request that is read together with something else has no stamp of its own.
    assert kernel >= 5


def test_the_echo_brackets_what_a_client_behind_it_hears(broker: Mosquitto, served: Served) -> None:
    tree = served.server.tree
    reply, follow_up = tree.reply(0, "kitchen"), tree.follow_up(0, "kitchen")
    with PlainNode(broker.port, follow_up) as node:
        served.until(lambda: served.server.order.trusted)
        heard = 0
        for sequence in range(20):
            ask(served, node, sequence, echo=True)
            served.until(lambda heard=heard: len(node.messages) > heard)  # type: ignore[misc]
            heard = len(node.messages)
            if isinstance(decode(node.messages[-1].payload), Echo):
                break
    message = decode(node.messages[-1].payload)
    assert isinstance(message, Echo)
    assert 0 < message.first_echo_ns < 50_000_000
    assert 0 < message.echo_span_ns < 50_000_000
    assert message.first_source == StampSource.KERNEL
    assert served.server.echo is not None
    assert served.server.echo.clients == 1
    assert reply.endswith("/kitchen")


# -- trouble ---------------------------------------------------------------------------------------


def test_a_broker_that_restarts_is_served_again(tmp_path: Path) -> None:
    own = Mosquitto(tmp_path)
    with running(own), Served(own.url) as served:
        served.until(lambda: served.done.get("times"))
        own.stop()
        served.until(lambda: not served.server.connection.connected)
        own.start()
        with PlainNode(own.port, "mqtick/t/0", "mqtick/r/0/kitchen") as node:
            served.until(lambda: node.on("mqtick/t/0"))
            ask(served, node, 1)
            served.until(lambda: node.on("mqtick/r/0/kitchen"))


def test_a_refused_subscription_is_said(tmp_path: Path) -> None:
    plugin = next(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), None)
    if plugin is None:
        pytest.skip("mosquitto came without its dynamic security plug-in")
    rules = tmp_path / "rules.json"
    rules.write_text(
        '{"defaultACLAccess": {"publishClientSend": true, "publishClientReceive": true, '
        '"subscribe": false, "unsubscribe": true}, "clients": [], "groups": [], "roles": []}'
    )
    lines = f"plugin {plugin}\nplugin_opt_config_file {rules}"
    with running(Mosquitto(tmp_path, lines)) as own, Served(own.url) as served:
        served.until(lambda: served.refused.get("subscription"))
        said = served.server.connection.last_error
        assert said.startswith(f"{own.url} refused a subscription")
        assert "docs/protocol.md" in said
