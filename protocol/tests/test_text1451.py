"""Time synchronisation of IEEE 1451.1.6 as text: what the open implementation sends and accepts."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol import text1451 as text
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.time_types import END_NS

VECTORS = json.loads((Path(__file__).parent / "vectors" / "text1451.json").read_text())
instants = st.integers(0, END_NS - 1)
names = st.from_regex(r"[A-Za-z0-9_.-]{1,20}(/[A-Za-z0-9_.-]{1,20})?", fullmatch=True)


@pytest.mark.parametrize("vector", VECTORS["time"], ids=lambda vector: vector["name"])
def test_a_broadcast_is_decimal_seconds_with_nine_digits(vector: dict[str, Any]) -> None:
    assert text.decode_time(vector["payload"].encode()) == vector["ns"]
    assert text.encode_time(vector["ns"]) == vector["payload"].encode()


@pytest.mark.parametrize("vector", VECTORS["request"], ids=lambda vector: vector["name"])
def test_a_request_is_read_as_the_open_implementation_reads_it(vector: dict[str, Any]) -> None:
    request = text.decode_request(vector["payload"].encode())
    assert request == text.TextRequest(vector["client"], vector["t1"])


@pytest.mark.parametrize("vector", VECTORS["reply"], ids=lambda vector: vector["name"])
def test_a_reply_is_written_as_the_open_implementation_writes_it(vector: dict[str, Any]) -> None:
    reply = text.TextReply(vector["t1"], vector["t2_ns"], vector["t3_ns"], vector["server"])
    assert text.encode_reply(reply) == vector["payload"].encode()
    assert text.decode_reply(vector["payload"].encode()) == reply
    assert (
        text.reply_topic(vector["topic"].split("/", 2)[2].removesuffix("/RES")) == vector["topic"]
    )


@given(st.floats(0, 2**32 - 1, allow_nan=False))
def test_what_python_prints_with_nine_digits_is_read_exactly(seconds: float) -> None:
    printed = f"{seconds:.9f}"
    assert text.parse_seconds(printed) == int(Decimal(printed).scaleb(9))


@given(instants)
def test_an_instant_comes_back_exactly(instant_ns: int) -> None:
    assert text.decode_time(text.encode_time(instant_ns)) == instant_ns


@given(names, st.none() | instants, instants, st.integers(0, 10**10), names)
def test_an_exchange_comes_back_exactly(
    client: str, t1_ns: int | None, t2_ns: int, residence_ns: int, server: str
) -> None:
    t1 = "" if t1_ns is None else text.format_seconds(t1_ns)
    request = text.decode_request(text.encode_request(text.TextRequest(client, t1)))
    assert request == text.TextRequest(client, t1)
    t3_ns = min(t2_ns + residence_ns, END_NS - 1)
    reply = text.TextReply(request.t1, t2_ns, t3_ns, server)
    assert text.decode_reply(text.encode_reply(reply)) == reply


@pytest.mark.parametrize("t1", ["123", "1781234567123", "whatever it is", "-1e9", "", "9" * 32])
def test_the_server_echoes_t1_and_never_reads_it(t1: str) -> None:
    request = text.decode_request(f"PTTEST/app0,{t1}".encode())
    reply = text.encode_reply(text.TextReply(request.t1, 0, 0, "PTTEST/ncap0"))
    assert reply.startswith(f"{t1},0.000000000,".encode())


def test_digits_past_the_ninth_are_dropped_and_fewer_are_filled() -> None:
    assert text.parse_seconds("7.1234567899") == 7_123_456_789
    assert text.parse_seconds("7.1") == 7_100_000_000
    assert text.parse_seconds("7") == 7_000_000_000


@pytest.mark.parametrize(
    "seconds",
    [
        *["nan", "inf", "-inf", "NaN", "Infinity", "1e9", "1E9", "0x10", "-1", "+1", "-0"],
        *[
            " 1",
            "1 ",
            "1\n",
            "1\0",
            "1_000",
            "1,5",
            ".5",
            "5.",
            ".",
            "",
            "1.2.3",
            "١٢٣",
            "１２",
            "1.²",
        ],
        *["12345678901", "0." + "1" * 19],
    ],
)
def test_anything_but_plain_decimal_digits_is_refused(seconds: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        text.decode_time(seconds.encode())
    assert refusal.value.reason == "format"


def test_the_year_2262_is_the_end_and_1970_the_beginning() -> None:
    assert text.parse_seconds("9223372036.854775807") == END_NS - 1
    with pytest.raises(DecodeError, match="past the year 2262") as refusal:
        text.parse_seconds("9223372036.854775808")
    assert refusal.value.reason == "range"
    for instant_ns in (-1, END_NS):
        with pytest.raises(ValueError, match="before 1970 or after 2262"):
            text.encode_time(instant_ns)


BAD_NAMES = ["+", "#", "a/+/b", "a/#", "nul\0", "line\nfeed", "\x07", "x\x85y", "x" * 65, "a "]


@pytest.mark.parametrize("lns", BAD_NAMES)
def test_a_name_that_cannot_stand_in_a_topic_is_refused_before_it_is_published(lns: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        text.decode_request(f"{lns},1.5".encode())
    assert refusal.value.reason == "name"
    with pytest.raises(ValueError, match="Choose another name"):
        text.reply_topic(lns)


def test_our_own_name_may_hold_no_comma() -> None:
    with pytest.raises(ValueError, match="holds a comma"):
        text.encode_reply(text.TextReply("", 0, 0, "hall,2/server"))


@given(st.binary(max_size=80))
def test_no_request_makes_a_topic_with_wildcards_or_of_absurd_length(payload: bytes) -> None:
    try:
        request = text.decode_request(payload)
    except DecodeError:
        return
    topic = text.reply_topic(request.client)
    assert not set("+#\0") & set(topic)
    assert len(topic.encode()) <= 82


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"1.0,2.0,3.0", "format"),
        (b"1.0,2.0,3.0,ncap,more", "format"),
        (b"1.0,2.0,nan,ncap", "format"),
        (b"1.0,3.0,2.0,ncap", "order"),
        (b"1.0,2.0,9223372037,ncap", "range"),
        (b"\xff,2.0,3.0,ncap", "encoding"),
        (b"1.0,2.0,3.0," + b"n" * 65, "format"),
        (b"x" * 257, "length"),
    ],
)
def test_a_bad_reply_is_refused_with_its_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        text.decode_reply(payload)
    assert refusal.value.reason == reason


def test_a_t1_that_is_long_or_not_printable_is_refused() -> None:
    for t1 in ("1" * 33, "a\tb", "é"):
        with pytest.raises(DecodeError, match="t1") as refusal:
            text.decode_request(f"app,{t1}".encode())
        assert refusal.value.reason == "t1"
