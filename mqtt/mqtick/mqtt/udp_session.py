"""A session by MQTT over UDP with our own broker (broker/spec/mqtt-udp.md, section 10).

Every request is repeated until its answer comes. SUBSCRIBE and UNSUBSCRIBE are sent one after
another: if two were pending, a repetition of the first could undo the second.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.datagrams import (
    LONGEST,
    LONGEST_TOPIC,
    PINGREQ,
    PINGRESP,
    PROOF,
    UNSUBACK,
    Answer,
    Message,
    decode,
    share_out,
)
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.packets import (
    CONNACK,
    DISCONNECT,
    SUBACK,
    connect_packet,
    encode_publish,
    subscribe_packet,
    unsubscribe_packet,
)
from mqtick.mqtt.stamps import Transmit
from mqtick.mqtt.udp_socket import UdpSocket

_SECOND = 1_000_000_000
_FIRST_NS, _LONGEST_NS = 50_000_000, 2 * _SECOND
# If the broker seems to have forgotten us, it has this long to answer a ping.
_DOUBT_NS = 2 * _SECOND
# After this time other leases may have ended, so that the broker may have room again.
_AGAIN_NS = 30 * _SECOND
_RECENT = 64  # identifiers
_GRANTED_AT_MOST = 2  # MQTT 3.1.1, 3.9.3

# broker/spec/mqtt-udp.md, section 2
_REFUSALS = {
    1: ("it does not speak MQTT 3.1.1", Cause.VERSION),
    3: ("it has no room for another subscriber, or this host has its share", Cause.BUSY),
    5: ("it keeps no wills and checks no accounts", Cause.UNKNOWN),
}


def why_refused(code: int) -> tuple[str, Cause]:
    """Say what the return code of a CONNACK means."""
    return _REFUSALS.get(code, (f"return code {code}", Cause.UNKNOWN))


def lease_s(broker: Broker) -> float:
    """Return how long (s) this broker keeps a silent subscriber; 0 for brokers without leases."""
    return 1.5 * broker.keepalive_s if broker.scheme == "mqtt+udp" and not broker.dialect else 0.0


class Repetition:
    """Calls `send` now, after 50 ms, and after twice as long each time, up to 2 s, until `stop`."""

    def __init__(self, loop: Loop, send: Callable[[], object]) -> None:
        self._loop, self._send = loop, send
        self._wait_ns = _FIRST_NS
        self._timer: Timer | None = None
        self._again()

    def _again(self) -> None:
        self._timer = self._loop.call_later(self._wait_ns, self._again)
        self._wait_ns = min(2 * self._wait_ns, _LONGEST_NS)
        self._send()

    def stop(self) -> None:
        """Stop sending."""
        if self._timer is not None:
            self._timer.cancel()


class _Request(NamedTuple):
    """A SUBSCRIBE or UNSUBSCRIBE; `kind` is that of its answer, `done(granted)` gets the result."""

    kind: int
    identifier: int
    topics: Sequence[str]
    datagram: bytes
    done: Callable[[bool], None]

    def is_answered_by(self, answer: Answer) -> bool:
        """Whether this is the answer to the request, with a code for each of its topics."""
        codes = len(self.topics) if self.kind == SUBACK else 0
        return (self.kind, self.identifier, codes) == (*answer[:2], len(answer.codes))


class UdpSession(UdpSocket):
    """See `Session`."""

    def _prepare(self) -> None:
        keepalive_s = self._broker.keepalive_s
        self._connect_datagram = connect_packet(self._name, keepalive_s=keepalive_s)
        self._keepalive_ns = keepalive_s * _SECOND
        self._identifier = random.randrange(0xFFFF)  # random, so that others cannot guess the next
        self._forget()

    def _forget(self) -> None:
        self._may_prove = 0
        self._answered_ns = 0
        self._connecting: Repetition | None = None
        self._pinging: Repetition | None = None
        self._requesting: Repetition | None = None
        self._requests: deque[_Request] = deque()
        self._overdue: Timer | None = None
        self._refused: set[str] = set()
        self._again: Timer | None = None
        self._watch: Timer | None = None

    def begin(self) -> None:
        """See `Session`."""
        super().begin()
        self._connecting = Repetition(self._loop, self._introduce)

    def close(self, linger_s: float = 0.0) -> None:
        """See `Session`; DISCONNECT also frees our entries if the broker only seemed to be lost."""
        if self._accepted:
            self._send(DISCONNECT)
        for running in (self._connecting, self._pinging, self._requesting):
            if running is not None:
                running.stop()
        for planned in (self._watch, self._again, self._overdue):
            if planned is not None:
                planned.cancel()
        self._forget()
        super().close()

    # -- packets from the broker -----------------------------------------------------------

    def _take(self, datagram: bytes) -> None:
        packet = decode(datagram)
        if packet is None:
            self._events.unread["malformed"] += 1
        elif isinstance(packet, Answer):
            self._take_answer(packet)
        elif packet.is_challenge:
            self._take_challenge(packet)
        elif self._accepted:
            self._deliver(packet)

    def _take_answer(self, answer: Answer) -> None:
        if answer.kind == CONNACK:
            self._take_connack(answer.codes[0])
            return
        if not self._accepted:
            return  # it belongs to a connection that was given up
        if answer.kind == PINGRESP:
            if self._pinging is not None:
                self._pinging.stop()
                self._pinging = None
                self._answered_ns = time.monotonic_ns()
                self._keep_alive()
            return
        if self._requests and self._requests[0].is_answered_by(answer):
            self._answered_ns = time.monotonic_ns()
            self._finish(answer.codes)
        elif not self._is_recent(answer.identifier):
            address = self._broker.address
            what = "subscribed" if answer.kind == SUBACK else "unsubscribed"
            lost = f"the connection to {address} was lost: somebody {what} in our name"
            self._events.lost(lost, Cause.UNKNOWN)

    def _is_recent(self, identifier: int) -> bool:
        """Whether a recent request of ours may have this identifier: repetitions are answered."""
        return (self._identifier - identifier) % 0xFFFF < _RECENT

    def _take_connack(self, code: int) -> None:
        if self._connecting is None:
            return  # a second CONNACK
        self._connecting.stop()
        self._connecting = None
        self._may_prove = 0
        if code:
            why, cause = why_refused(code)
            self._events.lost(f"{self._broker.address} refused the connection: {why}", cause)
            return
        self._accepted = True
        self._answered_ns = time.monotonic_ns()
        self._keep_alive()
        self._say_what_is_missing()
        self._events.up()

    def _take_challenge(self, challenge: Message) -> None:
        """Send the token back; once accepted, ping to find out whether the broker has forgotten us.

        If we sent the token back then, a new lease without subscriptions would begin, and we would
        not notice that our subscriptions are gone.
        """
        if self._accepted:
            self._answered_ns = min(
                self._answered_ns, time.monotonic_ns() - self._keepalive_ns + _DOUBT_NS
            )
            self._keep_alive()
        elif self._may_prove:
            self._may_prove -= 1
            self._send(encode_publish(PROOF.encode(), challenge.payload, None))
            self._send(self._connect_datagram)

    # -- keeping alive ---------------------------------------------------------------------

    def _introduce(self) -> None:
        """Send CONNECT, and allow one answer to a challenge; forged challenges get no more."""
        self._may_prove += 1
        self._send(self._connect_datagram)

    def _keep_alive(self) -> None:
        """Ping if no answer came for a third of the keep-alive; give up after all of it."""
        if self._watch is not None:
            self._watch.cancel()
        silent_ns = time.monotonic_ns() - self._answered_ns
        if silent_ns >= self._keepalive_ns:
            address, limit = self._broker.address, self._broker.keepalive_s
            lost = f"the connection to {address} was lost: no answer for {limit:g} s"
            self._events.lost(lost, Cause.SILENT)
            return
        if silent_ns >= self._keepalive_ns // 3 and self._pinging is None:
            self._pinging = Repetition(self._loop, lambda: self._send(PINGREQ))
        next_ns = self._keepalive_ns if self._pinging is not None else self._keepalive_ns // 3
        self._watch = self._loop.call_later(next_ns - silent_ns, self._keep_alive)

    # -- packets to the broker -------------------------------------------------------------

    def publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        """See `Session`; a message longer than an Ethernet frame is not sent."""
        datagram = encode_publish(topic.encode(), payload, None)
        if len(datagram) > LONGEST:
            return None
        return self._send_stamped(datagram, stamped=stamped)

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """See `Session`; QoS 0, so it may be lost."""
        self._send(encode_publish(topic.encode(), payload, None, retain=True))

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None], *, retained: bool = False
    ) -> None:
        """See `Session`."""
        if any(len(topic.encode()) > LONGEST_TOPIC for topic in topics):
            self._loop.call_later(0, lambda: done(False))
            return
        shares, answers = share_out(topics), list[bool]()

        def answered(granted: bool) -> None:
            answers.append(granted)
            if len(answers) == len(shares):
                done(all(answers))

        for share in shares:
            self._request(SUBACK, subscribe_packet, share, answered)

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """See `Session`."""
        kept = [topic for topic in topics if len(topic.encode()) <= LONGEST_TOPIC]
        for share in share_out(kept):
            self._request(UNSUBACK, unsubscribe_packet, share, lambda _done: None)

    def _request(
        self,
        kind: int,
        packet: Callable[[Sequence[str], int], bytes],
        topics: Sequence[str],
        done: Callable[[bool], None],
    ) -> None:
        self._identifier = self._identifier % 0xFFFF + 1
        datagram = packet(topics, self._identifier)
        self._requests.append(_Request(kind, self._identifier, topics, datagram, done))
        if len(self._requests) == 1:
            self._send_request()

    def _send_request(self) -> None:
        datagram = self._requests[0].datagram
        self._requesting = Repetition(self._loop, lambda: self._send(datagram))
        self._overdue = self._loop.call_later(self._keepalive_ns, self._give_up)

    def _give_up(self) -> None:
        """Give the connection up: the request gets no answer, and blocks all later requests."""
        address, limit = self._broker.address, self._broker.keepalive_s
        lost = f"the connection to {address} was lost: no answer to a subscription for {limit:g} s"
        self._events.lost(lost, Cause.SILENT)

    def _finish(self, codes: bytes) -> None:
        """Take the answer to the first request, and send the next one."""
        assert self._requesting is not None
        assert self._overdue is not None
        self._requesting.stop()
        self._overdue.cancel()
        request = self._requests.popleft()
        refused = {
            topic
            for topic, code in zip(request.topics, codes, strict=False)
            if code > _GRANTED_AT_MOST
        }
        self._refused = self._refused.difference(request.topics) | refused
        if self._refused and self._again is None:
            self._again = self._loop.call_later(_AGAIN_NS, self._ask_again)
        if self._requests:
            self._send_request()
        request.done(not refused)

    def _ask_again(self) -> None:
        """Subscribe again to refused filters: leases have ended, so there may be room now."""
        self._again = None
        self.subscribe(sorted(self._refused), lambda _granted: None)
