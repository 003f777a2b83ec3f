"""One member of a crowd by MQTT over UDP, with a socket of its own: each address is a subscriber.

broker/spec/mqtt-udp.md, section 10.
"""

from __future__ import annotations

import os
import socket
import time

from mqtick.lab.load.member import BaseMember, Changed, ConnectTarget, State
from mqtick.mqtt.datagrams import PINGREQ, PINGRESP, PROOF, Answer, Message, decode
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.packets import (
    CONNACK,
    SUBACK,
    connect_packet,
    encode_publish,
    subscribe_packet,
)
from mqtick.mqtt.udp_session import Repetition, why_refused

_LONGEST = 65_536
_MOST_READS = 10_000  # more than a socket's buffer holds
# Long, because a PINGREQ could meet a broadcast; as long as a crowd waits for its runner.
_KEEPALIVE_S = 900
_GRANTED_AT_MOST = 2  # MQTT 3.1.1, 3.9.3


class UdpMember(BaseMember):
    """Like `Member`: once it is up, messages are not read before `count`.

    `count` also renews the lease, and finds out whether the broker still knows the member.
    """

    def __init__(self, loop: Loop, target: ConnectTarget, client_id: str, changed: Changed) -> None:
        super().__init__(loop, target, socket.SOCK_DGRAM, changed)
        self._answered_s = 0.0
        self._may_prove = 0
        self._accepted = False
        self._socket.connect(target.address)
        loop.add(self._fd, Loop.READ, lambda _events: self._read())
        self._request = connect_packet(client_id, keepalive_s=_KEEPALIVE_S)
        self._repetition = Repetition(loop, self._ask)

    def count(self) -> None:
        """Read and count messages; notice a broker that no longer answers."""
        if self.state is State.UP:
            self._read()
        silent_s = time.monotonic() - self._answered_s
        if self.state is State.UP and silent_s > _KEEPALIVE_S:
            self._end(State.LOST, "the broker does not answer")
        elif self.state is State.UP and silent_s > _KEEPALIVE_S / 3:
            self._send(PINGREQ)

    def leave(self) -> None:
        """See `BaseMember`; there is no answer to DISCONNECT."""
        super().leave()
        if self.state is State.LEAVING:
            self._loop.call_soon_threadsafe(self.close)

    # -- in the loop ---------------------------------------------------------------------------

    def _ask(self) -> None:
        self._may_prove += 1
        self._send(self._request)

    def _read(self) -> None:
        """Read and process all available datagrams, up to a limit, for the other members' sake."""
        for _ in range(_MOST_READS):
            if self.state not in (State.CONNECTING, State.UP):
                return
            try:
                data = self._socket.recv(_LONGEST)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP message
                state = State.LOST if self.state is State.UP else State.FAILED
                self._end(state, os.strerror(error.errno or 0))
                return
            self._take(data)

    def _take(self, datagram: bytes) -> None:
        packet = decode(datagram)
        if isinstance(packet, Message):
            if packet.is_challenge:
                self._prove(packet.payload)
            else:
                self.messages += self.state is State.UP and not packet.retain
        elif packet is not None:
            self._take_answer(packet)

    def _prove(self, token: bytes) -> None:
        if self._may_prove and self.state is State.CONNECTING:
            self._may_prove -= 1
            self._send(encode_publish(PROOF.encode(), token, None))
            self._send(self._request)

    def _take_answer(self, answer: Answer) -> None:
        self._answered_s = time.monotonic()
        if self.state is not State.CONNECTING or answer.kind == PINGRESP:
            return
        if (answer.kind == CONNACK) == self._accepted:
            return  # a second answer, or one to a packet that was not sent yet
        if answer.kind == CONNACK and answer.codes[0]:
            why, _ = why_refused(answer.codes[0])
            self._end(State.REFUSED, f"the broker refused the connection: {why}")
        elif answer.kind == CONNACK:
            self._accepted = True
            self._repetition.stop()
            self._request = subscribe_packet([self._target.topic])
            self._repetition = Repetition(self._loop, self._ask)
        elif answer.kind == SUBACK and answer.codes[0] > _GRANTED_AT_MOST:
            topic = self._target.topic
            self._end(State.REFUSED, f"the broker refused the subscription to {topic}")
        elif answer.kind == SUBACK:
            self._repetition.stop()
            self.state = State.UP
            self._loop.remove(self._fd)  # from now on, messages do not wake us
            self._changed(self)

    def _end(self, state: State, problem: str) -> None:
        self._repetition.stop()
        super()._end(state, problem)
