"""What `mqtick-lab scope capture --out shot.npz` wrote is read like any capture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis import load
from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import CaptureError
from mqtick.recording.shot import CAPTURED, MISSED, Shot, write_shot
from mqtick.recording.sigrok import logic_waveform
from recording.tests.wave_parts import US, wave

BEGUN_NS = 1_790_000_000 * 10**9


def shot(path: Path, simulated: bool = True) -> Path:
    """Write a record of three inputs, as the command does."""
    meta = Shot(1, 0, CAPTURED, started_ns=BEGUN_NS, simulated=simulated)
    write_shot(path, meta, {"1": wave(0), "2": wave(50), "3": wave(80)})
    return path


def test_channels_are_named_as_the_inputs_and_simulated_is_carried(tmp_path: Path) -> None:
    path = shot(tmp_path / "shot.npz")
    file = open_capture(path)
    (capture,) = file.read()
    assert list(capture.signals) == ["1", "2", "3"]
    assert (file.format, file.simulated, capture.triggered) == ("mqtick shot", True, True)
    assert capture.started_ns == BEGUN_NS
    assert not file.notes


@pytest.mark.parametrize("simulated", [True, False])
def test_a_report_is_made_of_it(tmp_path: Path, simulated: bool) -> None:
    paths = [shot(tmp_path / f"shot-{number:04d}.npz", simulated) for number in (1, 2)]
    found = load(*paths, channels={"publisher": "1", "first": "CH2", "last": "3"})
    assert [each.skew_fs for each in found.shots] == [pytest.approx(30 * US, abs=US)] * 2
    assert found.simulated == simulated


def test_a_shot_of_a_run_says_that_the_run_knows_more(tmp_path: Path) -> None:
    path = tmp_path / "000001.npz"
    write_shot(path, Shot(1, 2, CAPTURED), {"publisher": wave(0), "first": wave(50)})
    found = load(path)
    assert found.shots[0].latency_fs == pytest.approx(50 * US, abs=US)
    assert "name the run's folder" in " ".join(found.notes)


def test_what_holds_no_waveform_or_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "missed.npz"
    write_shot(path, Shot(1, 0, MISSED, "No trigger."), {})
    with pytest.raises(CaptureError, match="No trigger"):
        list(open_capture(path).read())
    octets = shot(path).read_bytes()
    path.write_bytes(octets[: len(octets) // 2])
    with pytest.raises(CaptureError, match="not a shot that can be read"):
        open_capture(path)
    np.savez(path, meta=np.arange(3))
    with pytest.raises(CaptureError, match="not a shot that can be read"):
        open_capture(path)


def test_a_shot_of_a_logic_analyser_is_uncertain_by_half_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "bits.npz"
    at = np.arange(1000)
    waves = {
        name: logic_waveform((at >= edge).astype(np.uint8), US, -US * 100 - US // 2)
        for name, edge in (("7", 101), ("8", 201))
    }
    write_shot(path, Shot(1, 0, CAPTURED), waves)
    found = load(path, channels={"publisher": "7", "first": "8"}).shots[0]
    assert found.latency_fs == 100 * US
    assert found.edges["first"].uncertainty_fs == US // 2
