"""Logic analysers: sigrok's demo device as the real thing."""

from __future__ import annotations

import subprocess
import time
from itertools import pairwise

import pytest
from logic_analyser_rig import analyser, usual

from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.runner.instrument import Instrument, open_instrument
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger
from mqtick.recording.edges import Edge, find_edges
from mqtick.recording.waveform import Waveform

pytestmark = pytest.mark.needs("sigrok-cli")


def shoot(instrument: Instrument, channels: tuple[int, ...]) -> dict[int, Waveform]:
    assert instrument.arm()
    assert instrument.wait(3)
    return instrument.read(channels)


def test_the_demo_is_opened_and_says_that_it_is_one() -> None:
    instrument = open_instrument("sigrok:demo")
    assert instrument.simulated
    assert instrument.description.startswith("Demo device, driver demo, sigrok-cli ")
    instrument.close()


@pytest.mark.parametrize("trigger", ["software", "driver"])
@pytest.mark.parametrize("slope", ["rising", "falling", "either"])
def test_edges_are_where_the_counter_of_the_demo_has_them(trigger: str, slope: str) -> None:
    resource = f"sigrok:demo:logic_channels=8:pattern=incremental:trigger={trigger}"
    wanted = usual(1, 2, 8, trigger=8, slope=slope, span_s=2e-3, points=2000)
    with analyser(resource, wanted) as device:
        assert device.rate_hz == 1_000_000
        waveforms = shoot(device, (1, 2, 8))
    us = 10**9
    edges = find_edges(waveforms[8])
    assert edges[1].instant_fs - edges[0].instant_fs == 128 * us
    assert {b.instant_fs - a.instant_fs for a, b in pairwise(edges)} == {128 * us}
    zero = [edge for edge in edges if edge.instant_fs == 0]
    assert len(zero) == 1  # the trigger's own
    assert slope == "either" or zero[0].rising == (slope == "rising")
    first = find_edges(waveforms[1])  # bit 0 changes with every sample, bit 7 with every 128th
    assert {b.instant_fs - a.instant_fs for a, b in pairwise(first)} == {us}
    assert {edge.instant_fs for edge in edges} <= {edge.instant_fs for edge in first}
    assert waveforms[8].interval_fs == us
    assert waveforms[8].codes.size == 2000
    assert waveforms[8].volts().max() == 3.3


def test_the_share_before_the_trigger_is_kept() -> None:
    wanted = usual(8, trigger=8, span_s=1e-3, points=10_000, before=0.25)
    with analyser("sigrok:demo:logic_channels=8:pattern=incremental", wanted) as device:
        waveform = shoot(device, (8,))[8]
    assert waveform.interval_fs == 10**8
    assert waveform.start_fs == -2500 * 10**8 + 10**8 // 2
    assert waveform.codes[2499:2501].tolist() == [0, 1]


def test_sixteen_channels_share_one_shot() -> None:
    channels = tuple(range(1, 17))
    wanted = usual(*channels, trigger=16, span_s=1e-3, points=4000)
    with analyser("sigrok:demo:pattern=random", wanted) as device:
        waveforms = shoot(device, channels)
    assert list(waveforms) == list(channels)
    assert {w.start_fs for w in waveforms.values()} == {waveforms[1].start_fs}
    assert all(len(find_edges(w)) > 1000 for w in waveforms.values())
    assert Edge(0, True) in find_edges(waveforms[16])


def test_a_longer_cable_is_taken_off() -> None:
    wanted = ScopeSettings(
        (ChannelSettings(7), ChannelSettings(8, deskew_s=2e-6)),
        Trigger(7),
        span_s=1e-3,
        points=1000,
    )
    with analyser("sigrok:demo:logic_channels=8:pattern=incremental", wanted) as device:
        waveforms = shoot(device, (7, 8))
    assert waveforms[7].start_fs - waveforms[8].start_fs == 2 * 10**9


def test_shots_follow_one_another() -> None:
    with analyser("sigrok:demo:logic_channels=8:pattern=walking-one", usual(4)) as device:
        for _ in range(3):
            assert shoot(device, (4,))[4].codes.size == 1000


@pytest.mark.parametrize("pattern", ["all-low", "all-high"])
def test_a_trigger_that_never_comes_is_a_missed_shot_and_leaves_no_process(pattern: str) -> None:
    with analyser(f"sigrok:demo:pattern={pattern}", usual(1)) as device:
        assert device.arm()
        process = device._acquisition.process  # type: ignore[union-attr]
        began_s = time.monotonic()
        assert not device.wait(0.2)
        assert time.monotonic() - began_s < 1
        assert process.poll() is not None
        with pytest.raises(InstrumentError, match="was not armed"):
            device.read((1,))


def test_the_demos_own_trigger_that_does_not_come_is_a_sentence() -> None:
    with analyser("sigrok:demo:pattern=all-low:trigger=driver", usual(1)) as device:
        device.arm()
        with pytest.raises(InstrumentError, match="did it end without a trigger"):
            device.wait(2)


def test_a_device_does_not_sample_between_two_shots() -> None:
    with analyser("sigrok:demo:pattern=random", usual(1)) as device:
        assert device.arm()
        assert device.wait(3)
        assert device._acquisition.process.poll() is not None  # type: ignore[union-attr]
        assert device.read((1,))[1].codes.size == 1000
        assert device.read((1,))[1].codes.size == 1000


def test_closing_ends_what_runs() -> None:
    with analyser("sigrok:demo:pattern=all-low", usual(1)) as device:
        device.arm()
        process = device._acquisition.process  # type: ignore[union-attr]
    assert process.poll() is not None


def test_a_record_that_is_still_running_cannot_be_read() -> None:
    with analyser("sigrok:demo:pattern=all-low", usual(1)) as device:
        device.arm()
        with pytest.raises(InstrumentError, match="still recording"):
            device.read((1,))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (usual(17), "no channel 17; it has 1 to 16 .D0 to D15."),
        (usual(0), "no channel 0"),
        (usual(1, trigger=99), "no channel 99"),
        (usual(1, slope="up"), "slope is 'up'"),
        (usual(1, segments=5), "cannot record 5 segments"),
        (usual(1, span_s=1e-10, points=10), "samples can be recorded|change the time span"),
        (usual(1, span_s=1e6, points=10**9), "change the time span"),
    ],
)
def test_what_the_device_cannot_do_is_a_sentence(wanted: ScopeSettings, says: str) -> None:
    device = LogicAnalyser("sigrok:demo")
    with pytest.raises(InstrumentError, match=says):
        device.set_up(wanted)


def test_the_order_of_calls_is_checked() -> None:
    device = LogicAnalyser("sigrok:demo")
    with pytest.raises(InstrumentError, match="was not set up"):
        device.arm()
    with pytest.raises(InstrumentError, match="was not armed"):
        device.wait(0.1)
    with analyser("sigrok:demo:pattern=random", usual(1)) as other:
        other.arm()
        other.wait(2)
        with pytest.raises(InstrumentError, match="Channel 5 was not recorded"):
            other.read((5,))


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        ("sigrok:fx2lafw", "found no fx2lafw .*plugged in"),
        ("sigrok:nothing", "Driver nothing not found"),
        ("sigrok:demo:logic_channels=0", "found no|no sample rates|no channel"),
    ],
)
def test_a_device_that_is_not_there_is_a_sentence(resource: str, says: str) -> None:
    with pytest.raises(InstrumentError, match=says):
        LogicAnalyser(resource).set_up(usual(1))


def test_a_setting_that_the_device_refuses_is_told_in_its_words() -> None:
    with (
        analyser("sigrok:demo:nonsense=3", usual(1)) as device,
        pytest.raises(InstrumentError, match="nonsense"),
    ):
        device.arm()


@pytest.mark.slow
def test_sixty_shots_leave_nothing_behind() -> None:
    device = open_instrument("sigrok:demo:pattern=random")
    device.set_up(usual(*range(1, 17), trigger=3, slope="either"))
    for _ in range(60):
        assert sorted(shoot(device, tuple(range(1, 17)))) == list(range(1, 17))
    device.close()
    running = subprocess.run(["ps", "-eo", "stat,comm"], capture_output=True, text=True, check=True)
    assert not [
        line for line in running.stdout.splitlines() if line.startswith("Z") and "sigrok" in line
    ]
