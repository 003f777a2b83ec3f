"""Sends the doctor's probes through a broker and records what happened to them.

One thread, one loop, a publisher and a dozen subscribers, all on this host, so that one clock
stamps both ends. The kernel stamps, so that it does not matter how slow this program is.
"""

from __future__ import annotations

import random
import secrets
import time
from dataclasses import dataclass, field, replace
from functools import partial

from mqtick.lab.brokers.measured import Measured, Pair, Probe
from mqtick.lab.brokers.peers import Peer, Peers
from mqtick.mqtt.broker import Broker
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import Source, Transmit

__all__ = ["SUBSCRIBERS", "measure"]

SUBSCRIBERS = 10
"""Subscribers of each probe: eight of its very topic, one of `+`, one of `#`."""
_PROBE_OCTETS = 32  # as a time message has
_GAP_S = (0.050, 0.100)  # longer than an acknowledgement is usually delayed
_FOLLOW_S = (0.001, 0.003)
_PAIR_GAP_S = (0.090, 0.140)  # longer than an acknowledgement is delayed
_PAIR_SPACING_S = 0.001
_PAIRS_LEAST = 8
_BURST = 40
_BURST_FROM = 1 << 24
_PAYLOADS = (1024, 16_384, 131_072)
_PAYLOAD_TRIES = 4  # one loss is not a limit
_PATIENCE_S = (0.3, 2.5)
_ANSWER_S = 2.0


@dataclass(slots=True)
class _Run:
    """What is known so far; becomes `Measured`."""

    address: str = ""
    error: str = ""
    error_5: str = ""
    filters: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    sent: list[Transmit] = field(default_factory=list)
    pairs: list[tuple[Transmit, Transmit]] = field(default_factory=list)
    sequence_sent: int = 0
    retained: bool | None = None
    dotted: bool | None = None
    payload_octets: int = _PROBE_OCTETS
    payload_tried: int = 0


class _Examination:
    def __init__(self, loop: Loop, broker: Broker, prefix: str, seconds: float) -> None:
        self.broker, self._seconds = broker, seconds
        self._nonce = secrets.token_bytes(4)
        base = f"{prefix}/d/{self._nonce.hex()}"
        self.shared, self._aside = f"{base}a", f"{base}b"
        self.topic, self._paired = f"{self.shared}/p", f"{self._aside}/s"
        self.run = _Run()
        self.peers = Peers(loop, f"md{self._nonce.hex()}")
        self.publisher: Peer
        self.subscribers: list[Peer] = []
        self.slow: Peer

    # -- connections -----------------------------------------------------------------------

    def connect(self) -> bool:
        """Connect everybody, with MQTT 3.1.1 where the broker does not speak 5."""
        peers, run = self.peers, self.run
        first = peers.connect(self.broker, 1)
        if first and first[0].connection.error_5:
            run.error_5 = first[0].connection.error_5
            self.broker = replace(self.broker, version="3.1.1")
        run.address = peers.all[0].connection.address
        if not first:
            run.error = peers.error
            return False
        others = peers.connect(self.broker, SUBSCRIBERS + 1)
        if len(others) <= SUBSCRIBERS:
            run.error = f"of {SUBSCRIBERS + 2} connections one failed: {peers.error}"
            return False
        self.publisher = first[0]
        *self.subscribers, self.slow = others
        return True

    def subscribe(self) -> bool:
        """Subscribe one after the other; return whether the broker granted all.

        The wildcards first, as a time server's last echo does: brokers that serve in that order
        (amqtt) then serve them first.
        """
        exact = [self.topic] * (SUBSCRIBERS - 2)
        self.run.filters = [*exact, f"{self.shared}/+", f"{self.shared}/#"]
        wanted = [*zip(self.subscribers, self.run.filters, strict=True)]
        for peer, topic in [*wanted[-2:], *wanted[:-2], (self.slow, self._paired)]:
            if topic not in self.run.refused and not self.peers.subscribe(peer, topic):
                self.run.refused.append(topic)
        return not self.run.refused

    # -- patterns --------------------------------------------------------------------------

    def _payload(self, number: int) -> bytes:
        return (self._nonce + number.to_bytes(4, "big")).ljust(_PROBE_OCTETS, b"\0")

    def _publish(self, topic: str, number: int) -> Transmit:
        transmit = self.publisher.connection.publish(topic, self._payload(number))
        return transmit or Transmit(time.time_ns())  # not sent: it will count as lost

    def number_of(self, arrival: Arrival) -> int | None:
        """Return the number of a probe of ours, None for anything else."""
        payload = arrival.payload
        if payload[:4] != self._nonce or arrival.retain or len(payload) != _PROBE_OCTETS:
            return None
        return int.from_bytes(payload[4:8], "big")

    def _settle(self) -> None:
        """Wait for what is still on its way, three times as long as the slowest took."""
        slowest_s = 0.0
        for arrival in self.subscribers[0].arrivals:
            number = self.number_of(arrival)
            if number is not None and number < len(self.run.sent):
                late_ns = arrival.stamp.realtime_ns - self.run.sent[number].stamp.realtime_ns
                slowest_s = max(slowest_s, late_ns / 1e9)
        wanted = sum(len(peer.arrivals) for peer in self.subscribers)
        wanted = max(wanted, len(self.subscribers) * (len(self.run.sent) + self.run.sequence_sent))
        self.peers.until(
            lambda: sum(len(peer.arrivals) for peer in self.subscribers) >= wanted,
            min(_PATIENCE_S[1], _PATIENCE_S[0] + 3 * slowest_s),
        )

    def single(self, duration_s: float) -> None:
        """Send probes at random instants, every other one soon followed by a second one."""
        self.run.sent.append(self._publish(self.topic, 0))
        if not self.peers.until(lambda: self.subscribers[0].arrivals, _PATIENCE_S[1]):
            return
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.run.sent.append(self._publish(self.topic, len(self.run.sent)))
            if random.random() < 0.5:
                self.peers.pause(random.uniform(*_FOLLOW_S))
                self.run.sent.append(self._publish(self.topic, len(self.run.sent)))
            self.peers.pause(random.uniform(*_GAP_S))
        self._settle()

    def twos(self, duration_s: float) -> None:
        """Send pairs, 1 ms apart, to a subscriber that acknowledges late."""
        end = time.monotonic() + duration_s
        while time.monotonic() < end or len(self.run.pairs) < _PAIRS_LEAST:
            self.slow.connection.acknowledge_late()
            number = 2 * len(self.run.pairs)
            first = self._publish(self._paired, number)
            self.peers.pause(_PAIR_SPACING_S)
            self.run.pairs.append((first, self._publish(self._paired, number + 1)))
            self.peers.pause(random.uniform(*_PAIR_GAP_S))
        self._settle()

    def burst(self) -> None:
        """Send many at once, to see whether they stay in order."""
        for number in range(_BURST):
            self._publish(self.topic, _BURST_FROM + number)
        self.run.sequence_sent = _BURST
        self._settle()

    def features(self) -> None:
        """Try a retained message, then larger and larger ones."""
        made = self.peers.connect(self.broker, 2)
        if len(made) < 2:
            return
        sender, late = made
        kept, large = f"{self._aside}/r", f"{self._aside}/l"
        try:
            sender.connection.publish_retained(kept, self._nonce)
            self.peers.pause(0.1)
            late.connection.subscribe_retained(kept)
            self.run.retained = self.peers.until(lambda: late.arrivals, _ANSWER_S / 2)
        finally:
            sender.connection.publish_retained(kept, b"")
            self.peers.pause(0.05)
        self.peers.subscribe(late, large)
        for octets in _PAYLOADS:
            self.run.payload_tried = octets
            came = partial(self._has_last, late, octets)
            for _ in range(_PAYLOAD_TRIES):
                sender.connection.publish_unstamped(large, bytes(octets))
                if self.peers.until(came, _ANSWER_S / 4):
                    self.run.payload_octets = octets
                    break
            else:
                break
        self.peers.close(made)

    def dotted(self) -> None:
        """Try a topic with a dot; some brokers end the connection on it, so this comes last."""
        made = self.peers.connect(self.broker, 2)
        if len(made) == 2:
            sender, late = made
            topic = f"{self._aside}/1.6"
            self.run.dotted = False
            if self.peers.subscribe(late, topic):
                for _ in range(_PAYLOAD_TRIES):
                    sender.connection.publish_unstamped(topic, self._nonce)
                    if self.peers.until(lambda: late.arrivals, _ANSWER_S / 4):
                        self.run.dotted = True
                        break
        self.peers.close(made)

    @staticmethod
    def _has_last(peer: Peer, octets: int) -> bool:
        return bool(peer.arrivals) and len(peer.arrivals[-1].payload) == octets

    # -- results ---------------------------------------------------------------------------

    def examine(self) -> None:
        """Do everything, as far as possible."""
        if not self.connect() or not self.subscribe():
            return
        self.single(0.65 * self._seconds)
        if not self.subscribers[0].arrivals:
            return
        self.twos(0.25 * self._seconds)
        self.burst()
        self.run.error = self.peers.broken()
        self.features()
        self.dotted()

    def measured(self) -> Measured:
        """Return what was found."""
        run, is_up = self.run, bool(self.subscribers)
        probes = [Probe(one.stamp.realtime_ns) for one in run.sent]
        sequence = []
        for place, peer in enumerate(self.subscribers):
            for arrival in peer.arrivals:
                number = self.number_of(arrival)
                if number is not None and number < len(probes):
                    probes[number].arrived_ns.setdefault(place, arrival.stamp.realtime_ns)
                    if arrival.stamp.source is not Source.KERNEL or arrival.maybe_held:
                        probes[number].unsure.add(place)
                elif number is not None and number >= _BURST_FROM and place == 0:
                    sequence.append(number - _BURST_FROM)
        return Measured(
            address=run.address,
            version=self.broker.version,
            error=run.error,
            error_5=run.error_5,
            kernel_stamps=is_up and self.publisher.connection.kernel_stamps,
            has_tcp=self.broker.scheme != "unix",
            topic=self.topic,
            filters=tuple(run.filters),
            refused=tuple(run.refused),
            probes=tuple(probes),
            pairs=self._pairs() if is_up else (),
            sequence=tuple(sequence),
            sequence_sent=run.sequence_sent,
            retained=run.retained,
            dotted=run.dotted,
            payload_octets=run.payload_octets,
            payload_tried=run.payload_tried,
        )

    def _pairs(self) -> tuple[Pair, ...]:
        arrived: dict[int, int] = {}
        for arrival in self.slow.arrivals:
            number = self.number_of(arrival)
            if number is not None:
                arrived.setdefault(number, arrival.stamp.realtime_ns)
        return tuple(
            Pair(
                (first.stamp.realtime_ns, second.stamp.realtime_ns),
                (arrived.get(2 * number, 0), arrived.get(2 * number + 1, 0)),
            )
            for number, (first, second) in enumerate(self.run.pairs)
        )


def measure(broker: Broker, prefix: str, seconds: float) -> Measured:
    """Probe a broker for about `seconds`; whatever goes wrong is part of the result."""
    loop = Loop()
    examination = _Examination(loop, broker, prefix, seconds)
    try:
        examination.examine()
        return examination.measured()
    finally:
        examination.peers.close()
        loop.close()
