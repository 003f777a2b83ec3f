"""Binary exports of Logic 2: version 0 by other software, the rest after Saleae's description."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import CaptureError, CaptureFile
from mqtick.recording.edges import find_edges
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"


def digital(
    *chunks: tuple[int, list[float]], version: int = 1, rate: float = 500e6, count: int = -1
) -> bytes:
    content = b"<SALEAE>" + struct.pack("<ii", version, 0)
    if version:
        content += struct.pack("<Q", len(chunks))
    for initial, times in chunks:
        content += struct.pack("<I", initial) + (struct.pack("<d", rate) if version else b"")
        content += struct.pack("<ddQ", 0.0, 1.0, len(times) if count < 0 else count)
        content += struct.pack(f"<{len(times)}d", *times)
    return content


def analog(
    volts: list[float],
    version: int = 1,
    begin_s: float = 0.5,
    trigger_s: float = 0.5,
    rate: float = 1e6,
    every: int = 1,
    count: int = -1,
) -> bytes:
    content = b"<SALEAE>" + struct.pack("<ii", version, 1)
    number = len(volts) if count < 0 else count
    if version:
        content += struct.pack("<QdddqQ", 1, begin_s, trigger_s, rate, every, number)
    else:
        content += struct.pack("<dQqQ", begin_s, int(rate), every, number)
    return content + struct.pack(f"<{len(volts)}f", *volts)


def opened(content: bytes, folder: Path) -> CaptureFile:
    path = folder / "digital_3.bin"
    path.write_bytes(content)
    return open_capture(path)


def test_the_file_of_other_software_has_its_changes() -> None:
    file = open_capture(BIN / "saleae_importer_v0.bin")
    (capture,) = file.read()
    signal = capture.signals["saleae_importer_v0"]
    assert isinstance(signal, Transitions)
    # 200 changes: 1 ms + 0.5 ms * k, the odd ones k us later, the first one upwards.
    expected = [10**12 + 5 * 10**11 * k + (k * 10**9 if k % 2 else 0) for k in range(200)]
    assert np.abs(np.array(signal.instants_fs()) - expected).max() <= 1000
    assert [edge.rising for edge in signal.edges()] == [True, False] * 100
    assert not capture.triggered
    assert "how often" in file.notes[0]


def test_version_1_says_how_often_was_sampled_and_has_gaps(tmp_path: Path) -> None:
    file = opened(digital((0, [1e-3, 2e-3]), (1, [5e-3])), tmp_path)
    first, second = (capture.signals["digital_3"].edges() for capture in file.read())  # type: ignore[union-attr]
    found = [(edge.instant_fs, edge.rising, edge.uncertainty_fs) for edge in first + second]
    # at 500 MHz an edge lies up to 2 ns before the sample that saw it: in the middle, 1 ns
    assert found == [
        (10**12 - 10**6, True, 10**6),
        (2 * 10**12 - 10**6, False, 10**6),
        (5 * 10**12 - 10**6, False, 10**6),
    ]
    assert file.notes == []


STEP = [0.0] * 100 + [3.3] * 100


@pytest.mark.parametrize(
    ("content", "at_us", "triggered"),
    [
        (analog(STEP, version=0), 500_099.5, False),
        (analog(STEP, version=0, every=5), 500_497.5, False),
        (analog(STEP), 500_099.5, False),
        (analog(STEP, trigger_s=0.50009), 9.5, True),
        (analog(STEP, trigger_s=0.6), 500_099.5, False),
    ],
)
def test_analog_channels_are_waveforms(
    content: bytes, at_us: float, triggered: bool, tmp_path: Path
) -> None:
    (capture,) = opened(content, tmp_path).read()
    waveform = capture.signals["digital_3"]
    assert isinstance(waveform, Waveform)
    assert capture.triggered is triggered
    assert waveform.volts() == pytest.approx(STEP, abs=1e-3)
    (edge,) = find_edges(waveform)
    assert edge.rising
    assert edge.instant_fs / 1e9 == pytest.approx(at_us, abs=1e-6)


@given(
    times_ns=st.lists(st.integers(1, 10**9), max_size=40, unique=True).map(sorted),
    initial=st.integers(0, 1),
)
@settings(max_examples=30)
def test_what_was_written_is_read(
    times_ns: list[int], initial: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = digital((initial, [ns / 1e9 for ns in times_ns]), version=0)
    (capture,) = opened(content, tmp_path_factory.getbasetemp()).read()
    signal = capture.signals["digital_3"]
    assert isinstance(signal, Transitions)
    assert signal.initial == initial
    assert np.abs(np.array(signal.instants_fs()) - np.array(times_ns) * 10**6).max(initial=0) <= 500
    assert signal.levels.tolist() == [(initial + k + 1) % 2 for k in range(len(times_ns))]


def test_of_half_a_file_the_complete_chunks_are_read(tmp_path: Path) -> None:
    file = opened(digital((0, [1e-3]), (1, [5e-3]))[:-1], tmp_path)
    assert len(list(file.read())) == 1
    assert file.notes[0].startswith("Chunks from 2 on were left out.")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<SALEAE>", "cut short"),
        (b"<SALEAE>" + struct.pack("<ii", 2, 100) + bytes(99), "version 2, type 100"),
        (b"<SALEAE>" + struct.pack("<ii", 7, 0) + bytes(99), "version 7"),
        (b"<SALEAE>" + struct.pack("<ii", 1, 2) + bytes(99), "version 1, type 2.*as CSV"),
        (analog(STEP, count=201), "within chunk 1 of 1"),
        (analog(STEP, count=2**64 - 1), "and no more than 50,000,000 are read"),
        (analog(STEP, rate=0.0), "not a valid interval"),
        (analog(STEP, every=-1), "not a valid interval"),
        (analog(STEP, rate=float("nan")), "not a valid interval"),
        (analog(STEP, begin_s=float("inf")), "begins inf s"),
        (analog([float("nan")] * 9), "chunk 1 of 1: Channel digital_3 was left out"),
        (analog([]), "no samples"),
        (digital(), "no complete chunk"),
        (digital((0, [1.0]), count=20_000_001), "20,000,001 changes, and no more than 20,000,000"),
        (digital((0, [1.0]), count=2**62), "no complete chunk"),
        (digital((5, [1.0])), "begins at level 5"),
        (digital((0, [2.0, 1.0])), "are not in order"),
        (digital((0, [1.0, 1.0])), "are not in order"),
        (digital((0, [float("nan")])), "are not in order"),
        (digital((0, [1e9])), "are not in order"),
        (digital((0, [1.0]), rate=0.0), "not a valid interval"),
        (digital((0, [1.0]), rate=float("nan")), "not a valid interval"),
    ],
)
def test_what_cannot_be_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=says):
        list(opened(content, tmp_path).read())
