"""The bench judges a shot by what the experiment says is wired to what."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from run_rig import wired

from mqtick.lab.runner.experiment import ChannelKeys, Experiment, InstrumentKeys, OrderKeys
from mqtick.lab.runner.plan import plan_of
from mqtick.lab.runner.record import record_of
from mqtick.recording.judge import judge_triggered
from mqtick.recording.layout import layout_of
from mqtick.recording.shot import Shot
from mqtick.recording.waveform import Waveform

US = 10**9
POINTS, INTERVAL_FS, START_FS = 4000, US // 4, -100 * US


def wave(*edges_us: float) -> Waveform:
    """Make a record of 1 ms from -100 us on, 40 mV a code, that changes level at each edge."""
    codes = np.full(POINTS, 120, np.uint8)
    for number, at_us in enumerate(edges_us):
        codes[round((at_us * US - START_FS) / INTERVAL_FS) :] = 120 if number % 2 else 200
    codes[::7] += 1
    return Waveform(codes, 0.04, 120, INTERVAL_FS, START_FS)


def run_json(experiment: Experiment) -> dict[str, Any]:
    """Return what run.json says at the start of a run."""
    session: dict[str, Any] = {"runner": {"software": "mqtick"}, "instruments": {}, "nodes": {}}
    return record_of(experiment, plan_of(experiment), session)


def judged(experiment: Experiment, waves: dict[str, Waveform]) -> Shot:
    layout = layout_of(run_json(experiment))
    return judge_triggered(layout, waves)


def clocks() -> Experiment:
    """Watch two clients' pps pins."""
    pps = {
        name: ChannelKeys(instrument="scope", input=number, node=node, pin="pps")
        for number, (name, node) in enumerate(
            {"ref": "server:0", "early": "client:a", "late": "client:b"}.items(), start=1
        )
    }
    return Experiment(
        kind="clock",
        instrument={"scope": InstrumentKeys(resource="A", trigger="ref")},
        channel=pps,
        order=OrderKeys(publisher="ref"),
    )


def delayed() -> Experiment:
    """Two instruments, cables of different length."""
    two = wired({"left": "A", "right": "B"})
    channels = dict(two.channel)
    channels["pub"] = replace(channels["pub"], cable_delay_ns=2000.7)
    channels["far"] = replace(channels["far"], cable_delay_ns=10_000)
    channels["pub2"] = ChannelKeys(instrument="right", input=1, node="server:0", pin="time")
    right = replace(two.instrument["right"], trigger="pub2", trigger_slope="falling")
    return replace(two, channel=channels, instrument={**two.instrument, "right": right})


@pytest.mark.parametrize(
    "experiment", [wired({"scope": "TCPIP::h::5025::SOCKET"}), clocks(), delayed()]
)
def test_a_report_judges_by_the_layout_that_the_bench_judged_by(experiment: Experiment) -> None:
    record = run_json(experiment)
    assert layout_of(json.loads(json.dumps(record))) == layout_of(record)
    assert layout_of(record).needed() <= set(experiment.channel)


def test_a_shot_is_judged() -> None:
    one = wired({"scope": "A"})
    delays_ns = {"pub": 2000.7, "near": 0.0, "far": 10_000.0}
    channels = {
        name: replace(each, cable_delay_ns=delays_ns[name]) for name, each in one.channel.items()
    }
    waves = {"pub": wave(0, 100), "near": wave(50), "far": wave(80)}
    found = judged(replace(one, channel=channels), waves)
    assert found.reason == ""
    assert found.latency_fs == pytest.approx((50 + 2.0007) * US, abs=US)
    assert found.skew_fs == pytest.approx((30 - 10) * US, abs=US)
    assert found.edges["pub"].instant_fs == 0
    assert found.edges_found == {"pub": 2, "near": 1, "far": 1}


def test_clocks_are_judged() -> None:
    found = judged(clocks(), {"ref": wave(0), "early": wave(-30), "late": wave(60)})
    assert found.clock_fs["early"] == pytest.approx(-30 * US, abs=US)
    assert found.clock_fs["late"] == pytest.approx(60 * US, abs=US)


def test_what_cannot_be_used_has_its_sentence() -> None:
    waves = {"pub": wave(0), "near": wave(50), "far": wave()}
    found = judged(wired({"scope": "A"}), waves)
    assert "far (input 3, pin arrival of client:last) has none" in found.reason
    assert found.skew_fs is None
