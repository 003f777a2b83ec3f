"""One experiment over several brokers: a folder each, one table, no broker spoils the others."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_rig import Told, bench, wired

from mqtick.lab import cli
from mqtick.lab.brokers import matrix as brokers
from mqtick.lab.brokers.matrix import (
    BrokerKeys,
    experiments_of,
    load_brokers,
    result_json,
    result_text,
    run_matrix,
)
from mqtick.lab.commands import run_matrix as command
from mqtick.lab.runner.experiment import Experiment, flat
from mqtick.lab.runner.progress import Progress
from mqtick.lab.runner.run import INTERRUPTED, RunOutcome, run_experiment
from mqtick.recording.run_folder import RunFolderError, create_run, load_run
from mqtick.recording.shot import CAPTURED, REFUSED, Shot, write_shot
from mqtick.service.settings.load import SettingsError, render

TWO = """\
[broker.mosquitto]
broker = "mqtt://10.0.0.1"

[broker.nats]
broker = "mqtt://10.0.0.2:1884"
mqtt_version = "3.1.1"
prefix = "lab"
"""


def skew_fs(broker: str, subscribers: int) -> int:
    return (1 if "0.1" in broker else 2) * subscribers * 10**9


class FakeRun:
    """Writes the folder that a run would leave; `says` is how it ends, by address."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, bool]] = []
        self.says: dict[str, tuple[int, str]] = {}
        self.outcome = CAPTURED

    def __call__(
        self, experiment: Experiment, folder: Path, *, resume: bool, say: Progress
    ) -> RunOutcome:
        self.calls.append((experiment.broker, folder.name, resume))
        code, sentence = self.says.get(experiment.broker, (0, ""))
        if sentence == "folder":
            raise RunFolderError(f"{folder} was begun with a different experiment")
        if resume:
            shutil.rmtree(folder)
        record = {
            "settings": flat(experiment),
            "kind": "skew",
            "title": experiment.title,
            "simulated": True,
        }
        create_run(folder, {**record, "ended": {"early_because": sentence}})
        for number, count in enumerate(experiment.subscribers, start=1):
            fs = skew_fs(experiment.broker, count)
            meta = Shot(number, count, self.outcome, skew_fs=fs, simulated=True)
            write_shot(folder / "shots" / f"{number:06}.npz", meta, {})
        return RunOutcome(code, sentence, folder, captured=len(experiment.subscribers))


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "experiment.toml").write_text(render(wired({"scope": "TCPIP::x::1::SOCKET"})))
    (tmp_path / "brokers.toml").write_text(TWO)
    return tmp_path


def experiments(files: Path, **overrides: Any) -> dict[str, Experiment]:
    return experiments_of(files / "experiment.toml", files / "brokers.toml", overrides)


def matrix(files: Path, run: FakeRun, *, resume: bool = False) -> Any:
    return run_matrix(
        experiments(files), files / "out", resume=resume, say=lambda _: Told(), run=run
    )


# -- the file --------------------------------------------------------------------------------------


def test_each_broker_has_its_own_keys_and_shares_the_rest(files: Path) -> None:
    made = experiments(files, shots=7)
    assert list(made) == ["mosquitto", "nats"]
    assert [one.broker for one in made.values()] == ["mqtt://10.0.0.1", "mqtt://10.0.0.2:1884"]
    assert [one.mqtt_version for one in made.values()] == ["5", "3.1.1"]
    assert [one.prefix for one in made.values()] == ["mqtick", "lab"]
    assert [one.shots for one in made.values()] == [7, 7]
    assert made["nats"].title == "a test (nats)"


def test_a_broker_may_have_its_own_wiring(files: Path) -> None:
    other = wired({"second": "TCPIP::y::1::SOCKET"})
    (files / "other.toml").write_text(render(other))
    text = TWO.replace('prefix = "lab"', 'experiment = "other.toml"')
    (files / "brokers.toml").write_text(text)
    made = experiments(files)
    assert [list(one.instrument) for one in made.values()] == [["scope"], ["second"]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no broker"),
        ('[broker."../x"]\nbroker = "mqtt://x"\n', "broker is named"),
        ('[broker.a]\nbrokr = "mqtt://x"\n', "brokr"),
        ('[broker.a]\nbroker = "http://x"\n', "broker.a: broker 'http://x' has the scheme"),
        ('[broker.a]\nexperiment = "none.toml"\n', "there is no such file"),
    ],
)
def test_a_file_without_use_is_refused_with_a_sentence(files: Path, text: str, says: str) -> None:
    (files / "brokers.toml").write_text(text)
    with pytest.raises(SettingsError, match=says.replace(".", r"\.")):
        experiments(files)


def test_a_flag_that_names_a_broker_contradicts_the_file(files: Path) -> None:
    with pytest.raises(SettingsError, match="--mqtt-version and --broker-matrix contradict"):
        experiments(files, mqtt_version="5")
    assert list(load_brokers(files / "brokers.toml")) == ["mosquitto", "nats"]


# -- running ---------------------------------------------------------------------------------------


def test_brokers_come_one_after_another_with_a_folder_each(files: Path, run: FakeRun) -> None:
    outcome = matrix(files, run)
    assert outcome.code == 0
    assert run.calls == [
        ("mqtt://10.0.0.1", "mosquitto", False),
        ("mqtt://10.0.0.2:1884", "nats", False),
    ]
    assert load_run(files / "out" / "nats").record["title"] == "a test (nats)"


def test_the_table_has_a_row_for_each_broker_and_n(files: Path, run: FakeRun) -> None:
    text = result_text(matrix(files, run))
    rows = [line.split() for line in text.splitlines() if line.startswith(("mosq", "nats"))]
    expected = [
        (name, n, skew_fs(address, n) / 1e9)
        for n in (2, 10, 50, 100)
        for name, address in (("mosquitto", "10.0.0.1"), ("nats", "10.0.0.2"))
    ]
    assert [(row[0], int(row[1]), float(row[4])) for row in rows] == expected
    assert text.startswith("SIMULATED: skew, in us")


def test_a_broker_that_fails_does_not_keep_the_next_from_running(files: Path, run: FakeRun) -> None:
    run.says["mqtt://10.0.0.1"] = (1, "The broker is away.")
    outcome = matrix(files, run)
    assert (outcome.code, len(run.calls)) == (1, 2)
    assert result_text(outcome).endswith("mosquitto: The broker is away.")
    said = result_json(outcome)["brokers"]
    assert (said["mosquitto"]["complete"], said["nats"]["complete"]) == (False, True)
    assert json.dumps(said)


def test_ctrl_c_ends_the_row(files: Path, run: FakeRun) -> None:
    run.says["mqtt://10.0.0.1"] = (INTERRUPTED, "The run was interrupted.")
    outcome = matrix(files, run)
    assert (outcome.code, list(outcome.runs)) == (INTERRUPTED, ["mosquitto"])


def test_resume_leaves_alone_what_is_complete(files: Path, run: FakeRun) -> None:
    run.says["mqtt://10.0.0.2:1884"] = (1, "The broker is away.")
    matrix(files, run)
    run.calls.clear()
    run.says.clear()
    outcome = matrix(files, run, resume=True)
    assert run.calls == [("mqtt://10.0.0.2:1884", "nats", True)]
    assert outcome.code == 0
    assert outcome.runs["mosquitto"].captured == 4
    assert "mosquitto" in result_text(outcome)


def test_resume_begins_what_was_not_begun(files: Path, run: FakeRun) -> None:
    run.says["mqtt://10.0.0.1"] = (INTERRUPTED, "The run was interrupted.")
    matrix(files, run)
    run.calls.clear()
    run.says.clear()
    matrix(files, run, resume=True)
    assert [(name, resumed) for _, name, resumed in run.calls] == [
        ("mosquitto", True),
        ("nats", False),
    ]


def test_refused_shots_are_tried_again(files: Path, run: FakeRun) -> None:
    run.outcome = REFUSED
    matrix(files, run)
    run.calls.clear()
    matrix(files, run, resume=True)
    assert len(run.calls) == 2


def test_a_folder_that_is_used_is_refused_before_anything_runs(files: Path, run: FakeRun) -> None:
    matrix(files, run)
    run.calls.clear()
    with pytest.raises(RunFolderError, match="mosquitto"):
        matrix(files, run)
    assert run.calls == []


def test_a_folder_of_another_experiment_is_said_and_the_rest_goes_on(
    files: Path, run: FakeRun
) -> None:
    run.says["mqtt://10.0.0.2:1884"] = (2, "folder")
    outcome = matrix(files, run)
    assert outcome.code == 1
    assert "begun with a different experiment" in outcome.runs["nats"].sentence


def test_the_runner_itself_runs_it(tmp_path: Path) -> None:
    with bench(tmp_path / "unused") as rig:

        @contextlib.contextmanager
        def crowd(_: Experiment) -> Iterator[Any]:
            yield lambda: None

        def run(experiment: Experiment, folder: Path, **others: Any) -> RunOutcome:
            return run_experiment(
                experiment, folder, connect=lambda _: rig.nodes, crowd=crowd, **others
            )

        (tmp_path / "experiment.toml").write_text(render(rig.experiment(subscribers=(2,), shots=1)))
        (tmp_path / "brokers.toml").write_text(TWO)
        outcome = matrix(tmp_path, run)  # type: ignore[arg-type]
    assert outcome.code == 0
    assert [one.captured for one in outcome.runs.values()] == [1, 1]


# -- mqtick-load --------------------------------------------------------------------------------

PRINTED = {
    "fanout": {
        "rows": [{"key": "lost", "median": 3.0}],
        "lists": {"broker_first_us": [50.0, 70.0, 60.0], "broker_skew_us": [10.5, 11.5]},
        "notes": [],
    },
    "limit": {
        "rows": [
            {"key": f"limit_ingress{end}", "median": median}
            for end, median in (("", 10000.0), ("_low", 5000.0), ("_high", 20000.0))
        ],
        "notes": ["THE LOAD TOOL, ..."],
    },
}


@pytest.fixture
def load_program(tmp_path: Path) -> str:
    """A stand-in for mqtick-load, which writes down how it was called."""
    for name, printed in PRINTED.items():
        (tmp_path / name).write_text(json.dumps(printed))
    program = tmp_path / "mqtick-load"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\ncat {tmp_path}/$1\n')
    program.chmod(0o755)
    return str(program)


def loaded(files: Path, run: FakeRun, load_program: str, **others: Any) -> Any:
    made = experiments(files, subscribers=(2, 50), shots=7)
    ours = {"mosquitto": BrokerKeys(launch=("x",))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokers, "launched", lambda *_: contextlib.nullcontext())
        return run_matrix(
            made,
            files / "out",
            say=lambda _: Told(),
            run=run,
            keys=ours,
            load_program=load_program,
            **{"resume": False, **others},
        )


def test_each_broker_is_measured_by_mqtick_load_in_its_turn(
    files: Path, run: FakeRun, load_program: str
) -> None:
    outcome = loaded(files, run, load_program)
    calls = [line.split() for line in (files / "calls").read_text().splitlines()]
    # What others may use is not driven to its limit.
    assert [call[0] for call in calls] == ["fanout", "fanout", "limit", "fanout", "fanout"]
    assert [call[call.index("--subscribers") + 1] for call in calls[:2]] == ["2", "50"]
    assert all(call[call.index("--messages") + 1] == "7" for call in calls[:2])
    assert "mqtt://10.0.0.2:1884" in calls[3]
    assert calls[3][calls[3].index("--mqtt") + 1] == "3.1.1"
    text = result_text(outcome)
    rows = [line.split() for line in text.splitlines()]
    # The same columns as for shots: N, n, missed, mean, sd, median, p99, max.
    expected = ["2", "3", "3", "60.00", "10.00", "60.00"]
    assert ["mosquitto", *expected] in [row[:7] for row in rows]
    assert ["nats", *expected] in [row[:7] for row in rows]
    # A limit lies in an interval; the spread of its bisections is another thing.
    head = rows[rows.index(["mosquitto", "10000", "5000", "20000"]) - 1]
    assert head == ["broker", "limit", "from", "to"]
    assert "latency by mqtick-load: the first copy's arrival minus the message's sending" in text
    assert "messages a second to the broker, and the interval in which it lies" in text
    assert "mosquitto: THE LOAD TOOL" in text
    assert "nats: its limit was not sought" in text
    said = result_json(outcome)["brokers"]["mosquitto"]["mqtick_load"]
    assert len(said["rows"]) == 4
    assert said["limit"] == {"ingress": 10000.0, "low": 5000.0, "high": 20000.0}
    assert json.dumps(said)
    assert result_json(outcome)["brokers"]["nats"]["mqtick_load"]["limit"] is None


def test_what_mqtick_load_found_is_kept_and_not_measured_twice(
    files: Path, run: FakeRun, load_program: str
) -> None:
    loaded(files, run, load_program)
    (files / "calls").unlink()
    (files / "out" / "nats" / "mqtick-load.json").unlink()
    run.calls.clear()
    outcome = loaded(files, run, load_program, resume=True)
    assert run.calls == []
    assert len((files / "calls").read_text().splitlines()) == 2
    assert "10000      5000     20000" in result_text(outcome)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'mqtick-load: no luck.' >&2; exit 1", "mosquitto: mqtick-load fanout: no luck."),
        ("echo '{'", "mosquitto: mqtick-load fanout: Expecting"),
        ("echo '{\"rows\": 7}'", "mqtick-load.json cannot be read"),
    ],
)
def test_a_measurement_that_fails_is_said_and_the_next_one_goes_on(
    files: Path, run: FakeRun, load_program: str, script: str, says: str
) -> None:
    Path(load_program).write_text(f"#!/bin/sh\n{script}\n")
    outcome = loaded(files, run, load_program)
    assert outcome.code == 0
    assert says in result_text(outcome)


def test_ctrl_c_in_mqtick_load_ends_the_row(files: Path, run: FakeRun, load_program: str) -> None:
    Path(load_program).write_text("#!/bin/sh\nexit 130\n")
    outcome = loaded(files, run, load_program)
    assert (outcome.code, list(outcome.runs)) == (INTERRUPTED, ["mosquitto"])


# -- the command line ------------------------------------------------------------------------------


def test_the_command_line_runs_prints_and_resumes(
    files: Path, run: FakeRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run_experiment", run)
    monkeypatch.setattr(command, "found", lambda: None)
    words = ["run", str(files / "experiment.toml"), "--broker-matrix", str(files / "brokers.toml")]
    assert cli.main(words) == 2
    assert "--out FOLDER is missing" in capsys.readouterr().err
    assert cli.main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.count("mqtt://10.0.0.") == 2
    assert cli.main([*words, "--check-config"]) == 0
    out = ["--out", str(files / "out"), "--quiet"]
    assert cli.main([*words, *out, "--subscribers", "2"]) == 0
    said = capsys.readouterr()
    assert "SIMULATED: skew" in said.out
    assert "mqtick-load is not installed here" in said.err
    assert cli.main([*words, *out]) == 2
    capsys.readouterr()
    assert cli.main([*words, *out, "--resume", "--json", "--subscribers", "2"]) == 0
    assert list(json.loads(capsys.readouterr().out)["brokers"]) == ["mosquitto", "nats"]
    assert len(run.calls) == 2
