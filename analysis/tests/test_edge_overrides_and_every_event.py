"""Reports of edges that were found by hand, and of every event of a record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.tests.look_parts import US, write_events
from mqtick.analysis import CaptureOptions, EdgeOverrides, Rule, analyse, load
from mqtick.analysis.captures.naming import NamingError
from mqtick.analysis.cli import main
from mqtick.analysis.load import LoadError
from mqtick.analysis.report.as_json import as_json
from mqtick.analysis.report.as_text import as_text
from mqtick.analysis.report.blocks import Listing, Paragraph
from mqtick.analysis.report.method import method_blocks
from mqtick.recording.edge_overrides import EdgeOverridesError, kept
from mqtick.recording.run_folder import create_run, shot_path
from mqtick.recording.shot import Shot, write_shot
from recording.tests.wave_parts import SKEW_LAYOUT, record_of, wave

Say = pytest.CaptureFixture[str]
TWO = {"publisher": "1", "first": "2"}
STEADY = [100.0] * 20


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ---- every event


def test_every_event_of_a_record_is_a_measurement(tmp_path: Path) -> None:
    late = [80.0 + 7 * (number % 5) for number in range(20)]
    path = write_events(tmp_path / "a.npz", [0.0] * 20, late)
    one = load(path, channels=TWO)
    assert len(one.shots) == 1
    assert "only the one nearest to the trigger was used" in " ".join(one.notes)
    found = load(path, channels=TWO, every_event=True)
    latencies = [(shot.latency_fs or 0) / US for shot in found.shots]
    assert latencies == pytest.approx(late, abs=0.2)
    assert "nearest to the trigger" not in " ".join(found.notes)
    (said,) = found.edge_overrides
    assert "within the usual time between two events" in said
    seconds = analyse(found).quantities[0].seconds
    assert np.diff(seconds) == pytest.approx([1e-3] * 19, abs=1e-6)


def test_values_that_hang_together_are_said_to_be_worth_fewer(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    drifting = (150 + 60 * np.sin(np.arange(20) / 3)).tolist()
    free = random.uniform(100, 200, 20).tolist()
    for late, hang in ((drifting, True), (free, False)):
        path = write_events(tmp_path / "a.npz", [0.0] * 20, late)
        found = load(path, channels=TWO, every_event=True)
        notes = [note for note in found.notes if "not independent" in note]
        assert bool(notes) is hang
        signed = analyse(found).quantities[0].rows[0].signed
        assert signed is not None
        assert (signed.effective_n < 0.9 * signed.n) is hang
        if hang:
            worth = f"together they are worth {signed.effective_n:,.0f}."
            assert notes[0].startswith("The 20 latencies are not independent")
            assert worth in notes[0]
            assert "not independent" in " ".join(as_text([analyse(found)]).split())


def test_what_pairs_with_nothing_is_counted_in_the_notes(tmp_path: Path) -> None:
    late = [100.0] * 20
    late[5] = 700.0
    path = write_events(tmp_path / "a.npz", [0.0] * 20, late)
    found = load(path, channels=TWO, every_event=True, within_fs=400 * US)
    assert [shot.outcome for shot in found.shots].count("missed") == 1
    assert "first: 1 edge of no event: none is within 400 us before." in found.notes
    assert list(analyse(found).counts.reasons.values()) == [1]


def test_several_records_are_put_together(tmp_path: Path) -> None:
    paths = [write_events(tmp_path / f"{n}.npz", [0.0] * 10, [100.0 + n] * 10) for n in range(3)]
    found = load(*paths, channels=TWO, every_event=True)
    assert len(found.shots) == 30
    assert {shot.source for shot in found.shots} == set(map(str, paths))


def test_within_is_for_every_event(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", [0.0] * 3, [100.0] * 3)
    with pytest.raises(NamingError, match="give --every-event with --within"):
        load(path, channels=TWO, within_fs=US)


def test_a_logic_analysers_record_is_paired_in_the_same_way(tmp_path: Path) -> None:
    lines = ["$timescale 1 us $end", "$var wire 1 a D0 $end", "$var wire 1 b D1 $end"]
    lines += ["$enddefinitions $end", "#0", "0a", "0b"]
    for number in range(1, 10):
        at = 1000 * number
        lines += [f"#{at}", "1a", f"#{at + 20}", "0a", f"#{at + 22}", "1a", f"#{at + 90}", "1b"]
        lines += [f"#{at + 200}", "0a", "0b"]
    path = tmp_path / "a.vcd"
    path.write_text("\n".join(lines) + "\n")
    names = {"publisher": "D0", "first": "D1"}
    assert [s.latency_fs for s in load(path, channels=names).shots].count(68 * US) == 9
    found = load(path, channels=names, every_event=True)
    assert [shot.latency_fs for shot in found.shots] == [90 * US] * 9
    assert "publisher: 9 edges within" in " ".join(found.notes)


# ---- by hand


def test_what_was_said_is_in_the_method_the_json_and_the_command(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", [0.0] * 20, STEADY)
    words = ["--channels", "publisher=1,first=2", "--threshold", "2=1V", "--to", "9.5ms"]
    assert main([str(path), *words, "--every-event", "--quiet"]) == 0
    page = (tmp_path / "report-a" / "report.html").read_text()
    for each in ("By hand.", "first: threshold 1 V.", "9,500"):
        assert each in page
    (result,) = json.loads((tmp_path / "report-a" / "report.json").read_text())["results"]
    assert result["by_hand"][0] == "first: threshold 1 V."
    assert result["counts"]["shots"] == 10


def test_the_method_says_nothing_where_nothing_was_said(tmp_path: Path) -> None:
    path = write_events(tmp_path / "a.npz", [0.0], [100.0])
    blocks = method_blocks([analyse(load(path, channels=TWO))])
    texts = [each.text for each in blocks if isinstance(each, Paragraph)]
    assert not any(text.startswith("By hand.") for text in texts)
    said = replace(Rule(), invert=True)
    found = load(path, channels=TWO, edge_overrides=EdgeOverrides({"": said}))
    listings = [b.items for b in method_blocks([analyse(found)]) if isinstance(b, Listing)]
    assert ("every channel: inverted.",) in listings


def test_a_threshold_moves_the_edges_of_its_channel_alone(tmp_path: Path) -> None:
    slow = wave(0, 500)
    ramp = np.clip((np.arange(slow.codes.size) - 800) / 400, 0, 1)  # 100 us for 80 codes
    rising = replace(slow, codes=(120 + 80 * ramp).astype(np.uint8))
    write_shot(tmp_path / "a.npz", Shot(), {"CH1": slow, "CH2": rising})

    def latency_us(**more: object) -> float:
        (shot,) = load("a.npz", channels=TWO, **more).shots
        assert shot.latency_fs is not None
        return shot.latency_fs / US

    middle = latency_us()
    quarter = latency_us(edge_overrides=EdgeOverrides({"first": Rule(threshold_v=0.8)}))
    assert middle - quarter == pytest.approx(25, abs=1)
    assert latency_us(edge_overrides=EdgeOverrides({"CH2": Rule(threshold_v=0.8)})) == quarter
    assert latency_us(
        edge_overrides=EdgeOverrides({"publisher": Rule(threshold_v=0.8)})
    ) == pytest.approx(middle, abs=0.3)


def run_of(folder: Path) -> Path:
    create_run(folder, record_of(SKEW_LAYOUT))
    for number in (1, 2, 3):
        waves = {"pub": wave(0, 300), "near": wave(90, 300), "far": wave(120 + number, 300)}
        write_shot(shot_path(folder, number), Shot(number, 2, started_ns=number), waves)
    return folder


def test_a_run_folder_keeps_what_was_said_so_that_a_repeat_is_the_same(
    tmp_path: Path, capsys: Say
) -> None:
    run = run_of(tmp_path / "run")
    before = [shot.skew_fs for shot in load(run).shots]
    assert main([str(run), "--threshold", "far=0.4V", "--no-limits", "--quiet"]) == 0
    assert kept(run) == EdgeOverrides({"far": Rule(threshold_v=0.4)})
    said = load(run, edge_overrides=kept(run))
    again = load(run)
    assert [s.skew_fs for s in again.shots] == [s.skew_fs for s in said.shots] != before
    assert again.edge_overrides[0] == "far: threshold 0.4 V."
    assert "it counts each time it is read" in again.edge_overrides[1]
    assert main([str(run), "--no-limits", "--quiet"]) == 0
    page = (run / "report" / "report.html").read_text()
    assert "far: threshold 0.4 V." in page
    assert main([str(run), "--automatic", "--no-limits", "--quiet"]) == 0
    assert not (run / "edges.json").exists()
    assert [shot.skew_fs for shot in load(run).shots] == before


def test_a_wrong_name_changes_nothing_in_the_run_folder(tmp_path: Path, capsys: Say) -> None:
    run = run_of(tmp_path / "run")
    assert main([str(run), "--threshold", "fra=0.4V"]) == 2
    assert "'fra', which is not a channel; there are: pub, near, far" in capsys.readouterr().err
    assert not (run / "edges.json").exists()
    with pytest.raises(LoadError):
        load(run, options=CaptureOptions(every_event=True))


def test_a_damaged_file_of_what_was_said_stops_the_report(tmp_path: Path, capsys: Say) -> None:
    run = run_of(tmp_path / "run")
    (run / "edges.json").write_text("{")
    assert main([str(run), "--quiet"]) == 1
    assert "--automatic, which removes the file" in capsys.readouterr().err
    with pytest.raises(EdgeOverridesError):
        load(run)
    assert main([str(run), "--automatic", "--no-limits", "--quiet"]) == 0


def test_a_run_reads_the_same_in_several_processes(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    for number in range(4, 40):
        waves = {"pub": wave(0, 300), "near": wave(90, 300), "far": wave(120, 300)}
        write_shot(shot_path(run, number), Shot(number, 2, started_ns=number), waves)
    said = EdgeOverrides({"near": Rule(threshold_v=0.4)}, -50 * US)
    alone, together = (load(run, edge_overrides=said, processes=count) for count in (1, 2))
    assert [s.skew_fs for s in alone.shots] == [s.skew_fs for s in together.shots]
    assert as_json([analyse(alone)])["results"][0]["by_hand"] == [
        "near: threshold 0.4 V.",
        "Only the part of each record from -50 us.",
    ]
