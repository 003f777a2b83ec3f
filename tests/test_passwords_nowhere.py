"""A password that stands in a broker's address is written, printed and logged by no program."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqtick.client.cli import main as client
from mqtick.lab.cli import main as lab
from mqtick.lab.runner.experiment import example
from mqtick.timeserver.cli import main as timeserver

ADDRESSES = [
    "mqtt://a:hunter2@host",
    "a:hunter2@host",
    "mqtts://a:hun/ter2@host",
    "ws://:hunter2@h",
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("what", ["--print-config", "--check-config", ""])
@pytest.mark.parametrize("program", ["client", "timeserver", "crowd", "experiment", "matrix"])
def test_a_configuration_with_a_password_in_the_address_is_refused_without_repeating_it(
    program: str,
    what: str,
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "config.toml"
    flags = [what] if what else []
    line = f'broker = "{address}"\n'
    file.write_text(line)
    if program == "client":
        code = client(["run", "--config", str(file), *flags])
    elif program == "timeserver":
        code = timeserver(["run", "--config", str(file), *flags])
    elif program == "crowd":
        code = lab(["crowd", "--config", str(file), *flags])
    elif program == "experiment":
        file.write_text(example().replace('broker = "mqtt://localhost"\n', line))
        code = lab(["run", str(file), "--out", str(tmp_path / "run"), *flags])
    else:
        file.write_text(f"[broker.one]\n{line}")
        (tmp_path / "experiment.toml").write_text(example())
        arguments = [str(tmp_path / "experiment.toml"), "--broker-matrix", str(file)]
        code = lab(["run", *arguments, "--out", str(tmp_path / "run"), *flags])
    said = "".join(capsys.readouterr()) + caplog.text
    assert code == 2
    assert "holds a password, which others could read: put it in a file" in said
    assert "hun" not in said
    assert "ter2" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ADDRESSES)
def test_nor_does_a_flag_or_the_doctor_of_brokers(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in (client, timeserver):
        with pytest.raises(SystemExit) as left:
            program(["run", "--broker", address, "--print-config"])
        assert left.value.code == 2
    assert lab(["doctor", address]) == 2
    said = "".join(capsys.readouterr())
    assert "hun" not in said
    assert "ter2" not in said


@pytest.mark.parametrize("address", ["mqtt://pi@localhost:1", "pi@localhost:1", "ws://pi@[::1]:1"])
def test_a_user_name_alone_is_taken(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'broker = "{address}"\n')
    for program in (client, timeserver):
        assert program(["run", "--config", str(file), "--check-config"]) == 0
        assert program(["run", "--broker", address, "--print-config"]) == 0
    assert address in capsys.readouterr().out
