"""sigrok sessions: written by hand with faults, and by sigrok-cli without."""

from __future__ import annotations

import contextlib
import csv
import io
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.readers.vcd import read_vcd
from mqtick.recording import sigrok
from mqtick.recording.edges import Edge, EdgeError, find_edges
from mqtick.recording.sigrok import (
    SigrokFileError,
    logic_waveform,
    read_sigrok,
)

METADATA = """[global]
sigrok version=0.5.2

[device 1]
capturefile=logic-1
total probes=8
samplerate=1 MHz
total analog=0
probe1=D0
probe4=D3
unitsize=1
"""

needs_sigrok = pytest.mark.skipif(
    shutil.which("sigrok-cli") is None, reason="sigrok-cli is not installed"
)


def session(
    metadata: str | None = METADATA, version: str | None = "2", **parts: bytes
) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        if version is not None:
            archive.writestr("version", version)
        if metadata is not None:
            archive.writestr("metadata", metadata)
        for name, content in (parts or {"logic_1_1": b"\x00\x01\x09\x08"}).items():
            archive.writestr(name.replace("_", "-"), content)
    stream.seek(0)
    return stream


def refused(stream: io.BytesIO, **options: object) -> str:
    with pytest.raises(SigrokFileError) as error:
        read_sigrok(stream, **options)  # type: ignore[arg-type]
    return str(error.value)


def test_probes_are_bits_of_the_samples() -> None:
    found = read_sigrok(session())
    assert found["D0"].codes.tolist() == [0, 1, 1, 0]
    assert found["D3"].codes.tolist() == [0, 0, 1, 1]
    assert found["D0"].interval_fs == 10**9
    assert found["D0"].volts().max() == 3.3


def test_an_edge_lies_half_way_between_two_samples() -> None:
    waveform = read_sigrok(session(), ["D3"])["D3"]
    assert find_edges(waveform) == [Edge(1_500_000_000, True)]
    assert find_edges(waveform)[0].uncertainty_fs == 500_000_000


@pytest.mark.parametrize("before", [1, 2, 7])
@pytest.mark.parametrize("after", [1, 3, 50])
def test_every_change_of_one_bit_is_an_edge(before: int, after: int) -> None:
    bits = np.array([0] * before + [1] * after + [0], np.uint8)
    assert find_edges(logic_waveform(bits, 1000, -10_000)) == [
        Edge(before * 1000 - 500 - 10_000, True),
        Edge((before + after) * 1000 - 500 - 10_000, False),
    ]


def test_a_probe_that_stays_low_has_no_edges() -> None:
    with pytest.raises(EdgeError, match="flat"):
        find_edges(logic_waveform(np.zeros(10, np.uint8), 1000))


def test_parts_are_joined_in_the_order_of_their_numbers() -> None:
    parts = {f"logic_1_{n}": bytes([n & 1]) for n in range(12, 0, -1)}
    assert read_sigrok(session(**parts))["D0"].codes.tolist() == [1, 0] * 6


def test_sixteen_probes_take_two_octets_a_sample() -> None:
    metadata = METADATA.replace("unitsize=1", "unitsize=2").replace("probe4", "probe16")
    found = read_sigrok(session(metadata, logic_1_1=b"\x01\x00\x00\x80"))
    assert found["D0"].codes.tolist() == [1, 0]
    assert found["D3"].codes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "fs"),
    [
        ("24 MHz", 41_666_667),
        ("200 kHz", 5 * 10**9),
        ("12.5 MHz", 80 * 10**6),
        ("1 GHz", 10**6),
        ("1000000", 10**9),
        ("25 Hz", 4 * 10**13),
    ],
)
def test_samplerates_have_units(text: str, fs: int) -> None:
    metadata = METADATA.replace("1 MHz", text)
    assert read_sigrok(session(metadata))["D0"].interval_fs == fs


def test_analogue_channels_are_rounded_to_a_65_000th_of_their_range() -> None:
    volts = np.array([-10, 10, 0, 3.3, 0.5], "<f4")
    metadata = METADATA + "analog9=A0\n"
    parts = {"logic_1_1": b"\x00", "analog_1_9_1": volts[:2].tobytes()}
    parts["analog_1_9_2"] = volts[2:].tobytes()
    found = read_sigrok(session(metadata, **parts))["A0"]
    assert np.abs(found.volts() - volts).max() <= 20 / 65_000 / 2 + 1e-9


def test_a_constant_analogue_channel_keeps_its_value() -> None:
    metadata = METADATA + "analog9=A0\n"
    volts = np.full(5, 2.5, "<f4")
    found = read_sigrok(session(metadata, logic_1_1=b"\x00", analog_1_9_1=volts.tobytes()))["A0"]
    assert found.volts().tolist() == pytest.approx([2.5] * 5)


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (io.BytesIO(b""), "cut short"),
        (io.BytesIO(b"$date today $end"), "cut short"),
        (io.BytesIO(session().getvalue()[:-30]), "cut short"),
        (session(version=None), "no part 'version'"),
        (session(version="7"), "version '7'"),
        (session(None), "no part 'metadata'"),
        (session("no section"), "describe no device"),
        (session("[device 2]\n"), "describe no device"),
        (session(METADATA.replace("samplerate=1 MHz\n", "")), "no samplerate"),
        (session(METADATA.replace("1 MHz", "0 Hz")), "which is not valid"),
        (session(METADATA.replace("1 MHz", "-1 MHz")), "which is not valid"),
        (session(METADATA.replace("1 MHz", "1 parsec")), "which is not valid"),
        (session(METADATA.replace("1 MHz", "9" * 15 + " GHz")), "which is not valid"),
        (session(METADATA.replace("unitsize=1", "unitsize=0")), "unitsize"),
        (session(METADATA.replace("unitsize=1", "unitsize=1e9")), "unitsize"),
        (session(METADATA.replace("unitsize=1", "unitsize=3")), "not a whole number of samples"),
        (session(METADATA.replace("probe4", "probe9")), "has no bit"),
        (session(METADATA.replace("=D3", "=D0")), "Two probes"),
        (session(logic_1_2=b"\x00"), "logic-1-1 of the session is missing"),
        (session(logic_2_1=b"\x00"), "has no samples"),
        (session(METADATA + "#" * (1 << 21)), "octets large"),
    ],
)
def test_what_is_no_session_is_refused_with_a_sentence(stream: io.BytesIO, says: str) -> None:
    assert says in refused(stream)


def test_samples_that_are_no_numbers_are_refused() -> None:
    nan = np.array([1, np.nan], "<f4").tobytes()
    stream = session(METADATA + "analog9=A0\n", logic_1_1=b"\x00", analog_1_9_1=nan)
    assert "not volts: sample 1 is nan" in refused(stream)


def test_a_zip_that_swells_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sigrok, "MAX_OCTETS", 5_000_000)
    stream = session(logic_1_1=bytes(3_000_000))
    assert len(stream.getvalue()) < 10_000
    assert "6000000 octets of memory, more than 5000000" in refused(stream)
    stream.seek(0)
    assert read_sigrok(stream, ["D0"])["D0"].codes.size == 3_000_000


def test_a_part_that_is_damaged_is_refused() -> None:
    content = bytearray(session(logic_1_1=bytes(range(256)) * 20).getvalue())
    at = content.index(b"logic-1-1") + 20
    content[at : at + 8] = b"\xff" * 8
    assert "cut short" in refused(io.BytesIO(bytes(content)))


def test_any_octet_changed_raises_nothing_else() -> None:
    whole = session().getvalue()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        with contextlib.suppress(SigrokFileError):
            read_sigrok(io.BytesIO(bytes(damaged)))


def test_a_probe_that_is_not_there_is_named_with_those_that_are() -> None:
    assert "no probe 'D7'; it has D0, D3" in refused(session(), names=["D7"])


def record(folder: Path, *options: str) -> Path:
    path = folder / "capture.sr"
    command = ["sigrok-cli", "-d", "demo:logic_channels=16:analog_channels=1", *options]
    subprocess.run([*command, "-o", str(path)], check=True, timeout=20, capture_output=True)
    return path


def converted(path: Path, kind: str) -> bytes:
    command = ["sigrok-cli", "-i", str(path), "-O", kind]
    return subprocess.run(command, check=True, timeout=20, capture_output=True).stdout


@needs_sigrok
@pytest.mark.parametrize("pattern", ["sigrok", "random", "incremental", "walking-one", "graycode"])
def test_sigroks_own_session_dump_and_table_say_the_same(tmp_path: Path, pattern: str) -> None:
    probes = [f"D{n}" for n in range(16)]
    options = ["-c", "samplerate=10m", "-c", f"channel_group=Logic:pattern={pattern}"]
    path = record(tmp_path, *options, "--samples", "3000", "-C", ",".join(probes))
    session_read = read_sigrok(path)
    lines = converted(path, "csv").decode().splitlines()
    rows = [row for row in csv.reader(lines) if row and set(row) <= {"0", "1"}]
    table = np.array(rows, np.uint8)
    dump = read_vcd(io.BytesIO(converted(path, "vcd")))
    assert table.shape == (3000, 16)
    for index, name in enumerate(probes):
        waveform = session_read[name]
        assert np.array_equal(waveform.codes, table[:, index])
        transitions = next(t for t in dump.values() if t.name == name)
        # The dump says at which sample a level was first seen; the edge was half a sample before.
        half = waveform.interval_fs // 2
        edges = find_edges(waveform) if transitions.ticks.size else []
        assert edges == transitions.edges(trigger_fs=half)


# As libsigrok wrote it until 2013 (session_file.c, sr_session_save): one part of samples, and a
# probe's trigger after a space.
OLD_METADATA = """[global]
sigrok version = 0.2.1
[device 1]
driver = fx2lafw
capturefile = logic-1
unitsize = 1
total probes = 8
samplerate = 1 MHz
probe1 = D0
 trigger1 = r
probe2 = D1
"""


def old_session(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "1")
        archive.writestr("logic-1", bytes([0, 1, 1, 3, 2]))
        archive.writestr("metadata", OLD_METADATA)
    return path


def test_a_session_of_the_old_version_is_read(tmp_path: Path) -> None:
    found = read_sigrok(old_session(tmp_path / "old.sr"))
    assert {name: each.codes.tolist() for name, each in found.items()} == {
        "D0": [0, 1, 1, 1, 0],
        "D1": [0, 0, 0, 1, 1],
    }
    assert found["D0"].interval_fs == 10**9


@needs_sigrok
def test_sigrok_itself_reads_the_old_version_alike(tmp_path: Path) -> None:
    old, new = old_session(tmp_path / "old.sr"), tmp_path / "new.sr"
    subprocess.run(["sigrok-cli", "-i", old, "-o", new], check=True, timeout=20)
    ours, theirs = read_sigrok(old), read_sigrok(new)
    for name in ("D0", "D1"):
        assert ours[name].codes.tolist() == theirs[name].codes.tolist()


@needs_sigrok
def test_sigroks_analogue_channel_is_read(tmp_path: Path) -> None:
    path = record(tmp_path, "-c", "samplerate=1m", "--samples", "1000", "-C", "D0,A0")
    found = read_sigrok(path)
    assert found["A0"].volts().tolist() == pytest.approx(([-10.0] * 5 + [10.0] * 5) * 100)
    assert len(find_edges(found["A0"])) == 199
