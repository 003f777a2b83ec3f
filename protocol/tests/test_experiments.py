"""Commands of an experiment's runner: what is obeyed, what is counted, what nobody survives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol.experiments import Commands, Parts, about_host, number_in, split
from mqtick.protocol.topics import TopicTree, acl


class Node:
    """Obeys `add`, and keeps what it answered and refused."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.now_s = 0.0
        self.commands = Commands(
            "x", "y", self._publish, self.refused.append, {"add": self._add}, lambda: self.now_s
        )

    def _publish(self, topic: str, payload: bytes) -> None:
        assert topic == "y"
        self.answers.append(json.loads(payload))

    def _add(self, command: Any) -> dict[str, Any]:
        return {"sum": number_in(command, "a", -5, 5, 0) + number_in(command, "b", -5, 5, 1)}

    def hear(self, payload: bytes, *, retain: bool = False) -> None:
        self.commands.on_command(payload, retained=retain)

    def do(self, **command: Any) -> None:
        self.hear(json.dumps({"id": "0123abcd", "do": "add", **command}).encode())


def test_a_command_is_answered_with_its_identity() -> None:
    node = Node()
    node.do(a=2)
    assert node.answers == [{"id": "0123abcd", "ok": True, "sum": 3}]
    assert node.refused == []


@pytest.mark.parametrize("value", ["1", 1.0, True, None, 6, -6, 10**400, [1], {"a": 1}])
def test_a_number_that_is_none_is_refused_with_its_limits(value: Any) -> None:
    node = Node()
    node.do(a=value)
    (answer,) = node.answers
    assert answer["ok"] is False
    assert "must be a whole number from -5 to 5" in answer["error"]
    assert len(answer["error"]) < 120
    assert node.refused == ["command-refused"]


def test_a_command_that_nobody_knows_is_refused_with_those_that_are() -> None:
    node = Node()
    node.do(do="subtract")
    assert node.answers[0]["error"] == "'subtract' is not a command here: use add."
    assert node.refused == ["command-unknown"]


def test_a_command_that_the_broker_kept_is_not_obeyed() -> None:
    node = Node()
    node.hear(b'{"id": "0123abcd", "do": "add"}', retain=True)
    assert node.answers == []
    assert node.refused == ["command-retained"]


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"{", b"null", b"[]", b"\xff", b"[" * 1000, b'{"id": 1, "do": "add"}', b"1" * 1000),
        *(b'{"do": "add"}', b'{"id": "0123abcd"}', b'{"id": "0123abcd", "do": []}'),
        *(b'{"id": "0123ABCD", "do": "add"}', b'{"id": "0123abcd\\n", "do": "add"}'),
        b'{"id": "0123abcd", "do": "add", "x": "%s"}' % (b"x" * 1000),
    ],
)
def test_what_is_no_command_is_counted_and_not_answered(payload: bytes) -> None:
    node = Node()
    node.hear(payload)
    assert node.answers == []
    assert node.refused == ["command"]


@given(st.binary(max_size=1100))
def test_no_octets_raise(payload: bytes) -> None:
    Node().hear(payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["id", "do", "a", "b"]), JSON))
def test_no_json_raises(fields: dict[str, Any]) -> None:
    node = Node()
    node.do(**fields)
    assert len(node.answers) + len(node.refused) >= 1


def test_a_flood_is_cut_off_and_the_next_second_is_heard_again() -> None:
    node = Node()
    for _ in range(1000):
        node.do()
    assert len(node.answers) == 100
    assert node.refused == ["command-rate"] * 900
    node.now_s = 1.0
    for _ in range(1000):
        node.do()
    assert len(node.answers) == 150


def test_an_answer_that_is_too_long_becomes_a_sentence() -> None:
    node = Node()
    node.commands.answer("0123abcd", {"edges": ["x" * 100] * 1000})
    assert "too many; ask for less" in node.answers[0]["error"]


@given(st.integers(0, 60_000), st.randoms())
def test_an_answer_fits_datagrams_and_is_whole_in_whatever_order_they_come(
    octets: int, dice: random.Random
) -> None:
    answer = {"id": "0123abcd", "ok": True, "text": '\\"' * (octets // 4)}
    messages = split("0123abcd", json.dumps(answer).encode())
    assert all(len(each) < 1400 for each in messages)
    dice.shuffle(messages)
    parts = Parts()
    *before, last = [parts.add(json.loads(each)) for each in messages]
    assert (before, last) == ([None] * len(before), answer)


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(
    st.lists(
        st.fixed_dictionaries(
            {"part": JSON | st.integers(0, 2)},
            optional={"parts": JSON | st.integers(0, 3), "text": JSON | st.sampled_from("[]{}1")},
        )
    )
)
def test_no_parts_raise(messages: list[dict[str, Any]]) -> None:
    parts = Parts()
    for message in messages:
        answer = parts.add(message)
        assert answer is None or isinstance(answer, dict)


def test_the_host_is_described() -> None:
    about = about_host()
    assert set(about) == {"software", "host", "kernel", "python", "machine"}
    assert all(about.values())


# -- topics ----------------------------------------------------------------------------------------

NODES = {"client:pi-7": "c/pi-7", "server:0": "s/0", "server:255": "s/255", "crowd:w.1": "w/w.1"}


@pytest.mark.parametrize(("node", "end"), NODES.items())
def test_each_node_has_a_topic_for_commands_and_one_for_answers(node: str, end: str) -> None:
    tree = TopicTree("hall/time")
    assert tree.command(node) == f"hall/time/x/{end}"
    assert tree.answer(node) == f"hall/time/y/{end}"
    assert tree.parse_answer(tree.answer(node)) == node


@pytest.mark.parametrize(
    "node",
    ["pi-7", "client:", "client:a/b", "server:256", "server:x", "bench:1", "crowd:" + 17 * "x"],
)
def test_what_is_no_node_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match=r"is not a node: write client:NAME, server:N"):
        TopicTree().command(node)


def test_a_topic_that_would_be_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has 43 octets, more than 32\. Shorten"):
        TopicTree("x" * 24).command("client:" + "y" * 14)


def test_the_access_list_knows_the_lab_only_when_asked() -> None:
    assert "/x/" not in acl(TopicTree(), "mqtick-server")
    lines = acl(TopicTree(), "mqtick-server", "mqtick-lab").splitlines()
    assert set(lines) - set(acl(TopicTree(), "mqtick-server").splitlines()) == {
        *("topic read mqtick/x/s/+", "topic write mqtick/y/s/+"),
        *("user mqtick-lab", "topic write mqtick/x/+/+", "topic read mqtick/y/+/+"),
        *("topic read mqtick/x/w/+", "topic write mqtick/y/w/+"),
        *("pattern read mqtick/x/c/%u", "pattern write mqtick/y/c/%u"),
        *("pattern read mqtick/x/w/%u", "pattern write mqtick/y/w/%u"),
    }
    with pytest.raises(ValueError, match="begins or ends with a space"):
        acl(TopicTree(), "mqtick-server", "lab ")
