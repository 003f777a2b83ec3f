"""One member of a crowd: a connection that subscribes, and then costs nothing until it is asked.

MQTT 3.1.1; the sections named are those of that standard.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from mqtick.mqtt.loop import Loop

__all__ = ["Entrance", "Member", "State", "connect_packet", "subscribe_packet"]

_CONNACK, _PUBLISH, _SUBACK = 2, 3, 9
_RETAINED = 0x01
_REFUSED = 0x80
_DISCONNECT = b"\xe0\x00"
_LONGEST_PACKET = 65_536
# 3.2.2.3
_CONNECT_REFUSALS = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not accept the client identifier",
    3: "it is not available",
    4: "user name or password is wrong",
    5: "this user may not connect",
}


def _text(value: str) -> bytes:
    octets = value.encode()
    return len(octets).to_bytes(2, "big") + octets


def _packet(head: int, body: bytes) -> bytes:
    length, left = bytearray(), len(body)
    while True:  # 2.2.3
        left, digit = divmod(left, 128)
        length.append(digit | (0x80 if left else 0))
        if not left:
            return bytes((head,)) + bytes(length) + body


def connect_packet(
    client_id: str, username: str | None = None, password: str | None = None
) -> bytes:
    """Return a CONNECT (3.1): clean session, no keep-alive (0), no will."""
    flags = 0x02 | (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    body = _text("MQTT") + bytes((4, flags, 0, 0)) + _text(client_id)
    for value in (username, password):
        if value is not None:
            body += _text(value)
    return _packet(0x10, body)


def subscribe_packet(topics: list[str]) -> bytes:
    """Return a SUBSCRIBE at QoS 0 (3.8)."""
    return _packet(0x82, b"\x00\x01" + b"".join(_text(topic) + b"\x00" for topic in topics))


@dataclass(frozen=True, slots=True)
class Entrance:
    """How every member of a crowd gets in."""

    family: int
    address: tuple[str | int, ...]
    host: str
    """The broker's name, for its certificate."""
    topic: str
    username: str | None = None
    password: str | None = None
    context: ssl.SSLContext | None = None


class State(StrEnum):
    """Where a member stands."""

    CONNECTING = "connecting"
    UP = "up"
    """The broker granted the subscription."""
    REFUSED = "refused"
    """The broker refused the connection or the subscription."""
    FAILED = "failed"
    """There was no connection, or no answer."""
    LOST = "lost"
    """It was up, and the connection broke."""
    LEAVING = "leaving"
    LEFT = "left"


class Member:
    """A connection; `changed(member)` is called when it is up, refused, failed, lost or has left.

    Once it is up, nothing that comes is read before `count`: it stays in the kernel's buffer, and
    the process is not woken. The drawback: the kernel acknowledges late where nobody
    reads (up to 40 ms, Linux's TCP_DELACK_MIN), so that a broker with Nagle's algorithm on would
    hold back a second message to this member meanwhile. There is one message per interval,
    so nothing is held back; but buffers have to be read now and then. There is no keep-alive
    either, since a PINGREQ could meet a broadcast: if a broker's host vanishes, the publisher
    notices.
    """

    def __init__(
        self, loop: Loop, entrance: Entrance, client_id: str, changed: Callable[[Member], None]
    ) -> None:
        self.state = State.CONNECTING
        self.problem = ""
        self.messages = 0
        """Messages since the subscription was granted; retained ones are not counted."""
        self._loop, self._entrance, self._client_id = loop, entrance, client_id
        self._changed = changed
        self._rest = b""
        self._step = self._connected
        self._socket = socket.socket(entrance.family, socket.SOCK_STREAM)
        self._fd = self._socket.fileno()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex(entrance.address)
        if code not in (0, errno.EINPROGRESS):
            self._loop.call_soon_threadsafe(lambda: self._end(State.FAILED, os.strerror(code)))
            return
        loop.add(self._fd, Loop.WRITE, self._ready)

    def count(self) -> None:
        """Read what has come, and count it; a broken connection is noticed."""
        if self.state is not State.UP:
            return
        self._read()

    def give_up(self, problem: str) -> None:
        """Fail if the answer has not come yet."""
        if self.state is State.CONNECTING:
            self._end(State.FAILED, problem)

    def leave(self) -> None:
        """Say goodbye; the member has left once the broker has closed the connection."""
        if self.state is not State.UP:
            self.close()
            return
        self._read()
        if self.state is State.UP:
            self.state = State.LEAVING
            self._send(_DISCONNECT)

    def close(self) -> None:
        """End at once."""
        if self.state in (State.CONNECTING, State.UP, State.LEAVING):
            self._end(State.LEFT, "")

    # -- in the loop ---------------------------------------------------------------------------

    def _ready(self, _events: int) -> None:
        if self.state in (State.UP, State.LEAVING):
            self._read()  # to the end of the stream, which we waited for
            if self.state in (State.UP, State.LEAVING):
                self._hung_up("the broker closed it")
            return
        try:
            self._step()
        except ssl.SSLWantReadError:
            self._loop.modify(self._fd, Loop.READ)
        except ssl.SSLWantWriteError:
            self._loop.modify(self._fd, Loop.WRITE)
        except OSError as error:  # ssl.SSLError is one
            self._end(State.FAILED, str(error))

    def _connected(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        context = self._entrance.context
        if context is not None:
            self._socket = context.wrap_socket(  # keeps the descriptor
                self._socket,
                server_hostname=self._entrance.host,
                do_handshake_on_connect=False,
            )
            self._step = self._shake_hands
            self._shake_hands()
            return
        self._introduce()

    def _shake_hands(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        self._socket.do_handshake()
        self._introduce()

    def _introduce(self) -> None:
        entrance = self._entrance
        self._step = self._read
        self._loop.modify(self._fd, Loop.READ)
        self._send(connect_packet(self._client_id, entrance.username, entrance.password))

    def _send(self, packet: bytes) -> None:
        # Nothing else is on its way out, and a socket's buffer is longer than any of our packets.
        with contextlib.suppress(OSError):  # whoever waits for the answer finds out why
            self._socket.send(packet)

    def _read(self) -> None:
        """Take everything there is."""
        while self.state in (State.CONNECTING, State.UP, State.LEAVING):
            try:
                data = self._socket.recv(_LONGEST_PACKET)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self._hung_up(str(error))
                return
            if not data:
                self._hung_up("the broker closed it")
                return
            self._feed(data)

    def _hung_up(self, problem: str) -> None:
        ends = {State.UP: State.LOST, State.LEAVING: State.LEFT}
        self._end(ends.get(self.state, State.FAILED), problem)

    def _feed(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while size - at >= 2 and self.state not in (State.REFUSED, State.FAILED):
            body, length, shift = at + 1, 0, 0
            while body < size and data[body] & 0x80:
                length |= (data[body] & 0x7F) << shift
                body, shift = body + 1, shift + 7
            if body < size and shift <= 21:
                length |= data[body] << shift
            if shift > 21 or length > _LONGEST_PACKET:
                self._hung_up("it sent something that is not MQTT")
                return
            if body >= size:
                break
            end = body + 1 + length
            if end > size:
                break
            self._take(data[at], data[body + 1 : end])
            at = end
        self._rest = data[at:]

    def _take(self, head: int, body: bytes) -> None:
        kind = head >> 4
        if kind == _PUBLISH:
            self.messages += self.state is not State.CONNECTING and not head & _RETAINED
        elif kind == _CONNACK and len(body) == 2:
            if body[1]:
                why = _CONNECT_REFUSALS.get(body[1], f"return code {body[1]}")
                self._end(State.REFUSED, f"the broker refused the connection: {why}")
            else:
                self._send(subscribe_packet([self._entrance.topic]))
        elif kind == _SUBACK and len(body) == 3:
            if body[2] == _REFUSED:
                topic = self._entrance.topic
                self._end(State.REFUSED, f"the broker refused the subscription to {topic}")
            elif self.state is State.CONNECTING:
                self.state = State.UP
                # From now on only the end of the connection wakes us.
                self._loop.modify(self._fd, select.EPOLLRDHUP)
                self._changed(self)

    def _end(self, state: State, problem: str) -> None:
        self.state, self.problem = state, problem
        self._loop.remove(self._fd)
        self._socket.close()
        self._changed(self)
