"""Whatever a network loses, delays or doubles: in the end the broker has what was asked for.

Virtual time, the reference broker, and a network that keeps the order of what it delivers.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.rtl.sim.golden import Golden, Settings
from mqtick.mqtt import udp_session
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Timer
from mqtick.mqtt.session import Events
from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.mqtt.udp_session import UdpSession

SECOND = 1_000_000_000
MS = 1_000_000
HOST, PORT = "10.0.0.2", 5000


class World:
    """A session, the broker, and what is between them; it is the session's loop and socket too."""

    transmit = None
    received = Stamp(0, StampSource.KERNEL)

    def __init__(self, loss: float, seed: int) -> None:
        self.now_ns, self.loss, self.chance = 1, loss, random.Random(seed)
        self.broker = Golden(Settings())
        self.ups, self.downs, self.arrivals = 0, list[str](), list[bytes]()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._last_ns = [0, 0]
        self.wanted = ["a"]
        events = Events(lambda one: self.arrivals.append(one.payload), self._up, self._lost)
        this: Any = self
        url = parse_broker_url("mqtt+udp://10.0.0.1")
        self.session = UdpSession(this, url, "node", None, events, {})
        self._begin()

    def _begin(self) -> None:
        this: Any = self
        self.session.kernel = this
        self.session.begin()

    def _up(self) -> None:
        self.ups += 1
        self.session.subscribe(self.wanted, lambda _granted: None)

    def _lost(self, reason: str, _cause: object) -> None:
        self.downs.append(reason)
        self.session.close()
        self.call_later(SECOND, self._begin)

    # -- a loop --------------------------------------------------------------------------------

    def add(self, *_: object) -> None:
        """There is nothing to poll."""

    remove = add

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> Timer:
        """Call in virtual time."""
        timer = Timer(self.now_ns + delay_ns, callback, False)
        self._at(timer.due_ns, lambda: timer.callback() if timer.callback else None)
        return timer

    def _at(self, due_ns: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due_ns, next(self._count), call))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ns = self.now_ns + int(seconds * SECOND)
        time = SimpleNamespace(monotonic_ns=lambda: self.now_ns)
        with patch.object(udp_session, "time", time):
            while self._due and self._due[0][0] <= end_ns:
                self.now_ns, _, call = heapq.heappop(self._due)
                call()
        self.now_ns = end_ns

    # -- a socket and a network ----------------------------------------------------------------

    def fileno(self) -> int:
        """Return no descriptor."""
        return -1

    def close(self) -> None:
        """Nothing is open."""

    def send(self, datagram: bytes) -> int:
        """Carry it to the broker."""
        self._carry(0, lambda: self._serve(datagram))
        return len(datagram)

    def _serve(self, datagram: bytes) -> None:
        for one in self.broker.datagram(self.now_ns, HOST, PORT, datagram):
            self._carry(1, lambda octets=one.octets: self._take(octets))  # type: ignore[misc]

    def _take(self, octets: bytes) -> None:
        if self.session.kernel is not None:
            self.session._take(octets)

    def _carry(self, way: int, arrive: Callable[[], None]) -> None:
        if self.chance.random() < self.loss:
            return
        due_ns = max(self._last_ns[way], self.now_ns + self.chance.randrange(MS, 80 * MS))
        self._last_ns[way] = due_ns
        for _ in range(1 + (self.chance.random() < 0.1)):
            self._at(due_ns, arrive)


@settings(max_examples=12)
@given(
    st.integers(0, 2**32),
    st.floats(0, 0.3),
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcde")), max_size=12),
)
def test_what_was_asked_for_last_is_what_the_broker_has(
    seed: int, loss: float, steps: list[tuple[bool, str]]
) -> None:
    world = World(loss, seed)
    world.run(60)
    assert world.ups
    expected = {"a"}
    for add, topic in steps:
        if add:
            world.session.subscribe([topic], lambda _granted: None)
            expected.add(topic)
        else:
            world.session.unsubscribe([topic])
            expected.discard(topic)
        world.run(world.chance.random())
    world.run(120)
    if not world.downs:  # otherwise the program subscribes anew, to what it wants by then
        assert {one.decode() for one in world.broker.subscriptions} == expected


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.floats(0, 0.3))
def test_a_broker_that_was_restarted_has_the_subscriptions_again(seed: int, loss: float) -> None:
    world = World(loss, seed)
    world.run(20)
    world.broker = Golden(Settings(secret=bytes(16)))
    if seed % 2:
        world.session.subscribe(["b"], lambda _granted: None)
    world.run(90)
    assert b"a" in world.broker.subscriptions


@settings(max_examples=4)
@given(st.integers(0, 2**32))
def test_an_idle_connection_over_a_poor_network_lasts(seed: int) -> None:
    world = World(0.1, seed)
    world.run(1200)
    assert world.downs == []
    assert b"a" in world.broker.subscriptions
