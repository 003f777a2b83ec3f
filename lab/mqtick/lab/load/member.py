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
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from mqtick.mqtt.loop import Loop
from mqtick.mqtt.packets import (
    CONNACK,
    DISCONNECT,
    PUBLISH,
    RETAIN,
    SUBACK,
    TYPE_MASK,
    connect_packet,
    read_connack,
    read_suback,
    read_variable_length,
    subscribe_packet,
)

_LONGEST_PACKET = 65_536


@dataclass(frozen=True, slots=True)
class ConnectTarget:
    """How the members of a crowd connect."""

    family: int
    address: tuple[str | int, ...]
    host: str
    """The broker's name, for its certificate."""
    topic: str
    username: str | None = None
    password: str | None = None
    context: ssl.SSLContext | None = None


class State(StrEnum):
    """The state of a member."""

    CONNECTING = "connecting"
    UP = "up"
    """The broker granted the subscription."""
    REFUSED = "refused"
    """The broker refused the connection or the subscription."""
    FAILED = "failed"
    """There was no connection, or no answer."""
    LOST = "lost"
    """The member was up, and then the connection broke."""
    LEAVING = "leaving"
    LEFT = "left"


class BaseMember(ABC):
    """What members have in common over TCP and UDP.

    `changed()` is called when the member is up, refused, failed, lost or has left.
    """

    def __init__(
        self, loop: Loop, target: ConnectTarget, kind: socket.SocketKind, changed: Changed
    ) -> None:
        self.state = State.CONNECTING
        self.problem = ""
        self.messages = 0
        """Messages since the subscription was granted; retained ones are not counted."""
        self._loop, self._target, self._changed = loop, target, changed
        self._socket = socket.socket(target.family, kind)
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()

    @abstractmethod
    def count(self) -> None:
        """Read and count messages; notice a broken connection."""

    def give_up(self, problem: str) -> None:
        """Fail if the answer has not come yet."""
        if self.state is State.CONNECTING:
            self._end(State.FAILED, problem)

    def leave(self) -> None:
        """Send DISCONNECT; `changed` is called when the member has left."""
        if self.state is not State.UP:
            self.close()
            return
        self._read()
        if self.state is State.UP:
            self.state = State.LEAVING
            self._send(DISCONNECT)

    def close(self) -> None:
        """Close the connection at once."""
        if self.state in (State.CONNECTING, State.UP, State.LEAVING):
            self._end(State.LEFT, "")

    @abstractmethod
    def _read(self) -> None:
        """Read and process what has come."""

    def _send(self, packet: bytes) -> None:
        # No other data is unsent, and a socket's buffer is longer than any of our packets.
        with contextlib.suppress(OSError):  # the read of the answer will report the error
            self._socket.send(packet)

    def _end(self, state: State, problem: str) -> None:
        self.state, self.problem = state, problem
        self._loop.remove(self._fd)
        self._socket.close()
        self._changed(self)


Changed = Callable[[BaseMember], None]


class Member(BaseMember):
    """A connection over TCP, with TLS or without.

    Once it is up, messages are not read before `count`: they stay in the kernel's buffer, and the
    process is not woken. The drawback: without reads the kernel acknowledges late (up to 40 ms,
    Linux's TCP_DELACK_MIN), so that a broker with Nagle's algorithm on would hold back a second
    message to this member meanwhile. There is one message per interval, so no message is held back;
    but buffers have to be read now and then. There is no keep-alive either, because a PINGREQ could
    meet a broadcast. If a broker's host vanishes, the publisher notices.
    """

    def __init__(self, loop: Loop, target: ConnectTarget, client_id: str, changed: Changed) -> None:
        super().__init__(loop, target, socket.SOCK_STREAM, changed)
        self._client_id = client_id
        self._rest = b""
        self._step = self._connected
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex(target.address)
        if code not in (0, errno.EINPROGRESS):
            self._loop.call_soon_threadsafe(lambda: self._end(State.FAILED, os.strerror(code)))
            return
        loop.add(self._fd, Loop.WRITE, self._ready)

    def count(self) -> None:
        """See `BaseMember`."""
        if self.state is State.UP:
            self._read()

    # -- in the loop ---------------------------------------------------------------------------

    def _ready(self, _events: int) -> None:
        if self.state in (State.UP, State.LEAVING):
            self._read()  # up to the end of the stream, for which we waited
            if self.state in (State.UP, State.LEAVING):
                self._hung_up("the broker closed it")
            return
        try:
            self._step()
        except ssl.SSLWantReadError:
            self._loop.modify(self._fd, Loop.READ)
        except ssl.SSLWantWriteError:
            self._loop.modify(self._fd, Loop.WRITE)
        except OSError as error:  # also ssl.SSLError, which is a subclass
            self._end(State.FAILED, str(error))

    def _connected(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        context = self._target.context
        if context is not None:
            self._socket = context.wrap_socket(  # keeps the descriptor
                self._socket,
                server_hostname=self._target.host,
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
        target = self._target
        self._step = self._read
        self._loop.modify(self._fd, Loop.READ)
        self._send(connect_packet(self._client_id, target.username, target.password))

    def _read(self) -> None:
        """Read and process all available data."""
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
            try:
                length, body = read_variable_length(data, at + 1, size)
            except ValueError:
                length, body = _LONGEST_PACKET + 1, at
            if length > _LONGEST_PACKET:
                self._hung_up("it sent something that is not MQTT")
                return
            end = body + length
            if length < 0 or end > size:
                break
            self._take(data[at], data[body:end])
            at = end
        self._rest = data[at:]

    def _take(self, head: int, body: bytes) -> None:
        kind = head & TYPE_MASK
        if kind == PUBLISH:
            self.messages += self.state is not State.CONNECTING and not head & RETAIN
        elif kind == CONNACK and (refusal := read_connack(body)) is not None:
            if refusal:
                self._end(State.REFUSED, f"the broker refused the connection: {refusal}")
            else:
                self._send(subscribe_packet([self._target.topic]))
        elif kind == SUBACK and (granted := read_suback(body)) is not None:
            if not granted:
                topic = self._target.topic
                self._end(State.REFUSED, f"the broker refused the subscription to {topic}")
            elif self.state is State.CONNECTING:
                self.state = State.UP
                # From now on, only the end of the connection wakes the process.
                self._loop.modify(self._fd, select.EPOLLRDHUP)
                self._changed(self)
