"""A session with the published hardware broker, a board (broker/spec/mqtt-udp.md, section 11).

The board answers nothing and forgets nothing: so each filter is sent once, from a port that stays
the same. It also delivers messages on topics without a subscription, so topics are compared here.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable, Sequence

from paho.mqtt.client import topic_matches_sub

from mqtick.mqtt.datagrams import Message
from mqtick.mqtt.packets import PUBLISH
from mqtick.mqtt.stamps import Transmit
from mqtick.mqtt.udp_socket import UdpSocket

_log = logging.getLogger(__name__)
_MOST_OCTETS = 32  # of a topic, and of a message
_SUBSCRIBE = 0x80
_PORTS = 1000
_BETWEEN_WARNINGS_NS = 60_000_000_000  # a board that comes and goes must not fill the log


class PublishedSession(UdpSocket):
    """See `Session`. It counts as up once the socket exists, because the board never answers."""

    def _prepare(self) -> None:
        self.foreign = 0
        """Messages on topics without a subscription of ours."""
        self._filters: set[str] = set()
        self._sent: set[str] = set()
        self._is_warned, self._next_warning_ns = False, 0

    def _bind(self, sock: socket.socket) -> None:
        """Take the first free port, so that a restarted program gets its old port again."""
        first = self._broker.local_port
        for port in range(first, min(first + _PORTS, 65_536)):
            try:
                sock.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return
        raise OSError(
            errno.EADDRINUSE,
            f"the UDP ports {first} to {port} of this host are all in use: name another first one "
            "by &port=NNNN",
        )

    def begin(self) -> None:
        """See `Session`."""
        super().begin()
        self._accepted = True
        self._say_what_is_missing()
        self._events.up()

    def close(self, linger_s: float = 0.0) -> None:
        """See `Session`; the board knows no DISCONNECT."""
        self._filters.clear()
        super().close()

    def _broken(self, error: OSError) -> None:
        """Log an error, but not too often; keep the socket, because a new one would not help."""
        now_ns = time.monotonic_ns()
        if not self._is_warned and now_ns >= self._next_warning_ns:
            self._is_warned, self._next_warning_ns = True, now_ns + _BETWEEN_WARNINGS_NS
            _log.warning("%s: %s", self._name, self._why_broken(error))

    def _take(self, datagram: bytes) -> None:
        """Take a message; our own SUBSCRIBE, which may come back, is ignored."""
        self._is_warned = False
        if datagram[:1] == bytes((_SUBSCRIBE,)):
            return
        message = _decode(datagram)
        if message is None:
            self._events.unread["malformed"] += 1
        elif not self._is_wanted(message.topic):
            self.foreign += 1
        else:
            self._deliver(message)

    def _is_wanted(self, octets: bytes) -> bool:
        topic = octets.decode("utf-8", "replace")
        return topic in self._filters or any(topic_matches_sub(one, topic) for one in self._filters)

    def publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        """See `Session`; a message that the board would cut is not sent."""
        octets = topic.encode()
        if max(len(octets), len(payload)) > _MOST_OCTETS:
            return None
        return self._send_stamped(_packet(PUBLISH, octets, b"\x00" + payload), stamped=stamped)

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """See `Session`; the board keeps nothing, so nothing is sent."""

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None], *, retained: bool = False
    ) -> None:
        """See `Session`; a filter counts as granted if it could be sent."""
        granted = [self._subscribe(topic) for topic in topics]
        self._loop.call_later(0, lambda: done(all(granted)))

    def _subscribe(self, topic: str) -> bool:
        """Subscribe; the board knows no `+`, so such a filter is cut there and ends with `#`."""
        head, plus, _ = topic.partition("+")
        sent = f"{head}#" if plus else topic
        if sent == "#" or len(sent.encode()) > _MOST_OCTETS:
            return False
        if sent not in self._sent:
            if not self._send(_packet(_SUBSCRIBE, sent.encode(), b"")):
                return False
            self._sent.add(sent)
        self._filters.add(topic)
        return True

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """See `Session`; later messages are dropped here."""
        self._filters.difference_update(topics)


def _packet(head: int, topic: bytes, rest: bytes) -> bytes:
    return bytes((head, 2 + len(topic) + len(rest), 0, len(topic))) + topic + rest


def _decode(datagram: bytes) -> Message | None:
    """Read a PUBLISH; the octet after the topic is not part of the payload.

    Octets after the packet are ignored: how the board fills its frames was never tested.
    """
    if len(datagram) < 4 or datagram[0] != PUBLISH:
        return None
    end = 2 + datagram[1]
    payload = 4 + int.from_bytes(datagram[2:4], "big") + 1
    if not payload <= end <= len(datagram):
        return None
    return Message(datagram[4 : payload - 1], datagram[payload:end], False)
