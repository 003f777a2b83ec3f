"""What is read from a datagram, whoever sent it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.rtl.sim.golden import packet, publish
from mqtick.mqtt.datagrams import LONGEST, LONGEST_TOPIC, Answer, Message, decode, share_out
from mqtick.mqtt.packets import encode_publish, subscribe_packet


@given(st.binary(max_size=64), st.binary(max_size=1400), st.booleans())
def test_a_message_is_read_whole(topic: bytes, payload: bytes, retain: bool) -> None:
    assert decode(publish(topic, payload, retain)) == Message(topic, payload, retain)
    assert decode(encode_publish(topic, payload, None, retain=retain)) == (topic, payload, retain)


def test_answers_are_told_apart() -> None:
    assert decode(packet(0x20, b"\x00\x03")) == Answer(0x20, 0, b"\x03")
    assert decode(packet(0x90, b"\x01\x02\x00\x80")) == Answer(0x90, 258, b"\x00\x80")
    assert decode(packet(0xB0, b"\x01\x02")) == Answer(0xB0, 258, b"")
    assert decode(packet(0xD0, b"")) == Answer(0xD0, 0, b"")


@given(st.binary(max_size=64))
def test_octets_of_any_kind_are_a_packet_or_nothing(data: bytes) -> None:
    found = decode(data)
    if isinstance(found, Message):
        assert len(found.topic) + len(found.payload) <= len(data) - 4
    elif found is not None:
        assert found.kind == data[0]


@given(st.binary(min_size=1, max_size=30), st.binary(max_size=300), st.integers(1, 300))
def test_a_datagram_that_was_cut_or_has_more_behind_it_is_nothing(
    topic: bytes, payload: bytes, octets: int
) -> None:
    whole = publish(topic, payload)
    assert decode(whole[: max(0, len(whole) - octets)]) is None
    assert decode(whole + bytes(octets)) is None


@given(st.lists(st.text("abc/", min_size=1, max_size=LONGEST_TOPIC), max_size=100))
def test_filters_are_shared_out_in_order_and_fit(topics: list[str]) -> None:
    shares = share_out(topics)
    assert [one for share in shares for one in share] == topics
    assert all(1 <= len(share) <= 32 for share in shares)
    assert all(len(subscribe_packet(share, 1)) <= LONGEST for share in shares)
