"""A run folder becomes a measurement: edges found anew, nothing dropped, provenance kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqtick.analysis.measurement import CAPTURED, MISSED, REFUSED, Measurement
from mqtick.analysis.runs import from_run
from mqtick.analysis.runs.from_run import measurement_from_run
from mqtick.recording.edges import Edge
from mqtick.recording.judge import judge_triggered
from mqtick.recording.layout import Layout, Trigger
from mqtick.recording.run_folder import Run, RunFolderError, create_run, load_run, shot_path
from mqtick.recording.shot import Shot, write_shot
from mqtick.recording.waveform import Waveform
from recording.tests.wave_parts import PPS_LAYOUT, SKEW_LAYOUT, US, channel, record_of, wave

BEGUN_NS = 1_790_000_000 * 10**9


class Folder:
    """A run folder, as the bench writes it."""

    def __init__(self, path: Path, layout: Layout, **more: Any) -> None:
        self.path, self.layout = path, layout
        self.number = 0
        create_run(path, record_of(layout, **more))

    def add(self, waves: dict[str, Waveform], keep: bool = True, **changes: Any) -> Path:
        """Write a shot that was judged by the bench; `keep` False: without its waveforms."""
        self.number += 1
        known = Shot(self.number, 2, started_ns=BEGUN_NS + self.number * 10**9)
        shot = judge_triggered(self.layout, waves, known)
        path = shot_path(self.path, self.number)
        write_shot(path, replace(shot, **changes), waves if keep else {})
        return path

    def read(self, **options: Any) -> Measurement:
        return measurement_from_run(load_run(self.path), **options)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "run", SKEW_LAYOUT)


@pytest.fixture
def clocks(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "clocks", PPS_LAYOUT)


def three(last_us: float = 80) -> dict[str, Waveform]:
    return {"pub": wave(0, 100), "near": wave(50, 150), "far": wave(last_us, 180)}


def test_edges_are_found_anew_with_their_uncertainty(folder: Folder) -> None:
    for last_us in (80, 90, 100):
        folder.add(three(last_us))
    found = folder.read()
    assert [(s.skew_fs or 0) / US for s in found.shots] == [
        pytest.approx(each, abs=0.5) for each in (30, 40, 50)
    ]
    assert found.nodes == ("pub", "near", "far")
    assert (found.reference, found.first, found.last) == ("pub", "near", "far")
    assert all(0 < mark.uncertainty_fs < US for mark in found.shots[0].edges.values())
    assert found.shots[0].edges["pub"].instant_fs == 0
    assert (found.title, found.kind, found.simulated) == ("µs", "skew", False)
    assert not found.notes
    assert not found.damaged


def test_what_differs_from_what_the_bench_found_is_said(folder: Folder) -> None:
    folder.add(three())
    folder.add(
        three(),
        edges={"pub": Edge(0, True), "near": Edge(49 * US, True), "far": Edge(80 * US, True)},
    )
    folder.add(three(), outcome=MISSED, reason="another version")
    found = folder.read()
    assert [each.outcome for each in found.shots] == [CAPTURED] * 3
    assert found.notes[0].startswith("1 of 3 shots differ from what the bench had found")
    assert found.notes[1].startswith("1 of 3 shots were missed for the bench but are captured")


def test_samples_far_outside_the_levels_are_said_and_make_no_edge(folder: Folder) -> None:
    for _ in range(3):
        waves = three()
        waves["far"].codes[800] = 2
        folder.add(waves)
    found = folder.read()
    assert [shot.skew_fs for shot in found.shots] == [pytest.approx(30 * US, abs=US)] * 3
    (said,) = found.notes
    assert said.startswith("Shot 1, far: 1 of 4,000 samples lies far outside its levels of ")
    assert said.endswith("ignored as outliers. 2 more shots have such samples too.")


def test_a_shot_that_is_missed_when_judged_anew_has_its_reason(folder: Folder) -> None:
    folder.add(three() | {"far": wave()}, outcome=CAPTURED, reason="")
    folder.add(three() | {"far": wave()}, reason="far has none, and its node was away.")
    found = folder.read()
    assert [each.outcome for each in found.shots] == [MISSED] * 2
    assert "far (input 3, pin arrival of client:last) has none" in found.shots[0].reason
    assert found.shots[1].reason == "far has none, and its node was away."
    assert "missed when judged again" in found.notes[0]


def test_a_shot_without_waveforms_has_the_edges_that_the_bench_found(folder: Folder) -> None:
    folder.add(three(), keep=False)
    folder.add({}, outcome=REFUSED, reason="No crowd.", edges={})
    folder.add({}, outcome=MISSED, reason="No trigger.", edges={})
    found = folder.read()
    assert found.shots[0].skew_fs == pytest.approx(30 * US, abs=US)
    assert found.shots[0].edges["far"].uncertainty_fs == 0
    assert [s.outcome for s in found.shots] == [CAPTURED, REFUSED, MISSED]
    assert [s.reason for s in found.shots[1:]] == ["No crowd.", "No trigger."]
    assert found.notes == [
        "1 of 3 shots have no waveforms that could be judged again: their edges are those that the "
        "bench found, without uncertainty."
    ]
    assert found.example is None


def test_damaged_shots_are_listed_and_left_out(folder: Folder) -> None:
    paths = [folder.add(three()) for _ in range(4)]
    paths[0].write_bytes(paths[0].read_bytes()[:200])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(paths[3].read_bytes())
    found = folder.read()
    assert [each.number for each in found.shots] == [4]
    assert [name in each for name, each in zip(("1", "2", "3"), found.damaged, strict=True)]
    assert "says that it is shot 4" in found.damaged[2]


def test_a_record_that_says_no_wiring_leaves_the_edges_of_the_bench(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "old", SKEW_LAYOUT, channels={}, settings={})
    folder.add(three())
    found = folder.read()
    assert found.shots[0].skew_fs == pytest.approx(30 * US, abs=US)
    assert found.nodes == ("pub", "near", "far")
    assert "does not say what was wired to what" in found.notes[0]


def test_a_shot_that_was_simulated_makes_the_run_simulated(folder: Folder) -> None:
    folder.add(three())
    folder.add(three(), simulated=True)
    assert folder.read().simulated


def test_the_second_instruments_trigger_is_no_node(tmp_path: Path) -> None:
    channels = {**SKEW_LAYOUT.channels, "pub2": channel(4, "server:0", "time")}
    channels["other"] = channel(5, "client:third")
    folder = Folder(tmp_path / "two", replace(SKEW_LAYOUT, channels=channels))
    folder.add(three() | {"pub2": wave(0), "other": wave(60)})
    found = folder.read()
    assert found.nodes == ("pub", "near", "far", "other")
    assert set(found.shots[0].edges) == set(found.nodes)


def test_clocks_have_their_time_errors_on_whole_seconds(clocks: Folder) -> None:
    for number, early in enumerate((-30, -31, -32)):
        waves = {"ref": wave(0, 100), "early": wave(early, 70), "late": wave(60, 160)}
        clocks.add(waves, started_ns=BEGUN_NS + number * 10**9 + 137_000_000 * (number + 1))
    found = clocks.read()
    assert [each.name for each in found.time_errors] == ["early", "late"]
    early_clock = found.time_errors[0]
    assert early_clock.seconds.tolist() == [0, 1, 2]
    assert early_clock.error_ns == pytest.approx([-30_000, -31_000, -32_000], abs=500)
    assert early_clock.started_ns == BEGUN_NS + 10**9
    assert early_clock.source == "pps edges"


def test_the_example_is_the_shot_nearest_to_the_medians_of_the_largest_n(folder: Folder) -> None:
    for last_us, subscribers in ((80, 2), (80, 100), (95, 100), (96, 100)):
        folder.add(three(last_us), subscribers=subscribers)
    example = folder.read().example
    assert example is not None
    assert example.number == 3
    us, volts = example.traces["far"]
    assert float(np.interp(90, us, volts)) == pytest.approx(0, abs=0.1)
    assert float(np.interp(100, us, volts)) == pytest.approx(3.2, abs=0.1)
    assert set(example.edges) == set(example.traces) == {"pub", "near", "far"}


def test_progress_is_told(folder: Folder) -> None:
    for _ in range(5):
        folder.add(three())
    seen: list[tuple[int, int]] = []
    folder.read(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(number, 5) for number in range(1, 6)]


@pytest.mark.parametrize("large_octets", [1 << 20, 1])
def test_several_processes_find_what_one_does(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, large_octets: int
) -> None:
    for _ in range(40):
        folder.add(three())
    shot_path(folder.path, 17).write_bytes(b"damaged")
    monkeypatch.setattr(from_run, "_LARGE_OCTETS", large_octets)
    one, two = folder.read(), folder.read(processes=2)
    assert one.shots == two.shots
    assert one.damaged == two.damaged
    assert [each.number for each in two.shots] == [*range(1, 17), *range(18, 41)]


def test_a_process_that_is_killed_is_told(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(40):
        folder.add(three())
    monkeypatch.setattr(from_run, "read_whole_shot", lambda _path: os._exit(9))
    with pytest.raises(RunFolderError, match="killed"):
        folder.read(processes=2)


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (
            {"at_ns": 1, "early_because": ""},
            "the run was carried out to its end, so they have been",
        ),
        ({"at_ns": 1, "early_because": "The disk is full."}, "the run ended early. The disk is"),
        (None, "no end of the run is recorded"),
    ],
)
def test_shots_of_the_plan_without_a_file_are_said(tmp_path: Path, ended: object, why: str) -> None:
    blocks = [{"round": 1, "subscribers": 2, "shots": 6, "first": first} for first in (1, 7)]
    folder = Folder(tmp_path / "run", SKEW_LAYOUT, plan=blocks, ended=ended)
    for number in range(1, 6):
        path = folder.add(three())
        if number in (2, 4):
            path.unlink()
    shot_path(folder.path, 3).write_bytes(b"damaged, and not missing")
    (note,) = folder.read().notes
    assert note.startswith(
        "9 of the 12 shots of the plan have no file (2, 4, 6, 7, 8 and 4 more): "
    )
    assert why in note


def test_a_gap_is_seen_without_a_plan_and_a_huge_plan_does_no_harm(folder: Folder) -> None:
    for number in range(1, 4):
        path = folder.add(three())
        if number == 2:
            path.unlink()
    assert "1 of the 3 shots of the plan have no file (2)" in folder.read().notes[0]
    record = load_run(folder.path).record
    for shots in ([1 << 30] * 1000, [1 << 40], [-1], ["x"], [True]):
        plan = [{"shots": each, "first": 1} for each in shots]
        found = measurement_from_run(Run(folder.path, record | {"plan": plan}))
        assert "have no file (2" in found.notes[0]


def test_the_number_of_instruments_is_known(folder: Folder, tmp_path: Path) -> None:
    assert folder.read().instruments == 1
    channels = {**SKEW_LAYOUT.channels, "pub2": channel(1, "server:0", "time", "second")}
    triggers = {**SKEW_LAYOUT.triggers, "second": Trigger("pub2", "rising")}
    layout = replace(SKEW_LAYOUT, channels=channels, triggers=triggers)
    assert Folder(tmp_path / "two", layout).read().instruments == 2


def test_a_run_without_shots_has_none(folder: Folder) -> None:
    found = folder.read()
    assert (found.shots, found.damaged, found.example) == ([], [], None)


def test_provenance_says_what_was_measured_with_what(tmp_path: Path) -> None:
    node = {"software": "mqtick 9", "host": "pi4", "kernel": "Linux 6", "machine": "Pi 4"}
    chrony = {"synchronised": True, "stratum": 2}
    session = {
        "started_ns": BEGUN_NS,
        "instruments": {
            "scope": {
                "description": "RIGOL DS1054Z",
                "simulated": False,
                "setup": {
                    "span_s": 2e-3,
                    "points": 100_000,
                    "trigger": {"slope": "rising", "level_v": 1.65},
                },
            }
        },
        "nodes": {"client:first": node | {"chrony": chrony}},
        "runner": node | {"chrony": {"error": "chronyc is not installed"}},
    }
    more = {
        "sessions": [session, session | {"started_ns": BEGUN_NS + 60 * 10**9}],
        "plan": [{"round": 1, "subscribers": n, "shots": 20, "first": 1} for n in (10, 2)],
        "ended": {"at_ns": BEGUN_NS + 200 * 10**9, "early_because": "Signal 2."},
    }
    said = dict(Folder(tmp_path / "run", SKEW_LAYOUT, **more).read().provenance)
    assert said["Begun"] == "2026-09-21 14:13:20 UTC"
    assert said["Took"] == "3 min 20 s"
    assert said["Resumed"] == "2026-09-21 14:14:20 UTC"
    assert said["Ended early"] == "Signal 2."
    assert said["Plan"] == "40 shots of N = 2, 10 in 1 round"
    assert said["Instrument scope"] == (
        "RIGOL DS1054Z; 100,000 points over 2,000 us; triggered by pub, rising at 1.65 V"
    )
    assert "stratum 2" in said["Node client:first"]
    assert "chronyc is not installed" in said["Bench host"]
    assert said["Channel far"] == "input 3 of scope, pin arrival of client:last"
    assert said["Software"] == "mqtick 9"


def test_a_record_that_was_meddled_with_does_no_harm(folder: Folder) -> None:
    folder.add(three())
    record = load_run(folder.path).record
    keys = [*record, "sessions", "plan", "ended", "command"]
    for key in keys:
        for nonsense in (None, 7, [7], {"a": 7}, [{"a": None}]):
            found = measurement_from_run(Run(folder.path, record | {key: nonsense}))
            assert found.shots[0].skew_fs == pytest.approx(30 * US, abs=US), (key, nonsense)
