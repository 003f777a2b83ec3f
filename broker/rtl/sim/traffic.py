"""Random datagrams that mean something to a broker: overlapping filters, and every way to be wrong.

The same seed gives the same traffic. A token that is good is computed from the broker's secret.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from broker.rtl.sim.golden import (
    CONNECT,
    DISCONNECT,
    EPOCH_NS,
    PINGREQ,
    PROOF,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Address,
    Golden,
    packet,
    publish,
)

# What comes how often. `good` is what a real broker takes over TCP as well.
GOOD = {
    "join": 2,
    "subscribe": 4,
    "unsubscribe": 2,
    "ping": 1,
    "leave": 1,
    "publish": 12,
    "retain": 4,
}
ALL = {
    **GOOD,
    "connect": 1, "wait": 1, "trailer": 4, "large": 1,
    "mutated": 6, "misfit": 4, "noise": 2, "forged": 1, "bad_proof": 1, "flood": 1,
}  # fmt: skip


class Datagram(NamedTuple):
    """What arrives, and when, in ns since the reset."""

    at_ns: int
    ip: str
    port: int
    octets: bytes


def string(octets: bytes) -> bytes:
    """Put a length before a field."""
    return len(octets).to_bytes(2, "big") + octets


class Traffic:
    """A source of datagrams.

    Args:
        seed: of all that is random.
        broker: the reference, fed with the same datagrams: it knows who has a lease.
        weights: how often what comes.
        subscribers: how many addresses.
    """

    def __init__(
        self, seed: int, broker: Golden, weights: dict[str, int] = ALL, subscribers: int = 12
    ) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self.kinds, self.weights = [*weights], [*weights.values()]
        self.who: list[Address] = [
            (f"10.0.{at % 3}.{at // 6 + 1}", 5000 + at // 3 % 2) for at in range(subscribers)
        ]
        self.now_ns = 0
        self.serial = 0

    def next(self) -> Datagram:
        """Return the next datagram; time goes on by some microseconds or, rarely, seconds."""
        self.now_ns += self.random.randrange(1_000, 100_000)
        kind = self.random.choices(self.kinds, self.weights)[0]
        (ip, port), octets = getattr(self, f"_{kind}")()
        return Datagram(self.now_ns, ip, port, octets)

    # ---- what the fields are made of -----------------------------------------------------------

    def _somebody(self) -> Address:
        """Choose an address, rather one with a lease."""
        known = [who for who in self.who if who in self.broker.leases]
        return self.random.choice(known if known and self.random.random() < 0.9 else self.who)

    def _topic(self) -> bytes:
        if self.random.random() < 0.03:
            return bytes(self.random.choices(b"ab/", k=self.random.choice((63, 64, 16, 17))))
        depth = self.random.choice((1, 1, 2, 2, 2, 3, 4))
        return b"/".join(self.random.choice((b"a", b"b", b"c", b"")) for _ in range(depth)) or b"a"

    def _filter(self) -> bytes:
        levels = self._topic().split(b"/")
        levels = [b"+" if self.random.random() < 0.2 else level for level in levels]
        if self.random.random() < 0.2:
            levels.append(b"#")
        return b"/".join(levels) if self.random.random() < 0.97 else b"#"

    def _payload(self) -> bytes:
        self.serial += 1
        number = b"%d" % self.serial
        return number + self.random.randbytes(self.random.randrange(24))

    def _token(self, who: Address) -> bytes:
        return self.broker.token(who, self.now_ns // EPOCH_NS)

    # ---- what is good --------------------------------------------------------------------------

    def _join(self) -> tuple[Address, bytes]:
        strangers = [who for who in self.who if who not in self.broker.leases] or self.who
        who = self.random.choice(strangers)
        return who, publish(PROOF, self._token(who))

    def _connect(self) -> tuple[Address, bytes]:
        level = self.random.choice((4, 4, 4, 4, 3, 5))
        flags = self.random.choice((0, 2, 2, 2, 2, 0xC2, 1))
        keep_alive_s = self.random.choice((0, 1, 10, 60, 3600))
        body = string(b"MQTT") + bytes([level, flags]) + keep_alive_s.to_bytes(2, "big")
        return self._somebody(), packet(CONNECT << 4, body + string(b"x" * (level + flags & 3)))

    def _subscribe(self) -> tuple[Address, bytes]:
        body = self.random.randrange(1, 65_536).to_bytes(2, "big")
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            body += string(self._filter()) + bytes([self.random.choice((0, 0, 1, 2))])
        return self._somebody(), packet(SUBSCRIBE << 4 | 2, body)

    def _unsubscribe(self) -> tuple[Address, bytes]:
        who = self._somebody()
        held = [wanted for wanted, them in self.broker.subscriptions.items() if who in them]
        body = self.random.randrange(1, 65_536).to_bytes(2, "big")
        for _ in range(self.random.choice((1, 1, 3))):
            body += string(self.random.choice([*held, self._filter()]))
        return who, packet(UNSUBSCRIBE << 4 | 2, body)

    def _ping(self) -> tuple[Address, bytes]:
        return self._somebody(), packet(PINGREQ << 4, b"")

    def _leave(self) -> tuple[Address, bytes]:
        return self._somebody(), packet(DISCONNECT << 4, b"")

    def _publish(self) -> tuple[Address, bytes]:
        return self._somebody(), publish(self._topic(), self._payload())

    def _retain(self) -> tuple[Address, bytes]:
        payload = self._payload() if self.random.random() < 0.7 else b""
        # Few topics, or those that are kept, so that the pool fills and empties.
        topic = self.random.choice((b"a", b"a/b", b"c", *self.broker.retained))
        return self._somebody(), publish(topic, payload, True)

    def _trailer(self) -> tuple[Address, bytes]:
        """A message whose trailer is filled, or nearly."""
        trailer = bytes(16)
        how = self.random.random()
        if how < 0.2:  # by another broker
            trailer = self.random.randbytes(15) + bytes([self.random.choice((0, 1, 2, 3, 4, 255))])
        elif how < 0.3:  # zeros but for one octet
            trailer = (1 << self.random.randrange(128)).to_bytes(16, "big")
        version = self.random.choice((0x20, 0x21, 0x2F, 0x10))
        payload = bytes([version]) * self.random.choice((0, 1, 2, 48, 49)) + trailer
        topic = self.random.choice((b"mqtick", b"mqtick/a", b"mqtick/a/b", b"mqticks", b"a"))
        return self._somebody(), publish(topic, payload, self.random.random() < 0.1)

    def _large(self) -> tuple[Address, bytes]:
        octets = publish(self._topic(), b"", self.random.random() < 0.3)
        room = self.random.choice((1024, 1025, 1472 - len(octets) - 1, 1473 - len(octets) - 1))
        return self._somebody(), publish(octets[4:], self.random.randbytes(room), octets[0] == 0x31)

    def _wait(self) -> tuple[Address, bytes]:
        self.now_ns += self.random.choice((10**6, 10**9, 20 * 10**9))
        return self._ping()

    # ---- what is bad ---------------------------------------------------------------------------

    def _mutated(self) -> tuple[Address, bytes]:
        """A good one with an octet changed, lost or added anywhere."""
        kind = self.random.choice(
            ("connect", "subscribe", "unsubscribe", "ping", "publish", "join")
        )
        who, octets = getattr(self, f"_{kind}")()
        at = self.random.randrange(len(octets) + 1)
        how = self.random.randrange(4)
        if how == 0:
            octets = octets[:at]
        elif how == 1:
            octets = octets[:at] + self.random.randbytes(1) + octets[at:]
        else:
            at = min(at, len(octets) - 1)
            octets = (
                octets[:at] + bytes([octets[at] ^ 1 << self.random.randrange(8)]) + octets[at + 1 :]
            )
        if how < 2 and self.random.random() < 0.7 and len(octets) >= 2:
            # Right outside, wrong inside.
            octets = packet(octets[0], octets[2:])
        return who, octets

    def _misfit(self) -> tuple[Address, bytes]:
        """What is well formed and not allowed."""
        filters = (
            b"", b"a/#/b", b"#/", b"a+", b"a#", b"$SYS/#", b"$proof", b"a\0", b"a" * 65, b"/" * 16,
            b"+/" * 15 + b"#", b"+/" * 16,
        )  # fmt: skip
        topics = (
            b"", b"+", b"a/#", b"a\0b", b"a" * 65, b"/" * 16, b"/".join([b"x"] * 256), b"$SYS",
            b"$proof/", b"$", b"$/+",
        )  # fmt: skip
        many = b"".join(
            string(b"%d" % at) + b"\0" for at in range(self.random.choice((33, 34, 200)))
        )
        one = string(self.random.choice(filters)) + b"\0"
        choices = (
            publish(self.random.choice(topics), self._payload()),
            bytes([0x30 | self.random.randrange(1, 16)]) + publish(b"a", self._payload())[1:],
            packet(0x82, b"\0\1" + one + string(b"a") + b"\0"),
            packet(0x82, b"\0\1" + string(b"a") + bytes([self.random.choice((3, 128, 255))])),
            packet(0x82, self.random.choice((b"\0\0", b"\0\1")) + many),
            packet(0x82, b"\0\0" + string(b"a") + b"\0"),
            packet(0xA2, b"\0\0" + string(b"a")),
            packet(0xA2, b"\0\1" + string(self.random.choice(filters))),
            packet(self.random.randrange(256), self._payload()),
            publish(self._topic(), bytes(self.random.choice((1470, 1480, 3000)))),
        )
        return self._somebody(), self.random.choice(choices)

    def _noise(self) -> tuple[Address, bytes]:
        return self._somebody(), self.random.randbytes(self.random.choice((0, 1, 2, 3, 9, 64)))

    def _forged(self) -> tuple[Address, bytes]:
        """A sender that cannot be one."""
        _, octets = self._publish() if self.random.random() < 0.5 else self._ping()
        return self.random.choice(
            [
                *(("0.0.0.0", 5000), ("127.0.0.1", 1), ("224.0.0.1", 1), ("255.255.255.255", 1)),
                *(("240.1.2.3", 9), ("10.0.0.1", 0)),
            ]
        ), octets

    def _bad_proof(self) -> tuple[Address, bytes]:
        who, other = self._somebody(), self.random.choice(self.who)
        late = self.broker.token(who, self.now_ns // EPOCH_NS + self.random.choice((-2, 1)))
        return who, publish(PROOF, self.random.choice((late, self._token(other), b"", bytes(8))))

    def _flood(self) -> tuple[Address, bytes]:
        """One of very many that are never proven."""
        ip = f"10.{self.random.randrange(256)}.{self.random.randrange(256)}.77"
        return (ip, self.random.randrange(1, 65_536)), self._subscribe()[1]
