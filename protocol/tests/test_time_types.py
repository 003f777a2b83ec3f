"""IEEE 1451 time types: other people's octets, exactness, order, limits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol import time_types as t
from mqtick.protocol.errors import DecodeError

VECTORS = json.loads((Path(__file__).parent / "vectors" / "time_types.json").read_text())
CODECS: dict[str, tuple[Callable[[int], bytes], Callable[[bytes], int]]] = {
    "instance": (t.encode_instance, t.decode_instance),
    "duration": (t.encode_duration, t.decode_duration),
    "time_2007": (t.encode_time_2007, t.decode_time_2007),
}

instants = st.integers(0, (1 << 48) * t.NS_PER_S - 1)
durations = st.integers(-(1 << 47), (1 << 47) - 1)
values_2007 = st.integers(-(1 << 32) * t.NS_PER_S + 1, (1 << 32) * t.NS_PER_S - 1)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_octets_from_other_documents_mean_what_they_say(vector: dict[str, Any]) -> None:
    encode, decode = CODECS[vector["type"]]
    octets = bytes.fromhex(vector["hex"])
    assert decode(octets) == vector["ns"]
    assert encode(vector["ns"]) == octets


@given(instants)
def test_an_instant_comes_back_exactly(instant_ns: int) -> None:
    assert t.decode_instance(t.encode_instance(instant_ns)) == instant_ns


@given(durations)
def test_a_duration_comes_back_exactly(duration_ns: int) -> None:
    assert t.decode_duration(t.encode_duration(duration_ns)) == duration_ns


@given(values_2007)
def test_a_2007_value_comes_back_exactly(value_ns: int) -> None:
    assert t.decode_time_2007(t.encode_time_2007(value_ns)) == value_ns


@given(instants, instants)
def test_later_instants_are_larger_octet_strings(one_ns: int, other_ns: int) -> None:
    one, other = t.encode_instance(one_ns), t.encode_instance(other_ns)
    assert (one < other) == (one_ns < other_ns)


@given(st.binary(min_size=10, max_size=10))
def test_ten_octets_are_one_instant_or_refused(octets: bytes) -> None:
    nanoseconds = int.from_bytes(octets[6:])
    if nanoseconds < t.NS_PER_S:
        expected = int.from_bytes(octets[:6]) * t.NS_PER_S + nanoseconds
        assert t.decode_instance(octets) == expected
    else:
        with pytest.raises(DecodeError, match="999999999") as refusal:
            t.decode_instance(octets)
        assert refusal.value.reason == "nanoseconds"


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_fractions_of_a_nanosecond_are_rounded_to_the_nearest(scaled: int) -> None:
    decoded = t.decode_duration(scaled.to_bytes(8, signed=True))
    assert abs(decoded * 65_536 - scaled) <= 32_768


def test_half_a_nanosecond_goes_up() -> None:
    # IEEE 1588-2008, 5.3.2: 2.5 ns is 0000 0000 0002 8000
    assert t.decode_duration(bytes.fromhex("0000000000028000")) == 3
    assert t.decode_duration((-5 << 15).to_bytes(8, signed=True)) == -2


def test_minus_zero_of_2007_reads_as_zero_and_is_never_written() -> None:
    assert t.decode_time_2007(bytes.fromhex("0000000080000000")) == 0
    assert t.encode_time_2007(0) == bytes(8)
    assert t.encode_time_2007(-1).hex() == "0000000080000001"


def test_the_sign_of_2007_is_of_the_whole_value() -> None:
    assert t.decode_time_2007(bytes.fromhex("0000000280000001")) == -2_000_000_001


@pytest.mark.parametrize(
    ("encode", "value_ns"),
    [
        (t.encode_instance, -1),
        (t.encode_instance, (1 << 48) * t.NS_PER_S),
        (t.encode_duration, 1 << 47),
        (t.encode_duration, -(1 << 47) - 1),
        (t.encode_time_2007, (1 << 32) * t.NS_PER_S),
        (t.encode_time_2007, -(1 << 32) * t.NS_PER_S),
    ],
)
def test_a_value_past_the_limit_is_refused_with_a_sentence(
    encode: Callable[[int], bytes], value_ns: int
) -> None:
    with pytest.raises(ValueError, match=rf"{value_ns} ns does not fit .* Nothing was encoded"):
        encode(value_ns)


@pytest.mark.parametrize(("codec", "right"), [("instance", 10), ("duration", 8), ("time_2007", 8)])
@given(data=st.data())
def test_another_length_is_refused(codec: str, right: int, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 40).filter(lambda n: n != right))
    with pytest.raises(DecodeError, match=f"has {right} octets, not {length}") as refusal:
        CODECS[codec][1](bytes(length))
    assert refusal.value.reason == "length"
