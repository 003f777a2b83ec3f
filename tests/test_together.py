"""What one room takes for granted of another."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from demo import simulated_bench
from mqtick.client.config import Settings
from mqtick.timeserver import echo


def test_a_client_that_asks_as_rarely_as_it_may_keeps_its_place_in_the_echo() -> None:
    (field,) = (f for f in dataclasses.fields(Settings) if f.name == "exchange_interval_s")
    (declared,) = field.metadata.values()
    # A server notes that a client asked only when half of the time is over.
    pauses = echo._IDLE_NS / 2 / (declared["maximum"] * 1e9)
    assert pauses >= 3


def test_the_experiment_of_a_bench_that_is_held_is_no_file_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").write_text('broker = "mqtt://b"\n')
    monkeypatch.setattr(simulated_bench.time, "sleep", end)
    with pytest.raises(KeyboardInterrupt):
        simulated_bench.hold(tmp_path / "made")
    assert "mqtick-lab run runs/experiment.toml --out runs/mine" in capsys.readouterr().out
    written = [path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.toml")]
    assert written == ["runs"]
    assert "/runs/" in (Path(__file__).parent.parent / ".gitignore").read_text().splitlines()
