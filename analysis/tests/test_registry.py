"""Files are recognised by their content, and what is no capture is refused with a next step."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.readers.registry import FORMATS, open_capture
from mqtick.recording.capture import Capture, CaptureError
from mqtick.recording.transitions import Transitions
from mqtick.recording.waveform import Waveform

BIN = Path(__file__).parent / "files" / "bin"

# Files of other makers and of other people's software: format, then samples (or changes) of each
# channel of each capture.
FILES: dict[str, tuple[str, list[dict[str, int]]]] = {
    "agilent_1.bin": ("Keysight binary", [{"1": 2000}]),
    "agilent_2_cut.bin": ("Keysight binary", [{"1": 5000, "EXT": 2}]),
    "agilent_3_cut.bin": ("Keysight binary", [{"1": 1000, "2": 1000}]),
    "agilent_1.sr": ("sigrok session", [{"D0": 58}]),
    "sigrok_demo.sr": ("sigrok session", [{"D0": 100, "D1": 149, "D2": 123, "D3": 112, "A0": 400}]),
    "sigrok_demo.vcd": ("value change dump", [{"D0": 201, "D1": 203, "D2": 194, "D3": 204}]),
    "MSO5000-A.bin": ("Rigol binary", [{f"CH{n}": 1000 for n in range(1, 5)}]),
    "MSO5074-C_cut.bin": (
        "Rigol binary",
        [{"D0": 0, "D1": 0, "D2": 800, "D3": 0, "D4": 1, "D5": 3, "D6": 0, "D7": 0}],
    ),
    "DHO824-ch1_cut.bin": ("Rigol binary", [{"CH1": 1500}]),
    "DHO1074_cut.bin": ("Rigol binary", [{f"CH{n}": 1500 for n in range(1, 5)}]),
    "tm_int8.wfm": ("Tektronix WFM", [{"tm_int8": 1000}]),
    "tm_fastframe.wfm": ("Tektronix WFM", [{"tm_fastframe": 1000}] * 3),
    "tm_digital.wfm": ("Tektronix WFM", [{"d0": 0} | {f"d{bit}": 1 for bit in range(1, 8)}]),
    "rigolwfm_002.wfm": ("Tektronix WFM", [{"TEK-SYNTH": 610}]),
    "saleae_importer_v0.bin": ("Saleae binary", [{"saleae_importer_v0": 200}]),
}


def size_of(signal: Waveform | Transitions) -> int:
    return len(signal.levels if isinstance(signal, Transitions) else signal.codes)


def all_of(path: Path) -> list[Capture]:
    return list(open_capture(path).read())


@pytest.mark.parametrize("name", FILES)
def test_files_of_others_are_recognised_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    called, captures = FILES[name]
    path = tmp_path / (Path(name).stem + ".dat")
    path.write_bytes((BIN / name).read_bytes())
    file = open_capture(path)
    assert file.format == called
    found = [{n: size_of(s) for n, s in c.signals.items()} for c in file.read()]
    assert found == captures


def test_every_file_of_others_is_of_a_format_called_tested() -> None:
    tested = {known.name for known in FORMATS if known.tested}
    assert {called for called, _ in FILES.values()} <= tested
    assert len({known.name for known in FORMATS}) == len(FORMATS)


def test_the_document_has_every_format_and_says_which_are_untested() -> None:
    document = (Path(__file__).parents[2] / "docs" / "capture-files.md").read_text("utf-8")
    rows = {row.split("|")[1].strip(): row for row in document.splitlines() if row[:2] == "| "}
    for known in FORMATS:
        assert known.name in rows, f"{known.name} has no row in docs/capture-files.md"
        cells = [cell.strip() for cell in rows[known.name].split("|")[1:-1]]
        assert cells[2:] == [known.tested or "untested", known.needs]


def refused(path: Path) -> str:
    with pytest.raises(CaptureError) as error:
        all_of(path)
    assert type(error.value).__mro__.index(CaptureError) <= 1
    return str(error.value)


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty: 0 octets"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "a picture (PNG)"),
        (b"%PDF-1.7 ...", "a PDF document"),
        (gzip.compress(bytes(1000), mtime=0), "Unpack it first"),
        (gzip.compress(b"time,a\n0,1\n1,0\n", mtime=0)[:-9], "compressed and cut off"),
        (archive("meta.json", "digital-0.bin"), "Export Raw Data"),
        (archive("word/document.xml"), "no sigrok session"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        (b"\0" + (329).to_bytes(8) + bytes(320), "fst2vcd"),
        (b"GHDLwave\n\0" + bytes(50), "--vcd=FILE.vcd"),
        (b"28 Nov 10:00:00 ntpd[812]: kernel reports TIME_ERROR: 0x41\n", "loopstats"),
        (b"     remote           refid      st t when poll\n=====\n", "loopstats"),
        (b"Name,Value\nModel,DSO\n", "no rows of numbers"),
        (b"\x89HDF\r\n\x1a\n" + bytes(50), "an HDF5 file"),
        (bytes(range(128, 256)), "begins with the octets 80 81 82"),
        (bytes(1000), "of no known format"),
        (b"AG99" + bytes(300), "of no known format"),
        ((BIN / "rs_rtp_03.Wfm.bin").read_bytes(), "name the .bin next to it"),
    ],
)
def test_what_is_no_capture_is_named_with_a_next_step(
    content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "my capture.bin"
    path.write_bytes(content)
    message = refused(path)
    assert says in message
    assert "my capture.bin" in message
    assert any(word in message for word in ("CSV", "save it again", "Unpack", "Copy", "`"))


def test_folders_pipes_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    assert "is a folder, but not a run folder of mqtick-lab (it has no run.json)" in refused(
        tmp_path
    )
    assert "No such file" in refused(tmp_path / "none.csv")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")
    assert "is not a file name" in refused(tmp_path / "a\0b")


def test_a_file_that_vanishes_before_it_is_read_is_an_error_of_captures(tmp_path: Path) -> None:
    for name in FILES:
        path = tmp_path / name
        path.write_bytes((BIN / name).read_bytes())
        file = open_capture(path)
        path.unlink()
        with pytest.raises(CaptureError):
            list(file.read())


def damaged(content: bytes, chance: random.Random, times: int) -> Iterator[bytes]:
    """Yield a file cut short, with octets changed in its heads, with strange counts."""
    for _ in range(times):
        yield content[: chance.randrange(min(len(content), 1200))]
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(min(len(changed), 900))] = chance.randrange(256)
        yield bytes(changed)
        at = chance.randrange(8, min(len(content) - 8, 900))
        strange = (b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", np.float64("nan").tobytes())
        put = chance.choice(strange)
        yield content[:at] + put + content[at + len(put) :]


BY_RIGOLWFM = (
    *("lecroy_4.trc", "T0000CH1_cut.isf", "SDS814X-zoom-z1.bin", "MSO5074-A.bin"),
    *("rs_rtp_03.bin", "DS1052E.wfm"),
)


@pytest.mark.parametrize(
    ("name", "times"),
    [
        *((name, 8) for name in FILES),
        *(pytest.param(name, 300, marks=pytest.mark.slow) for name in (*FILES, *BY_RIGOLWFM)),
    ],
)
def test_a_damaged_file_raises_nothing_else(name: str, times: int, tmp_path: Path) -> None:
    (tmp_path / "rs_rtp_03.Wfm.bin").write_bytes((BIN / "rs_rtp_03.Wfm.bin").read_bytes())
    content = (BIN / name).read_bytes()
    chance = random.Random(name)
    path = tmp_path / name
    for index, octets in enumerate(damaged(content, chance, times)):
        path.write_bytes(octets)
        with contextlib.suppress(CaptureError):
            for capture in open_capture(path).read():
                for signal in capture.signals.values():
                    if isinstance(signal, Waveform):
                        assert signal.codes.size <= 2 * len(content), index
