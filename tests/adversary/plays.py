"""What a broker without keys plays below the messages: each attack by name, and random ones."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rig import FLEET
from tcp_broker import MS, TRAILER, Message, Session
from tcp_stack import Shape

from mqtick.protocol.auth import Keys, derive_client_key

MARGIN_NS = 2 * MS
"""What an attack adds to a delay, lest an exchange seems to have taken less than no time."""
_AHEAD = 600
NAME = "kitchen-"
"""Names of clients have two digits more: segments of the least size, 48 octets, fit them."""
SCHEMES = ("mqtt", "ws", "mqtts")
_OVERHEADS = {"mqtt": 0, "ws": 6, "mqtts": 22, "mqtt+udp": 0}
_PAYLOAD_OCTETS = {1: {"q": 24, "r": 32}, 2: {"q": 57, "r": 57}}


def _octets(kind: str, name: str, version: int, scheme: str) -> int:
    """Return how long a message is on the wire, by MQTT 5."""
    size = 2 + 2 + len(f"mqtick/{kind}/0/{name}") + 1 + _PAYLOAD_OCTETS[version][kind]
    return size + _OVERHEADS[scheme]


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
    rest_ns: int = 20 * MS
    """From one such message to when the end of the next one is sent; a reply's: at its request."""
    waits_for_early: bool = False
    """Whether replies from this host are kept for as long as the end of its request was early."""
    mss: int = 1400
    window: int = 60_000
    shape: Shape = field(default_factory=Shape)
    withheld_ns: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self.count: Counter[str] = Counter()
        """What was played: `asked`, `sent`, `planted`, `used`, `held`, `late`."""
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
        self.count["asked"] += kind == "q"
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
        ahead = self.ahead or _AHEAD
        if request is not None and not self.ahead:
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
        self.count["sent"] += 1
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
            session.broker.network.later(self.rest_ns, lambda: self._plant(session))


_BY_NS = 80 * MS
"""By how much: an interval that is as much wider is still one that a client calls known."""


@dataclass
class Attack:
    """What is played to a client and to the server that it asks, and what that has to leave."""

    client: Play
    server: Play | None
    """None: the server is served honestly."""
    what: str
    """What counts as having been made."""
    times: int = 8
    """How often it has to be made."""
    may_know: bool = True
    """Whether an honest client can know the time while this is played."""

    steers: bool = False
    """Whether an honest client hands chronyd samples, and the attack lasts until it has."""

    @property
    def made(self) -> int:
        """How often it was really made."""
        return self.client.count[self.what] + (self.server.count[self.what] if self.server else 0)


def _cut(
    kind: str, version: int, scheme: str, name: str = f"{NAME}00", **more: int
) -> dict[str, Any]:
    """Return segments that end after the tag of a message, or before that of its record."""
    less = 8 if version == 2 or scheme == "mqtts" else 1
    size = _octets(kind, f"{NAME}00", version, scheme) - less
    return {"mss": size, "window": size}


def _t4_early(version: int, scheme: str, **more: Any) -> Attack:
    ahead = more.pop("ahead", 0 if version == 2 else 3_000)
    client = Play(version, scheme, early="r", late={"q": _BY_NS}, only=True, ahead=ahead, **more)
    return Attack(client, None, "used", 8 if version == 2 else 3)


def _t1_late(version: int, scheme: str, held_ns: int = _BY_NS) -> Attack:
    cut = _cut("q", version, scheme)
    client = Play(version, scheme, held="q", held_ns=held_ns, only=True, **cut)
    return Attack(client, None, "held")


def _t2_early(version: int, scheme: str) -> Attack:
    server = Play(version, scheme, early="q", waits_for_early=True, ahead=3_000, only=True)
    server.rest_ns = 340 * MS  # the client asks again after 320 to 480 ms
    return Attack(Play(version), server, "used", 8 if version == 2 else 3)


def _t3_late(version: int, scheme: str) -> Attack:
    """The correction of a reply is sent 3 ms after it, and later only if its echoes are late."""
    held_ns = 2 * MS if version == 2 else _BY_NS
    server = Play(version, scheme, held="r", held_ns=held_ns, **_cut("r", version, scheme))
    if version == 1:
        server.late["to-r"] = held_ns + 2 * MS
    return Attack(Play(version, late={"q": held_ns + MS // 2}), server, "held")


def _both(made: str, **what: Any) -> Attack:
    """The same with client and server."""
    return Attack(Play(**what), Play(**what), made)


def _after_service(honest_ns: int) -> Attack:
    attack = _t4_early(2, "mqtt", begin_ns=honest_ns)
    attack.client.late["q"] = 200 * MS
    return replace(attack, times=20)


def _honest(version: int, scheme: str) -> Attack:
    return Attack(Play(version, scheme), None, "sent", 20, steers=True)


Attacks = dict[str, Callable[[], Attack]]
STAMPS: Attacks = {
    f"{name}, version {version}, {scheme}": partial(make, version, scheme)
    for name, make in (
        ("T4 early", _t4_early),
        ("T1 late", _t1_late),
        ("T2 early", _t2_early),
        ("T3 late", _t3_late),
    )
    for version in (1, 2)
    for scheme in SCHEMES
}
STAMPS |= {
    f"T4 early, planted long before, {scheme}": partial(_t4_early, 2, scheme, ahead=3_000)
    for scheme in SCHEMES
}
STAMPS |= {
    "T1 2.5 s late": lambda: replace(_t1_late(2, "mqtt", 2_500 * MS), times=3, may_know=False),
    "T4 early after honest service": partial(_after_service, 8_000 * MS),
    "time messages early": partial(_both, "used", early="t", ahead=3_000),
}
"""Stamps of the four instants of an exchange, and of time messages, are moved."""
ECHOES: Attacks = {
    "loops early": partial(_both, "used", early="cl", ahead=3_000),
    "echoes early": lambda: Attack(Play(1), Play(1, early="rl", ahead=3_000), "used", 3),
}
SHAPES: Attacks = {
    f"{name}, version {version}": partial(_both, "sent", version=version, **what)
    for version in (1, 2)
    for name, what in (
        ("each octet in a segment", {"shape": Shape(1)}),
        ("each octet in a segment, the last one first", {"shape": Shape(1, True)}),
        ("the end of each packet first", {"shape": Shape(40, True, 10 * MS)}),
        ("overlapping segments", {"shape": Shape(7, False, MS, overlap=6)}),
        ("each segment twice", {"shape": Shape(20, False, MS, copies=2)}),
    )
}
RETRANSMISSIONS: Attacks = {
    f"late acknowledgements, version {version}": partial(
        _both, "sent", version=version, withheld_ns=450 * MS
    )
    for version in (1, 2)
}
DATAGRAMS: Attacks = {
    "T4 early, mqtt+udp": partial(_t4_early, 2, "mqtt+udp", tail=16),
    "the end of each datagram first, mqtt+udp": lambda: Attack(
        Play(2, "mqtt+udp", shape=Shape(backwards=True, pause_ns=30 * MS)), None, "sent"
    ),
    "each datagram twice, mqtt+udp": lambda: Attack(
        Play(2, "mqtt+udp", shape=Shape(copies=2)), None, "sent"
    ),
}
DELAYS: Attacks = {
    "plain delay": lambda: Attack(Play(late={"q": 900 * MS}), None, "late", may_know=False)
}
ATTACKS = STAMPS | ECHOES | SHAPES | RETRANSMISSIONS | DATAGRAMS | DELAYS
HONEST: Attacks = {
    f"honest, version {version}, {scheme}": partial(_honest, version, scheme)
    for version in (1, 2)
    for scheme in (*SCHEMES, "mqtt+udp")
}


def client_name(seed: int) -> str:
    """Return the name of the client that a random script is played to."""
    return f"client-{seed % 100_000:05}"


def random_play_of(seed: int, version: int) -> Play:
    """Return what is played to one of several clients of a server."""
    chance = random.Random(seed)
    scheme = chance.choice((*SCHEMES, "mqtt", "mqtts", "mqtt+udp"))
    return random_play(chance, version, scheme, client_name(seed))


def random_play(
    chance: random.Random, version: int, scheme: str, name: str, kinds: str = "qr"
) -> Play:
    """Draw what is done on one port: everything that the attacks by name are made of, mixed.

    Most delays are such that an honest client still knows the time.
    """
    up, down = kinds[0], kinds[1]
    most_ns = chance.choice((MS, 5 * MS, 15 * MS, 15 * MS, 40 * MS, 400 * MS))
    size = _octets(up, name, version, scheme)
    play = Play(
        version,
        scheme,
        begin_ns=chance.choice((0, 0, 0, 1_500 * MS, 2_500 * MS)),
        late={
            kind: chance.randrange(most_ns)
            for kind in (up, f"to-{down}", "f", "to-f", "to-t")
            if chance.random() < 0.4
        },
        early="".join(kind for kind in (down, "t", "f", "c", "l") if chance.random() < 0.4),
        tail=chance.randrange(1, 17),
        ahead=chance.choice((0, 500, 1_500, 3_000, 8_000)),
        only=chance.random() < 0.5,
        rest_ns=chance.choice((20 * MS, 300 * MS, 400 * MS - most_ns)),
        waits_for_early=kinds == "rq" and chance.random() < 0.7,
        shape=Shape(
            chance.choice((1, 7, 20, 50, 1_400, 1_400)),
            chance.random() < 0.3,
            chance.choice((0, 0, MS // 10, MS)),
            overlap=chance.choice((0, 0, 1, 10)),
            copies=chance.choice((1, 1, 2)),
        ),
        withheld_ns=chance.choice((0, 0, 0, 1, 5, 230)) * MS,
        seed=chance.getrandbits(32),
    )
    if play.early:
        play.late[up] = chance.randrange(most_ns)
    if chance.random() < 0.5:
        play.held, play.held_ns = chance.choice((up, up + "tcl")), chance.randrange(most_ns)
        tagged = version == 2 or scheme == "mqtts"
        play.mss = max(49, size - (chance.randrange(1, 17) if tagged else 1))
        play.window = play.mss * chance.choice((1, 1, 1, 2, 5))
    return play
