"""The topic tree and its access list, the latter against a real Mosquitto where there is one."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.local_broker import Mosquitto, program, running
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.topics import MAX_TOPIC_OCTETS, TopicKind, TopicTree, acl, check_client_name

TREE = TopicTree()
numbers = st.integers(0, 255)
names = st.from_regex(r"[A-Za-z0-9_.-]{1,16}", fullmatch=True)
prefixes = st.from_regex(r"[a-z0-9_.-]{1,4}(/[a-z0-9_.-]{1,4})?", fullmatch=True)


def test_the_topics_are_those_of_the_document() -> None:
    assert TREE.time(0) == "mqtick/t/0"
    assert TREE.status(255) == "mqtick/s/255"
    assert TREE.request(7, "kitchen-1") == "mqtick/q/7/kitchen-1"
    assert TREE.reply(7, "kitchen-1") == "mqtick/r/7/kitchen-1"
    assert TREE.follow_up(7, "kitchen-1") == "mqtick/f/7/kitchen-1"
    assert TREE.loop(7) == "mqtick/l/7"
    assert (TREE.order(7, 12), TREE.claim(7)) == ("mqtick/o/7/order2", "mqtick/o/7/claim")
    assert TREE.all_orders(7) == "mqtick/o/7/#"
    assert TREE.all_times() == "mqtick/t/+"
    assert TREE.all_statuses() == "mqtick/s/+"
    assert TREE.all_requests(7) == "mqtick/q/7/+"
    assert TREE.all_replies(7) == "mqtick/r/7/#"


@given(prefixes, numbers, names)
def test_every_topic_is_read_back_and_short(prefix: str, number: int, name: str) -> None:
    tree = TopicTree(prefix)
    assert tree.parse_time(tree.time(number)) == number
    assert tree.parse_status(tree.status(number)) == number
    assert tree.parse_request(tree.request(number, name)) == (number, name)
    assert tree.parse_reply(tree.reply(number, name)) == (number, name)
    assert tree.parse_follow_up(tree.follow_up(number, name)) == (number, name)
    assert len(tree.reply(number, name)) <= MAX_TOPIC_OCTETS


@given(prefixes, numbers, names)
def test_no_topic_is_taken_for_another(prefix: str, number: int, name: str) -> None:
    tree = TopicTree(prefix)
    parsers = {
        tree.time(number): tree.parse_time,
        tree.status(number): tree.parse_status,
        tree.request(number, name): tree.parse_request,
        tree.reply(number, name): tree.parse_reply,
        tree.follow_up(number, name): tree.parse_follow_up,
    }
    for topic in parsers:
        for own, parse in parsers.items():
            if own != topic:
                with pytest.raises(DecodeError) as refusal:
                    parse(topic)
                assert refusal.value.reason == "topic"
    other = TopicTree("other")
    kinds = [TopicKind(letter) for letter in "tsqrf"]
    assert [tree.kind_of(topic) for topic in parsers] == kinds
    assert [other.kind_of(topic) for topic in (*parsers, "other", "other/t", "other/?/0")] == [
        None
    ] * 8


@pytest.mark.parametrize(
    "topic",
    [
        *["", "mqtick", "mqtick/q/0", "mqtick/q/0/", "mqtick/q//a", "mqtick/q/0/a/b"],
        *["mqtick/q/00/a", "mqtick/q/256/a", "mqtick/q/-1/a", "mqtick/q/+/a", "mqtick/q/٣/a"],
        *["mqtick/q/0/+", "mqtick/q/0/#", "mqtick/q/0/a b", "mqtick/q/0/a\n", "mqtick/q/0/é"],
        *["/mqtick/q/0/a", "Mqtick/q/0/a", "xmqtick/q/0/a", "mqtick/q/0/" + "a" * 17],
        "mqtick/q/0/\ud800",
    ],
)
def test_a_topic_that_is_no_request_is_refused(topic: str) -> None:
    with pytest.raises(DecodeError, match="mqtick/q/NUMBER/NAME") as refusal:
        TREE.parse_request(topic)
    assert refusal.value.reason == "topic"


@pytest.mark.parametrize("name", ["", "a" * 17, "a/b", "+", "#", "a b", "é", "a\0", "a\n", "%u"])
def test_a_name_that_would_change_the_topic_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a client name"):
        check_client_name(name)
    with pytest.raises(ValueError, match="Choose another name"):
        TREE.reply(0, name)


@pytest.mark.parametrize("prefix", ["", "/", "a/", "/a", "a//b", "+", "a/#", "$SYS", "é", "x" * 25])
def test_a_prefix_that_would_change_the_topics_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="is not a topic prefix"):
        TopicTree(prefix)


def test_a_topic_of_more_than_32_octets_says_what_to_shorten() -> None:
    tree = TopicTree("building-7/mqtick")
    assert len(tree.request(0, "x" * 10)) == 32
    with pytest.raises(ValueError, match=r"has 33 octets, more than 32.*by 1\."):
        tree.request(0, "x" * 11)


@pytest.mark.parametrize("number", [-1, 256])
def test_a_server_number_that_is_no_octet_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="0 to 255"):
        TREE.time(number)


def test_every_topic_of_the_tree_is_in_the_access_list() -> None:
    text = acl(TREE, "mqtick-server")
    assert re.findall(r"^topic \w+ mqtick/(\w)/", text, re.MULTILINE) == list("tsqlorf")
    assert re.findall(r"^pattern \w+ mqtick/(\w)/", text, re.MULTILINE) == list("tsscqrf")


@pytest.mark.parametrize("user", ["", " a", "a ", "a\nuser root", "x" * 65, "a+"])
def test_a_user_name_that_would_change_the_access_list_is_refused(user: str) -> None:
    with pytest.raises(ValueError, match="Choose another one"):
        acl(TREE, user)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    if program("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    watcher = "user watcher\ntopic read mqtick/s/c/+\n\n"
    (tmp_path / "acl").write_text(watcher + acl(TREE, "mqtick-server"))
    with running(Mosquitto(tmp_path, f"acl_file {tmp_path / 'acl'}")) as made:
        yield made.port


def connect(port: int, user: str, heard: list[tuple[str, str]], topic: str) -> mqtt.Client:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.username_pw_set(user)
    ready: list[bool] = []
    client.on_connect = lambda *_: client.subscribe(topic)
    client.on_subscribe = lambda *_: ready.append(True)
    client.on_message = lambda _c, _u, message: heard.append((user, message.topic))
    client.connect("127.0.0.1", port)
    until = time.monotonic() + 30
    client.loop_start()
    while not ready:
        assert time.monotonic() < until
        time.sleep(0.01)
    return client


def test_mosquitto_lets_each_through_to_its_own_topics_only(broker: int) -> None:
    heard: list[tuple[str, str]] = []
    users = ("mqtick-server", "kitchen-1", "hall-2")
    clients = {user: connect(broker, user, heard, "mqtick/#") for user in (*users, "watcher")}
    own_status = TREE.client_status("kitchen-1")
    topics = (
        *(TREE.time(0), TREE.status(0), TREE.loop(0), TREE.client_loop("kitchen-1")),
        *(tree(0, "kitchen-1") for tree in (TREE.request, TREE.reply, TREE.follow_up)),
    )
    try:
        for writer in users:
            for topic in (own_status, *topics):
                clients[writer].publish(topic, b"x", qos=1).wait_for_publish(5)
        # What comes after all that on the one way that surely works, ends the wait.
        clients["mqtick-server"].publish("mqtick/t/255", b"end", qos=1).wait_for_publish(5)
        until = time.monotonic() + 30
        while sum(topic == "mqtick/t/255" for _, topic in heard) < 4:
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        for client in clients.values():
            client.disconnect()
            client.loop_stop()
    # Of three that wrote it, only the client itself got it through, and only the watcher heard it.
    assert [user for user, topic in heard if topic == own_status] == ["watcher"]
    got = {(user, topic): heard.count((user, topic)) for user in users for topic in topics}
    time_, status, loop, own_loop, request, reply, follow_up = topics
    assert got == {
        # what the server wrote to all, once each; what others wrote there went nowhere
        **{(user, topic): 1 for user in users for topic in (time_, status)},
        ("mqtick-server", loop): 1,
        ("kitchen-1", loop): 0,
        ("hall-2", loop): 0,
        ("mqtick-server", own_loop): 0,
        ("kitchen-1", own_loop): 1,
        ("hall-2", own_loop): 0,
        ("mqtick-server", request): 1,
        ("kitchen-1", request): 0,
        ("hall-2", request): 0,
        ("mqtick-server", reply): 1,
        ("kitchen-1", reply): 1,
        ("hall-2", reply): 0,
        ("mqtick-server", follow_up): 0,
        ("kitchen-1", follow_up): 1,
        ("hall-2", follow_up): 0,
    }
