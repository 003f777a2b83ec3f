"""A report is a folder: page, figures, tables, JSON; whole, and the same every time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from analysis.tests.report_hostile import hostile_result
from analysis.tests.report_samples import PATHOLOGICAL, compare_results, latency_result
from mqtick.analysis.report import write as writing
from mqtick.analysis.report.write import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a browser prints is looked at in test_page_in_browser."""
    monkeypatch.setattr(writing, "print_page", lambda html, pdf: "no PDF")


def octets_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_report_is_a_page_figures_tables_and_json(tmp_path: Path) -> None:
    written = write_report([latency_result()], tmp_path / "my report")
    assert written.html.name == "report.html"
    assert written.without == "no PDF"
    assert set(written.files) == {p for p in written.folder.rglob("*") if p.is_file()}
    endings = {path.suffix for path in written.files}
    assert endings == {".html", ".svg", ".png", ".csv", ".json"}
    json.loads((written.folder / "report.json").read_text())


def test_the_same_result_makes_the_same_octets(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_report([latency_result()], tmp_path / name, "mqtick-report x")
    assert octets_in(tmp_path / "one") == octets_in(tmp_path / "two")


def test_writing_again_replaces_the_report_and_nothing_else(tmp_path: Path) -> None:
    write_report([latency_result()], tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    before = octets_in(tmp_path)
    write_report([latency_result()], tmp_path)
    assert octets_in(tmp_path) == before


def test_a_figure_or_table_of_an_earlier_report_does_not_stay_beside_a_new_one(
    tmp_path: Path,
) -> None:
    write_report(compare_results(), tmp_path)
    (tmp_path / "figures" / "mine.png").write_bytes(b"mine")
    written = write_report([latency_result()], tmp_path)
    left = {path for path in tmp_path.rglob("*") if path.is_file()} - set(written.files)
    assert left == {tmp_path / "figures" / "mine.png"}


def test_no_file_outside_the_report_is_taken_for_its_own(tmp_path: Path) -> None:
    out = tmp_path / "report"
    (out / "figures").mkdir(parents=True)
    mine = [tmp_path / "mine.svg", out / "mine.svg", out / "figures" / "mine.txt"]
    for path in mine:
        path.write_text("mine")
    names = ["figures/../../mine.svg", "../mine.svg", "report/mine.svg", "figures/mine.txt", 7]
    for text in (json.dumps({"format": "mqtick-report", "files": names}), "[]", "[" * 9999, "{"):
        (out / "report.json").write_text(text)
        write_report([PATHOLOGICAL["nothing captured"]()], out)
        assert all(path.read_text() == "mine" for path in mine)


def test_a_disk_that_is_full_leaves_the_old_page_whole_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report([latency_result()], tmp_path)
    before = (tmp_path / "report.html").read_bytes()

    def full(path: Path, octets: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(writing, "replace_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_report([latency_result(title="new")], tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


def test_a_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_report([latency_result()], tmp_path / "file" / "report")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_an_oserror(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        write_report([latency_result()], tmp_path / "report")


def test_without_a_result_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one result"):
        write_report([], tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("name", ["nothing captured", "one shot", "no N", "clock with one sample"])
def test_odd_results_have_a_report_too(tmp_path: Path, name: str) -> None:
    assert write_report([PATHOLOGICAL[name]()], tmp_path).html.exists()


@pytest.mark.filterwarnings("error")
def test_hostile_names_stay_inside_the_folder(tmp_path: Path) -> None:
    written = write_report([hostile_result()], tmp_path / "report")
    assert {path.resolve().is_relative_to(tmp_path / "report") for path in written.files} == {True}
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
