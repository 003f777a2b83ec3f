"""Everything of this room that takes octets of others; `make fuzz` throws octets at it.

A decoder may return or raise DecodeError. What it returned must encode, and read the same again.
"""

# ruff: noqa: PLC0415  (imported late, so that atheris can watch)
import contextlib
import json
import string
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

VECTORS = Path(__file__).parents[1] / "vectors"


def targets() -> list[Callable[[bytes], Any]]:
    """Return everything that takes bytes; the imports are late so that atheris can watch them."""
    from mqtick.protocol import draft2021, precise, text1451
    from mqtick.protocol.auth import Keys
    from mqtick.protocol.topics import TopicTree

    tree, keys = TopicTree(), Keys((bytes(16),))

    def again(
        decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
    ) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            value = decode(data)
            assert decode(encode(value)) == value

        return run

    def texts(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: read(data.decode("utf-8", "surrogateescape"))

    def properties(read: Callable[[list[tuple[str, str]]], object]) -> Callable[[bytes], object]:
        def run(data: bytes) -> object:
            lines = data.decode("latin-1").split("\n")
            return read([(line[:9].strip(), line[9:]) for line in lines])

        return run

    return [
        again(precise.decode, encoded),
        copies,
        *(kind.decode for kind in get_args(precise.Message)),
        again(text1451.decode_time, text1451.encode_time),
        again(text1451.decode_request, text1451.encode_request),
        text1451.decode_reply,
        texts(text1451.parse_seconds),
        properties(draft2021.decode_syn),
        properties(draft2021.decode_srq),
        properties(draft2021.decode_srs),
        texts(draft2021.parse_local),
        texts(tree.kind_of),
        texts(tree.parse_time),
        texts(tree.parse_status),
        texts(tree.parse_request),
        texts(tree.parse_reply),
        texts(tree.parse_follow_up),
        texts(tree.parse_answer),
        texts(broker_url),
        mqtt_properties,
        frames,
        datagrams,
        websocket,
        command,
        lambda data: keys.verify(data[8:], data[:8].decode("latin-1"), data[:8]),
    ]


def encoded(message: Any) -> bytes:
    """Return a message of the precise format in its version, unsigned."""
    from mqtick.protocol.auth import Keys
    from mqtick.protocol.precise import Loop

    return message.payload() if isinstance(message, Loop) else Keys().sign(message.body(), "")


def copies(data: bytes) -> None:
    """Trailers, 26 octets a copy: what they say is a number that can be a duration."""
    from mqtick.protocol.residence import Copies

    seen = Copies()
    for at in range(0, len(data), 26):
        seen.note(b"\x27" + data[at + 1 : at + 26])
        assert seen.current is None or 0 <= seen.current.ns < 1 << 49


def broker_url(text: str) -> None:
    """An address never holds a password."""
    from mqtick.mqtt.broker import BrokerError, parse_broker_url

    with contextlib.suppress(BrokerError):
        assert parse_broker_url(text).password is None


def mqtt_properties(data: bytes) -> None:
    """The properties of a PUBLISH by MQTT 5."""
    from mqtick.mqtt.properties import decode_properties

    with contextlib.suppress(ValueError):
        decode_properties(data)


class Wire:
    """A socket, and the kernel below it: gives `data` in pieces of `size` octets, takes all."""

    buffered = unsent = round_trip_ns = 0
    transmit = None

    def __init__(self, data: bytes, size: int) -> None:
        from mqtick.mqtt.stamps import Stamp, StampSource

        self.data, self.size = data, size
        self.received = Stamp(0, StampSource.KERNEL)
        self.kernel = self

    def recv(self, most: int) -> bytes:
        if not self.data:
            raise BlockingIOError
        count = min(most, self.size)
        piece, self.data = self.data[:count], self.data[count:]
        return piece

    def send(self, data: bytes | bytearray) -> int:
        return len(data)

    def acknowledge(self) -> None:
        pass


def said(wire: Wire, stream: Any, *, version_5: bool) -> list[object]:
    """What frames give of a stream: arrivals, what is left to paho-mqtt, and how it went on."""
    from mqtick.mqtt.frames import FrameSocket

    found: list[object] = []
    below: Any = wire

    def arrived(one: Any) -> None:
        found.append((one.topic, one.payload, one.retain, one.properties))
        mqtt_properties(one.properties)

    frames = FrameSocket(stream, below, arrived, {}, version_5=version_5)
    while wire.data and not frames.has_ended:
        frames.pump()
    packets = b""
    with contextlib.suppress(BlockingIOError):
        while piece := frames.recv(1 << 16):
            packets += piece
    return [*found, packets, dict(frames.unread), frames.has_ended]


def frames(data: bytes) -> None:
    """What an MQTT stream says does not depend on how it is cut into pieces."""
    for version_5 in (False, True):
        whole, pieces = Wire(data, 1 << 16), Wire(data, 1 + len(data) % 5)
        assert said(whole, whole, version_5=version_5) == said(pieces, pieces, version_5=version_5)


def datagrams(data: bytes) -> None:
    """What is said over UDP, each datagram with its length before it, provokes no flood."""
    from mqtick.mqtt.broker import parse_broker_url
    from mqtick.mqtt.loop import Timer
    from mqtick.mqtt.published_session import PublishedSession
    from mqtick.mqtt.session import Events
    from mqtick.mqtt.udp_session import UdpSession

    pieces = []
    while data:
        pieces.append(data[1 : 1 + data[0]])
        data = data[1 + data[0] :]
    none: dict[bytes, Callable[[], None]] = {}
    for kind, url in (
        (UdpSession, "mqtt+udp://b"),
        (PublishedSession, "mqtt+udp://b?dialect=published"),
    ):
        kernel: Any = Datagrams()
        loop: Any = SimpleNamespace(
            add=lambda *_: None, remove=lambda *_: None, call_later=lambda *_: Timer(0, None, False)
        )
        topics: list[str] = []
        session: Any

        def up() -> None:
            session.subscribe(["a/+", "b"], print)  # noqa: B023

        events = Events(lambda one: topics.append(one.topic), up, lambda *_: session.close())  # noqa: B023
        session = kind(loop, parse_broker_url(url), "node", None, events, none)
        session.kernel = kernel
        session.begin()
        for piece in pieces:
            session._take(piece)
        session.close()
        assert kernel.sent <= len(pieces) + 6
        assert len(topics) <= len(pieces)


class Datagrams:
    """A UDP socket with nobody behind it."""

    transmit = None
    sent = 0

    def __init__(self) -> None:
        from mqtick.mqtt.stamps import Stamp, StampSource

        self.received = Stamp(0, StampSource.KERNEL)

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes) -> int:
        self.sent += 1
        return len(data)

    def close(self) -> None:
        pass


def websocket(data: bytes) -> None:
    """An MQTT stream inside WebSocket frames."""
    from paho.mqtt.client import _WebsocketWrapper

    class Open(_WebsocketWrapper):
        def _do_handshake(self, extra_headers: object) -> None:
            self.connected = True

    wire = Wire(data, 1 + len(data) % 7)
    socket: Any = wire
    said(wire, Open(socket, "broker", 80, False, "/mqtt", None), version_5=True)


def command(data: bytes) -> None:
    """A command of an experiment is obeyed or counted, and answered in JSON."""
    from mqtick.protocol.experiments import Commands, number_in

    counted: list[str] = []
    obeyed = {"add": lambda words: {"sum": number_in(words, "a", -5, 5, 0)}}
    answers: list[bytes] = []
    commands = Commands("x", "y", lambda _topic, said: answers.append(said), counted.append, obeyed)
    commands.on_command(data, retained=False)
    assert [json.loads(answer)["id"] for answer in answers] or counted


def seeds() -> list[bytes]:
    """Return every message of the vector files, as octets, and what else is well formed."""
    from mqtick.mqtt.packets import encode_publish
    from mqtick.mqtt.properties import encode_properties

    user = encode_properties([("time", "1"), ("a", "b")], response_topic="r", correlation_data=b"c")
    frame = encode_publish(b"mqtick/t/0", b"payload", user)
    found = [user, frame, frame * 3 + b"\xd0\x00\x20\x02\x00\x00", b"mqtts://a@b:1"]
    found += [bytes((0x82, len(frame))) + frame, b"\x89\x02hi\x82\x7e\x00\x04\xd0\x00\xd0\x00"]
    found += [b'{"id": "0123abcd", "do": "add", "a": 2}']
    found += [
        b"".join(bytes((len(one),)) + one for one in said)
        for said in (
            [b"\x30\x10\x00\x06$proof01234567", b"\x20\x02\x00\x00", b"\x90\x04\x00\x01\x00\x80"],
            [b"\x20\x02\x00\x00", b"\x30\x06\x00\x01b\x00hi", b"\xd0\x00", b"\xb0\x02\x00\x01"],
        )
    ]
    for file in sorted(VECTORS.glob("*.json")):
        found += _octets(json.loads(file.read_text()))
    return found


def _octets(data: Any) -> list[bytes]:
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        found = [seed for item in data for seed in _octets(item)]
        if len(data) == 2 and all(isinstance(item, str) for item in data):
            found.append(f"{data[0]:9}{data[1]}".encode("latin-1"))  # a user property
        return found
    if not isinstance(data, str):
        return []
    is_hex = set(data) <= set(string.hexdigits + " ")
    return [data.encode(), *([bytes.fromhex(data)] if is_hex and len(data) % 3 == 2 else [])]


def throw(data: bytes, decoders: list[Callable[[bytes], Any]]) -> None:
    """Give `data` to every decoder."""
    from mqtick.protocol.errors import DecodeError

    for decoder in decoders:
        try:
            decoder(data)
        except DecodeError as refusal:
            check(refusal.reason, str(refusal))


def check(reason: str, sentence: str) -> None:
    """A reason may label a counter, a sentence may stand in a log."""
    assert reason.isascii()
    assert reason.replace("-", "").isalnum()
    assert sentence.isprintable()
    assert len(sentence) < 400
