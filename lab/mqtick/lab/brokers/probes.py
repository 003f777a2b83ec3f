"""Sends the doctor's probes through a broker and records their arrivals.

One thread, one loop, a publisher and a dozen subscribers, all on this host, so that one clock
stamps both ends. The stamps are the kernel's, so the speed of this program does not matter.
"""

from __future__ import annotations

import random
import secrets
import time
from dataclasses import replace

from mqtick.lab.brokers.measured import Measured, Probe
from mqtick.lab.brokers.peers import Peer, Peers
from mqtick.mqtt.broker import Broker
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.pairs import Pairs
from mqtick.mqtt.stamps import StampSource, Transmit

SUBSCRIBERS = 10
"""Subscribers of each probe: eight to its exact topic, one to `+`, one to `#`."""
_PROBE_OCTETS = 32  # like a time message
_GAP_S = (0.050, 0.100)  # longer than an acknowledgement is usually delayed
_FOLLOW_S = (0.001, 0.003)
_PAIRS_LEAST = 8
_BURST = 40
_BURST_FROM = 1 << 24
_PAYLOADS = (1024, 16_384, 131_072)
_TRIES = 4
_PATIENCE_S = (0.3, 2.5)
_ANSWER_S = 2.0


class _Examination:
    def __init__(self, loop: Loop, broker: Broker, prefix: str, seconds: float) -> None:
        self.broker, self._seconds = broker, seconds
        self._nonce = secrets.token_bytes(4)
        base = f"{prefix}/d/{self._nonce.hex()}"
        self.shared, self._aside = f"{base}a", f"{base}b"
        self.loop, self.peers = loop, Peers(loop, f"md{self._nonce.hex()}")
        self.publisher: Peer
        self.subscribers: list[Peer] = []
        self.slow: Peer
        self._sent: list[Transmit] = []
        self.found = Measured(
            self.peers.link, has_tcp=broker.scheme != "unix", topic=f"{self.shared}/p"
        )

    # -- connections -----------------------------------------------------------------------

    def connect(self) -> bool:
        """Make all connections, with MQTT 3.1.1 if the broker does not support 5."""
        peers, found = self.peers, self.found
        first = peers.connect(self.broker, 1)
        found.link = peers.link
        if not first:
            return False
        if found.link.error_5:
            self.broker = replace(self.broker, version="3.1.1")
        others = peers.connect(self.broker, SUBSCRIBERS + 1)
        if len(others) <= SUBSCRIBERS:
            error = f"of {SUBSCRIBERS + 2} connections one failed: {peers.link.error}"
            found.link = replace(peers.link, error=error)
            return False
        self.publisher = first[0]
        *self.subscribers, self.slow = others
        self.pairs = Pairs(self.publisher.connection, self.slow.connection, f"{self._aside}/s")
        return True

    def subscribe(self) -> bool:
        """Subscribe one after the other; return whether the broker granted all.

        The wildcards subscribe first, like a time server's last echo, to find brokers that serve in
        the order of subscriptions (amqtt).
        """
        exact = [self.found.topic] * (SUBSCRIBERS - 2)
        self.found.filters = [*exact, f"{self.shared}/+", f"{self.shared}/#"]
        wanted = [*zip(self.subscribers, self.found.filters, strict=True)]
        refused: list[str] = []
        for peer, topic in [*wanted[-2:], *wanted[:-2], (self.slow, self.pairs.topic)]:
            if topic not in refused and not self.peers.subscribe(peer, topic):
                refused.append(topic)
        self.found.refused = refused
        return not refused

    # -- patterns --------------------------------------------------------------------------

    def _payload(self, number: int) -> bytes:
        return (self._nonce + number.to_bytes(4, "big")).ljust(_PROBE_OCTETS, b"\0")

    def _publish(self, topic: str, number: int) -> Transmit:
        transmit = self.publisher.connection.publish(topic, self._payload(number))
        return transmit or Transmit(time.time_ns())  # if not sent, it will count as lost

    def number_of(self, arrival: Arrival) -> int | None:
        """Return the number of our probe; None for any other message."""
        payload = arrival.payload
        if payload[:4] != self._nonce or arrival.retain or len(payload) != _PROBE_OCTETS:
            return None
        return int.from_bytes(payload[4:8], "big")

    def _settle(self) -> None:
        """Wait for messages that have not come yet, three times the largest delay."""
        slowest_s = 0.0
        for arrival in self.subscribers[0].arrivals:
            number = self.number_of(arrival)
            if number is not None and number < len(self._sent):
                late_ns = arrival.stamp.realtime_ns - self._sent[number].stamp.realtime_ns
                slowest_s = max(slowest_s, late_ns / 1e9)
        wanted = sum(len(peer.arrivals) for peer in self.subscribers)
        wanted = max(wanted, len(self.subscribers) * (len(self._sent) + self.found.sequence_sent))
        self.loop.turn_until(
            lambda: sum(len(peer.arrivals) for peer in self.subscribers) >= wanted,
            min(_PATIENCE_S[1], _PATIENCE_S[0] + 3 * slowest_s),
        )

    def single(self, duration_s: float) -> None:
        """Send probes at random instants; half of them are soon followed by a second one."""
        self._sent.append(self._publish(self.found.topic, 0))
        if not self.loop.turn_until(lambda: self.subscribers[0].arrivals, _PATIENCE_S[1]):
            return
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self._sent.append(self._publish(self.found.topic, len(self._sent)))
            if random.random() < 0.5:
                self.loop.turn_for(random.uniform(*_FOLLOW_S))
                self._sent.append(self._publish(self.found.topic, len(self._sent)))
            self.loop.turn_for(random.uniform(*_GAP_S))
        self._settle()

    def twos(self, duration_s: float) -> None:
        """Send pairs to a subscriber that acknowledges late."""
        end = time.monotonic() + duration_s
        while time.monotonic() < end or self.pairs.sent < _PAIRS_LEAST:
            self.pairs.send()
        self._settle()

    def burst(self) -> None:
        """Send many messages at once, to see whether they stay in order."""
        for number in range(_BURST):
            self._publish(self.found.topic, _BURST_FROM + number)
        self.found.sequence_sent = _BURST
        self._settle()

    def _carries(self, made: list[Peer], topic: str, payload: bytes) -> bool:
        """Whether such a message arrives in one of several tries: a single loss is no limit."""
        sender, late = made
        late.arrivals.clear()

        def came() -> bool:  # compare the payload: an earlier message may be late
            return any(arrival.payload == payload for arrival in late.arrivals)

        for _ in range(_TRIES):
            sender.connection.publish_unstamped(topic, payload)
            if self.loop.turn_until(came, _ANSWER_S / 4):
                return True
        return False

    def features(self) -> None:
        """Try a retained message, then larger and larger messages.

        A topic with a dot comes last: some brokers end the connection on it.
        """
        made = self.peers.connect(self.broker, 2)
        if len(made) == 2:
            sender, late = made
            kept, large, dotted = (f"{self._aside}/{name}" for name in ("r", "l", "1.6"))
            try:
                sender.connection.publish_retained(kept, self._nonce)
                self.loop.turn_for(0.1)
                late.connection.subscribe_retained(kept)
                self.found.retained = self.loop.turn_until(lambda: late.arrivals, _ANSWER_S / 2)
            finally:
                sender.connection.publish_retained(kept, b"")
                self.loop.turn_for(0.05)
            self.peers.subscribe(late, large)
            for octets in _PAYLOADS:
                self.found.payload_tried = octets
                if not self._carries(made, large, bytes(octets)):
                    break
                self.found.payload_octets = octets
            # A broker may have closed the connection because of the last message's size.
            self.peers.close(made)
            made = self.peers.connect(self.broker, 2)
            if len(made) == 2:
                self.found.dotted = self.peers.subscribe(made[1], dotted) and self._carries(
                    made, dotted, self._nonce
                )
        self.peers.close(made)

    # -- results ---------------------------------------------------------------------------

    def examine(self) -> None:
        """Run all probes, as far as possible."""
        if not self.connect() or not self.subscribe():
            return
        self.single(0.65 * self._seconds)
        if not self.subscribers[0].arrivals:
            return
        self.twos(0.25 * self._seconds)
        self.burst()
        self.found.error = self.peers.broken()
        self.features()

    def measured(self) -> Measured:
        """Return the result."""
        found = self.found
        found.probes = probes = [Probe(one.stamp.realtime_ns) for one in self._sent]
        sequence = []
        for place, peer in enumerate(self.subscribers):
            for arrival in peer.arrivals:
                number = self.number_of(arrival)
                if number is not None and number < len(probes):
                    probes[number].arrived_ns.setdefault(place, arrival.stamp.realtime_ns)
                    if arrival.stamp.source is not StampSource.KERNEL or arrival.maybe_held:
                        probes[number].unsure.add(place)
                elif number is not None and number >= _BURST_FROM and place == 0:
                    sequence.append(number - _BURST_FROM)
        found.sequence = sequence
        if self.subscribers:
            for arrival in self.slow.arrivals:
                self.pairs.takes(arrival)
            found.pairs_ns = self.pairs.delays_ns()
        return found


def measure(broker: Broker, prefix: str, seconds: float) -> Measured:
    """Probe a broker for about `seconds`; errors are part of the result."""
    loop = Loop()
    examination = _Examination(loop, broker, prefix, seconds)
    try:
        examination.examine()
        return examination.measured()
    finally:
        examination.peers.close()
        loop.close()
