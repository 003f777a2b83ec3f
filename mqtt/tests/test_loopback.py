"""A node's way to the broker and back: its own messages only, stamped alike at both ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loopback import Loopback
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit

TOPIC = "mqtick/l/0"
MS = 1_000_000
SENT_NS = 1_781_234_567_000_000_000


class Node:
    """Loop and connection of a node; `answer` plays the broker."""

    def __init__(self) -> None:
        self.delays: list[int] = []
        self.calls: list[Callable[[], None]] = []
        self.sent: list[tuple[str, bytes]] = []
        self.takes_data = True
        self.collected = 0
        loop: Any = SimpleNamespace(call_later=self._later)
        self.connection: Any = SimpleNamespace(
            connected=True, publish=self._publish, collect_stamps=self._collect
        )
        self.loopback = Loopback(loop, self.connection, TOPIC, burst=4, interval_ns=4000 * MS)
        self.transmit = Transmit(0)

    def _later(self, delay_ns: int, call: Callable[[], None]) -> Any:
        self.delays.append(delay_ns)
        self.calls.append(call)
        return SimpleNamespace(cancel=lambda: call in self.calls and self.calls.remove(call))

    def _publish(self, topic: str, payload: bytes) -> Transmit | None:
        self.sent.append((topic, payload))
        self.transmit = Transmit(SENT_NS - 50_000)
        return self.transmit if self.takes_data else None

    def _collect(self) -> None:
        self.collected += 1
        self.transmit.kernel_ns = SENT_NS

    def step(self) -> None:
        self.calls.pop()()

    def answer(self, delay_ns: int, payload: bytes | None = None, **values: Any) -> None:
        fields = {"stamp": Stamp(SENT_NS + delay_ns, StampSource.KERNEL), "retain": False, **values}
        payload = self.sent[-1][1] if payload is None else payload
        self.loopback.on_arrival(Arrival(TOPIC, payload, properties=b"", **fields))

    def known(self) -> bool:
        """Whether another seven good answers are enough, so that the one before counted."""
        for _ in range(7):
            self.step()
            self.answer(200_000)
        return self.loopback.delay_ns() is not None


@pytest.fixture
def node() -> Node:
    made = Node()
    made.loopback.start()
    made.step()
    return made


def test_the_delay_is_from_the_kernels_transmit_to_the_kernels_arrival(node: Node) -> None:
    for _ in range(8):
        node.answer(200_000)
        node.step()
    assert node.loopback.delay_ns() == 200_000
    assert node.collected >= 8


def test_each_message_is_new_and_goes_to_our_own_topic(node: Node) -> None:
    for _ in range(5):
        node.step()
    assert {topic for topic, _ in node.sent} == {TOPIC}
    assert len({payload for _, payload in node.sent}) == 6
    assert all(len(payload) == 8 for _, payload in node.sent)


def test_a_burst_comes_first_and_then_now_and_then(node: Node) -> None:
    for _ in range(8):
        node.step()
    seconds = [delay / 1e9 for delay in node.delays]
    assert all(0.03 < wait < 0.09 for wait in seconds[1:4])
    assert all(2.7 < wait < 5.3 for wait in seconds[4:])
    assert len(set(seconds)) > 5  # at random times


def test_a_new_connection_begins_with_a_burst_and_no_second_rhythm(node: Node) -> None:
    for _ in range(6):
        node.step()
    node.loopback.start()
    assert node.delays[-1] < 90 * MS, "at once, not when the next one was due"
    assert len(node.calls) == 1


def test_a_good_answer_counts(node: Node) -> None:
    node.answer(200_000)
    assert node.known()


def test_a_message_that_comes_twice_counts_once(node: Node) -> None:
    for _ in range(8):
        node.answer(200_000)
    assert node.loopback.delay_ns() is None


@pytest.mark.parametrize(
    "strange",
    [
        {"payload": b"somebody"},
        {"payload": b""},
        {"retain": True},
        {"stamp": Stamp(SENT_NS + 200_000, StampSource.USER)},
        {"stamp": Stamp(SENT_NS - 1, StampSource.KERNEL)},
    ],
    ids=["not ours", "empty", "retained", "another sort of stamp", "before it was sent"],
)
def test_what_says_nothing_about_the_way_does_not_count(
    node: Node, strange: dict[str, Any]
) -> None:
    node.answer(200_000, **strange)
    assert not node.known()


def test_a_path_longer_than_the_time_between_messages_is_measured(node: Node) -> None:
    """Three messages are on their way at once; of a burst of four, none is forgotten."""
    for _ in range(2):
        node.step()
    for _ in range(8):
        node.step()
        node.answer(180 * MS, node.sent[-4][1])
    assert node.loopback.delay_ns() == 180 * MS


def test_what_does_not_come_back_within_a_burst_is_not_waited_for(node: Node) -> None:
    lost = node.sent[-1][1]
    for _ in range(4):
        node.step()
    node.answer(200_000, lost)
    assert not node.known()


def test_a_new_connection_may_have_another_path(node: Node) -> None:
    node.answer(200_000)
    assert node.known()
    node.loopback.start()
    assert node.loopback.delay_ns() is None


def test_a_step_of_the_clock_spoils_the_message_on_its_way(node: Node) -> None:
    node.loopback.forget_pending()
    node.answer(3_600_000 * MS)
    assert not node.known()


def test_nothing_is_sent_while_there_is_no_connection(node: Node) -> None:
    node.connection.connected = False
    node.step()
    assert len(node.sent) == 1
    node.connection.connected = True
    node.step()
    assert len(node.sent) == 2


def test_a_message_that_could_not_be_sent_is_not_waited_for(node: Node) -> None:
    node.takes_data = False
    before = node.collected
    node.step()
    node.answer(200_000)
    assert node.collected == before


# -- room for the broker ---------------------------------------------------------------------------


@pytest.fixture
def roomy(node: Node) -> Node:
    loop: Any = SimpleNamespace(call_later=node._later)
    make = lambda: len(node.sent).to_bytes(8) + bytes(4)  # noqa: E731
    node.loopback = Loopback(
        loop, node.connection, TOPIC, burst=4, interval_ns=4000 * MS, make=make, room=4
    )
    node.calls.clear()
    node.loopback.start()
    node.step()
    return node


def test_a_broker_may_write_into_the_room_that_is_left_and_is_seen_to(roomy: Node) -> None:
    assert not roomy.loopback.filled
    roomy.answer(200_000, roomy.sent[-1][1][:8] + b"here")
    assert roomy.loopback.filled
    assert roomy.known()
    assert not roomy.loopback.filled, "those came back as they went"


def test_what_was_written_elsewhere_is_not_ours(roomy: Node) -> None:
    roomy.answer(200_000, b"another!" + b"here")
    roomy.answer(200_000, roomy.sent[-1][1][:8] + b"longer")
    assert not roomy.loopback.filled
    assert not roomy.known()


def test_a_new_connection_may_be_to_another_broker(roomy: Node) -> None:
    roomy.answer(200_000, roomy.sent[-1][1][:8] + b"here")
    roomy.loopback.start()
    assert not roomy.loopback.filled


def test_what_warms_up_is_stamped_and_waited_for_by_nobody(node: Node) -> None:
    waited = node.sent[-1]
    node.loopback.warm_up()
    assert node.collected == 2, "its stamp was read too"
    assert [topic for topic, _ in node.sent] == [TOPIC, TOPIC]
    node.answer(900_000)
    node.answer(200_000, waited[1])
    assert node.known()
    assert node.loopback.delay_ns() == 200_000
