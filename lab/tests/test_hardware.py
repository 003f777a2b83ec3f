"""The published experiment on the hardware broker's model, which a small program stands in for."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from mqtick.lab.cli import main
from mqtick.lab.hardware.copies import measure
from mqtick.lab.hardware.datagrams import (
    CYCLE_FS,
    Datagram,
    DatagramError,
    as_line,
    publish,
    read_lines,
    subscribe,
)
from mqtick.lab.hardware.program import ModelError, find_model
from mqtick.lab.hardware.run import HardwareRun, run_hardware
from mqtick.lab.hardware.way import Way
from mqtick.protocol import precise
from mqtick.recording.run_folder import RunFolderError, load_run

FAKE = Path(__file__).with_name("fake_model.py")
FIRST_COPY, EACH = 30, 14
SMALL = HardwareRun(model=str(FAKE), subscribers=(2, 5), shots=4)
IDEAL = replace(SMALL, way=Way(receiver_ns=1000.0, receiver_jitter_ns=0.0))


def test_packets_are_those_of_mqtt() -> None:
    assert publish("a/b", b"xy").hex() == "30070003612f627879"
    assert subscribe(1, "a").hex() == "8206000100016100"
    assert publish("a", bytes(200))[:3].hex() == "30cb01"


def test_what_is_written_is_read_again() -> None:
    some = [Datagram(0, "10.0.0.1:5", b"\x30"), Datagram(7, "10.0.0.2:6", bytes(100))]
    assert list(read_lines(map(as_line, some))) == some


@pytest.mark.parametrize(
    "line", ["1 10.0.0.1:5", "x 10.0.0.1:5 00", "1 10.0.0.1:5 0g", "-1 1.1.1.1:1 00", "1 a b c"]
)
def test_a_damaged_line_is_named(line: str) -> None:
    with pytest.raises(DatagramError, match=r"^Line 2 of "):
        list(read_lines(["# comment", line]))


def test_a_model_that_is_not_there_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="make model-rtl"):
        find_model(str(tmp_path / "none"))


def test_a_model_is_the_file_that_is_named_and_none_of_that_name_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FAKE.parent)
    run_hardware(replace(SMALL, model=f"./{FAKE.name}"), tmp_path / "run")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (":", "wrote nothing"),
        ('mkdir "$3"', "wrote nothing"),
        ('printf "\\377\\n" > "$3"', "Line 1 of what the model sent is not"),
        ('head -c 99 /dev/zero > "$3"', "Line 1 of what the model sent is not"),
        ('echo "0 10.1.0.1:50001 9003000100" > "$3"', "became 0 copies"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_program_that_is_no_model_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    model = tmp_path / "model"
    model.write_text(f"#!/bin/sh\n{line}\n")
    model.chmod(0o755)
    assert main(["hardware", "--model", str(model), "--out", str(tmp_path / "run")]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--subscribers", "2,2"], "none of them twice"),
        (["--subscribers", ""], "one number or more"),
        (["--prefix", "a/#"], "'a/#' is not a topic prefix"),
        (["--way-switch-ns", "1e9"], "takes up to 2000.12 ms"),
        (["--way-publisher-ns", "-1e9"], "lower its times"),
        (["--way-receiver-jitter-ns", "1e9"], "the 10 ms that a record can be long"),
    ],
)
def test_values_that_mean_nothing_are_refused_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    call = ["hardware", "--model", str(FAKE), "--out", str(tmp_path / "run")]
    assert main([*call, *flags]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_a_receiver_the_edges_are_exact_to_the_cycle(tmp_path: Path) -> None:
    run_hardware(IDEAL, tmp_path / "run")
    way, payload = IDEAL.way, len(measure(FAKE, 2, 1, **_how())[0].message.octets)
    latency_fs = (
        way.from_publisher_fs(payload)
        + FIRST_COPY * CYCLE_FS
        + way.to_receiver_fs(payload)
        + 1_000 * 10**6
    )
    for shot in load_run(tmp_path / "run").shots():
        assert shot.skew_fs == pytest.approx((shot.subscribers - 1) * EACH * CYCLE_FS, abs=50_000)
        assert shot.latency_fs == pytest.approx(latency_fs, abs=50_000)


def _how() -> dict[str, object]:
    return {"link_gbps": 10, "prefix": "mqtick", "seed": 1}


def test_the_way_is_kept_in_the_run(tmp_path: Path) -> None:
    run_hardware(replace(SMALL, way=Way(broker_link_gbps=1, switch_ns=5.0)), tmp_path / "run")
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["way"]["broker_link_gbps"] == 1
    assert record["way"]["switch_ns"] == 5.0
    assert record["simulated"] is True


def test_the_same_seed_gives_the_same_edges(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_hardware(SMALL, tmp_path / name)
    one, two = ([s.skew_fs for s in load_run(tmp_path / n).shots()] for n in ("one", "two"))
    assert one == two


def test_a_receiver_is_never_early() -> None:
    way, draw = Way(receiver_ns=10.0, receiver_jitter_ns=1000.0), random.Random(1)
    assert min(way.receiver_fs(draw) for _ in range(1000)) == 0


def test_a_frame_takes_ten_times_as_long_at_a_tenth_of_the_rate() -> None:
    fast, slow = (Way(node_link_gbps=rate, switch_ns=0, core_ns=0) for rate in (10.0, 1.0))
    on_one_link_fs = slow.to_receiver_fs(48) - fast.to_receiver_fs(48)
    assert on_one_link_fs == (48 + 54) * 8 * 900_000


@pytest.mark.parametrize("version", [1, 2])
def test_the_messages_are_those_of_a_server(version: int) -> None:
    octets = measure(FAKE, 2, 1, version=version, **_how())[0].message.octets
    sent = precise.decode(octets[octets.index(b"mqtick/t/0") + 10 :])
    assert isinstance(sent, precise.Time)
    assert (sent.version, sent.sequence) == (version, 1)


def test_a_lost_copy_ends_the_run_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOST", "1")
    with pytest.raises(ModelError, match="to 2 subscribers became 1 copies"):
        run_hardware(SMALL, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_the_model_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "It is broken.")
    assert main(["hardware", "--model", str(FAKE), "--out", str(tmp_path / "run")]) == 1
    assert "It is broken." in capsys.readouterr().err


def test_the_command_prints_the_spread_at_the_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["hardware", "--model", str(FAKE), "--out", str(tmp_path / "run")]
    assert main([*call, "--subscribers", "2,11", "--shots", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["simulated"] is True
    assert said["spread_us"] == {
        str(n): [pytest.approx((n - 1) * EACH * CYCLE_FS / 1e9)] * 2 for n in (2, 11)
    }


def test_a_used_folder_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    run_hardware(SMALL, tmp_path / "run")
    with pytest.raises(RunFolderError, match="holds a run already"):
        run_hardware(SMALL, tmp_path / "run")
