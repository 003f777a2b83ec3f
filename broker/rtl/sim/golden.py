"""What a broker of `broker/spec` does, in plain Python: the reference for all others.

Written from the two documents alone, to be read beside them; nothing here is fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from itertools import chain
from typing import NamedTuple

from broker.rtl.sim.siphash import siphash

Address = tuple[str, int]

CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT = 1, 3, 8, 10, 12, 14
FLAGS = {CONNECT: 0, SUBSCRIBE: 2, UNSUBSCRIBE: 2, PINGREQ: 0, DISCONNECT: 0}
PROOF = b"$proof"
REFUSALS = (
    "source", "oversized", "length", "type", "flags", "qos", "subnet", "truncated", "filters",
    "identifier", "topic", "reserved", "proof", "stranger", "full",
)  # fmt: skip
REFUSED_FILTERS = ("filter", "share", "shape", "table")

DATAGRAM_OCTETS = 1472
NAME_OCTETS = 64
LEVELS = 16
FILTERS = 32
EPOCH_NS = 64_000_000_000
TRAILER_OCTETS = 16
NOT_KNOWN = -(2**31)
HARDWARE = 3
NOT_STATED = bytes(8) + NOT_KNOWN.to_bytes(4, "big", signed=True) + bytes(4)
NEVER_SOURCES = tuple(IPv4Network(net) for net in ("0.0.0.0/8", "224.0.0.0/3"))
LOOPBACK = IPv4Network("127.0.0.0/8")
EVERYBODY = (IPv4Network("0.0.0.0/0"),)


@dataclass
class Settings:
    """What can be set in a broker (section 12), and the sizes that it was built with.

    `stamps` is who makes the stamps, as residence.md numbers them. Only hardware states a
    residence that needs no correction.
    """

    secret: bytes = bytes(range(16))
    lease_s: int = 60
    publishers: tuple[IPv4Network, ...] = EVERYBODY
    subscribers: tuple[IPv4Network, ...] = EVERYBODY
    shapes: int = 8
    subscriptions_a_subscriber: int = 32
    subscribers_an_address: int = 1024
    residence_prefix: str = "mqtick"
    subscriptions: int = 65_536
    retained: int = 64
    retained_octets: int = 1024
    loopback_door: bool = False
    stamps: int = HARDWARE


class Sent(NamedTuple):
    """A datagram that the broker sends."""

    ip: str
    port: int
    octets: bytes


class AnyOrder(NamedTuple):
    """Runs of datagrams: each run is in order, which run comes first is not said."""

    runs: list[list[Sent]]


@dataclass
class Lease:
    """What is kept of a subscriber beside its subscriptions."""

    length_ns: int
    end_ns: int
    copies: int = 0


address_of = lru_cache(65_536)(IPv4Address)


class RefusedError(Exception):
    """The datagram has no effect but to be counted under this name."""


class Reader:
    """Takes fields from a packet's body."""

    def __init__(self, octets: bytes) -> None:
        self.left = octets

    def take(self, count: int) -> bytes:
        """Return the next octets; there must be so many."""
        if len(self.left) < count:
            raise RefusedError("truncated")
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def number(self, octets: int) -> int:
        """Return a number, big endian."""
        return int.from_bytes(self.take(octets), "big")

    def string(self) -> bytes:
        """Return a field with its length before it."""
        return self.take(self.number(2))

    def end(self) -> None:
        """Insist that nothing is left over."""
        if self.left:
            raise RefusedError("truncated")


def body_of(datagram: bytes) -> bytes:
    """Return what follows the fixed header."""
    if len(datagram) < 2:
        raise RefusedError("length")
    length, header = datagram[1], 2
    if length & 0x80:
        if len(datagram) < 3 or datagram[2] & 0x80 or datagram[2] == 0:
            raise RefusedError("length")
        length, header = length & 0x7F | datagram[2] << 7, 3
    if len(datagram) - header != length:
        raise RefusedError("length")
    return datagram[header:]


def packet(first: int, body: bytes) -> bytes:
    """Put the fixed header before a body."""
    if len(body) < 128:
        return bytes([first, len(body)]) + body
    return bytes([first, len(body) & 0x7F | 0x80, len(body) >> 7]) + body


def publish(topic: bytes, payload: bytes, retain: bool = False) -> bytes:
    """Encode a PUBLISH, QoS 0."""
    return packet(0x30 | retain, len(topic).to_bytes(2, "big") + topic + payload)


def is_name(octets: bytes) -> bool:
    """Tell whether a topic or filter has a good length, not too many levels, and no NUL."""
    return 1 <= len(octets) <= NAME_OCTETS and octets.count(b"/") < LEVELS and 0 not in octets


def is_topic(octets: bytes) -> bool:
    """Tell whether a message can be published to this topic."""
    return is_name(octets) and not {*b"+#"} & {*octets}


def is_filter(octets: bytes) -> bool:
    """Tell whether this is a filter (MQTT 3.1.1, 4.7.1) that a subscriber may have."""
    levels = octets.split(b"/")
    return (
        is_name(octets)
        and not octets.startswith(b"$")
        and all(level == b"+" or b"+" not in level for level in levels)
        and all(b"#" not in level for level in levels[:-1])
        and (levels[-1] == b"#" or b"#" not in levels[-1])
    )


@lru_cache(65_536)  # of millions of datagrams, most ask what others have asked
def matches(wanted: bytes, topic: bytes) -> bool:
    """Tell whether a filter matches a topic (MQTT 3.1.1, 4.7); neither begins with `$`."""
    filter_levels, levels = wanted.split(b"/"), topic.split(b"/")
    for at, level in enumerate(filter_levels):
        if level == b"#":  # the level before it is enough: a/# matches a
            return True
        if at == len(levels) or level not in (b"+", levels[at]):
            return False
    return len(filter_levels) == len(levels)


@lru_cache(65_536)
def shape(wanted: bytes) -> tuple[frozenset[int], int | None]:
    """Return where the `+` stand, and at what depth the `#`."""
    levels = wanted.split(b"/")
    plus = frozenset(at for at, level in enumerate(levels) if level == b"+")
    return plus, len(levels) - 1 if levels[-1] == b"#" else None


EXACT = shape(b"")


class Golden:
    """A broker that has just been reset.

    Attributes:
        counters: how often, by name: refusals, refused filters, `copies`, `challenges`, `pool`
            (retained messages not kept), `leases_ended`.
        departure: called for each copy whose residence is stated, with the arrival's stamp;
            returns that of its departure. Both count 2^-16 ns.
        without_room: names what a table does not take although it is not full (`table`, or `full`
            for a subscriber), for a broker whose entries collide.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.counters: Counter[str] = Counter()
        self.departure: Callable[[int], int] = lambda arrival: arrival
        self.without_room: Callable[[str, Address, bytes], bool] = lambda *_: False
        self.leases: dict[Address, Lease] = {}
        self.subscriptions: dict[bytes, list[Address]] = {}
        self.retained: dict[bytes, bytes] = {}

    def datagram(
        self, now_ns: int, ip: str, port: int, octets: bytes, arrival: int | None = None
    ) -> list[Sent]:
        """Serve one datagram, and return what is sent for it, in a possible order.

        Args:
            now_ns: since the reset; never less than before.
            ip: of the sender.
            port: of the sender.
            octets: the datagram.
            arrival: its stamp in 2^-16 ns; from `now_ns` if not given.
        """
        sent = self.serve(now_ns, ip, port, octets, arrival)
        return list(
            chain.from_iterable(
                chain.from_iterable(item.runs) if isinstance(item, AnyOrder) else [item]
                for item in sent
            )
        )

    def serve(
        self, now_ns: int, ip: str, port: int, octets: bytes, arrival: int | None = None
    ) -> list[Sent | AnyOrder]:
        """Do the same, and say where the order is not fixed."""
        self.end_leases(now_ns)
        try:
            return self._serve(
                now_ns, (ip, port), octets, now_ns << 16 if arrival is None else arrival
            )
        except RefusedError as refused:
            self.counters[str(refused)] += 1
            return []

    def end_leases(self, now_ns: int) -> None:
        """Forget the subscribers whose leases have ended."""
        for who in [who for who, lease in self.leases.items() if lease.end_ns <= now_ns]:
            self._forget(who)
            self.counters["leases_ended"] += 1

    def token(self, who: Address, epoch: int) -> bytes:
        """Return the token for an address (section 3)."""
        ip, port = who
        return siphash(
            self.settings.secret,
            IPv4Address(ip).packed + port.to_bytes(2, "big") + (epoch & 0xFFFF).to_bytes(2, "big"),
        )

    # ---- the checks, in the order of section 7 -------------------------------------------------

    def _serve(
        self, now_ns: int, who: Address, octets: bytes, arrival: int
    ) -> list[Sent | AnyOrder]:
        self._check_source(who)
        if len(octets) > DATAGRAM_OCTETS:
            raise RefusedError("oversized")
        body = body_of(octets)
        kind, low = octets[0] >> 4, octets[0] & 15
        if kind != PUBLISH and kind not in FLAGS:
            raise RefusedError("type")
        if kind != PUBLISH and low != FLAGS[kind]:
            raise RefusedError("flags")
        if kind == PUBLISH and low & 0b1110:
            raise RefusedError("qos")
        self._check_subnet(
            who, publishes=kind == PUBLISH and not body.startswith(b"\x00\x06" + PROOF)
        )
        read = Reader(body)
        if kind == PUBLISH:
            topic = read.string()
            if topic == PROOF:
                return self._prove(now_ns, who, read.left)
            return self._publish(topic, read.left, bool(low & 1), arrival)
        if kind == CONNECT:
            code, keep_alive_s = self._read_connect(read)
            return self._connect(now_ns, who, code, keep_alive_s)
        if kind in (SUBSCRIBE, UNSUBSCRIBE):
            identifier, filters = self._read_filters(read, with_qos=kind == SUBSCRIBE)
            if kind == SUBSCRIBE:
                return self._subscribe(now_ns, who, identifier, filters)
            return self._unsubscribe(who, identifier, [wanted for wanted, _ in filters])
        read.end()
        lease = self._lease_of(who)
        if kind == DISCONNECT:
            self._forget(who)
            return []
        lease.end_ns = now_ns + lease.length_ns
        return [Sent(*who, packet(0xD0, b""))]

    def _check_source(self, who: Address) -> None:
        ip = address_of(who[0])
        if who[1] == 0 or any(ip in net for net in NEVER_SOURCES):
            raise RefusedError("source")
        if ip in LOOPBACK and not self.settings.loopback_door:
            raise RefusedError("source")

    def _check_subnet(self, who: Address, publishes: bool) -> None:
        nets = self.settings.publishers if publishes else self.settings.subscribers
        if not any(address_of(who[0]) in net for net in nets):
            raise RefusedError("subnet")

    @staticmethod
    def _read_connect(read: Reader) -> tuple[int, int]:
        """Return the code to answer with, and the keep-alive."""
        if read.string() != b"MQTT" or read.number(1) != 4:
            return 1, 0
        if read.number(1) & ~0b10:
            return 5, 0
        keep_alive_s = read.number(2)
        read.string()
        read.end()
        return 0, keep_alive_s

    @staticmethod
    def _read_filters(read: Reader, with_qos: bool) -> tuple[bytes, list[tuple[bytes, int]]]:
        identifier = read.take(2)
        filters = [(read.string(), read.number(1) if with_qos else 0)]
        while read.left:
            filters.append((read.string(), read.number(1) if with_qos else 0))
        if len(filters) > FILTERS:
            raise RefusedError("filters")
        if identifier == b"\x00\x00":
            raise RefusedError("identifier")
        return identifier, filters

    def _lease_of(self, who: Address) -> Lease:
        if who not in self.leases:
            raise RefusedError("stranger")
        return self.leases[who]

    # ---- proof and lease -----------------------------------------------------------------------

    def _challenge(self, now_ns: int, who: Address) -> list[Sent | AnyOrder]:
        self.counters["challenges"] += 1
        return [Sent(*who, publish(PROOF, self.token(who, now_ns // EPOCH_NS)))]

    def _prove(self, now_ns: int, who: Address, token: bytes) -> list[Sent | AnyOrder]:
        epoch = now_ns // EPOCH_NS
        if token not in (self.token(who, epoch), self.token(who, epoch - 1)):
            raise RefusedError("proof")
        if who in self.leases:
            return []
        of_address = sum(ip == who[0] for ip, _ in self.leases)
        if of_address >= self.settings.subscribers_an_address or self.without_room(
            "full", who, b""
        ):
            self.counters["full"] += 1
            return [Sent(*who, bytes.fromhex("20020003"))]
        length_ns = self.settings.lease_s * 10**9
        self.leases[who] = Lease(length_ns, now_ns + length_ns)
        return []

    def _connect(
        self, now_ns: int, who: Address, code: int, keep_alive_s: int
    ) -> list[Sent | AnyOrder]:
        if who not in self.leases:
            return self._challenge(now_ns, who)
        if code == 0:
            half_s = 3 * keep_alive_s or 2 * self.settings.lease_s
            length_ns = half_s * 500_000_000
            lease = self.leases[who]
            lease.length_ns, lease.end_ns = length_ns, now_ns + length_ns
        return [Sent(*who, bytes([0x20, 2, 0, code]))]

    def _forget(self, who: Address) -> None:
        del self.leases[who]
        for wanted in list(self.subscriptions):
            self._remove(who, wanted)

    # ---- subscriptions -------------------------------------------------------------------------

    def _subscribe(
        self, now_ns: int, who: Address, identifier: bytes, filters: list[tuple[bytes, int]]
    ) -> list[Sent | AnyOrder]:
        if who not in self.leases:
            return self._challenge(now_ns, who)
        lease = self.leases[who]
        lease.end_ns = now_ns + lease.length_ns
        codes, granted = b"", []
        for wanted, qos in filters:
            refusal = self._add(who, wanted, qos)
            if refusal:
                self.counters[refusal] += 1
                codes += b"\x80"
            else:
                granted.append(wanted)
                codes += b"\x00"
        sent: list[Sent | AnyOrder] = [Sent(*who, packet(0x90, identifier + codes))]
        for wanted in granted:
            kept = [
                [Sent(*who, publish(topic, payload, retain=True))]
                for topic, payload in self.retained.items()
                if matches(wanted, topic)
            ]
            self.counters["copies"] += len(kept)
            sent += [AnyOrder(kept)] if len(kept) > 1 else [one for run in kept for one in run]
        return sent

    def _add(self, who: Address, wanted: bytes, qos: int) -> str:
        """Add a subscription; return why not, or nothing."""
        if qos > 2 or not is_filter(wanted):
            return "filter"
        if who in self.subscriptions.get(wanted, []):
            return ""
        held = sum(who in them for them in self.subscriptions.values())
        if held >= self.settings.subscriptions_a_subscriber:
            return "share"
        shapes = {EXACT, *map(shape, self.subscriptions)}
        if shape(wanted) not in shapes and len(shapes) >= self.settings.shapes:
            return "shape"
        entries = sum(map(len, self.subscriptions.values()))
        if entries >= self.settings.subscriptions or self.without_room("table", who, wanted):
            return "table"
        self.subscriptions.setdefault(wanted, []).append(who)
        return ""

    def _remove(self, who: Address, wanted: bytes) -> None:
        them = self.subscriptions.get(wanted, [])
        if who in them:
            them.remove(who)
            if not them:
                del self.subscriptions[wanted]

    def _unsubscribe(
        self, who: Address, identifier: bytes, filters: list[bytes]
    ) -> list[Sent | AnyOrder]:
        self._lease_of(who)
        for wanted in filters:
            self._remove(who, wanted)
        return [Sent(*who, packet(0xB0, identifier))]

    # ---- messages ------------------------------------------------------------------------------

    def _publish(
        self, topic: bytes, payload: bytes, retain: bool, arrival: int
    ) -> list[Sent | AnyOrder]:
        if not is_topic(topic):
            raise RefusedError("topic")
        if topic.startswith(b"$"):
            raise RefusedError("reserved")
        if retain:
            self._keep(topic, payload)
        exact = [*self._copies(self.subscriptions.get(topic, []), topic, payload, arrival)]
        runs = [
            [*self._copies(them, topic, payload, arrival)]
            for wanted, them in self.subscriptions.items()
            if shape(wanted) != EXACT and matches(wanted, topic)
        ]
        return [*exact, AnyOrder(runs)] if len(runs) > 1 else [*exact, *chain.from_iterable(runs)]

    def _keep(self, topic: bytes, payload: bytes) -> None:
        if not payload:
            self.retained.pop(topic, None)
        elif len(payload) > self.settings.retained_octets or (
            topic not in self.retained and len(self.retained) >= self.settings.retained
        ):
            self.counters["pool"] += 1
        else:
            if self.has_trailer(topic, payload):
                payload = payload[:-TRAILER_OCTETS] + NOT_STATED
            self.retained[topic] = payload

    def _copies(
        self, them: list[Address], topic: bytes, payload: bytes, arrival: int
    ) -> Iterator[Sent]:
        for who in them:
            self.counters["copies"] += 1
            copy = payload
            if self.has_trailer(topic, payload):
                trailer = self._fill(self.leases[who], payload[-TRAILER_OCTETS:], arrival)
                copy = payload[:-TRAILER_OCTETS] + trailer
            yield Sent(*who, publish(topic, copy))

    # ---- residence -----------------------------------------------------------------------------

    def has_trailer(self, topic: bytes, payload: bytes) -> bool:
        """Tell whether the trailer of this message is filled."""
        prefix = self.settings.residence_prefix.encode()
        below = topic == prefix or topic.startswith(prefix + b"/")
        return bool(prefix) and below and 17 <= len(payload) <= 64 and payload[0] >> 4 == 2

    def _fill(self, lease: Lease, trailer: bytes, arrival: int) -> bytes:
        own = self.departure(arrival) - arrival
        residence = int.from_bytes(trailer[:8], "big") + own
        source, correction, copy = self.settings.stamps, NOT_KNOWN, 0
        chained = any(trailer)  # another broker has filled it
        if not 0 <= residence < 2**64 or (chained and trailer[15] not in (1, 2, 3)):
            return NOT_STATED
        if chained:
            source = min(source, trailer[15])
        else:
            if lease.copies and self.settings.stamps == HARDWARE:
                correction = 0
            lease.copies = lease.copies % (2**24 - 1) + 1
            copy = lease.copies
        return (
            residence.to_bytes(8, "big")
            + correction.to_bytes(4, "big", signed=True)
            + copy.to_bytes(3, "big")
            + bytes([source])
        )
