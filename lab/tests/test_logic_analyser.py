"""Logic analysers: sigrok's demo device as the real thing, a program of ours for faults."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis.edges import Edge, find_edges
from mqtick.analysis.sigrok_file import uncertainty_fs
from mqtick.analysis.waveform import Waveform
from mqtick.lab.conversation import InstrumentError
from mqtick.lab.instrument import Instrument, open_instrument
from mqtick.lab.logic_analyser import LogicAnalyser
from mqtick.lab.logic_analyser_capture import StreamAcquisition, first_match
from mqtick.lab.logic_analyser_device import Resource, parse_show
from mqtick.lab.setup import Channel, Setup, Trigger

needs_sigrok = pytest.mark.skipif(
    shutil.which("sigrok-cli") is None, reason="sigrok-cli is not installed"
)

# What sigrok-cli 0.7.2 prints of a clone of the Saleae Logic, from other people's notes.
FX2LAFW = """Driver functions:
    Logic analyzer
Scan options:
    conn
fx2lafw:conn=1.30 - Saleae Logic [S/N: Saleae Logic] with 8 channels: D0 D1 D2 D3 D4 D5 D6 D7
Channel groups:
    Logic: channels D0 D1 D2 D3 D4 D5 D6 D7
Supported configuration options across all channel groups:
    continuous: on, off
    limit_samples: 0 (current)
    conn: 1.30 (current)
    samplerate - supported samplerates:
      20 kHz (current)
      25 kHz
      1 MHz
      12 MHz
      16 MHz
      24 MHz
      48 MHz
    Supported triggers: 0 1 r f e
    captureratio: 0 (current)
"""
OLDER = """fx2lafw:conn=2.31 - Saleae Logic with 8 channels: 0 1 2 3 4 5 6 7
Supported driver options:
    conn
Supported configuration options:
    Supported triggers: 0 1 
    samplerate - supported samplerates:
      20 kHz
      24 MHz
"""  # noqa: W291


def setup(*channels: int, trigger: int = 1, slope: str = "rising", **more: object) -> Setup:
    options: dict[str, object] = {"span_s": 1e-3, "points": 1000, "before": 0.2} | more
    return Setup(
        tuple(Channel(number) for number in channels),
        Trigger(trigger, slope=slope),
        **options,  # type: ignore[arg-type]
    )


def shoot(instrument: Instrument, channels: tuple[int, ...]) -> dict[int, Waveform]:
    assert instrument.arm()
    assert instrument.wait(3)
    return instrument.read(channels)


@contextmanager
def analyser(resource: str, wanted: Setup, program: str = "sigrok-cli") -> Iterator[LogicAnalyser]:
    device = LogicAnalyser(resource, program=program)
    try:
        device.set_up(wanted)
        yield device
    finally:
        device.close()


# What devices offer


def test_what_a_real_device_offers_is_understood() -> None:
    offer = parse_show(FX2LAFW, Resource.parse("sigrok:fx2lafw"))
    assert offer.name == "Saleae Logic [S/N: Saleae Logic]"
    assert offer.channels == tuple(f"D{n}" for n in range(8))
    assert offer.rates_hz[0] == 20_000
    assert offer.rates_hz[-1] == 48_000_000
    assert offer.matches == {"0", "1", "r", "f", "e"}
    assert {"continuous", "limit_samples", "captureratio", "samplerate"} <= offer.options


def test_an_older_listing_is_understood() -> None:
    offer = parse_show(OLDER, Resource.parse("sigrok:fx2lafw"))
    assert offer.channels == tuple("01234567")
    assert offer.matches == {"0", "1"}


@pytest.mark.parametrize(
    ("wanted_hz", "wide", "rate_hz"),
    [
        (1e9, False, 24_000_000),  # 48 MHz is offered, but USB 2 does not carry it
        (1e9, True, 12_000_000),  # two octets a sample
        (20e6, False, 16_000_000),
        (24e6 * (1 - 1e-15), False, 24_000_000),
        (1e6, False, 1_000_000),
        (1, False, 20_000),
    ],
)
def test_the_rate_is_one_that_the_device_has(wanted_hz: float, wide: bool, rate_hz: int) -> None:
    offer = parse_show(FX2LAFW, Resource.parse("sigrok:fx2lafw"))
    assert offer.rate_hz(wanted_hz, "fx2lafw", wide=wide) == rate_hz


def test_several_devices_are_told_apart_by_their_place() -> None:
    text = FX2LAFW + FX2LAFW.replace("1.30", "1.31")
    with pytest.raises(InstrumentError, match=r"Say which: sigrok:fx2lafw:conn=1\.30"):
        parse_show(text, Resource.parse("sigrok:fx2lafw"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sigrok:", "names no logic analyser"),
        ("sigrok", "names no logic analyser"),
        ("sigrok:--version", "found no|names no"),
        ("sigrok:demo;ls", "names no logic analyser"),
        ("sigrok:demo:conn", "no option"),
        ("sigrok:demo:=3", "no option"),
        ("sigrok:demo:trigger=never", "none of auto, driver, software"),
    ],
)
def test_a_resource_that_is_none_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InstrumentError, match=says):
        LogicAnalyser(text)


def test_options_go_where_sigrok_cli_wants_them() -> None:
    found = Resource.parse("sigrok:fx2lafw:conn=1.30:voltage_threshold=1.5-1.5:trigger=software")
    assert found.arguments == ("--driver", "fx2lafw:conn=1.30")
    assert found.config == ("voltage_threshold=1.5-1.5",)
    assert found.trigger == "software"


@pytest.mark.parametrize(("slope", "at"), [("rising", 2), ("falling", 1), ("either", 1)])
def test_the_first_edge_of_a_slope(slope: str, at: int) -> None:
    levels = np.array([1, 0, 1, 1, 0, 1], np.uint8)
    assert first_match(levels, slope) == at
    assert first_match(levels, slope, 3) == {"rising": 5, "falling": 4, "either": 4}[slope]
    assert first_match(levels[2:4], slope) is None


# The demo device


@needs_sigrok
def test_the_demo_is_opened_and_says_that_it_is_one() -> None:
    instrument = open_instrument("sigrok:demo")
    assert instrument.simulated
    assert instrument.description.startswith("Demo device, driver demo, sigrok-cli ")
    instrument.close()


@needs_sigrok
@pytest.mark.parametrize("trigger", ["software", "driver"])
@pytest.mark.parametrize("slope", ["rising", "falling", "either"])
def test_edges_are_where_the_counter_of_the_demo_has_them(trigger: str, slope: str) -> None:
    resource = f"sigrok:demo:logic_channels=8:pattern=incremental:trigger={trigger}"
    wanted = setup(1, 2, 8, trigger=8, slope=slope, span_s=2e-3, points=2000)
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
    assert uncertainty_fs(waveforms[8]) == us // 2
    assert waveforms[8].codes.size == 2000
    assert waveforms[8].volts().max() == 3.3


@needs_sigrok
def test_the_share_before_the_trigger_is_kept() -> None:
    wanted = setup(8, trigger=8, span_s=1e-3, points=10_000, before=0.25)
    with analyser("sigrok:demo:logic_channels=8:pattern=incremental", wanted) as device:
        waveform = shoot(device, (8,))[8]
    assert waveform.interval_fs == 10**8
    assert waveform.start_fs == -2500 * 10**8 + 10**8 // 2
    assert waveform.codes[2499:2501].tolist() == [0, 1]


@needs_sigrok
def test_sixteen_channels_share_one_shot() -> None:
    channels = tuple(range(1, 17))
    wanted = setup(*channels, trigger=16, span_s=1e-3, points=4000)
    with analyser("sigrok:demo:pattern=random", wanted) as device:
        waveforms = shoot(device, channels)
    assert list(waveforms) == list(channels)
    assert {w.start_fs for w in waveforms.values()} == {waveforms[1].start_fs}
    assert all(len(find_edges(w)) > 1000 for w in waveforms.values())
    assert Edge(0, True) in find_edges(waveforms[16])


@pytest.mark.parametrize("unit", [1, 2, 3])
@pytest.mark.parametrize("piece", [1, 2, 7, 64, 5000])
def test_a_stream_is_cut_around_its_first_edge_however_it_arrives(unit: int, piece: int) -> None:
    # An edge at 40, before there are 100 samples; one at 300; the stream breaks off anywhere.
    bits = np.zeros((900, unit), np.uint8)
    bits[40:120, -1] = bits[300:, -1] = 0x80
    bits[:, 0] |= np.arange(900, dtype=np.uint8) & 0x7F
    data = bits.tobytes()

    class Stream:
        at = 0

        def read1(self, _most: int) -> bytes:
            self.at += piece
            return data[self.at - piece : self.at]

    acquisition = object.__new__(StreamAcquisition)
    acquisition.armed = threading.Event()
    acquisition._bit, acquisition._slope = 8 * unit - 1, "rising"
    acquisition._before, acquisition._samples = 100, 500
    acquisition._unitsize, acquisition._record = unit, None
    acquisition._collect(Stream())  # type: ignore[arg-type]
    levels, trigger = acquisition.read({8 * unit: "last", 1: "first"})
    assert acquisition.armed.is_set()
    assert trigger == 100
    assert levels[8 * unit].tolist() == [0] * 100 + [1] * 400
    assert np.array_equal(levels[1], np.arange(200, 700) & 1)


@needs_sigrok
def test_a_longer_cable_is_taken_off() -> None:
    wanted = Setup((Channel(7), Channel(8, deskew_s=2e-6)), Trigger(7), span_s=1e-3, points=1000)
    with analyser("sigrok:demo:logic_channels=8:pattern=incremental", wanted) as device:
        waveforms = shoot(device, (7, 8))
    assert waveforms[7].start_fs - waveforms[8].start_fs == 2 * 10**9


@needs_sigrok
def test_shots_follow_one_another() -> None:
    with analyser("sigrok:demo:logic_channels=8:pattern=walking-one", setup(4)) as device:
        for _ in range(3):
            assert shoot(device, (4,))[4].codes.size == 1000


@needs_sigrok
@pytest.mark.parametrize("pattern", ["all-low", "all-high"])
def test_a_trigger_that_never_comes_is_a_missed_shot_and_leaves_no_process(pattern: str) -> None:
    with analyser(f"sigrok:demo:pattern={pattern}", setup(1)) as device:
        assert device.arm()
        process = device._acquisition.process  # type: ignore[union-attr]
        began_s = time.monotonic()
        assert not device.wait(0.2)
        assert time.monotonic() - began_s < 1
        assert process.poll() is not None
        with pytest.raises(InstrumentError, match="was not armed"):
            device.read((1,))


@needs_sigrok
def test_the_demos_own_trigger_that_does_not_come_is_a_sentence() -> None:
    with analyser("sigrok:demo:pattern=all-low:trigger=driver", setup(1)) as device:
        device.arm()
        with pytest.raises(InstrumentError, match="did it end without a trigger"):
            device.wait(2)


@needs_sigrok
def test_a_device_does_not_sample_between_two_shots() -> None:
    with analyser("sigrok:demo:pattern=random", setup(1)) as device:
        assert device.arm()
        assert device.wait(3)
        assert device._acquisition.process.poll() is not None  # type: ignore[union-attr]
        assert device.read((1,))[1].codes.size == 1000
        assert device.read((1,))[1].codes.size == 1000


@needs_sigrok
def test_closing_ends_what_runs() -> None:
    with analyser("sigrok:demo:pattern=all-low", setup(1)) as device:
        device.arm()
        process = device._acquisition.process  # type: ignore[union-attr]
    assert process.poll() is not None


@needs_sigrok
def test_a_record_that_is_still_running_cannot_be_read() -> None:
    with analyser("sigrok:demo:pattern=all-low", setup(1)) as device:
        device.arm()
        with pytest.raises(InstrumentError, match="still recording"):
            device.read((1,))


@needs_sigrok
@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (setup(17), "no channel 17; it has 1 to 16 .D0 to D15."),
        (setup(0), "no channel 0"),
        (setup(1, trigger=99), "no channel 99"),
        (setup(1, slope="up"), "slope is 'up'"),
        (setup(1, segments=5), "cannot record 5 segments"),
        (setup(1, span_s=1e-10, points=10), "samples can be recorded|change the time span"),
        (setup(1, span_s=1e6, points=10**9), "change the time span"),
    ],
)
def test_what_the_device_cannot_do_is_a_sentence(wanted: Setup, says: str) -> None:
    device = LogicAnalyser("sigrok:demo")
    with pytest.raises(InstrumentError, match=says):
        device.set_up(wanted)


@needs_sigrok
def test_the_order_of_calls_is_checked() -> None:
    device = LogicAnalyser("sigrok:demo")
    with pytest.raises(InstrumentError, match="was not set up"):
        device.arm()
    with pytest.raises(InstrumentError, match="was not armed"):
        device.wait(0.1)
    with analyser("sigrok:demo:pattern=random", setup(1)) as other:
        other.arm()
        other.wait(2)
        with pytest.raises(InstrumentError, match="Channel 5 was not recorded"):
            other.read((5,))


@needs_sigrok
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
        LogicAnalyser(resource).set_up(setup(1))


@needs_sigrok
def test_a_setting_that_the_device_refuses_is_told_in_its_words() -> None:
    with (
        analyser("sigrok:demo:nonsense=3", setup(1)) as device,
        pytest.raises(InstrumentError, match="nonsense"),
    ):
        device.arm()


@needs_sigrok
@pytest.mark.slow
def test_sixty_shots_leave_nothing_behind() -> None:
    device = open_instrument("sigrok:demo:pattern=random")
    device.set_up(setup(*range(1, 17), trigger=3, slope="either"))
    for _ in range(60):
        assert sorted(shoot(device, tuple(range(1, 17)))) == list(range(1, 17))
    device.close()
    running = subprocess.run(["ps", "-eo", "stat,comm"], capture_output=True, text=True, check=True)
    assert not [
        line for line in running.stdout.splitlines() if line.startswith("Z") and "sigrok" in line
    ]


# A program in sigrok-cli's place that goes wrong


def fake(folder: Path, capture: str, show: str = FX2LAFW) -> str:
    """Write a program that offers `show`, and does `capture` (shell) when it is to record."""
    (folder / "show").write_text(show)
    program = folder / "sigrok-cli"
    program.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do file=$last; last=$word; done\n'
        'case "$*" in\n'
        "*--version*) echo 'sigrok-cli 0.0' ;;\n"
        f"*--show*) cat '{folder}/show' ;;\n"
        f"*) {capture} ;;\nesac\n"
    )
    program.chmod(0o755)
    return str(program)


HEADER = "echo 'cli: Received SR_DF_HEADER.' >&2"


def test_a_program_that_is_missing_is_a_sentence() -> None:
    with pytest.raises(InstrumentError, match="sudo apt install sigrok-cli"):
        LogicAnalyser("sigrok:demo", program="sigrok-cli-is-not-here")


@pytest.mark.parametrize("trigger", ["driver", "software"])
def test_a_device_that_is_unplugged_in_mid_capture_is_a_sentence(
    tmp_path: Path, trigger: str
) -> None:
    unplugged = f"{HEADER}; sleep 0.1; echo 'sr: fx2lafw: No such device.' >&2; exit 1"
    program = fake(tmp_path, unplugged)
    with (
        analyser(f"sigrok:fx2lafw:trigger={trigger}", setup(1), program) as device,
        pytest.raises(InstrumentError, match=r"No such device.*unplugged"),
    ):
        _ = device.arm() and device.wait(2)


def test_output_that_is_no_session_is_a_sentence(tmp_path: Path) -> None:
    program = fake(tmp_path, f'{HEADER}; echo junk > "$last"; exit 0')
    with analyser("sigrok:fx2lafw", setup(1), program) as device:
        device.arm()
        assert device.wait(2)
        with pytest.raises(InstrumentError, match="record is not in order"):
            device.read((1,))


@needs_sigrok
def test_a_record_that_is_too_short_is_a_sentence(tmp_path: Path) -> None:
    record = (
        "sigrok-cli -d demo:logic_channels=8:analog_channels=0 -c samplerate=1m --samples 50 "
        "-o \"$last\"; echo 'Device only sent 50 samples.' >&2"
    )
    with analyser("sigrok:fx2lafw", setup(1), fake(tmp_path, f"{HEADER}; {record}")) as device:
        device.arm()
        assert device.wait(2)
        with pytest.raises(InstrumentError, match=r"sent 50 samples of 1000 .*only sent 50"):
            device.read((1,))


def test_a_program_that_does_not_begin_is_ended(tmp_path: Path) -> None:
    program = fake(tmp_path, "trap '' TERM; while :; do sleep 0.1; done")
    with analyser("sigrok:fx2lafw", setup(1), program) as device:
        began_s = time.monotonic()
        with pytest.raises(InstrumentError, match=r"did not begin to sample within 0.2 s"):
            device.arm(0.2)
        assert time.monotonic() - began_s < 2.5


def test_a_slope_that_the_device_does_not_have_is_looked_for_in_software(tmp_path: Path) -> None:
    program = fake(tmp_path, 'echo "$@" >&2; exit 3', FX2LAFW.replace("0 1 r f e", "0 1"))
    with (
        analyser("sigrok:fx2lafw", setup(1), program) as device,
        pytest.raises(InstrumentError, match="--continuous --output-format binary"),
    ):
        device.arm()


def test_the_driver_is_told_rate_ratio_channels_and_trigger(tmp_path: Path) -> None:
    program = fake(tmp_path, 'echo "$@" >&2; exit 3')
    wanted = setup(1, 5, trigger=3, slope="falling", span_s=1e-4, points=10**6)
    with (
        analyser("sigrok:fx2lafw:conn=1.30", wanted, program) as device,
        pytest.raises(InstrumentError) as error,
    ):
        device.arm()
    assert (
        "--driver fx2lafw:conn=1.30 --config samplerate=24000000:captureratio=20 "
        "--channels D0,D2,D4 --triggers D2=f --samples 2400 --output-file"
    ) in str(error.value)


def test_a_device_that_neither_triggers_nor_streams_is_a_sentence(tmp_path: Path) -> None:
    show = FX2LAFW.replace("0 1 r f e", "0 1").replace("    continuous: on, off\n", "")
    with (
        analyser("sigrok:fx2lafw", setup(1), fake(tmp_path, "exit 1", show)) as device,
        pytest.raises(InstrumentError, match="neither trigger"),
    ):
        device.arm()
