"""Memory under a hostile broker: it lets the real programs in, and then makes them keep things."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator

import pytest
from paho.mqtt.properties import VariableByteIntegers
from rig import Program, Rig

from broker.tests.harness.servers import Server
from broker.tests.harness.tools import memory
from demo.local_broker import running
from demo.local_programs import wait_until
from mqtick.mqtt.packets import encode_publish, read_variable_length

CONNACK_5 = b"\x20\x03\x00\x00\x00"


def packet(head: int, *parts: bytes) -> bytes:
    """Return a packet whose body is these parts."""
    body = b"".join(parts)
    return bytes((head,)) + VariableByteIntegers.encode(len(body)) + body


def text(value: bytes) -> bytes:
    """Return a string or binary data with its length before it."""
    return len(value).to_bytes(2, "big") + value


def _numbered(head: int, body: Callable[[bytes], bytes]) -> Iterator[bytes]:
    for number in itertools.cycle(range(1, 65_536)):
        yield packet(head, body(number.to_bytes(2, "big")))


def _for_ever(*said: bytes) -> Iterator[bytes]:
    """Repeat in pieces that are large enough to be fast."""
    whole = b"".join(said)
    return itertools.repeat(whole * max(1, 65_536 // len(whole)))


_BIG = bytes(100_000)
_USER_PROPERTIES = (b"\x26" + text(b"k" * 9) + text(b"v" * 9)) * 8_000
_PROPERTIES = VariableByteIntegers.encode(len(_USER_PROPERTIES)) + _USER_PROPERTIES
_STATUSES = [
    encode_publish(b"mqtick/s/%d" % number, b'{"state": "%s"}' % (b"x" * 9_000), b"", retain=True)
    for number in range(256)
]
_OTHER_TOPICS = [
    encode_publish(b"mqtick/%s/%d/kitchen" % (kind, number), b"\x01\x04" + bytes(54), b"")
    for number in range(256)
    for kind in (b"t", b"r", b"f", b"q", b"o", b"l", b"c")
]
# What is sent after CONNACK, for as long as it is taken.
ATTACKS: dict[str, Callable[[], Iterator[bytes]]] = {
    "QoS 2, never released": lambda: _numbered(
        0x34, lambda number: text(b"mqtick/s/0") + number + b"\0" + _BIG
    ),
    "QoS 1, whose acknowledgements are not read": lambda: _numbered(
        0x33, lambda number: text(b"mqtick/s/0") + number + b"\0"
    ),
    "QoS 1 with long properties": lambda: _numbered(
        0x33,
        lambda number: text(b"mqtick/s/0") + number + _PROPERTIES,
    ),
    "PINGREQ": lambda: _for_ever(b"\xc0\0"),
    "PUBREC": lambda: _for_ever(packet(0x50, b"\0\1\0\0")),
    "PUBREL": lambda: _for_ever(packet(0x62, b"\0\1\0\0")),
    "SUBACK and UNSUBACK of nothing": lambda: _for_ever(
        packet(0x90, b"\0\7\0\0"), packet(0xB0, b"\0\7\0\0")
    ),
    "a SUBACK with long properties": lambda: _numbered(
        0x90, lambda number: number + _PROPERTIES + b"\0"
    ),
    "an endless SUBACK": lambda: itertools.chain((b"\x90\xff\xff\xff\x7f",), _for_ever(_BIG)),
    "an endless PUBLISH": lambda: itertools.chain((b"\x30\xff\xff\xff\x7f",), _for_ever(_BIG)),
    "messages with long properties": lambda: _for_ever(
        encode_publish(b"mqtick/t/0", b"", _USER_PROPERTIES)
    ),
    "retained statuses of every server": lambda: _for_ever(*_STATUSES),
    "messages of every kind and server": lambda: _for_ever(*_OTHER_TOPICS),
    "the end, at once": lambda: iter((b"\xe0\0",)),
}


class Hostile(Server):
    """Runs an attack on every connection; counts octets that were taken."""

    def __init__(self, attack: Callable[[], Iterator[bytes]]) -> None:
        super().__init__()
        self._attack = attack
        self.sent = 0

    def serve(self, one: socket.socket) -> None:
        self._begin(one)
        for said in self._attack():
            one.sendall(said)
            self.sent += len(said)

    def _begin(self, one: socket.socket) -> None:
        """Let the client in, and grant what it subscribes to first."""
        one.recv(65_536)
        one.sendall(CONNACK_5)
        said = one.recv(65_536)
        while said:
            length, body = read_variable_length(said, 1, len(said))
            if said[0] == 0x82:  # as many grants as there can be filters
                one.sendall(packet(0x90, said[body : body + 2], bytes(1 + 9)))
            said = said[body + length :]


# What the units allow is 256 MiB (MemoryMax); an honest client has 40.
_MOST_MIB = 100
_ENOUGH_OCTETS = 64 << 20
_ENOUGH_CONNECTIONS = {"client": 3, "server": 6}


@pytest.mark.slow
@pytest.mark.parametrize("who", ["client", "server"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_broker_makes_us_keep_is_bounded(attack: str, who: str, rig: Rig) -> None:
    with running(Hostile(ATTACKS[attack])) as broker:
        program: Program = rig.client(broker.url) if who == "client" else rig.server(broker.url)

        def was_attacked() -> bool:
            assert memory(program.process) < _MOST_MIB << 20
            often = broker.connections >= _ENOUGH_CONNECTIONS[who]
            return often or broker.sent >= _ENOUGH_OCTETS

        wait_until(was_attacked, "the attack has run", 60)
