"""Frames: time is cut out of the stream, the rest goes to paho-mqtt unchanged, nothing hurts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import _WebsocketWrapper

from mqtick.mqtt.frames import Arrival, FrameSocket
from mqtick.mqtt.packets import encode_publish
from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit

KERNEL = Stamp(1_781_234_567_000_000_000, StampSource.KERNEL)
USER = Stamp(KERNEL.realtime_ns, StampSource.USER)
CONNACK, SUBACK, PINGRESP = b"\x20\x02\x00\x00", b"\x90\x03\x00\x07\x00", b"\xd0\x00"
LIMIT = 256 * 1024


class Stream:
    """A stream and the kernel below it: gives the chunks one by one, takes `room` octets."""

    def __init__(self, *chunks: bytes, room: int = 10**9) -> None:
        self.chunks = list(chunks)
        self.room = room
        self.sent = bytearray()
        self.received = KERNEL
        self.kernel = self
        self.transmit: Transmit | None = None
        self.transmits: list[Transmit | None] = []
        self.buffered = 0
        self.unsent = 0
        self.broken = False
        self.closed = False
        self.acknowledged: list[int] = []
        self.round_trip_ns = 0

    def acknowledge(self) -> None:
        self.acknowledged.append(len(self.chunks))

    def recv(self, _size: int) -> bytes:
        if self.broken:
            raise ConnectionResetError
        if not self.chunks:
            raise BlockingIOError
        return self.chunks.pop(0)

    def send(self, data: bytes | bytearray) -> int:
        if self.broken:
            raise BrokenPipeError
        if not self.room:
            raise BlockingIOError
        count = min(self.room, len(data))
        self.room -= count
        self.sent += data[:count]
        self.transmits.append(self.transmit)
        return count

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return 99

    def setblocking(self, _flag: bool) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Read:
    """A frame socket over chunks, and what came out of it."""

    def __init__(self, *chunks: bytes, version_5: bool = False, room: int = 10**9) -> None:
        self.stream = Stream(*chunks, room=room)
        self.arrivals: list[Arrival] = []
        self.hooks: dict[bytes, Callable[[], None]] = {}
        below: Any = self.stream
        self.frames = FrameSocket(
            self.stream, below, self.arrivals.append, self.hooks, version_5=version_5
        )

    def all(self) -> Read:
        while self.stream.chunks and not self.frames.has_ended:
            self.frames.pump()
        return self

    @property
    def for_paho(self) -> bytes:
        data = b""
        try:
            while piece := self.frames.recv(7):
                data += piece
        except BlockingIOError:
            pass
        return data


def publish(
    topic: str = "mqtick/t/0",
    payload: bytes = b"now",
    *,
    retain: bool = False,
    properties: bytes | None = None,
) -> bytes:
    frame = bytearray(encode_publish(topic.encode(), payload, properties))
    frame[0] |= retain
    return bytes(frame)


def qos1(payload: bytes) -> bytes:
    body = b"\x00\x05other\x00\x09" + payload
    return bytes((0x32, len(body))) + body


# -- cutting out -----------------------------------------------------------------------------------

FRAMES = st.lists(
    st.one_of(
        st.builds(
            publish,
            st.sampled_from(["mqtick/t/0", "mqtick/r/0/kitchen", "a"]),
            st.binary(max_size=200),
            retain=st.booleans(),
        ),
        st.sampled_from([CONNACK, SUBACK, PINGRESP]),
        st.builds(qos1, st.binary(max_size=100)),
    ),
    max_size=8,
)


def is_time(frame: bytes) -> bool:
    return frame[0] & 0xF6 == 0x30


@given(FRAMES, st.data())
def test_wherever_the_stream_is_cut_the_same_frames_come_out(
    frames: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    edges = [0, *cuts, len(stream)]
    read = Read(*filter(None, (stream[a:b] for a, b in pairwise(edges)))).all()
    wanted = [frame for frame in frames if is_time(frame)]
    found = [publish(one.topic, one.payload, retain=one.retain) for one in read.arrivals]
    assert found == wanted
    assert read.for_paho == b"".join(frame for frame in frames if not is_time(frame))


def test_nothing_is_read_behind_what_is_no_mqtt_however_it_is_cut() -> None:
    stream = b"\x30\xff\xff\xff\xff" + publish()
    for pieces in ([stream], [stream[:5], stream[5:]], [bytes((one,)) for one in stream]):
        read = Read(*pieces)
        read.frames.pump()
        assert read.arrivals == []
        assert read.frames.has_packets
        assert read.frames.recv(1) == b""


def test_a_websocket_frame_without_end_does_not_fill_the_memory() -> None:
    class Open(_WebsocketWrapper):
        def _do_handshake(self, extra_headers: object) -> None:
            self.connected = True

    class Endless(Stream):
        def recv(self, size: int) -> bytes:
            return self.chunks.pop() if self.chunks else (PINGRESP * size)[:size]

    below: Any = Endless(*(bytes((one,)) for one in reversed(b"\x82\x7f" + (1 << 40).to_bytes(8))))
    stream = Open(below, "broker", 80, False, "/mqtt", None)
    frames = FrameSocket(stream, below, print, {}, version_5=True)
    while not frames.has_ended and len(stream._readbuffer) < 4 << 20:
        frames.pump()
    assert frames.has_ended
    assert len(stream._readbuffer) < 2 << 20


def test_paho_mqtt_gets_nothing_to_read_while_only_time_comes() -> None:
    read = Read(publish(), publish()).all()
    assert not read.frames.has_packets
    assert read.frames.pending() == 0
    with pytest.raises(BlockingIOError):
        read.frames.recv(1)


# -- stamps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "stamps"),
    [
        ([publish() + publish(), publish()], [USER, KERNEL, KERNEL]),
        ([publish() + b"\x30", publish()[1:]], [USER, KERNEL]),
        ([publish() + PINGRESP], [USER]),
    ],
    ids=["before another frame", "before the beginning of one", "before a packet"],
)
def test_only_the_frame_that_ends_a_read_has_the_kernels_stamp(
    chunks: list[bytes], stamps: list[Stamp]
) -> None:
    assert [one.stamp for one in Read(*chunks).all().arrivals] == stamps


def test_a_frame_has_no_kernel_stamp_while_more_of_the_same_read_waits_below() -> None:
    read = Read(publish())
    read.stream.buffered = 3  # a second record of TLS, or a second frame of WebSocket
    read.frames.pump()
    assert read.arrivals[0].stamp == USER


# -- hooks -----------------------------------------------------------------------------------------


def test_a_hook_is_called_before_its_frame_is_decoded() -> None:
    order: list[str] = []
    read = Read(publish("mqtick/t/0", properties=b"\x80\x80\x80\x80"), version_5=True)
    read.hooks[b"mqtick/t/0"] = lambda: order.append("pin")
    read.all()
    assert order == ["pin"]  # though its properties turn out to be malformed
    assert read.frames.unread["malformed"] == 0


def test_a_hook_comes_before_the_message_and_once_for_each() -> None:
    read = Read(publish() + publish("other"), publish())
    order: list[int] = []
    read.hooks[b"mqtick/t/0"] = lambda: order.append(len(read.arrivals))
    read.all()
    assert [one.topic for one in read.arrivals] == ["mqtick/t/0", "other", "mqtick/t/0"]
    assert order == [0, 2]


def test_a_retained_message_moves_no_pin() -> None:
    read = Read(publish(retain=True))
    read.hooks[b"mqtick/t/0"] = lambda: pytest.fail("the pin moved")
    read.all()
    assert len(read.arrivals) == 1


# -- MQTT 5 ----------------------------------------------------------------------------------------


def test_properties_are_cut_off_the_payload_and_handed_on_encoded() -> None:
    encoded = encode_properties([("T1", "x" * 200)], correlation_data=b"\x01")
    frames = publish(payload=b"SRQ", properties=encoded) + publish(properties=b"")
    read = Read(frames, version_5=True).all()
    assert [one.payload for one in read.arrivals] == [b"SRQ", b"now"]
    assert decode_properties(read.arrivals[0].properties).UserProperty == [("T1", "x" * 200)]
    assert read.arrivals[1].properties == b""


# -- hostile octets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "version_5"),
    [
        *((body, False) for body in (b"", b"\0", b"\0\5t", b"\xff\xffabc", b"\0\2\xff\xfe")),
        # properties: none, too long, cut short, of a length of five octets
        *((b"\0\1t" + rest, True) for rest in (b"", b"\5ab", b"\x80", b"\xff\xff\xff\xff\1")),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_counted_and_the_next_message_is_read(
    body: bytes, version_5: bool
) -> None:
    good = publish(properties=b"" if version_5 else None)
    read = Read(bytes((0x30, len(body))) + body + good, version_5=version_5).all()
    assert [one.topic for one in read.arrivals] == ["mqtick/t/0"]
    assert read.frames.unread["malformed"] == 1


def variable_length(value: int) -> bytes:
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80)) + (
        bytes((value >> 21,))
    )


@pytest.mark.parametrize("length", [LIMIT + 1, 2_000_000])
@pytest.mark.parametrize("step", [997, 4096, 65536])
def test_an_oversized_publish_is_skipped_and_counted_and_takes_no_memory(
    length: int, step: int
) -> None:
    stream = b"\x30" + variable_length(length) + bytes(length) + publish()
    read = Read(*(stream[at : at + step] for at in range(0, len(stream), step)))
    most = 0
    while read.stream.chunks:
        read.frames.pump()
        most = max(most, len(read.frames._rest))
    assert [one.topic for one in read.arrivals] == ["mqtick/t/0"]
    assert read.frames.unread["oversized"] == 1
    assert most < 70_000


def test_the_largest_message_that_is_taken_is_256_kib() -> None:
    payload = bytes(LIMIT - 2 - len("mqtick/t/0"))
    stream = publish(payload=payload)
    read = Read(*(stream[at : at + 65536] for at in range(0, len(stream), 65536))).all()
    assert read.arrivals[0].payload == payload
    assert read.frames.unread["oversized"] == 0


def test_an_oversized_packet_for_paho_mqtt_ends_the_stream() -> None:
    read = Read(b"\x90" + variable_length(LIMIT + 1)).all()
    assert read.frames.recv(1) == b""


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=12), st.booleans())
def test_whatever_arrives_nothing_is_raised(chunks: list[bytes], version_5: bool) -> None:
    read = Read(*chunks, version_5=version_5).all()
    assert all(isinstance(one, Arrival) for one in read.arrivals)


@given(st.binary(max_size=60), st.booleans())
def test_whatever_a_publish_holds_it_is_one_message_or_counted(
    body: bytes, version_5: bool
) -> None:
    good = publish(properties=b"" if version_5 else None)
    read = Read(bytes((0x30, len(body))) + body + good, version_5=version_5).all()
    assert read.arrivals[-1].payload == b"now"
    assert len(read.arrivals) + read.frames.unread["malformed"] == 2


# -- end and turns ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_the_end_of_the_stream_reaches_paho_mqtt_after_what_came_before(how: str) -> None:
    read = Read(CONNACK, b"") if how == "closed" else Read(CONNACK)
    read.frames.pump()
    read.stream.broken = how == "reset"
    read.frames.pump()
    assert read.frames.recv(100) == CONNACK
    assert read.frames.has_packets
    assert read.frames.recv(100) == b""


def test_a_flood_leaves_the_loop_a_turn_for_others() -> None:
    read = Read(*[publish()] * 100)
    read.frames.pump()
    assert 0 < len(read.arrivals) < 100
    read.all()
    assert len(read.arrivals) == 100


def test_what_waits_behind_a_websocket_control_frame_is_read_at_once() -> None:
    read = Read(publish())
    read.stream.buffered = 40
    chunks, first = read.stream.chunks, [True]

    def recv(_size: int) -> bytes:
        if first.pop() if first else False:
            raise BlockingIOError  # paho's wrapper answers a ping so
        if chunks:
            read.stream.buffered = 0
            return chunks.pop(0)
        raise BlockingIOError

    read.stream.recv = recv  # type: ignore[method-assign]
    read.frames.pump()
    assert len(read.arrivals) == 1


# -- writing ---------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), st.binary())
def test_what_is_published_reads_as_it_was_written(topic: str, payload: bytes) -> None:
    read = Read(encode_publish(topic.encode(), payload, None)).all()
    assert (read.arrivals[0].topic, read.arrivals[0].payload) == (topic, payload)
    assert not read.arrivals[0].retain


def test_each_message_is_handed_to_the_kernel_with_its_own_transmit() -> None:
    read = Read()
    first = read.frames.send_publish(b"t", b"1", b"", 5)
    read.frames.send(PINGRESP)
    second = read.frames.send_publish(b"t", b"2", b"", 6)
    assert read.stream.transmits == [first, None, second]
    assert first is not None
    assert first.user_ns == 5
    assert read.stream.transmit is None


def test_properties_are_written_for_mqtt_5_only() -> None:
    old, new = Read(), Read(version_5=True)
    old.frames.send_publish(b"t", b"", b"\x26", 0)
    new.frames.send_publish(b"t", b"", b"\x26", 0)
    assert old.stream.sent == b"\x30\x03\x00\x01t"
    assert new.stream.sent == b"\x30\x05\x00\x01t\x01\x26"


@given(st.lists(st.booleans(), max_size=12), st.lists(st.integers(0, 9), max_size=40))
def test_frames_are_never_mixed_however_little_the_socket_takes(
    time_or_paho: list[bool], rooms: list[int]
) -> None:
    read = Read(room=0)
    taken = b""
    for is_time_frame in time_or_paho:
        read.stream.room = rooms.pop() if rooms else 0
        if is_time_frame:
            if read.frames.send_publish(b"t", b"time", b"", 0) is not None:
                taken += encode_publish(b"t", b"time", None)
            continue
        try:
            assert read.frames.send(SUBACK) == len(SUBACK)
        except BlockingIOError:
            continue
        taken += SUBACK
    while read.frames.wants_write:
        read.stream.room = 3
        read.frames.flush()
    assert bytes(read.stream.sent) == taken


def test_while_the_broker_takes_nothing_time_is_dropped_and_paho_mqtt_waits() -> None:
    read = Read(room=4)
    assert read.frames.send_publish(b"topic", b"first", b"", 0) is not None
    assert read.frames.wants_write
    assert read.frames.send_publish(b"topic", b"second", b"", 0) is None
    with pytest.raises(BlockingIOError):
        read.frames.send(PINGRESP)
    read.stream.room = 100
    read.frames.flush()
    assert not read.frames.wants_write
    assert bytes(read.stream.sent) == encode_publish(b"topic", b"first", None)


def test_a_broken_connection_shows_on_reading() -> None:
    read = Read()
    read.stream.broken = True
    read.frames.send_publish(b"t", b"", b"", 0)
    assert not read.frames.wants_write
    assert read.frames.recv(1) == b""


def test_it_is_closed_as_a_socket_is() -> None:
    read = Read()
    assert read.frames.fileno() == 99
    read.frames.close()
    assert read.stream.closed


# -- acknowledging ---------------------------------------------------------------------------------


def test_what_was_read_is_acknowledged_after_it_was_handed_on() -> None:
    read = Read(publish())
    read.hooks[b"mqtick/t/0"] = lambda: read.stream.acknowledged.append(-1)
    read.frames.pump()
    assert read.stream.acknowledged == [-1, 0]


def held_after(
    before: list[bytes], after_ns: int, last: bytes, round_trip_ns: int = 0
) -> list[bool]:
    """Which messages may have waited, of which the last one comes so long after we acknowledged."""
    read = Read(*before).all()
    read.stream.round_trip_ns = round_trip_ns
    assert read.frames._acknowledged_ns > 0
    read.stream.received = Stamp(read.frames._acknowledged_ns + after_ns, StampSource.KERNEL)
    read.stream.chunks.append(last)
    return [one.maybe_held for one in read.all().arrivals]


@pytest.mark.parametrize(
    ("after_ns", "held"),
    [(-50_000_000, True), (-1_000, True), (100_000, True), (1_900_000, True), (30_000_000, False)],
)
def test_a_message_right_after_an_acknowledgement_may_have_waited_for_it(
    after_ns: int, held: bool
) -> None:
    assert held_after([publish()], after_ns, publish()) == [False, held]
    # also for the acknowledgement of its own beginning
    assert held_after([publish()[:7]], after_ns, publish()[7:]) == [held]


def test_on_a_long_link_a_message_that_has_waited_comes_a_round_trip_later() -> None:
    assert held_after([publish()], 90_000_000, publish(), 80_000_000) == [False, True]
    assert held_after([publish()], 170_000_000, publish(), 80_000_000) == [False, False]


@pytest.mark.parametrize(
    ("chunks", "held"),
    [
        ([publish() * 2], [False, True]),
        ([publish(), publish()], [False, True]),
        ([SUBACK + publish()], [True]),
        ([publish()[:7], publish()[7:]], [True]),
    ],
    ids=["two at once", "one after the other", "any packet", "in parts"],
)
def test_a_message_that_is_read_with_what_was_before_may_have_waited(
    chunks: list[bytes], held: list[bool]
) -> None:
    assert [one.maybe_held for one in Read(*chunks).all().arrivals] == held


def test_looking_when_nothing_came_acknowledges_nothing() -> None:
    read = Read(publish())
    read.frames.pump()
    read.frames._acknowledged_ns -= 30_000_000
    read.frames.pump()
    read.stream.received = Stamp(read.frames._acknowledged_ns + 30_000_000, StampSource.KERNEL)
    read.stream.chunks.append(publish())
    read.frames.pump()
    assert [one.maybe_held for one in read.arrivals] == [False, False]
