"""A whole run with a logic analyser: runner, sigrok-cli, its demo device, run folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from run_rig import Bench, FakeNodes, wired

from mqtick.lab.runner.experiment import InstrumentKeys
from mqtick.recording.run_folder import load_run
from mqtick.recording.shot import CAPTURED

pytestmark = pytest.mark.needs("sigrok-cli")
RESOURCE = "sigrok:demo:logic_channels=8:pattern=graycode"
# In the demo's Gray code of 8 bits D6 rises at step 64, D7 at 128, D5 at 32 and at 160 of 256.
INPUTS = {"pub": 7, "near": 8, "far": 6}
US = 10**9


def a_bench(folder: Path) -> Bench:
    nowhere = SimpleNamespace(model=SimpleNamespace(feed=SimpleNamespace(add=lambda *_: None)))
    return Bench(cast(Any, nowhere), FakeNodes(cast(Any, nowhere)), folder)


def an_experiment(**keys: Any) -> Any:
    instrument = InstrumentKeys(resource=RESOURCE, span_us=150.0, points=150, trigger="pub")
    made = wired({"analyser": RESOURCE}, subscribers=(2,), shots=3, rounds=1, **keys)
    channels = {name: replace(of, input=INPUTS[name]) for name, of in made.channel.items()}
    timeouts = replace(made.timeouts, trigger_s=2.0)
    return replace(made, instrument={"analyser": instrument}, channel=channels, timeouts=timeouts)


def test_a_run_with_a_logic_analyser_finds_what_the_demo_makes(tmp_path: Path) -> None:
    bench = a_bench(tmp_path / "run")
    outcome = bench.run(an_experiment())
    assert (outcome.code, outcome.sentence, outcome.captured) == (0, "", 3)
    for shot in load_run(bench.folder).shots():
        assert (shot.outcome, shot.reason, shot.simulated) == (CAPTURED, "", True)
        assert shot.latency_fs == 64 * US
        assert shot.skew_fs == 32 * US
    record = json.dumps(json.loads((bench.folder / "run.json").read_text()))
    assert "Demo device, driver demo, sigrok-cli" in record


def test_an_analyser_whose_trigger_does_not_come_is_a_missed_shot(tmp_path: Path) -> None:
    bench = a_bench(tmp_path / "run")
    made = an_experiment()
    still = replace(made.instrument["analyser"], resource="sigrok:demo:pattern=all-low")
    timeouts = replace(made.timeouts, trigger_s=0.1)
    outcome = bench.run(replace(made, instrument={"analyser": still}, timeouts=timeouts))
    assert outcome.code == 1
    assert {
        "was not triggered within 0.1 s" in s.reason for s in load_run(bench.folder).shots()
    } == {True}
