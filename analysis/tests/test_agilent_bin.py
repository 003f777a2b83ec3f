"""Binary files of Keysight and Rigol: what is read, exactly, and what is left out with a note."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import Capture, CaptureError, CaptureFile
from mqtick.recording.edges import find_edges
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"
NORMAL, MAXIMUM, MINIMUM, DIGITAL = 1, 2, 3, 6


def record(
    *buffers: tuple[int, np.ndarray],  # type: ignore[type-arg]
    label: str = "1",
    kind: int = 1,
    segment: int = 0,
    tag_s: float = 0.0,
    interval_s: float = 1e-9,
    origin_s: float = -1e-6,
    date: str = "",
    long: bool = False,
    frame: str = "DSO-X 2024A:MY1",
) -> bytes:
    points = len(buffers[0][1]) if buffers else 0
    found = struct.pack(
        "<5If3d2I16s16s24s16sdI",
        *(140, kind, len(buffers), points, 1, 1e-3, -1e-6, interval_s, origin_s, 2, 1),
        *(date.encode(), b"10:20:30", frame.encode(), label.encode(), tag_s, segment),
    )
    for buffer_kind, samples in buffers:
        octets, width = samples.tobytes(), samples.dtype.itemsize
        size = 16 if long else 12
        found += struct.pack("<IHHQ" if long else "<IHHI", size, buffer_kind, width, len(octets))
        found += octets
    return found


def file_of(*records: bytes, magic: bytes = b"AG10", count: int | None = None) -> bytes:
    long = magic[2:] == b"03"
    size = sum(map(len, records)) + 12
    count = len(records) if count is None else count
    return magic + struct.pack("<QI" if long else "<II", size, count) + b"".join(records)


def opened(content: bytes, folder: Path) -> CaptureFile:
    path = folder / "scope.bin"
    path.write_bytes(content)
    return open_capture(path)


def captures(content: bytes, folder: Path) -> list[Capture]:
    return list(opened(content, folder).read())


def step(at: int = 500, high: float = 3.3) -> np.ndarray:  # type: ignore[type-arg]
    return np.where(np.arange(1000) >= at, high, 0).astype("<f4")


WHOLE = file_of(record((NORMAL, step()), long=True), magic=b"AG03")
HUGE = WHOLE[: 16 + 140 + 8] + b"\xff" * 8 + WHOLE[16 + 140 + 16 :]


def test_the_real_capture_of_a_dso_x_1102g_has_the_edges_of_its_logic_export() -> None:
    (analogue,) = open_capture(BIN / "agilent_1.bin").read()
    (logic,) = open_capture(BIN / "agilent_1.sr").read()
    waveform, bits = analogue.signals["1"], logic.signals["D0"]
    assert isinstance(waveform, Waveform)
    assert waveform.interval_fs == 500_000_000
    assert waveform.start_fs == -500_063_160_312
    found = [edge.instant_fs - waveform.start_fs for edge in find_edges(waveform)]
    expected = [edge.instant_fs for edge in bits.edges()] if isinstance(bits, Transitions) else []
    assert np.abs(np.array(found) - expected).max() <= waveform.interval_fs


def test_the_real_capture_of_an_mso5000_has_its_volts_and_times() -> None:
    file = open_capture(BIN / "MSO5000-A.bin")
    (capture,) = file.read()
    waveform = capture.signals["CH1"]
    assert isinstance(waveform, Waveform)
    # The file says 4.999999873689376e-06 s, which is 5 us in 32 bits.
    assert (waveform.interval_fs, waveform.start_fs) == (5 * 10**9, -2_499_999_936_845)
    assert waveform.volts()[:3] == pytest.approx([0.69755, 0.155011, 0.0], abs=1e-5)
    assert waveform.volts()[-2:] == pytest.approx([3.02, 3.10], abs=5e-3)
    assert file.instrument == "Rigol MSO5XXX MSXXXXXXXXXXX"
    assert capture.started_ns == 1_606_071_754 * 10**9


def test_the_firmware_that_keeps_no_scale_is_named() -> None:
    with pytest.raises(CaptureError, match="update the firmware, or save as CSV"):
        open_capture(BIN / "MSO5074-A.bin")


@pytest.mark.parametrize("magic", [b"AG01", b"AG03", b"AG10", b"RG01", b"RG03"])
def test_every_version_is_read(magic: bytes, tmp_path: Path) -> None:
    long = magic[2:] == b"03"
    file = opened(file_of(record((NORMAL, step()), long=long), magic=magic), tmp_path)
    (capture,) = file.read()
    (waveform,) = capture.signals.values()
    assert isinstance(waveform, Waveform)
    # Rigol tells how long before the trigger it begins, Keysight when.
    start = 10**9 if magic.startswith(b"RG") else -(10**9)
    assert (waveform.interval_fs, waveform.start_fs) == (10**6, start)
    assert waveform.volts()[[0, -1]] == pytest.approx([0, 3.3])
    assert file.notes == []


def test_segments_are_captures_with_their_own_times(tmp_path: Path) -> None:
    records = [
        record(
            (NORMAL, step(500 + k)), label=label, segment=k + 1, tag_s=2.5 * k, date="2026-11-21"
        )
        for label in "12"
        for k in range(3)
    ]
    found = captures(file_of(*records), tmp_path)
    assert [list(capture.signals) for capture in found] == [["1", "2"]] * 3
    first = found[0].started_ns
    assert [c.started_ns - first for c in found if c.started_ns and first] == [
        0,
        2_500_000_000,
        5_000_000_000,
    ]
    edges = [find_edges(c.signals["2"])[0] for c in found]  # type: ignore[arg-type]
    assert [edge.instant_fs - edges[0].instant_fs for edge in edges] == [0, 10**6, 2 * 10**6]


def test_a_name_that_comes_again_begins_the_next_capture(tmp_path: Path) -> None:
    records = [record((NORMAL, step()), label=label) for label in "1212"]
    found = captures(file_of(*records), tmp_path)
    assert [list(capture.signals) for capture in found] == [["1", "2"], ["1", "2"]]


def test_pods_are_eight_lines_each_and_single_lines_keep_their_name(tmp_path: Path) -> None:
    bits = (np.arange(1000) // 10).astype(np.uint8)
    pods = [record((DIGITAL, bits), label=f"POD{n}", kind=6) for n in (1, 2)]
    line = record((DIGITAL, (bits > 50).astype(np.uint8)), label="EXT")
    (capture,) = captures(file_of(*pods, line), tmp_path)
    assert list(capture.signals) == [f"D{n}" for n in range(16)] + ["EXT"]
    ext = capture.signals["EXT"]
    assert isinstance(ext, Transitions)
    assert [(e.instant_fs, e.uncertainty_fs) for e in ext.edges()] == [(-490_500_000, 500_000)]
    lowest = capture.signals["D8"]
    assert isinstance(lowest, Transitions)
    assert len(lowest.edges()) == 99


def test_what_cannot_be_used_is_left_out_and_named(tmp_path: Path) -> None:
    nan = step()
    nan[7] = np.nan
    unusable = [record((NORMAL, nan)), record((MAXIMUM, step()), (MINIMUM, step()), label="H")]
    file = opened(file_of(*unusable, record((NORMAL, step()), label="2")), tmp_path)
    (capture,) = file.read()
    assert list(capture.signals) == ["2"]
    left_out, *peaks = file.notes
    assert left_out == "Channel 1 was left out: sample 7 is nan, which is not a voltage."
    assert ["channel H" in note and "not with peak detect" in note for note in peaks] == [True] * 2
    with pytest.raises(CaptureError, match=r"no channel that can be read.*peak detect"):
        captures(file_of(*unusable), tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (file_of(count=2**31), "cut short"),
        (file_of(record(), count=2**32 - 1), "cut short"),
        (file_of(), "has no waveform"),
        (file_of(record((NORMAL, step()), interval_s=0.0)), "not a valid interval"),
        (file_of(record((NORMAL, step()), interval_s=float("nan"))), "not a valid interval"),
        (file_of(record((NORMAL, step()), origin_s=float("inf"))), "within 1000000 s"),
        (file_of(record((NORMAL, step())))[:9], "cut short"),
        (file_of(record((NORMAL, step())))[:-1], "cut short"),
        (HUGE, "cut short"),
    ],
)
def test_enormous_counts_and_scales_that_are_none_are_refused(
    content: bytes, says: str, tmp_path: Path
) -> None:
    with pytest.raises(CaptureError, match=says):
        captures(content, tmp_path)


def test_what_is_complete_of_a_file_that_is_cut_short_is_read_and_that_is_said(
    tmp_path: Path,
) -> None:
    whole = file_of(*(record((NORMAL, step()), label=label) for label in "12"))
    file = opened(whole[:-1], tmp_path)
    (capture,) = file.read()
    assert list(capture.signals) == ["1"]
    (note,) = file.notes
    assert "should hold 2 waveforms, and number 2 is not complete" in note
