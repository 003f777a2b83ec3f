"""Tektronix' reference waveforms, written by Tektronix' own library and cut in every way."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import CaptureError
from mqtick.recording.edges import find_edges
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"
WHOLE = (BIN / "tm_fastframe.wfm").read_bytes()
HEADER = 838  # octets of a version 3 file with one frame


def test_volts_and_times_are_those_that_tm_data_types_was_given() -> None:
    (capture,) = open_capture(BIN / "tm_int8.wfm").read()
    waveform = capture.signals["tm_int8"]
    assert isinstance(waveform, Waveform)
    assert (waveform.interval_fs, waveform.start_fs) == (8_000_000, -3_200_000_000)
    assert waveform.volts()[[0, 399, 400, 401, -1]] == pytest.approx([-0.5, 0.7, 1.5, 2.3, 3.5])
    # the middle between -0.5 and 3.5 V is at sample 400, the trigger
    (edge,) = find_edges(waveform)
    assert abs(edge.instant_fs) < waveform.interval_fs / 20


def test_every_fast_frame_is_a_capture_with_its_own_time() -> None:
    found = list(open_capture(BIN / "tm_fastframe.wfm").read())
    assert [c.started_ns for c in found] == [
        1_700_000_000_500_000_000 + k * 10**9 for k in range(3)
    ]
    waveforms = [capture.signals["tm_fastframe"] for capture in found]
    edges = [find_edges(w)[0].instant_fs for w in waveforms if isinstance(w, Waveform)]
    assert [edge - edges[0] for edge in edges] == [0, 8_000_000, 16_000_000]


def test_digital_files_have_eight_lines() -> None:
    (capture,) = open_capture(BIN / "tm_digital.wfm").read()
    edges = {n: s.edges() for n, s in capture.signals.items() if isinstance(s, Transitions)}
    # 0x81 and from sample 100 on 0x7f; the trigger is at sample 50, and 4 ns lie between two.
    assert [(e.instant_fs, e.rising, e.uncertainty_fs) for e in edges["d3"]] == [
        (198_000_000, True, 2_000_000)
    ]
    assert [edge.rising for edge in edges["d7"]] == [False]
    assert edges["d0"] == []


def test_version_2_is_read_as_rigolwfm_writes_it() -> None:
    (capture,) = open_capture(BIN / "rigolwfm_002.wfm").read()
    waveform = capture.signals["TEK-SYNTH"]
    assert isinstance(waveform, Waveform)
    assert (waveform.interval_fs, waveform.start_fs) == (2_500_000, -5_000_000)
    assert waveform.volts()[[0, -1]] == pytest.approx([-3.0, 1.4])


def swapped(content: bytes) -> bytes:
    """Return a small version 1 file with the other octet order, made of a version 3 one."""
    scale, offset = struct.unpack_from("<2d", content, 168)
    interval, start = struct.unpack_from("<2d", content, 488)
    codes = np.frombuffer(content, "<i2", 1000, HEADER + 2 * 54)
    made = bytearray(820)
    made[:10] = b"\xf0\xf0:WFM#001"
    struct.pack_into(">BiBi", made, 10, 4, 0, 2, len(made))
    struct.pack_into(">i", made, 122, 2)
    explicit = 78 + 76 + 12
    struct.pack_into(">2d", made, explicit, scale, offset)
    implicit = explicit + 2 * 156
    struct.pack_into(">2d", made, implicit, interval, start)
    curve = implicit + 2 * 132 + 2 * 12 + 24
    struct.pack_into(">5I", made, curve + 10, 0, 0, 2000, 2000, 2000)
    return bytes(made) + codes.astype(">i2").tobytes()


def test_version_1_and_the_other_order_of_octets_are_read_after_the_description(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tek0003Ch1.wfm"
    path.write_bytes(swapped(WHOLE))
    (capture,) = open_capture(path).read()
    (first, *_) = open_capture(BIN / "tm_fastframe.wfm").read()
    found, expected = capture.signals["CH1"], first.signals["tm_fastframe"]
    assert isinstance(found, Waveform)
    assert isinstance(expected, Waveform)
    assert np.array_equal(found.codes, expected.codes)
    assert (found.interval_fs, found.start_fs) == (expected.interval_fs, expected.start_fs)
    assert found.volts() == pytest.approx(expected.volts())


def test_of_half_a_file_the_complete_frames_are_read(tmp_path: Path) -> None:
    path = tmp_path / "half.wfm"
    path.write_bytes(WHOLE[: HEADER + 2 * 54 + 2 * 2000 + 17])
    file = open_capture(path)
    assert len(list(file.read())) == 2
    assert file.notes[0].startswith("Frames from 3 on were left out")
    path.write_bytes(WHOLE[: HEADER + 2 * 54 + 500])
    with pytest.raises(CaptureError, match="no complete frame"):
        list(open_capture(path).read())


@pytest.mark.parametrize("size", [1, 9, 10, 77, 200, 500, 837, 838 + 50])
def test_a_header_cut_short_is_refused(size: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.wfm"
    path.write_bytes(WHOLE[:size])
    with pytest.raises(CaptureError):
        list(open_capture(path).read())


@pytest.mark.parametrize(
    ("at", "put", "says"),
    [
        (9, b"4", "of no known format"),
        (72, b"\xff\xff\xff\x7f", "cannot read it"),
        (78, b"\x09", "set type 9"),
        (122, b"\x03", "data type is 3"),
        (15, b"\x03", "in 3 octets"),
        (240, b"\x09\0\0\0", "format 9"),
        (168, bytes(8), "0.0 V per code"),
        (168, struct.pack("<d", float("nan")), "nan V per code"),
        (488, bytes(8), "not a valid interval"),
        (488, struct.pack("<d", -1.0), "not a valid interval"),
        (496, struct.pack("<d", float("inf")), "within 1000000 s"),
        (826, b"\xff\xff\xff\xff", "at octets"),
        (16, b"\xff\xff\xff\x7f", "cannot read it"),
        (16, b"\xff\xff\xff\xff", "cannot read it"),
    ],
)
def test_headers_that_cannot_be_are_refused(at: int, put: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.wfm"
    path.write_bytes(WHOLE[:at] + put + WHOLE[at + len(put) :])
    with pytest.raises(CaptureError, match=says):
        list(open_capture(path).read())
