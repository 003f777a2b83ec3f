"""What a broker without keys plays below the messages: each attack by name, and random ones."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from rig import FLEET
from tcp_broker import MS, TRAILER, Message, Session
from tcp_stack import Shape

from mqtick.protocol.auth import Keys, derive_client_key

__all__ = ["Play", "packet_octets"]

MARGIN_NS = 2 * MS
"""What an attack adds to a delay, lest an exchange seems to have taken less than no time."""
_OVERHEADS = {"mqtt": 0, "ws": 6, "mqtts": 22}
_PACKET_OCTETS = {1: {"q": 24, "r": 32, "t": 32}, 2: {"q": 57, "r": 57, "t": 49}}


def packet_octets(kind: str, topic: str, version: int, scheme: str = "mqtt") -> int:
    """Return how long a message is on the wire, by MQTT 5."""
    return 2 + 2 + len(topic) + 1 + _PACKET_OCTETS[version][kind] + _OVERHEADS[scheme]


@dataclass
class Play:
    """What is done on one port, with one client or the server; durations in ns.

    Kinds of messages are the letters of their topics: q request, r reply, f follow-up, t time
    message, c and l loops.
    """

    version: int = 2
    scheme: str = "mqtt"
    begin_ns: int = 0
    """The host is served honestly until then, from its first message on."""
    late: dict[str, int] = field(default_factory=dict)
    """How much later messages from this host are passed on, and messages to it."""
    held: str = ""
    """Messages from this host whose end is kept in it: the window is closed after their tag."""
    held_ns: int = 0
    early: str = ""
    """Messages to this host whose end is sent before them."""
    tail: int = 4
    """So many octets are that end, in version 2; one that is guessed in version 1."""
    ahead: int = 0
    """So many octets may come before the message, after its end was sent; 0: none."""
    only: bool = False
    """Whether messages that could not be attacked in this way are dropped."""
    waits_for_early: bool = False
    """Whether replies from this host are kept for as long as the end of its request was early."""
    mss: int = 1400
    window: int = 60_000
    shape: Shape = field(default_factory=Shape)
    withheld_ns: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self.count: Counter[str] = Counter()
        """What was played: `planted`, `used`, `held`, `late`."""
        self._began_ns: int | None = None
        self._open_ns = 0
        self._lag_ns = 0
        self._nonce = b""
        self._random = random.Random(self.seed)

    @property
    def fills(self) -> bool:
        """Whether the broker says that it fills trailers, so that version 2 is spoken."""
        return self.version == 2

    def guess(self, message: Message) -> Message | None:
        """See `Script`. He guesses right, as happens once in 256 times: nobody waits for that."""
        name, kind = message.topic.rpartition("/")[2], message.kind
        if kind not in self.held:
            return None
        keys, body = Keys((derive_client_key(FLEET, name),)), message.payload[:-7]
        context = self._nonce if kind == "r" else b""
        return message._replace(payload=keys.sign(body, message.topic, context))

    @property
    def is_on(self) -> bool:
        """Whether the attack has begun."""
        now_ns = time.monotonic_ns()
        self._began_ns = self._began_ns or now_ns
        return now_ns - self._began_ns >= self.begin_ns

    def came(self, session: Session, message: Message, *, is_cut: bool) -> None:
        """See `Script`."""
        broker, kind, wait_ns = session.broker, message.kind, 0
        if self.is_on:
            wait_ns = self.late.get(kind, 0)
            if kind in "rf":
                wait_ns += self._lag_ns
            if kind in self.held:
                if is_cut:
                    self._hold(session)
                elif self.only:
                    return
            if kind == "q" and "r" in self.early:
                if self.only and session.has_planted:
                    return
                broker.network.later(MARGIN_NS, lambda: self._plant(session, message))
        if wait_ns:
            self.count["late"] += 1
            broker.network.later(wait_ns, lambda: broker.route(message))
        else:
            broker.route(message)

    def _hold(self, session: Session) -> None:
        """Close the host's window for a while."""
        line = getattr(session, "line", None)
        if line is None or line.window == 0:
            return
        self.count["held"] += 1
        line.window = 0
        self._open_ns = time.monotonic_ns() + self.held_ns

        def opens() -> None:
            line.window = self.window
            line.acknowledge()

        session.broker.network.later(self.held_ns, opens)

    def _plant(self, session: Session, request: Message | None = None) -> None:
        tails = [TRAILER[-self.tail :]]
        if self.version == 1:
            tails = [bytes([guess]) for guess in self._random.sample(range(256), 60)]
        ahead = self.ahead
        if request is not None and not ahead:
            topic = request.topic.replace("/q/", "/r/")
            whole = session.packet_of(Message(topic, bytes([request.payload[0]]) + bytes(56)))
            ahead = len(whole) - self.tail
        self.count["planted"] += session.plant(tails, ahead)

    def goes(self, session: Session, message: Message) -> None:
        """See `Script`."""
        wait_ns = 0
        if message.kind == "q":
            self._nonce = message.payload[6:14]
        if self.is_on:
            wait_ns = self.late.get(f"to-{message.kind}", 0)
            if message.kind in "rf" and self.held:
                wait_ns = max(wait_ns, self._open_ns + MARGIN_NS - time.monotonic_ns())
        if wait_ns > 0:
            session.broker.network.later(wait_ns, lambda: self._deliver(session, message))
        else:
            self._deliver(session, message)

    def _deliver(self, session: Session, message: Message) -> None:
        packet = session.packet_of(message)
        if message.kind not in self.early or not self.is_on:
            session.send(packet)
            return
        since_ns = session.send_planted(packet)
        self.count["used"] += since_ns is not None
        if self.waits_for_early:
            self._lag_ns = since_ns + MARGIN_NS if since_ns is not None else 0
        if since_ns is None and not self.only:
            session.send(packet)
        if self.early != "r":
            session.broker.network.later(20 * MS, lambda: self._plant(session))
