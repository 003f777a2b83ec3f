"""Draft P21451-1-6 of 2021: properties as its open implementation writes and reads them."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol import draft2021 as draft
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.time_types import END_NS

VECTORS = json.loads((Path(__file__).parent / "vectors" / "draft2021.json").read_text())
instants = st.integers(0, END_NS - 1)
offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: 60 * minutes)


def pairs(vector: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in vector["properties"]]


@pytest.mark.parametrize("vector", VECTORS["local"], ids=lambda vector: vector["text"])
def test_a_local_time_is_the_instant_it_says(vector: dict[str, Any]) -> None:
    assert draft.parse_local(vector["text"], vector["utc_offset_s"]) == vector["ns"]


@pytest.mark.parametrize("vector", VECTORS["syn"], ids=lambda vector: vector["name"])
def test_a_syn_is_written_and_read(vector: dict[str, Any]) -> None:
    offset_s = vector["utc_offset_s"]
    assert draft.encode_syn(vector["transmit_ns"], offset_s) == pairs(vector)
    expected = draft.DraftTime(vector["transmit_ns"])
    assert draft.decode_syn(pairs(vector), offset_s) == expected


@pytest.mark.parametrize("vector", VECTORS["srq"], ids=lambda vector: vector["name"])
def test_a_request_is_written_and_read(vector: dict[str, Any]) -> None:
    assert draft.encode_srq(vector["t1"]) == pairs(vector)
    assert draft.decode_srq(pairs(vector)) == vector["t1"]


@pytest.mark.parametrize("vector", VECTORS["srs"], ids=lambda vector: vector["name"])
def test_a_reply_is_written_and_read(vector: dict[str, Any]) -> None:
    reply = draft.DraftReply(vector["t1"], vector["t2_ns"], vector["t3_ns"])
    assert draft.encode_srs(reply, vector["utc_offset_s"]) == pairs(vector)
    assert draft.decode_srs(pairs(vector), vector["utc_offset_s"]) == reply


@given(instants, offsets)
def test_local_times_are_pythons_isoformat(instant_ns: int, offset_s: int) -> None:
    zone = timezone(timedelta(seconds=offset_s))
    moment = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=offset_s)
    moment += timedelta(microseconds=instant_ns // 1000)
    text = draft.format_local(instant_ns, offset_s)
    assert text == moment.replace(tzinfo=None).isoformat()
    assert draft.parse_local(text, offset_s) == instant_ns // 1000 * 1000
    # An offset in the text wins over the one that was configured.
    assert draft.parse_local(moment.isoformat(), 12_345) == instant_ns // 1000 * 1000


def test_the_fraction_is_missing_when_it_is_zero() -> None:
    assert draft.format_local(86_400 * 10**9) == "1970-01-02T00:00:00"


def test_a_request_without_t1_is_answered_with_an_empty_one() -> None:
    assert draft.decode_srq([]) == ""
    sent = draft.encode_srs(draft.DraftReply("", 0, 0))
    assert sent[0] == ("T1", "")


def test_other_peoples_properties_are_passed_over() -> None:
    now = ("timestamp", "2024-10-05T14:01:43")
    properties = [("traceparent", "1"), now, ("traceparent", "2"), ("Correction", "?")]
    assert draft.decode_syn(properties).transmit_ns == 1_728_136_903 * 10**9


def test_a_timestamp_that_a_broker_added_is_noticed() -> None:
    properties = [("timestamp", "2024-10-05T14:01:43"), ("timestamp", "2024-10-05T14:01:44Z")]
    with pytest.raises(DecodeError, match="occurs twice") as refusal:
        draft.decode_syn(properties)
    assert refusal.value.reason == "properties"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "format"),
        ("2024-10-05", "format"),
        ("2024-10-05 14:01:43", "format"),
        ("2024-10-05T14:01", "format"),
        ("2024-10-05T14:01:43.", "format"),
        ("2024-10-05T14:01:43.1234567891", "format"),
        ("2024-10-05T14:01:43,5", "format"),
        ("2024-10-05T14:01:43+0900", "format"),
        ("2024-10-05T14:01:43+24:00", "format"),
        ("2024-10-05T14:01:43\n", "format"),
        ("٢٠٢٤-10-05T14:01:43", "format"),
        ("2024-02-30T14:01:43", "format"),
        ("2024-10-05T24:00:01", "format"),
        ("2016-12-31T23:59:60", "format"),
        ("0000-01-01T00:00:00", "format"),
        ("1969-12-31T23:59:59.999999", "range"),
        ("2262-04-11T23:47:16.854775808", "range"),
        ("9999-12-31T23:59:59-23:59", "range"),
    ],
)
def test_anything_but_a_date_and_time_is_refused(text: str, reason: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        draft.parse_local(text)
    assert refusal.value.reason == reason


def test_a_missing_property_and_too_many_are_refused() -> None:
    now = "2024-10-05T14:01:43"
    for properties in ([], [("Timestamp", now)], [("timestamp", now)] + [("x", "y")] * 16):
        with pytest.raises(DecodeError) as refusal:
            draft.decode_syn(properties)
        assert refusal.value.reason == "properties"
    with pytest.raises(DecodeError, match="T1 is missing"):
        draft.decode_srs([("t2", now), ("t3", now)])


def test_a_reply_that_left_before_its_request_came_is_refused() -> None:
    properties = [("T1", ""), ("t2", "2024-10-05T14:01:43"), ("t3", "2024-10-05T14:01:42")]
    with pytest.raises(DecodeError) as refusal:
        draft.decode_srs(properties)
    assert refusal.value.reason == "order"


@pytest.mark.parametrize("t1", ["x" * 41, "tab\t", "日"])
def test_a_t1_that_is_long_or_not_printable_is_refused(t1: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        draft.decode_srq([("T1", t1)])
    assert refusal.value.reason == "t1"


def test_what_cannot_be_written_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="before 1970 or after 2262"):
        draft.encode_syn(END_NS)
    with pytest.raises(ValueError, match="less than a day"):
        draft.parse_local("2024-10-05T14:01:43", 86_400)


def test_the_location_heads_all_topics() -> None:
    topics = draft.DraftTopics("hall/2")
    assert (topics.syn, topics.srs) == ("hall/2/TIME/SYN", "hall/2/TIME/SRS")
    assert (topics.srq, topics.srs) == ("hall/2/TIME/SRQ", "hall/2/TIME/SRS")
    assert draft.DraftTopics().syn == "location/TIME/SYN"
    with pytest.raises(ValueError, match="contains the wildcard #"):
        draft.DraftTopics("hall/#")
