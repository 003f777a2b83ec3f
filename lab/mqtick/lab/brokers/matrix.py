"""One experiment over several brokers in turn, with a run folder for each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from mqtick.lab.brokers import load as by_load
from mqtick.lab.brokers.launch import LaunchError, launched, prepared, recipes
from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.runner.experiment_check import load_experiment
from mqtick.lab.runner.progress import Progress
from mqtick.lab.runner.record import first_difference
from mqtick.lab.runner.run import INTERRUPTED, RunOutcome
from mqtick.lab.runner.summary import HEAD, Summary, SummaryRow, row_text, summarise
from mqtick.mqtt.broker import Broker, BrokerError, broker_from
from mqtick.recording.run_folder import RunFolderError, load_run, refuse_used
from mqtick.recording.shot import REFUSED
from mqtick.service.commandline import Exit
from mqtick.service.settings.load import SettingsError, key, load, tables
from mqtick.service.settings.program import BrokerSettings


@dataclass(frozen=True, slots=True)
class BrokerKeys(BrokerSettings):
    """One broker, with its own nodes; other keys are not inherited."""

    prefix: str = key("", "First level of the topics at this broker; empty: the experiment's.")
    experiment: str = key(
        "",
        "Experiment file for this broker, if its nodes are wired differently; a path relative "
        "to the folder of this file. Empty: that of the command line.",
    )

    launch: tuple[str, ...] = key(
        (),
        "Program and arguments that run this broker on this host for its turn, as "
        '["mqtick-broker", "--config", "broker.toml"]; empty: it runs already. Relative paths '
        "begin where mqtick-lab was started.",
    )
    recipe: str = key(
        "",
        "Broker that is run on this host for its turn with a configuration of the lab's, by the "
        "name of its recipe: " + ", ".join(recipes()) + "; empty: none.",
        choices=("", *recipes()),
    )


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers over which an experiment is repeated."""

    broker: Mapping[str, BrokerKeys] = tables(BrokerKeys, "The brokers, in order.")


def load_brokers(path: str | os.PathLike[str]) -> dict[str, BrokerKeys]:
    """Read a file of `[broker.NAME]` tables; SettingsError if it cannot be used."""
    found = dict(load(Brokers, path).broker)
    if not found:
        raise SettingsError(
            f"{os.fspath(path)}: names no broker; begin with a line [broker.mosquitto] and its "
            'address, as broker = "mqtt://HOST"'
        )
    return found


def experiments_of(
    path: str | os.PathLike[str],
    brokers_path: str | os.PathLike[str],
    overrides: Mapping[str, object] | None = None,
) -> dict[str, Experiment]:
    """Return the experiment of each broker by its name; SettingsError if one cannot be run."""
    overrides = overrides or {}
    keys = [field.name for field in fields(BrokerSettings)]
    if both := sorted({*keys, "prefix"} & set(overrides)):
        flag = "--" + both[0].replace("_", "-")
        raise SettingsError(
            f"{flag} and --broker-matrix contradict each other: each broker has its own "
            f"{both[0]} in {os.fspath(brokers_path)}"
        )
    made = {}
    for name, broker in load_brokers(brokers_path).items():
        file = Path(brokers_path).parent / broker.experiment if broker.experiment else path
        experiment = load_experiment(file, overrides)
        experiment = replace(
            experiment,
            prefix=broker.prefix or experiment.prefix,
            title=f"{experiment.title} ({name})".strip(),
            **{one: getattr(broker, one) for one in keys},
        )
        try:
            if broker_from(experiment).scheme == "mqtt+udp" and broker.launch:
                raise BrokerError("launch: over UDP nobody sees whether it listens; start it first")
            if broker.recipe:
                _refuse_recipe(broker, broker_from(experiment))
        except BrokerError as error:
            raise SettingsError(f"{os.fspath(brokers_path)}: broker.{name}: {error}") from error
        made[name] = experiment
    return made


def _refuse_recipe(keys: BrokerKeys, broker: Broker) -> None:
    """Raise BrokerError if a recipe cannot serve an address."""
    if keys.launch:
        raise BrokerError("launch and recipe contradict each other: leave one of them out")
    if broker.scheme != "mqtt" or ":" in broker.host:
        raise BrokerError(f"recipe: it serves mqtt://HOST[:PORT] with IPv4, not {broker.address}")


class Run(Protocol):
    """A function that runs one experiment: `mqtick.lab.runner.run.run_experiment`."""

    def __call__(
        self, experiment: Experiment, folder: Path, *, resume: bool, say: Progress
    ) -> RunOutcome:
        """Run the experiment; RunFolderError if the folder cannot be used."""


@dataclass(frozen=True, slots=True)
class MatrixOutcome:
    """How the runs ended, by broker; without brokers whose turn did not come."""

    code: int
    runs: Mapping[str, RunOutcome]


def _finished(experiment: Experiment, folder: Path) -> RunOutcome | None:
    """Return the outcome if the folder has a complete run of this experiment."""
    run = load_run(folder)
    ended = run.record.get("ended")
    if not isinstance(ended, dict) or ended.get("early_because") != "":
        return None
    if first_difference(experiment, run.record):
        return None  # the runner will refuse it
    outcomes = [shot.outcome for shot in run.shots()]
    if run.damaged or REFUSED in outcomes:
        return None
    captured = outcomes.count("captured")
    return RunOutcome(Exit.GOOD, "", folder, captured, len(outcomes) - captured)


@contextlib.contextmanager
def _turn(keys: BrokerKeys, broker: Broker) -> Iterator[None]:
    """Run the broker for the length of a with block, if its keys have a command or a recipe."""
    with contextlib.ExitStack() as stack:
        command: Sequence[str] = keys.launch
        if keys.recipe:
            command = stack.enter_context(prepared(keys.recipe, broker))
        stack.enter_context(launched(command, broker))
        yield


def run_matrix(
    experiments: Mapping[str, Experiment],
    out: Path,
    *,
    resume: bool,
    say: Callable[[Experiment], Progress],
    run: Run,
    keys: Mapping[str, BrokerKeys] | None = None,
    load_program: str | None = None,
) -> MatrixOutcome:
    """Run each experiment in its folder `out/NAME`; if one fails, the others go on.

    `keys`: by name, how to run the broker. `load_program`: the path of mqtick-load, which measures
    the broker after its experiment; None: no such measurement.

    Only Ctrl-C ends the series. With `resume`, complete runs are skipped, started ones continue,
    and the rest start. RunFolderError, before the first run, if a folder cannot be used.
    """
    if not resume:
        for name in experiments:
            refuse_used(out / name)
    runs: dict[str, RunOutcome] = {}
    for name, experiment in experiments.items():
        folder = out / name
        begun = resume and (folder / "run.json").exists()
        done = _finished(experiment, folder) if begun else None
        if done is None or (load_program and not by_load.is_kept(folder)):
            watch = say(experiment)
            watch.note(f"{name}: {experiment.broker}")
            own = (keys or {}).get(name, BrokerKeys())
            try:
                with _turn(own, broker_from(experiment)):
                    done = done or run(experiment, folder, resume=begun, say=watch)
                    if load_program and done.code != INTERRUPTED:
                        mine = bool(own.launch or own.recipe)
                        by_load.measured(
                            load_program, experiment, folder, limit=mine, note=watch.note
                        )
            except KeyboardInterrupt:
                done = RunOutcome(INTERRUPTED, "mqtick-load was interrupted.", folder)
            except LaunchError as error:
                done = RunOutcome(Exit.FAILED, str(error), folder)
            except RunFolderError as error:
                if not runs:
                    raise
                done = RunOutcome(Exit.WRONG_USE, str(error), folder)
        runs[name] = done
        if done.code == INTERRUPTED:
            break
    codes = [outcome.code for outcome in runs.values()]
    code = INTERRUPTED if INTERRUPTED in codes else Exit.FAILED if any(codes) else Exit.GOOD
    return MatrixOutcome(code, runs)


def _summaries(outcome: MatrixOutcome) -> Iterator[tuple[str, Summary]]:
    for name, one in outcome.runs.items():
        if (one.folder / "run.json").exists():
            yield name, summarise(load_run(one.folder))


def result_text(outcome: MatrixOutcome) -> str:
    """Return one table per quantity, with a row for each broker and N; durations in us."""
    found = list(_summaries(outcome))
    loaded = {name: by_load.loaded(one.folder) for name, one in outcome.runs.items()}
    width = max([6, *(len(name) for name in outcome.runs)])
    label = "SIMULATED: " if any(summary.simulated for _, summary in found) else ""
    lines: list[str] = []
    every: list[tuple[str, SummaryRow, str]] = []
    for name, one in found:
        every += [(f"{label}{row.quantity}, in us", row, name) for row in one.rows]
    for name, measured in loaded.items():
        every += [(f"{row.quantity}, in us", row, name) for row in measured.rows]
    for heading in dict.fromkeys(heading for heading, _, _ in every):
        lines += ["", heading, f"{'broker':<{width}}{HEAD}"]
        rows = [(row, name) for one, row, name in every if one == heading]
        lines += [
            f"{name:<{width}}{row_text(replace(row, published=None))}"
            for row, name in sorted(rows, key=lambda one: one[0].subscribers)
        ]
    limits = [(name, one.limit) for name, one in loaded.items() if one.limit]
    if limits:
        lines += ["", by_load.LIMIT, f"{'broker':<{width}}{by_load.Limit.HEAD}"]
        lines += [f"{name:<{width}}{limit.as_text()}" for name, limit in limits]
    lines += [
        "",
        "The brokers were measured one after another: what changed meanwhile (temperature, "
        "load) looks like a difference between brokers.",
    ]
    lines += [f"{name}: {one.sentence}" for name, one in outcome.runs.items() if one.sentence]
    lines += [f"{name}: {said}" for name, one in loaded.items() for said in one.notes]
    return "\n".join(lines).lstrip("\n")


def result_json(outcome: MatrixOutcome) -> dict[str, Any]:
    """Return what is in the folders, for programs; durations in us, limits in messages a second."""
    rows = {name: summary.as_json() for name, summary in _summaries(outcome)}
    return {
        "brokers": {
            name: {
                **{one: value for one, value in asdict(each).items() if one != "folder"},
                "folder": str(each.folder),
                "complete": each.complete,
                **rows.get(name, {}),
                "mqtick_load": asdict(by_load.loaded(each.folder)),
            }
            for name, each in outcome.runs.items()
        },
    }
