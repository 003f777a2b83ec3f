"""The precise format: octets, ranges, root distance."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.mqtt.stamps import StampSource
from mqtick.protocol import precise
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import (
    Claim,
    Echo,
    FollowUp,
    Leap,
    Loop,
    Reply,
    Request,
    Time,
)
from mqtick.protocol.time_types import END_NS

VECTORS = json.loads((Path(__file__).parent / "vectors" / "precise.json").read_text())
KINDS: dict[str, type[precise.Message]] = {
    kind.__name__: kind for kind in (Time, Request, Reply, FollowUp, Echo, Claim, Loop)
}
TIME = Time(0, 0, 0, None, 0, 1, Leap.NONE, StampSource.NONE, 0)
REPLY = Reply(0, 0, 0, 0, 0, 1, Leap.NONE, StampSource.NONE, 0)
ECHO = Echo(0, 0, None, 0, 0, StampSource.NONE, StampSource.NONE, StampSource.NONE, 0, None)

u8, u32 = st.integers(0, 255), st.integers(0, (1 << 32) - 1)
instants = st.integers(0, END_NS - 1)
corrections = st.none() | st.integers(1 - (1 << 31), (1 << 31) - 1)
distances = st.integers(0, 0xFFFF).map(precise.decode_root_distance)
sources, leaps, strata = st.sampled_from(StampSource), st.sampled_from(Leap), st.integers(0, 15)
loops = st.none() | st.integers(0, (1 << 32) - 2)
changes = st.none() | st.integers(0, (1 << 16) - 2)
nonces, bits64 = st.binary(min_size=8, max_size=8), st.integers(0, (1 << 64) - 1)


def either(one: st.SearchStrategy[Any], **added: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Messages of both versions; `added` is what only version 2 can say."""
    names = list(added)

    def of_version_2(message: Any, values: tuple[Any, ...]) -> Any:
        return replace(message, version=2, **dict(zip(names, values, strict=True)))

    return one | st.builds(of_version_2, one, st.tuples(*added.values()))


times = either(
    st.builds(
        Time, u8, u32, instants, corrections, distances, strata, leaps, sources, generation=u8
    ),
    fills=st.booleans(),
)
requests = either(st.builds(Request, u8, u32, nonces, st.booleans()))
late = st.integers(5 * 10**9, END_NS - 1)
replies = either(
    st.builds(Reply, u8, u32, late, u32, distances, strata, leaps, sources, u8),
    fills=st.booleans(),
    request_residence=bits64,
    request_source=sources,
)
follow_ups = either(
    st.builds(FollowUp, u8, u32, corrections, sources, u8, changes),
    request_correction_ns=corrections,
    request_source=sources,
)
echoes = either(
    st.builds(
        *(Echo, u8, u32, corrections, u32, distances, sources, sources, sources, u8, loops),
        placement=st.integers(0, 3),
        rate_change_ppb=changes,
    ),
    request_correction_ns=corrections,
    request_source=sources,
)
claims = either(st.builds(Claim, u8, u32, st.none() | st.integers(1, END_NS - 1), nonces))
tagged = times | requests | replies | follow_ups | echoes | claims
messages = tagged | st.builds(Loop, u8, nonces)


def whole(message: precise.Message, tag: bytes = bytes(8), trailer: bytes = bytes(16)) -> bytes:
    """The payload of a message."""
    ends = b"" if isinstance(message, Loop) else tag
    return message.body() + ends + (trailer if message.version == 2 else b"")


def build(vector: dict[str, Any]) -> precise.Message:
    fields = dict(vector["fields"])
    if "nonce" in fields:
        fields["nonce"] = bytes.fromhex(fields["nonce"])
    return KINDS[vector["kind"]](**fields)


def assemble(vector: dict[str, Any]) -> bytes:
    """Put the stated fields into octets by the stated layout, bit by bit."""
    bits = ""
    for field, octets in VECTORS["layouts"][vector["layout"]]:
        if field in {"tag", "trailer"}:
            break
        value = vector["wire"][field]
        if isinstance(value, list):
            widths = VECTORS["bits"][field]
            bits += "".join(f"{v:0{w[1]}b}" for v, w in zip(value, widths, strict=True))
        elif isinstance(value, str):
            bits += f"{int(value, 16):0{8 * octets}b}"
        else:
            bits += f"{value % (1 << 8 * octets):0{8 * octets}b}"
    return int(bits, 2).to_bytes(len(bits) // 8)


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["name"])
def test_a_message_is_the_octets_that_its_layout_draws(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["hex"])
    body = assemble(vector)
    assert build(vector).body() == body == payload[: len(body)]
    assert precise.decode(payload) == build(vector)


@given(messages)
def test_a_message_comes_back_exactly(message: precise.Message) -> None:
    payload = whole(message)
    assert precise.decode(payload) == message
    assert type(message).decode(payload) == message
    assert len(payload) <= {1: 32, 2: 64}[message.version]


@given(messages, st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16))
def test_reading_depends_on_neither_tag_nor_trailer(
    message: precise.Message, tag: bytes, trailer: bytes
) -> None:
    assert precise.decode(whole(message, tag, trailer)) == message


@given(messages)
def test_a_broker_knows_version_2_by_length_and_first_octet(message: precise.Message) -> None:
    payload = whole(message)
    filled = 17 <= len(payload) <= 64 and payload[0] >> 4 == 2
    assert filled == (message.version == 2)
    assert precise.without_trailer(payload) == (payload[:-16] if filled else payload)


@given(messages, st.integers(0, 72))
def test_another_length_is_refused(message: precise.Message, length: int) -> None:
    right = whole(message)
    payload = right.ljust(72, b"\0")[:length]
    if length == len(right):
        assert precise.decode(payload) == message
        return
    with pytest.raises(DecodeError) as refusal:
        precise.decode(payload)
    assert refusal.value.reason == "length"


@given(tagged, st.integers(0, 255))
def test_another_version_or_kind_is_refused(message: precise.Message, head: int) -> None:
    payload = bytes([head]) + whole(message)[1:]
    known = {1: (1, 2, 3, 4, 6, 8), 2: (1, 2, 3, 4, 6, 7, 8)}
    if head >> 4 not in precise.VERSIONS:
        reason = "version"
    elif head & 15 not in known[head >> 4]:
        reason = "kind"
    elif head >> 4 != message.version and head & 15 == message.KIND:
        reason = "length"
    else:
        return
    with pytest.raises(DecodeError) as refusal:
        precise.decode(payload)
    assert refusal.value.reason == reason


@given(messages)
def test_a_message_of_another_kind_is_refused_where_one_kind_belongs(
    message: precise.Message,
) -> None:
    for kind in KINDS.values():
        if kind is not type(message):
            with pytest.raises(DecodeError, match="as expected here") as refusal:
                kind.decode(whole(message))
            assert refusal.value.reason == "kind"


@pytest.mark.parametrize(
    ("seconds", "nanoseconds", "reason"),
    [
        ((1 << 32) - 1, 10**9 - 1, None),
        (1 << 32, 0, None),
        (9_223_372_036, 854_775_807, None),
        (9_223_372_036, 854_775_808, "range"),
        ((1 << 48) - 1, 0, "range"),
        (0, 10**9, "nanoseconds"),
        (0, (1 << 32) - 1, "nanoseconds"),
    ],
)
def test_the_year_2262_and_a_whole_second_of_nanoseconds_are_refused(
    seconds: int, nanoseconds: int, reason: str | None
) -> None:
    body = replace(TIME, transmit_ns=1).body()
    payload = body[:6] + seconds.to_bytes(6) + nanoseconds.to_bytes(4) + body[16:] + bytes(8)
    if reason is None:
        assert precise.decode(payload) == replace(TIME, transmit_ns=seconds * 10**9 + nanoseconds)
        return
    with pytest.raises(DecodeError) as refusal:
        precise.decode(payload)
    assert refusal.value.reason == reason


def test_a_request_that_arrived_before_1970_is_refused() -> None:
    reply = Reply(0, 1, 1000, 1001, 0, 1, Leap.NONE, StampSource.USER, 0)
    with pytest.raises(DecodeError, match="before 1970") as refusal:
        precise.decode(reply.body() + bytes(8))
    assert refusal.value.reason == "range"
    at_the_epoch = precise.decode(replace(reply, residence_ns=1000).body() + bytes(8))
    assert isinstance(at_the_epoch, Reply)
    assert at_the_epoch.receive_ns == 0


def test_in_version_2_a_request_is_as_long_as_its_reply() -> None:
    assert len(whole(Request(0, 0, bytes(8), False, 2))) == len(whole(replace(REPLY, version=2)))


@pytest.mark.parametrize(
    ("message", "at", "mask"),
    [
        (Request(0, 0, bytes(8), True), 14, 0xFE),
        (Request(0, 0, bytes(8), False), 15, 0xFF),
        (Request(0, 0, bytes(8), False, version=2), 16, 0xFF),
        (Request(0, 0, bytes(8), False, version=2), 32, 0xFF),
        (FollowUp(0, 0, None, StampSource.NONE, 0), 10, 0xFC),
        (replace(TIME, version=2), 24, 0xFE),
        (replace(REPLY, version=2), 32, 0xF8),
        (FollowUp(0, 0, None, StampSource.NONE, 0, version=2), 18, 0xFC),
        (replace(ECHO, version=2), 28, 0xFC),
    ],
    ids=[
        *("request flags", "request octet 15", "request padding", "its end", "follow-up source"),
        *("broker of a time", "broker of a reply", "request of a follow-up", "request of an echo"),
    ],
)
def test_every_reserved_bit_is_refused(message: precise.Message, at: int, mask: int) -> None:
    for bit in range(8):
        payload = bytearray(whole(message))
        payload[at] ^= 1 << bit
        if mask >> bit & 1:
            with pytest.raises(DecodeError) as refusal:
                precise.decode(bytes(payload))
            assert refusal.value.reason == "reserved"
        else:
            assert precise.decode(bytes(payload)) != message


@pytest.mark.parametrize(
    "message",
    [
        replace(TIME, server=256),
        replace(TIME, server=-1),
        replace(TIME, sequence=1 << 32),
        replace(TIME, transmit_ns=-1),
        replace(TIME, transmit_ns=END_NS),
        replace(TIME, previous_correction_ns=1 << 31),
        replace(TIME, previous_correction_ns=-(1 << 31)),
        replace(TIME, root_distance_ns=-1),
        replace(TIME, stratum=16),
        replace(TIME, leap=4),
        replace(TIME, correction_source=4),
        replace(TIME, generation=256),
        replace(REPLY, residence_ns=-1),
        replace(REPLY, residence_ns=1 << 32),
        replace(ECHO, first_echo_ns=-1),
        replace(ECHO, echo_span_ns=-1),
        replace(ECHO, rate_change_ppb=(1 << 16) - 1),
        replace(ECHO, rate_change_ppb=-1),
        FollowUp(0, 0, None, StampSource.NONE, 0, rate_change_ppb=1 << 16),
        replace(ECHO, last_source=4),
        replace(ECHO, loop_ns=(1 << 32) - 1),
        replace(ECHO, placement=4),
        replace(ECHO, placement=-1),
        Request(0, 0, bytes(7), False),
        Request(0, 0, bytes(9), False),
        Claim(0, 1 << 32, None, bytes(8)),
        Claim(0, 0, END_NS, bytes(8)),
        Claim(0, 0, None, bytes(7)),
        Loop(0, bytes(7)),
        Loop(0, bytes(8), version=1),
        replace(TIME, version=3),
        replace(TIME, fills=True),
        replace(REPLY, request_residence=1),
        replace(REPLY, request_source=2),
        replace(REPLY, request_residence=1 << 64, version=2),
        replace(REPLY, request_source=4, version=2),
        FollowUp(0, 0, None, StampSource.NONE, 0, request_correction_ns=5),
        FollowUp(0, 0, None, StampSource.NONE, 0, request_correction_ns=-(1 << 31), version=2),
        replace(ECHO, request_source=1),
    ],
)
def test_what_does_not_fit_is_refused_and_never_cut(message: precise.Message) -> None:
    with pytest.raises(ValueError, match=r"othing was encoded|is not a valid"):
        message.body()


@pytest.mark.parametrize("vector", VECTORS["root_distance"], ids=lambda vector: str(vector["ns"]))
def test_a_root_distance_has_one_encoding(vector: dict[str, Any]) -> None:
    field = int(vector["field"].replace(" ", ""), 16)
    assert precise.encode_root_distance(vector["ns"]) == field
    assert precise.decode_root_distance(field) == vector["back_ns"]


@given(st.integers(0, precise.MAX_ROOT_DISTANCE_NS))
def test_a_root_distance_is_rounded_up_by_at_most_a_thousandth(distance_ns: int) -> None:
    back_ns = precise.decode_root_distance(precise.encode_root_distance(distance_ns))
    assert distance_ns <= back_ns <= distance_ns + distance_ns // 1000


@given(st.integers(0, precise.MAX_ROOT_DISTANCE_NS), st.integers(0, 1 << 45))
def test_a_larger_root_distance_never_reads_smaller(distance_ns: int, more_ns: int) -> None:
    encode = precise.encode_root_distance
    assert encode(distance_ns) <= encode(distance_ns + more_ns) <= 0xFFFF


@given(st.integers(0, 0xFFFF))
def test_what_a_root_distance_reads_is_written_back_unchanged(field: int) -> None:
    read_ns = precise.decode_root_distance(field)
    assert precise.decode_root_distance(precise.encode_root_distance(read_ns)) == read_ns
