"""What a file holds, when nobody said which channel is whose: with its damage, without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.tests.csv_parts import write_csv
from mqtick.analysis.cli import main
from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import CaptureError

Say = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn goes to the working folder."""
    monkeypatch.chdir(tmp_path)


def listed(paths: list[Path], capsys: Say) -> str:
    """Return what is printed of files, which is no error."""
    assert main(list(map(str, paths))) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def test_a_short_row_and_a_channel_left_out_for_it_are_listed(tmp_path: Path, capsys: Say) -> None:
    path = write_csv(tmp_path / "a.csv", (0, 100, 130))
    lines = path.read_text().splitlines()
    lines[500] = ",".join(lines[500].split(",")[:3])
    path.write_text("\n".join(lines) + "\n")
    said = listed([path], capsys)
    assert "CH2  1 edge" in said
    assert "note: CH3: 1 sample with no number among the others; it was left out." in said


def test_a_file_that_is_cut_off_is_listed_so(tmp_path: Path, capsys: Say) -> None:
    said = listed([write_csv(tmp_path / "a.csv", (0, 100), cut=5)], capsys)
    assert "note: The last line of the file is cut off and was left out." in said


def test_a_file_that_cannot_be_read_is_listed_beside_one_that_can(
    tmp_path: Path, capsys: Say
) -> None:
    (tmp_path / "a.csv").write_bytes(b"")
    said = listed([tmp_path / "a.csv", write_csv(tmp_path / "b.csv", (0, 100))], capsys)
    assert f"{tmp_path / 'b.csv'} is a file of" in said
    assert f"note: {tmp_path / 'a.csv'} is empty" in said


def test_a_channel_that_never_changes_is_listed_with_its_level(tmp_path: Path, capsys: Say) -> None:
    path = tmp_path / "a.vcd"
    path.write_text(
        "$timescale 1 us $end $var wire 1 a up $end $var wire 1 b still $end $enddefinitions $end "
        "#0 0a 1b #10 1a #20 0a"
    )
    assert "still  no edge. Its level is 1 throughout." in listed([path], capsys)


@pytest.mark.parametrize(
    ("name", "octets", "said"),
    [
        ("a.vcd", b"$version x $end $upscope $end", "leaves a scope"),
        ("b.vcd", b"$timescale 1 ns $end $enddefinitions $end #5 0x", "does not declare"),
        ("c.sr", b"PK\x03\x04" + bytes(26) + b"version2", "cut short"),
    ],
)
def test_what_is_wrong_with_a_logic_analysers_file_is_said_with_its_name(
    tmp_path: Path, name: str, octets: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(octets)
    with pytest.raises(CaptureError) as error:
        list(open_capture(path).read())
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
