"""mqtick-lab simulate: an oscilloscope without hardware, from the command line."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqtick.lab.cli import main
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger
from mqtick.pins.base import monotonic_raw_ns
from mqtick.pins.memory import PinRecord, encode_record
from mqtick.recording.edges import find_edges


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program until the end of the block; it has to end by itself then."""
    process = subprocess.Popen(
        [
            Path(sys.executable).with_name("mqtick-lab"),
            "simulate",
            "--port",
            "0",
            "--json",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 0


def said(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert found["simulated"] is True
    return dict(found)


@pytest.mark.slow
def test_edges_of_other_programs_reach_its_inputs(tmp_path: Path) -> None:
    sink = tmp_path / "pins.sock"
    with started("--listen", str(sink), "--line", "1=17", "--line", "2=27") as process:
        scope = Oscilloscope.open(str(said(process)["resource"]))
        scope.set_up(
            ScopeSettings(
                (ChannelSettings(1), ChannelSettings(2)), Trigger(1), span_s=1e-3, points=10_000
            )
        )
        assert scope.arm()
        at_ns = monotonic_raw_ns()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as pins:
            for line, delay_ns in ((17, 0), (27, 4321)):
                pins.sendto(encode_record(PinRecord(at_ns + delay_ns, line, True)), str(sink))
        assert scope.wait(2.0)
        found = scope.read([1, 2])
        scope.close()
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    assert (second.instant_fs - first.instant_fs) / 1e6 == pytest.approx(4321, abs=20)
    assert not sink.exists()


@pytest.mark.slow
def test_the_demo_tells_the_truth_about_its_edges() -> None:
    families = ("--family", "keysight", "--family", "rigol-dho")
    with started("--demo", *families, "--skew-ns", "2=35", "--noise-mv", "1") as process:
        resources = [str(said(process)["resource"]) for _ in families[::2]]
        scope = Oscilloscope.open(resources[1])
        assert scope.dialect.name == "rigol-dho"
        scope.set_up(
            ScopeSettings(
                (ChannelSettings(1), ChannelSettings(2)), Trigger(1), span_s=1e-3, points=100_000
            )
        )
        # The truth is told before the edges happen: skip what was told before it is armed. On a
        # busy machine it may trigger before it was seen waiting.
        assert any(scope.arm() for _ in range(5))
        assert scope.wait(3.0)
        found = scope.read([1, 2])
        scope.close()
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        truths = [json.loads(line)["skew_ns"]["2"] for line in process.stdout]
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    measured_ns = (second.instant_fs - first.instant_fs) / 1e6 - 35
    assert min(abs(measured_ns - truth) for truth in truths) < 20


@pytest.mark.slow
def test_it_ends_when_nobody_reads_what_it_says() -> None:
    program = Path(sys.executable).with_name("mqtick-lab")
    done = subprocess.run(
        f"{program} simulate --demo --port 0 | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--fault", "explosion=1"], 2, "There is no fault 'explosion'; known are: short-block"),
        (["--fault", "late=2"], 2, "late=2 is not a probability"),
        (["--bits", "64"], 2, "bits of 64 is not from 8 to 16"),
        (["--line", "7=1"], 2, "There is no channel 7"),
        (["--port", "70000"], 1, "choose another --port"),
        (["--port", "0", "--listen", "/"], 1, "not a socket"),
    ],
)
def test_what_cannot_be_simulated_is_a_sentence(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == code
    assert sentence in capsys.readouterr().err


def test_a_port_that_is_taken_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["simulate", "--port", str(other.getsockname()[1])]) == 1
    assert "cannot listen" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["late", "1=x", "=1", "x=1"])
def test_what_is_no_pair_is_wrong_use(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", "--line", text])
    assert "NAME=NUMBER" in capsys.readouterr().err
