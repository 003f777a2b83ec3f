"""What a shot's waveforms say, and every reason why they may be of no use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_rig import wired

from mqtick.analysis.waveform import Waveform
from mqtick.lab.experiment import ChannelKeys, Experiment, InstrumentKeys, OrderKeys
from mqtick.lab.run_edges import judge

US = 10**9
POINTS, INTERVAL_FS, START_FS = 4000, US // 4, -100 * US


def wave(*edges_us: float, level: bool = False, low: int = 120, high: int = 200) -> Waveform:
    """Make a record of 1 ms from -100 us on, 25 mV a code, that changes level at each edge."""
    codes = np.full(POINTS, high if level else low, np.uint8)
    for at_us in edges_us:
        level = not level
        codes[round((at_us * US - START_FS) / INTERVAL_FS) :] = high if level else low
    codes[::7] += 1
    return Waveform(codes, 0.04, 120, INTERVAL_FS, START_FS)


@pytest.fixture
def experiment() -> Experiment:
    return wired({"scope": "TCPIP::h::5025::SOCKET"})


def test_latency_and_skew_come_from_the_leading_edges(experiment: Experiment) -> None:
    found = judge(experiment, {"pub": wave(0, 100), "near": wave(50, 150), "far": wave(80, 180)})
    assert found.reason == ""
    assert found.latency_fs == pytest.approx(50 * US, abs=US)
    assert found.skew_fs == pytest.approx(30 * US, abs=US)
    assert found.edges_found == {"pub": 2, "near": 2, "far": 2}


def test_a_pin_that_toggles_may_fall(experiment: Experiment) -> None:
    waves = {"pub": wave(0), "near": wave(50, level=True), "far": wave(80)}
    assert judge(experiment, waves).skew_fs == pytest.approx(30 * US, abs=US)


def test_a_subscriber_may_be_faster_than_the_publishers_own_pin(experiment: Experiment) -> None:
    waves = {"pub": wave(0, 100), "near": wave(-40, 60), "far": wave(10, 110)}
    assert judge(experiment, waves).latency_fs == pytest.approx(-40 * US, abs=US)


def test_the_end_of_an_earlier_pulse_is_not_the_edge(experiment: Experiment) -> None:
    waves = {"pub": wave(0, 100), "near": wave(-90, 50, 150, level=True), "far": wave(80, 180)}
    assert judge(experiment, waves).latency_fs == pytest.approx(50 * US, abs=US)


def test_cable_delays_are_taken_off(experiment: Experiment) -> None:
    channels = dict(experiment.channel)
    channels["pub"] = replace(channels["pub"], cable_delay_ns=2000)
    channels["far"] = replace(channels["far"], cable_delay_ns=10_000)
    longer = replace(experiment, channel=channels)
    waves = {"pub": wave(0), "near": wave(50), "far": wave(80)}
    plain, found = judge(experiment, waves), judge(longer, waves)
    assert found.latency_fs == (plain.latency_fs or 0) + 2 * US
    assert found.skew_fs == (plain.skew_fs or 0) - 10 * US


@pytest.mark.parametrize(
    ("waves", "said"),
    [
        ({"pub": wave(300)}, "triggered by something else than the edge of pub"),
        ({"pub": wave(0, level=True)}, "has no rising edge"),
        ({"pub": wave()}, "Fewer edges than channels: pub (input 1, pin time of server:0)"),
        ({"far": wave()}, "Fewer edges than channels: far (input 3, pin arrival of client:last)"),
        ({"far": wave(80, high=255)}, "far (input 3, pin arrival of client:last) is clipped"),
        ({"near": wave(80, low=0)}, "near (input 2, pin arrival of client:first) is clipped"),
    ],
)
def test_each_fault_has_its_sentence(
    experiment: Experiment, waves: dict[str, Waveform], said: str
) -> None:
    found = judge(experiment, {"pub": wave(0), "near": wave(50), "far": wave(80)} | waves)
    assert said in found.reason
    assert found.latency_fs is None
    assert found.skew_fs is None


def test_a_channel_without_a_part_may_be_silent(experiment: Experiment) -> None:
    other = ChannelKeys(instrument="scope", input=4, node="client:third")
    more = replace(experiment, channel={**experiment.channel, "other": other})
    waves = {"pub": wave(0), "near": wave(50), "far": wave(80), "other": wave()}
    found = judge(more, waves)
    assert found.reason == ""
    assert found.edges_found["other"] == 0


def test_one_bit_of_a_logic_analyser_cannot_be_clipped(experiment: Experiment) -> None:
    def bit(at: int) -> Waveform:
        codes = np.zeros(POINTS, np.uint8)
        codes[at:] = 1
        return Waveform(codes, 3.3, 0.0, INTERVAL_FS, START_FS)

    found = judge(experiment, {"pub": bit(400), "near": bit(600), "far": bit(680)})
    assert found.reason == ""
    assert found.skew_fs == pytest.approx(20 * US, abs=US)


def test_two_instruments_compare_by_the_edge_that_triggered_both() -> None:
    two = wired({"left": "A", "right": "B"})
    channels = {
        "pub": two.channel["pub"],
        "near": two.channel["near"],
        "pub2": ChannelKeys(instrument="right", input=1, node="server:0", pin="time"),
        "far": ChannelKeys(instrument="right", input=2, node="client:last"),
    }
    right = replace(two.instrument["right"], trigger="pub2")
    two = replace(two, channel=channels, instrument={**two.instrument, "right": right})
    waves = {"pub": wave(0), "near": wave(50), "pub2": wave(5), "far": wave(85)}
    found = judge(two, waves)
    assert found.reason == ""
    assert found.skew_fs == pytest.approx(30 * US, abs=US)


def test_clocks_compare_with_the_reference_by_the_nearest_edge_alike() -> None:
    pps = {
        name: ChannelKeys(instrument="scope", input=number, node=node, pin="pps")
        for number, (name, node) in enumerate(
            {"ref": "server:0", "early": "client:a", "late": "client:b"}.items(), start=1
        )
    }
    clock = Experiment(
        kind="clock",
        instrument={"scope": InstrumentKeys(resource="A", trigger="ref")},
        channel=pps,
        order=OrderKeys(publisher="ref"),
    )
    waves = {"ref": wave(0, 100), "early": wave(-30, 70), "late": wave(60, 160)}
    found = judge(clock, waves)
    assert found.clock_fs == {
        "early": pytest.approx(-30 * US, abs=US),
        "late": pytest.approx(60 * US, abs=US),
    }
