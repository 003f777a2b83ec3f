"""A broker that serves as Mosquitto does, and whoever runs it, who does what he likes.

With `fills` it says in trailers how long each copy was in it, as a program does: a little too
short, and by how much in the next copy.

Messages travel as on real connections: octets leave a host when its send window is open (that is
when the kernel stamps them) and arrive later; each delivery then passes the `Attack`. Which stamps
count is decided by the real `FrameSocket` and `KernelSocket`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from virtual_tcp import Tcp
from virtual_time import MS, SECOND, US, HostClock, World

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.connection import Will
from mqtick.mqtt.frames import Arrival, FrameSocket
from mqtick.mqtt.packets import encode_publish
from mqtick.mqtt.stamps import KernelSocket, Transmit
from mqtick.protocol.precise_fields import TRAILER_OCTETS, version_of

UNKNOWN_NS = -(1 << 31)


class Trailer(NamedTuple):
    """The end of a message of version 2; durations in ns."""

    residence_ns: int = 0
    correction_ns: int = 0
    copy: int = 0
    source: int = 0

    @classmethod
    def of(cls, payload: bytes) -> Trailer | None:
        if version_of(payload) != 2 or not 17 <= len(payload) <= 64:
            return None
        stated, correction_ns, tail = struct.unpack(">QiI", payload[-TRAILER_OCTETS:])
        return cls(stated >> 16, correction_ns, tail >> 8, tail & 255)

    def into(self, payload: bytes) -> bytes:
        stated = min(self.residence_ns << 16, 2**64 - 1)  # lies may add up
        tail = self.copy << 8 | self.source
        return payload[:-TRAILER_OCTETS] + struct.pack(">QiI", stated, self.correction_ns, tail)


class Message(NamedTuple):
    """A PUBLISH as it came to the broker."""

    sender: str
    topic: str
    payload: bytes


class Delivery(NamedTuple):
    """A PUBLISH on its way to one connection; `due_ns` of the true time."""

    role: str
    topic: str
    payload: bytes
    due_ns: int


class Attack(Protocol):
    """What whoever runs the broker makes of the messages that pass."""

    def seen(self, message: Message) -> None:
        """Take note of a message that came."""

    def change(self, deliveries: Sequence[Delivery]) -> Iterable[Delivery]:
        """Return what is delivered in truth."""


class Honest:
    """No attack."""

    def seen(self, message: Message) -> None:
        pass

    def change(self, deliveries: Sequence[Delivery]) -> Iterable[Delivery]:
        return deliveries


class Line:
    """One MQTT connection, in place of `mqtick.mqtt.connection.Connection`.

    `role` says whose it is: `client`, `server`, or `warm`, `first`, `last` of the server's echo.
    """

    round_trip_ns = 0

    def __init__(
        self,
        hub: HostileBroker,
        broker: Broker,
        client_id: str,
        *,
        on_publish: Callable[[Arrival], None],
        on_up: Callable[[], None],
        on_down: Callable[[str], None] = lambda _reason: None,
        will: Will | None = None,
        check_dates: bool = True,
        quiet: bool = False,
    ) -> None:
        self.world, self._hub, self.broker = hub.world, hub, broker
        self.loop = hub.world
        self.role = _role(client_id)
        self.host = hub.clocks["client" if self.role == "client" else "server"]
        self.on_publish, self._on_up, self._on_down, self._will = on_publish, on_up, on_down, will
        self.check_dates, self.version_5 = check_dates, True
        self.hooks: dict[bytes, Callable[[], None]] = {}
        self.connected, self._closed = False, False
        self.attempts = self.connects = self.dropped = self.unasked = 0
        self.unread: Counter[str] = Counter()
        self.lacks = ""
        self.last_error = self.error_5 = ""
        self.address = "mqtt://hostile"
        self._session = 0
        self._begin()
        hub.lines[self.role] = self

    # -- the connection --------------------------------------------------------------------------

    def _begin(self) -> None:
        self._arrives_ns = self._reads_ns = 0
        self._copy, self._too_short_ns = 0, UNKNOWN_NS
        self.tcp = Tcp(self.world, self.host, stamps=self._hub.kernel_stamps)
        self._kernel = KernelSocket(self.tcp)  # type: ignore[arg-type]
        self._frames = FrameSocket(
            self._kernel, self._kernel, self._arrived, self.hooks, version_5=True
        )

    @property
    def kernel_stamps(self) -> bool:
        return self._kernel.kernel_stamps

    def _calls(self) -> None:
        """What the program does next, it does on this connection."""
        self.tcp.spent_ns = 0
        self.world.kernel_now_ns = self.tcp.now_ns

    def start(self) -> None:
        self.world.call_later(MS, self._connect)

    def _connect(self) -> None:
        self.attempts += 1
        if self._closed or self.connected:
            return
        if self.check_dates and self.certificate_dates_error(self.host.time_ns() / SECOND):
            self.world.call_later(SECOND, self._connect)
            return
        self.connected = True
        self.connects += 1
        self._on_up()

    def drop(self, reason: str) -> None:
        """End the connection, and make a new one a while later."""
        if not self.connected:
            return
        self.connected, self.last_error = False, reason
        self._session += 1
        self._begin()
        self._hub.forget(self)
        if self._will is not None:
            self._hub.receive(self.role, self._will.topic, self._will.payload, retain=True)
        self._on_down(reason)
        self.world.call_later(SECOND // 2, self._connect)

    def close(self) -> None:
        self._closed, self.connected = True, False
        self._hub.forget(self)

    def certificate_dates_error(self, now_s: float) -> str | None:
        first_s, last_s = self._hub.certificate_dates_s
        if self.broker.scheme != "mqtts" or first_s <= now_s <= last_s:
            return None
        self.check_dates = True
        return "the dates of the certificate are wrong; the connection is closed"

    # -- up --------------------------------------------------------------------------------------

    def _upward(self, take: Callable[[], None]) -> None:
        """Let what was just sent reach the broker once it has left."""
        session = self._session
        self._arrives_ns = max(self.tcp.left_ns + self._hub.link_ns(), self._arrives_ns + 1)
        self.world.call_at(self._arrives_ns, lambda: take() if session == self._session else None)

    def _send_packet(self, take: Callable[[], None]) -> None:
        """Send a packet without time in it."""
        self._calls()
        self._frames.send(bytes(32))
        self._upward(take)

    def publish(
        self, topic: str, payload: bytes, properties: bytes = b"", *, stamped: bool = True
    ) -> Transmit | None:
        if not self.connected:
            self.dropped += 1
            return None
        self._calls()
        now_ns = self.tcp.now_ns()
        sent = self._frames.send_publish(
            topic.encode(), payload, properties, now_ns, stamped=stamped
        )
        self._upward(lambda: self._hub.receive(self.role, topic, payload))
        return sent

    def publish_unstamped(self, topic: str, payload: bytes) -> Transmit | None:
        return self.publish(topic, payload, stamped=False)

    def publish_retained(self, topic: str, payload: bytes) -> None:
        if self.connected:
            take = lambda: self._hub.receive(self.role, topic, payload, retain=True)  # noqa: E731
            self._send_packet(take)

    def collect_stamps(self) -> None:
        self._calls()
        self._kernel.drain_error_queue(wanted=True)

    def acknowledge_late(self) -> None:
        pass

    def rehearse(self) -> None:
        pass

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None] = lambda _ok: None
    ) -> None:
        if not self.connected or not topics:
            return
        session, wanted = self._session, list(topics)

        def granted() -> None:
            if session == self._session:
                done(True)

        def take() -> None:
            self._hub.subscribe(self, wanted)
            self.world.call_later(self._hub.link_ns(), granted)

        self._send_packet(take)

    def subscribe_retained(self, topic: str) -> None:
        if self.connected:
            self._send_packet(lambda: self._hub.subscribe(self, [topic], retained=True))

    def unsubscribe(self, topics: Sequence[str]) -> None:
        if self.connected and topics:
            gone = list(topics)
            self._send_packet(lambda: self._hub.unsubscribe(self, gone))

    # -- down ------------------------------------------------------------------------------------

    def filled(self, payload: bytes, residence_ns: int) -> bytes:
        """Return the next copy that goes to this connection."""
        if Trailer.of(payload) is None:
            return payload
        self._copy += 1
        too_short_ns = self.world.chance_ns(min(residence_ns, 20 * US))
        trailer = Trailer(residence_ns - too_short_ns, self._too_short_ns, self._copy, 1)
        self._too_short_ns = too_short_ns
        return trailer.into(payload)

    def deliver(self, topic: str, payload: bytes, due_ns: int, *, retain: bool = False) -> None:
        """Write to this connection at an instant of the true time."""
        session, world, chance = self._session, self.world, self.world.random
        came_ns = max(due_ns, world.now_ns) + self._hub.least_link_ns + world.chance_ns(2 * US)
        self._reads_ns = max(came_ns + world.chance_ns(self._hub.busy_ns), self._reads_ns)

        frame = encode_publish(topic.encode(), payload, b"", retain=retain)
        completes = topic.split("/")[1:2] == [_AHEAD.get(self.role)]

        def read() -> None:
            if session != self._session or not self.connected:
                return
            stamped = chance.random() >= self._hub.shared_reads
            self._maybe_held = chance.random() < self._hub.shared_reads
            self._calls()
            self.tcp.arrive(frame, came_ns, stamped=stamped, completes=completes)
            self._frames.pump()

        world.call_at(self._reads_ns, read)

    def _arrived(self, arrival: Arrival) -> None:
        self.on_publish(arrival._replace(maybe_held=arrival.maybe_held or self._maybe_held))


_AHEAD = {"client": "r", "server": "q"}
"""What is known in part before it is written, and comes to whom."""


def _role(client_id: str) -> str:
    if not client_id.startswith("mqtick-server-"):
        return "client"
    tail = client_id.rpartition("-")[2]
    return tail if tail in ("warm", "first", "last") else "server"


class HostileBroker:
    """Delivers to exact subscriptions in their order, then to `+`, then to `#`; then the attack."""

    def __init__(
        self,
        world: World,
        clocks: dict[str, HostClock],
        *,
        least_link_ns: int = 40 * US,
        kernel_stamps: bool = True,
        shared_reads: float = 0.0,
        busy_ns: int = 0,
        fills: bool = False,
        certificate_dates_s: tuple[int, int] = (0, 2**32),
    ) -> None:
        self.world, self.clocks, self.fills = world, clocks, fills
        self.kernel_stamps, self.shared_reads = kernel_stamps, shared_reads
        self.busy_ns = busy_ns
        self.certificate_dates_s = certificate_dates_s
        self.attack: Attack = Honest()
        self.lines: dict[str, Line] = {}
        self.least_link_ns = least_link_ns
        self._subscribed: dict[str, dict[Line, None]] = {}
        self._retained: dict[str, bytes] = {}

    def connection(
        self, _loop: object, broker: Broker, client_id: str, **callbacks: object
    ) -> Line:
        """Make a connection: what the programs call for `Connection`."""
        return Line(self, broker, client_id, **callbacks)  # type: ignore[arg-type]

    def link_ns(self) -> int:
        """Return how long octets are under way between a host and the broker, this time."""
        return self.least_link_ns + self.world.chance_ns(self.least_link_ns)

    def subscribe(self, line: Line, topics: Iterable[str], *, retained: bool = False) -> None:
        for pattern in topics:
            self._subscribed.setdefault(pattern, {}).setdefault(line)
            for topic, payload in self._retained.items() if retained else ():
                if _matches(pattern, topic):
                    line.deliver(topic, payload, self.world.now_ns, retain=True)

    def unsubscribe(self, line: Line, topics: Iterable[str]) -> None:
        for pattern in topics:
            self._subscribed.get(pattern, {}).pop(line, None)

    def forget(self, line: Line) -> None:
        for lines in self._subscribed.values():
            lines.pop(line, None)

    def _subscribers(self, topic: str) -> list[Line]:
        found = list(self._subscribed.get(topic, ()))
        for wild in ("+", "#"):
            for pattern, lines in self._subscribed.items():
                if wild in pattern and _matches(pattern, topic):
                    found += [line for line in lines if line not in found]
        return found

    def receive(self, sender: str, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Take a message, as the broker's socket does."""
        self.attack.seen(Message(sender, topic, payload))
        if retain:
            self._retained[topic] = payload
        came_ns = self.world.now_ns
        due_ns = came_ns + 10 * US + self.world.chance_ns(50 * US)
        deliveries = []
        for line in self._subscribers(topic):
            copy = line.filled(payload, due_ns - came_ns) if self.fills else payload
            deliveries.append(Delivery(line.role, topic, copy, due_ns))
            due_ns += 3 * US + self.world.chance_ns(12 * US)
        for delivery in self.attack.change(deliveries):
            self.lines[delivery.role].deliver(*delivery[1:])


@lru_cache(4096)
def _matches(pattern: str, topic: str) -> bool:
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted, levels = wanted[:-1], levels[: len(wanted) - 1]
    return len(wanted) == len(levels) and all(
        want in ("+", level) for want, level in zip(wanted, levels, strict=True)
    )
