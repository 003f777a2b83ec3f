"""IEEE 488.2 blocks: every payload comes back, and anything else is refused with a sentence."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.lab.scope.block import MAXIMUM_OCTETS, definite_block, read_block
from mqtick.lab.scope.conversation import InstrumentError


class ShortError(Exception):
    """What a transport raises when the octets do not come."""


def reader(data: bytes):
    stream = io.BytesIO(data)

    def read(count: int) -> bytes:
        piece = stream.read(count)
        if len(piece) < count:
            raise ShortError
        return piece

    read.stream = stream
    return read


@given(st.binary(max_size=300), st.integers(min_value=3, max_value=9), st.binary(max_size=5))
def test_any_payload_comes_back_and_what_follows_stays_unread(
    payload: bytes, digits: int, after: bytes
) -> None:
    read = reader(definite_block(payload, digits) + after)
    assert read_block(read) == payload
    assert read.stream.read() == after


@given(st.binary(max_size=64))
def test_any_octets_give_a_block_or_a_refusal(data: bytes) -> None:
    try:
        payload = read_block(reader(data))
    except (InstrumentError, ShortError):
        return
    assert payload in data


@given(st.integers(min_value=1, max_value=64))
def test_a_block_of_line_feeds_is_no_line_end(count: int) -> None:
    assert read_block(reader(definite_block(b"\n" * count) + b"\n")) == b"\n" * count


@pytest.mark.parametrize(
    ("written", "payload"),
    [
        (b"#15hello\n", b"hello"),
        (b"#10\n", b""),
        (b"#9000000000\n", b""),
        (b"#A0000000005hello\n", b"hello"),  # ten digits, the digit hexadecimal
        (b"#a0000000005hello\n", b"hello"),
        (b"#(5)hello\n", b"hello"),  # Rohde & Schwarz, from 1 GB on
        (b"\n\n#15hello", b"hello"),  # what two line ends before left over
        (b"#3003###", b"###"),
    ],
)
def test_the_lengths_that_instruments_write(written: bytes, payload: bytes) -> None:
    assert read_block(reader(written)) == payload


def test_a_prefix_is_thrown_away_whatever_it_is_and_whether_it_is_there_or_not() -> None:
    for written in (b"C1:WF DAT2,#15hello\n\n", b"#15hello\n\n", b"C1:WF ALL,#15hello\n"):
        assert read_block(reader(written), b"C1:WF DAT2,") == b"hello"


@pytest.mark.parametrize(
    "written",
    [
        b"C1:WAVEFORM DATA2,#15hello",  # a longer prefix than was announced
        b"C1:\x00\xff,#15hello",
        b"1.0,2.0,3.0 no block at all",
        b"#X5hello",
        b"#2-1hello",
        b"#2 5hello",
        b"#()hello",
        b"#(5hello and no bracket that ends",
        b"\n" * 100 + b"#15hello",  # a prefix without an end
    ],
)
def test_what_is_no_block_is_refused_and_says_what_to_do(written: bytes) -> None:
    with pytest.raises(InstrumentError, match="--dialect"):
        read_block(reader(written), b"C1:WF DAT2,")


def test_a_block_without_a_length_needs_a_connection_that_tells_the_end() -> None:
    with pytest.raises(InstrumentError, match=r"#0.*INSTR"):
        read_block(reader(b"#0hello\n"))
    read = reader(b"#0hello\n\n")
    assert read_block(read, read_rest=read.stream.read) == b"hello\n"


def test_a_length_that_no_memory_has_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InstrumentError, match="no memory can hold"):
        read_block(reader(b"#A%010d" % (MAXIMUM_OCTETS + 1)))


def test_a_length_that_lies_is_what_the_transport_says_it_is() -> None:
    with pytest.raises(ShortError):
        read_block(reader(b"#9000000010short"))
