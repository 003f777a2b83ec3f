"""A run on the hardware broker's model, in a report."""

from dataclasses import replace
from pathlib import Path

from mqtick.analysis.load import load
from mqtick.lab.hardware.run import HardwareRun, run_hardware

FAKE = Path(__file__).parents[1] / "lab/tests/fake_model.py"


def test_a_report_reads_the_run_like_any_other_and_says_simulated(tmp_path: Path) -> None:
    settings = replace(HardwareRun(), model=str(FAKE), subscribers=(2, 5), shots=4)
    run_hardware(settings, tmp_path / "run")
    measurement = load(tmp_path / "run")
    assert measurement.simulated
    assert [shot.outcome for shot in measurement.shots] == ["captured"] * 8
    assert not measurement.notes
    assert not measurement.damaged
    said = dict(measurement.provenance)
    assert "assumed: 10 Gb/s to the broker" in said["Instrument model"]
    assert said["Instrument model"].endswith("simulated")
