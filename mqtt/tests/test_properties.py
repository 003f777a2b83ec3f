"""MQTT 5 properties of a PUBLISH, and what hostile ones do: nothing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.mqtt.properties import decode_properties, encode_properties

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\ufeff"), max_size=30
)


def test_user_properties_keep_their_order_and_may_stand_twice() -> None:
    pairs = [("T1", "a"), ("t2", "b"), ("T1", "c")]
    assert decode_properties(encode_properties(pairs)).UserProperty == pairs


def test_the_octets_are_those_of_the_standard() -> None:
    # MQTT 5.0, 3.3.2.3: 0x26 user property, 0x08 response topic, 0x09 correlation data
    assert encode_properties([("a", "bc")]) == b"\x26\x00\x01a\x00\x02bc"
    assert encode_properties(response_topic="r/1") == b"\x08\x00\x03r/1"
    assert encode_properties(correlation_data=b"\x01\x02") == b"\x09\x00\x02\x01\x02"


def test_no_properties_are_no_octets() -> None:
    assert encode_properties() == b""
    assert not hasattr(decode_properties(b""), "UserProperty")


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5), st.binary(max_size=200))
def test_what_is_written_reads_as_it_was(pairs: list[tuple[str, str]], data: bytes) -> None:
    encoded = encode_properties(pairs, response_topic="answers", correlation_data=data)
    found = decode_properties(encoded)
    assert getattr(found, "UserProperty", []) == pairs
    assert (found.ResponseTopic, found.CorrelationData) == ("answers", data)


@pytest.mark.parametrize(
    "encoded",
    [b"\x26", b"\x26\x00\x05a", b"\xff\x00", b"\x23\x00\x07\x23\x00\x08", b"\x11\x00\x00\x00\x01"],
    ids=["cut", "too long", "unknown", "twice", "not for PUBLISH"],
)
def test_malformed_properties_are_a_value_error(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="malformed MQTT 5 properties"):
        decode_properties(encoded)


@given(st.binary(max_size=60))
def test_any_octets_are_read_or_refused(encoded: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert decode_properties(encoded) is not None
