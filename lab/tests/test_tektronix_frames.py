"""FastFrame of the Tektronix dialect as pairs of command and reply."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scope_rig import converse
from tektronix_rig import MSO, mso, select

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects.tektronix import time_stamps


def frames(count: str, zeros: str, data: bytes, stamps: str) -> list[tuple[str, object]]:
    return [
        ("ACQuire:NUMFRAMESACQuired?", count),
        ("DATa:FRAMESTARt 1", None),
        (f"DATa:FRAMESTOP {count}", None),
        *select(1, 2, 1_000_000_000, "WFMOutpre", MSO),
        ("HORizontal:FASTframe:XZEro:ALL?", zeros),
        ("CURVe?", data),
        ("HORizontal:FASTframe:TIMEStamp:ALL?", stamps),
    ]


STAMPS = (
    '"1:31.12.2026.23:59:59.999999999999,2:01.01.2027.00:00:00.000000000001,'
    '3:01.01.2027.00:00:01.500000000000"'
)
ZEROS = "1:1.0E-10,2:2.5E-10,3:0.0"


def test_each_frame_has_its_own_instant_and_place_of_the_trigger() -> None:
    data = np.arange(12, dtype="<i2").tobytes()
    segments = converse(mso().read_segments([1]), frames("3", ZEROS, data, STAMPS))
    assert [segment.time_s for segment in segments] == [0.0, 2e-12, 1.500000000001]
    waveforms = [segment.waveforms[1] for segment in segments]
    assert [waveform.codes.tolist() for waveform in waveforms] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert [waveform.start_fs + 6_400_000 for waveform in waveforms] == [100_000, 250_000, 0]


@pytest.mark.parametrize(
    ("zeros", "octets", "stamps", "words"),
    [
        ("1:0.0,2:0.0", 24, STAMPS, "2 trigger instants for 3 frames"),
        ("1:0.0,2:0.0,3:9.9E37", 24, STAMPS, "9.9E37"),
        (ZEROS, 23, STAMPS, "sent 7 octets"),
        (ZEROS, 24, STAMPS.replace("3:01.01", "3:0x.01"), "2 time stamps for 3 frames"),
    ],
)
def test_frames_that_are_not_complete_are_refused(
    zeros: str, octets: int, stamps: str, words: str
) -> None:
    with pytest.raises(InstrumentError, match=words):
        converse(mso().read_segments([1]), frames("3", zeros, bytes(octets), stamps))


def test_no_frame_is_refused() -> None:
    with pytest.raises(InstrumentError, match="no frame"):
        converse(mso().read_segments([1]), [("ACQuire:NUMFRAMESACQuired?", "0")])


def test_both_ways_to_write_an_instant_are_read_to_the_picosecond() -> None:
    digits = time_stamps("1:29.02.2028.12:34:56.123456789012")
    letters = time_stamps("1: 29 FEB 2028 12:34:56.123 456 789 012")
    assert digits == letters
    assert digits[0] % 10**12 == 123_456_789_012


@given(st.text(alphabet="0123456789.: FEBMAY,", max_size=80))
def test_no_instants_are_a_sentence_too(text: str) -> None:
    with contextlib.suppress(InstrumentError):
        time_stamps(text)


@pytest.mark.parametrize("stamp", ["31.02.2026.00:00:00.000000000000", "01 XXX 2026 00:00:00.0 00"])
def test_a_day_that_does_not_exist_is_refused(stamp: str) -> None:
    with pytest.raises(InstrumentError, match=r"31\.02|XXX"):
        time_stamps(stamp)
