"""Logic analysers that go wrong: a program of ours in sigrok-cli's place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from logic_analyser_rig import FX2LAFW, analyser, usual

from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.scope.conversation import InstrumentError


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
        analyser(f"sigrok:fx2lafw:trigger={trigger}", usual(1), program) as device,
        pytest.raises(InstrumentError, match=r"No such device.*unplugged"),
    ):
        _ = device.arm() and device.wait(2)


def test_output_that_is_no_session_is_a_sentence(tmp_path: Path) -> None:
    program = fake(tmp_path, f'{HEADER}; echo junk > "$last"; exit 0')
    with analyser("sigrok:fx2lafw", usual(1), program) as device:
        device.arm()
        assert device.wait(2)
        with pytest.raises(InstrumentError, match="record is not valid"):
            device.read((1,))


@pytest.mark.needs("sigrok-cli")
def test_a_record_that_is_too_short_is_a_sentence(tmp_path: Path) -> None:
    record = (
        "sigrok-cli -d demo:logic_channels=8:analog_channels=0 -c samplerate=1m --samples 50 "
        "-o \"$last\"; echo 'Device only sent 50 samples.' >&2"
    )
    with analyser("sigrok:fx2lafw", usual(1), fake(tmp_path, f"{HEADER}; {record}")) as device:
        device.arm()
        assert device.wait(2)
        with pytest.raises(InstrumentError, match=r"sent 50 of 1000 samples .*only sent 50"):
            device.read((1,))


def test_a_program_that_does_not_begin_is_ended(tmp_path: Path) -> None:
    program = fake(tmp_path, "trap '' TERM; while :; do sleep 0.1; done")
    with analyser("sigrok:fx2lafw", usual(1), program) as device:
        began_s = time.monotonic()
        with pytest.raises(InstrumentError, match=r"did not begin to sample within 0.2 s"):
            device.arm(0.2)
        assert time.monotonic() - began_s < 2.5


def test_a_slope_that_the_device_does_not_have_is_looked_for_in_software(tmp_path: Path) -> None:
    program = fake(tmp_path, 'echo "$@" >&2; exit 3', FX2LAFW.replace("0 1 r f e", "0 1"))
    with (
        analyser("sigrok:fx2lafw", usual(1), program) as device,
        pytest.raises(InstrumentError, match="--continuous --output-format binary"),
    ):
        device.arm()


def test_the_driver_is_told_rate_ratio_channels_and_trigger(tmp_path: Path) -> None:
    program = fake(tmp_path, 'echo "$@" >&2; exit 3')
    wanted = usual(1, 5, trigger=3, slope="falling", span_s=1e-4, points=10**6)
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
        analyser("sigrok:fx2lafw", usual(1), fake(tmp_path, "exit 1", show)) as device,
        pytest.raises(InstrumentError, match="neither trigger"),
    ):
        device.arm()
