"""Siglent's :WAVeform set: pairs of command and reply, and what its simulated SDS824X HD does.

Values from the programming guide EN11F, from what an SDS814X HD was seen to do
(github.com/vindavs/siglent-bin, SPEC.md), and from drivers of others.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scope_rig import converse, opened, sent, simulated, usual

from mqtick.lab.scope.contributed.siglent.descriptor import Descriptor
from mqtick.lab.scope.contributed.siglent.dialect import Siglent
from mqtick.lab.scope.contributed.siglent.front import SiglentFront
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects import Identity

IDENTITY = Identity.parse("Siglent Technologies,SDS814X HD,SDS1,4.8.12.1.1.6.5")
SELECT = [
    (":WAVeform:SOURce C2", None),
    (":WAVeform:STARt 0", None),
    (":WAVeform:POINt 0", None),
    (":WAVeform:INTerval 1", None),
]
Pairs = list[tuple[str, str | bytes | None]]


def described(
    points: int = 5,
    words: bool = True,
    stride: int = 1,
    codes_per_division: float = 7680.0,
    bits: int = 16,
    interval_s: float = 1e-9,
) -> bytes:
    """Write a descriptor by the guide's table: 0.2 V a division and 0.1 V offset, probe 10."""
    data = bytearray(346)
    data[:8] = b"WAVEDESC"
    struct.pack_into("<hh", data, 0x20, words, 0)
    struct.pack_into("<i", data, 0x74, points)
    struct.pack_into("<ii", data, 0x84, 0, stride)
    struct.pack_into("<ii", data, 0x90, 1, 1)
    struct.pack_into("<fff", data, 0x9C, 0.2, 0.1, codes_per_division)
    struct.pack_into("<h", data, 0xAC, bits)
    struct.pack_into("<fd", data, 0xB0, interval_s, 2e-9)
    struct.pack_into("<h", data, 0x144, 20)  # of another model's table: not to be used
    struct.pack_into("<f", data, 0x148, 10.0)
    return bytes(data)


def reading(
    *answers: tuple[str, str | bytes | None],
    descriptor: bytes = b"",
    scale: str = "1.00E-07",
    delay: str = "0",
    percent: str = "50",
    rate: str = "1.00E+09",
    page: str = "5.00E+06",
) -> Pairs:
    """Return what is asked and answered until the data, which are in `answers`."""
    return [
        *SELECT,
        (":WAVeform:PREamble?", descriptor or described()),
        (":TIMebase:SCALe?", scale),
        (":TIMebase:DELay?", delay),
        (":TIMebase:REFerence:POSition?", percent),
        (":ACQuire:SRATe?", rate),
        (":WAVeform:MAXPoint?", page),
        *answers,
    ]


def data(octets: bytes) -> tuple[str, bytes]:
    return ":WAVeform:DATA?", octets


def words(values: Sequence[int]) -> bytes:
    return np.array(values, "<i2").tobytes()


def test_volts_are_codes_of_a_division_less_the_offset_both_times_the_probe() -> None:
    pairs = reading(data(words([-7680, 0, 7680, 2570, 0x2020])), delay="2.00E-09")
    waveform = converse(Siglent(IDENTITY).read(2), pairs)
    # 2 V a division at the tip; samples that are line feeds (0x0A0A) and blanks (0x2020) count.
    expected = [-3.0, -1.0, 1.0, 2570 / 7680 * 2 - 1, 0x2020 / 7680 * 2 - 1]
    np.testing.assert_allclose(waveform.volts(), expected, rtol=1e-6)
    assert (waveform.interval_fs, waveform.start_fs) == (1_000_000, 2_000_000 - 500_000_000)


@pytest.mark.parametrize(
    ("percent", "scale", "delay", "rate", "sample"),
    [
        # A trigger-locked edge on an SDS814X HD, each a fresh acquisition.
        ("30", "1.00E-01", "-1.00E-01", "1.00E+04", 4000),
        ("30", "2.00E-03", "-8.00E-03", "5.00E+05", 7000),
        ("30", "1.00E-02", "0.00E+00", "1.00E+05", 3000),
        ("50", "2.00E-05", "0.00E+00", "5.00E+07", 5000),
        ("50", "2.00E-05", "5.00E-05", "5.00E+07", 2500),
        ("50", "2.00E-05", "-5.00E-05", "5.00E+07", 7500),
        ("20", "2.00E-05", "0.00E+00", "5.00E+07", 2000),
        ("20", "2.00E-05", "2.00E-05", "5.00E+07", 1000),
    ],
)
def test_the_delay_adds_to_the_reference_position(
    percent: str, scale: str, delay: str, rate: str, sample: int
) -> None:
    pairs = reading(
        data(words([0] * 5)),
        descriptor=described(interval_s=1 / float(rate)),
        scale=scale,
        delay=delay,
        percent=percent,
        rate=rate,
    )
    waveform = converse(Siglent(IDENTITY).read(2), pairs)
    assert abs(waveform.instant_fs(sample)) < waveform.interval_fs / 1000


def test_the_sample_rate_has_more_digits_than_the_descriptors_interval() -> None:
    short = struct.unpack("<f", struct.pack("<f", 1e-7))[0]
    assert short != 1e-7

    def interval_fs(rate: str) -> int:
        head = described(interval_s=1e-7)
        pairs = reading(data(words([0] * 5)), descriptor=head, scale="1.00E-03", rate=rate)
        return converse(Siglent(IDENTITY).read(2), pairs).interval_fs

    assert interval_fs("1.00E+07") == 100_000_000
    assert interval_fs("2.00E+07") == round(short * 1e15)  # another's: points were put between


def test_a_record_longer_than_a_page_is_read_in_pages() -> None:
    octets = words([-25, 0, 25, -1, 0x0A00])
    pairs = reading(
        (":WAVeform:POINt 2", None),
        (":WAVeform:STARt 0", None),
        data(octets[:4]),
        (":WAVeform:POINt 2", None),
        (":WAVeform:STARt 2", None),
        data(octets[4:8]),
        (":WAVeform:POINt 1", None),
        (":WAVeform:STARt 4", None),
        data(octets[8:]),
        page="2",
    )
    waveform = converse(Siglent(IDENTITY).read(2), pairs)
    np.testing.assert_array_equal(waveform.codes, [-25, 0, 25, -1, 0x0A00])


@pytest.mark.parametrize("length", [0, 2, 8, 9, 11, 12])
def test_a_block_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InstrumentError, match=f"{length} octets"):
        converse(Siglent(IDENTITY).read(2), reading(data(bytes(length))))


def test_firmware_that_counts_samples_is_read_by_octets_the_next_time() -> None:
    dialect = Siglent(Identity.parse("Siglent Technologies,SDS2104X Plus,SDS2,1.3.9R6"))
    head = described(codes_per_division=30, bits=10)
    with pytest.raises(InstrumentError):
        converse(dialect.read(2), reading(data(bytes(5)), descriptor=head))
    octets = described(codes_per_division=30, bits=10, words=False)
    pairs = reading(data(bytes([0, 30, 226, 10, 32])), descriptor=octets)
    pairs[4:4] = [(":WAVeform:PREamble?", head), (":WAVeform:WIDTh BYTE", None)]
    waveform = converse(dialect.read(2), pairs)
    np.testing.assert_allclose(waveform.volts()[:3], [-1, 1, -3], rtol=1e-6)


@pytest.mark.parametrize(
    ("codes_per_division", "bits", "in_words", "one_division"),
    [
        (7680, 16, True, 7680),  # SDS814X HD, whatever the width is
        (7680, 16, False, 30),
        (30, 8, False, 30),  # SDS5000X
        (30, 10, True, 30 * 256),  # SDS2000X Plus with 10 bits
        (480, 12, True, 7680),
        (170, 12, False, 170 / 16),  # SDS6000A: 24 divisions
        (170, 12, True, 170 * 16),
    ],
)
def test_codes_a_division_are_counted_as_the_firmware_counts_them(
    codes_per_division: float, bits: int, in_words: bool, one_division: float
) -> None:
    found = Descriptor.parse(
        described(codes_per_division=codes_per_division, bits=bits, words=in_words)
    )
    assert found.volts_per_code * one_division == pytest.approx(2.0)


def test_a_scale_that_fits_no_screen_is_refused() -> None:
    with pytest.raises(InstrumentError, match="3 codes per division"):
        _ = Descriptor.parse(described(codes_per_division=3)).volts_per_code


def test_no_waveform_is_said_in_a_sentence() -> None:
    with pytest.raises(InstrumentError, match=r"channel on.*trigger"):
        converse(Siglent(IDENTITY).read(2), [*SELECT, (":WAVeform:PREamble?", bytes(346))])


@pytest.mark.parametrize(
    "descriptor",
    [
        b"",
        described()[:345],
        b"#" * 346,
        described(points=-1),
        described(codes_per_division=0),
        described(codes_per_division=float("nan")),
        described(interval_s=0),
    ],
)
def test_a_descriptor_out_of_order_is_refused(descriptor: bytes) -> None:
    with pytest.raises(InstrumentError):
        converse(Siglent(IDENTITY).read(2), [*SELECT, (":WAVeform:PREamble?", descriptor)])


@given(st.binary(min_size=330, max_size=340))
def test_any_octets_are_a_descriptor_or_refused(tail: bytes) -> None:
    with contextlib.suppress(InstrumentError):
        found = Descriptor.parse(b"WAVEDESC" + tail + bytes(10))
        assert found.points > 0
        assert found.volts_per_code > 0


def test_a_stride_that_stays_is_refused() -> None:
    pairs: Pairs = [*SELECT, (":WAVeform:PREamble?", described(stride=7))]
    with pytest.raises(InstrumentError, match="stride of 7 points"):
        converse(Siglent(IDENTITY).read(2), pairs)


@pytest.mark.parametrize(
    ("model", "channels", "points", "depth"),
    [
        ("SDS824X HD", 2, 20_000, "10k"),
        ("SDS2104X Plus", 2, 50_000, "100k"),
        ("SDS2104X Plus", 1, 50_000, "20k"),
        ("SDS5034X", 2, 100_000, "125k"),
        ("SDS5034X", 1, 200_000, "250k"),
        ("SDS6104A", 4, 200_000, "250k"),
    ],
)
def test_memory_depth_is_one_that_the_model_has_and_set_while_it_runs(
    model: str, channels: int, points: int, depth: str
) -> None:
    dialect = Siglent(Identity("Siglent Technologies", model, "", ""))
    wanted = sent(dialect.set_up(usual(points=points, channels=channels)))
    place = wanted.index(f":ACQuire:MDEPth {depth}")
    assert wanted.index(":TRIGger:MODE AUTO") < place < wanted.index(":TRIGger:STOP")


def test_a_set_up_says_volts_at_the_tip_and_the_middle_of_the_screen_as_its_negative() -> None:
    commands = sent(Siglent(IDENTITY).set_up(usual()))
    probe, scale = commands.index(":CHANnel1:PROBe VALue,10"), commands.index(":CHANnel1:SCALe 1")
    assert probe < scale < commands.index(":CHANnel1:OFFSet -1.65")
    assert ":CHANnel3:SWITch OFF" in commands
    assert ":TIMebase:DELay 0.0004" in commands
    assert ":TRIGger:EDGE:SLOPe RISing" in commands
    assert commands[-1] == ":TRIGger:STOP"


def test_memory_depth_cannot_be_set_while_it_is_stopped() -> None:
    with simulated(SiglentFront) as instrument:
        instrument.front.answer(":TRIGger:STOP;:ACQuire:MDEPth 100k")
        assert "-224" in instrument.front.scpi.next_error()


def test_what_another_user_left_set_does_not_matter() -> None:
    with opened(SiglentFront) as (instrument, scope):
        instrument.shot(scope, usual(), 100_000)
        expected = scope.read([1])[1]
        instrument.front.answer(":WAV:STAR 100;:WAV:POIN 10;:WAV:INT 7;:WAV:WIDT BYTE;:WAV:SOUR C3")
        found = scope.read([1])[1]
    np.testing.assert_array_equal(found.codes, expected.codes)
