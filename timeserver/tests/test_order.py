"""The echo is offered only where the broker was seen to deliver in the order it relies on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.timeserver.order import OrderProbe

TOPIC = "mqtick/o/0/order1"


class Broker:
    """Takes the place of loop and connection; `deliver` plays the broker."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.calls: list[Callable[[], None]] = []
        connection: Any = SimpleNamespace(
            publish=lambda _topic, payload: self.sent.append(payload),
            unsubscribe=lambda _topics: None,
            subscribe=lambda _topics, done: done(True),
        )
        loop: Any = SimpleNamespace(call_later=self._later)
        self.probe = OrderProbe(loop, connection)
        self.waited_ns = 0

    def _later(self, delay_ns: int, call: Callable[[], None]) -> Any:
        self.waited_ns += delay_ns
        self.calls.append(call)
        return SimpleNamespace(cancel=lambda: None)

    def deliver(
        self,
        order: Sequence[str],
        source: StampSource = StampSource.KERNEL,
        held: str = "",
        back: int = 1,
    ) -> None:
        """Deliver a message in this order, the last or one further back; let the next be sent."""
        now_ns = time.time_ns()
        for place, who in enumerate(order):
            stamp = Stamp(now_ns + place, source)
            arrival = Arrival(TOPIC, self.sent[-back], stamp, False, b"", who == held)
            self.probe.arrived(who, arrival)
        self.calls.pop()()


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.probe.place(TOPIC)
    return made


RIGHT = ("first", "own", "last")


def test_the_echo_waits_for_eight_messages_in_order(broker: Broker) -> None:
    for _ in range(7):
        broker.deliver(RIGHT)
        assert (broker.probe.trusted, broker.probe.says) == (False, "unknown")
    broker.deliver(RIGHT)
    assert (broker.probe.trusted, broker.probe.says) == (True, "kept")


def test_the_order_is_found_out_where_a_message_takes_longer_than_the_next_one_waits(
    broker: Broker,
) -> None:
    for _ in range(2):
        broker.calls.pop()()
    for _ in range(8):
        broker.deliver(RIGHT, back=3)
    assert broker.probe.says == "kept"


@pytest.mark.parametrize("order", [("own", "first", "last"), ("first", "last", "own")])
def test_a_broker_that_delivers_otherwise_gets_no_echo(
    broker: Broker, order: tuple[str, ...]
) -> None:
    for _ in range(20):
        broker.deliver(order)
    assert (broker.probe.trusted, broker.probe.says) == (False, "broken")


@pytest.mark.parametrize("held", RIGHT)
def test_a_message_that_a_loaded_broker_may_have_held_back_decides_nothing(
    broker: Broker, held: str
) -> None:
    for _ in range(8):
        broker.deliver(RIGHT)
    for _ in range(20):
        broker.deliver(("own", "last", "first"), held=held)
    assert (broker.probe.trusted, broker.probe.says) == (True, "kept")


@pytest.mark.parametrize("bad", [2, 12, 200])
def test_after_bad_messages_a_minute_of_good_ones_is_enough(broker: Broker, bad: int) -> None:
    for _ in range(8):
        broker.deliver(RIGHT)
    for _ in range(bad):
        broker.deliver(("own", "first", "last"))
    assert broker.probe.says == "broken"
    broker.deliver(RIGHT)
    broker.waited_ns = 0
    while not broker.probe.trusted:
        broker.deliver(RIGHT)
    assert broker.waited_ns < 60 * 10**9


@pytest.mark.parametrize("seed", range(20))
def test_a_broker_that_mixes_the_order_is_found_out_and_stays_so(broker: Broker, seed: int) -> None:
    chance = random.Random(seed)
    offered = [False] * 600
    for number in range(600):
        broker.deliver(chance.sample(RIGHT, 3))
        offered[number] = broker.probe.trusted
    assert sum(offered) <= 3  # by chance, at the very beginning
    assert not any(offered[64:])
    assert broker.waited_ns > 400 * 10 * 10**9  # asked seldom: it will not change


def test_one_message_out_of_order_now_and_then_is_forgiven(broker: Broker) -> None:
    for number in range(64):
        broker.deliver(RIGHT if number % 33 else ("own", "first", "last"))
    assert broker.probe.trusted


def test_stamps_that_are_not_the_kernels_decide_nothing(broker: Broker) -> None:
    for _ in range(20):
        broker.deliver(RIGHT, StampSource.USER)
    assert broker.probe.says == "unknown"


def test_messages_of_others_and_retained_ones_decide_nothing(broker: Broker) -> None:
    for payload, retain in ((b"forged!!", False), (broker.sent[-1], True)):
        for place, who in enumerate(("own", "first", "last")):
            stamp = Stamp(place, StampSource.KERNEL)
            broker.probe.arrived(who, Arrival(TOPIC, payload, stamp, retain, b""))
    assert broker.probe.says == "unknown"


def test_a_new_place_is_probed_anew(broker: Broker) -> None:
    for _ in range(8):
        broker.deliver(RIGHT)
    broker.probe.place(TOPIC)
    assert not broker.probe.trusted
