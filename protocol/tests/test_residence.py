"""What a broker writes into trailers, read copy by copy."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol.precise import Loop
from mqtick.protocol.residence import Copies, Residence

VECTORS = json.loads((Path(__file__).parent / "vectors" / "precise.json").read_text())
LAST = (1 << 24) - 1
UNKNOWN = -(1 << 31)


def copy(
    number: int, stated_ns: int = 50_000, correction_ns: int = UNKNOWN, source: int = 1
) -> bytes:
    """A loop message as it comes back."""
    trailer = struct.pack(">Qi", stated_ns << 16, correction_ns) + number.to_bytes(3)
    return Loop(0, bytes(8)).body() + trailer + bytes([source])


def noted(copies: Copies, payload: bytes) -> Residence:
    copies.note(payload)
    assert copies.current is not None
    return copies.current


@pytest.mark.parametrize("vector", VECTORS["trailers"], ids=lambda vector: vector["name"])
def test_a_trailer_says_what_is_drawn(vector: dict[str, Any]) -> None:
    copies = Copies()
    before = noted(copies, copy(vector["copy"] - 1 if vector["copy"] else 7))
    copies.note(copy(1)[:10] + bytes.fromhex(vector["hex"]))
    found = copies.current
    assert before.correction_ns == vector["correction_ns"]
    if found is None:
        assert (vector["stated"], vector["source"]) == (None, 0)
    else:
        assert (found.stated, found.source) == (vector["stated"], vector["source"])
        assert found.ns == vector["stated"] >> 16


def test_the_next_copy_corrects_the_one_before_whatever_it_carries() -> None:
    copies = Copies()
    first = noted(copies, copy(1))
    assert (first.ns, first.correction_ns) == (50_000, None)
    second = noted(copies, copy(2, correction_ns=1_300))
    assert first.ns == 51_300
    copies.note(b"a message of another version that comes in between")
    copies.note(copy(3, correction_ns=-700, source=0))
    assert second.ns == 49_300


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 3), (1, 1), (2, 1), (0, 1), (0, 0), (5, 0), (LAST, 0), (LAST, 2), (1, LAST)],
)
def test_a_correction_of_a_copy_that_never_came_corrects_nothing(before: int, after: int) -> None:
    copies = Copies()
    first = noted(copies, copy(before))
    copies.note(copy(after, correction_ns=1_000_000))
    assert first.correction_ns is None


def test_no_correction_reaches_across_a_copy_that_is_not_counted() -> None:
    copies = Copies()
    first = noted(copies, copy(1))
    copies.note(copy(0, stated_ns=0, source=0))
    assert copies.current is None
    copies.note(copy(2, correction_ns=10))
    assert first.correction_ns is None


def test_after_the_last_number_comes_the_first_again() -> None:
    copies = Copies()
    first = noted(copies, copy(LAST))
    copies.note(copy(1, correction_ns=10))
    assert first.correction_ns == 10


def test_another_connection_corrects_nothing() -> None:
    copies = Copies()
    first = noted(copies, copy(1))
    copies.forget()
    assert copies.current is None
    copies.note(copy(2, correction_ns=10))
    assert first.correction_ns is None


@pytest.mark.parametrize("source", [0, 4, 255])
def test_a_residence_that_nobody_stamped_means_nothing(source: int) -> None:
    copies = Copies()
    copies.note(copy(1, source=source))
    assert copies.current is None


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x27", copy(1)[:16], copy(1) + bytes(39), b"\x17" + copy(1)[1:], b"{" + bytes(40)],
    ids=["empty", "one octet", "16 octets", "65 octets", "version 1", "text"],
)
def test_what_no_broker_fills_is_not_read(payload: bytes) -> None:
    copies = Copies()
    first = noted(copies, copy(1))
    copies.note(payload)
    assert copies.current is None
    copies.note(copy(2, correction_ns=10))
    assert first.correction_ns == 10, "and it was not counted"


@given(st.lists(st.binary(max_size=70) | st.binary(min_size=20, max_size=20).map(b"\x27".__add__)))
def test_no_octets_end_it_and_no_residence_is_negative(payloads: list[bytes]) -> None:
    copies = Copies()
    seen = []
    for payload in payloads:
        copies.note(payload)
        if copies.current is not None:
            seen.append(copies.current)
    assert all(0 <= one.ns < 1 << 49 and one.source in (1, 2, 3) for one in seen)
