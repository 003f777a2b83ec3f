"""mqtick-lab run: carry out an experiment."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from mqtick.lab.commands.run_matrix import call_matrix
from mqtick.lab.runner.experiment import Experiment, example
from mqtick.lab.runner.experiment_check import load_experiment
from mqtick.lab.runner.plan import describe_plan, plan_of, plan_to_json
from mqtick.lab.runner.progress import Progress, Quiet, Watch
from mqtick.lab.runner.run import RunOutcome, run_experiment
from mqtick.lab.runner.summary import summarise
from mqtick.recording.run_folder import RunFolderError, load_run
from mqtick.service.commandline import Exit, fail
from mqtick.service.settings.load import SettingsError, add_flags, overrides_from, render

_EPILOG = """\
examples:
  mqtick-lab run --example-config > experiment.toml
  mqtick-lab run experiment.toml --dry-run
  mqtick-lab run experiment.toml --out runs/today
  mqtick-lab run experiment.toml --out runs/today --resume
  mqtick-lab run experiment.toml --out runs/brokers --broker-matrix brokers.toml

exit codes: 0 every shot was tried, 1 it ended early, 2 wrong use, 130 Ctrl-C"""


def add(commands: Any) -> None:
    """Add the parser of `run`."""
    parser = commands.add_parser(
        "run",
        help="carry out an experiment and keep it in a folder",
        description="Carry out an experiment and keep every shot in a run folder.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment", nargs="?", metavar="FILE", help="experiment file (TOML)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="run folder to create")
    parser.add_argument(
        "--broker-matrix",
        metavar="FILE",
        help="repeat it at each broker of this file, in folders below --out",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--example-config",
        action="store_true",
        help="print an experiment file to start from, with every key explained, and exit",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the complete experiment and exit"
    )
    parser.add_argument(
        "--check-config", action="store_true", help="check the experiment file and exit"
    )
    add_flags(parser, Experiment)
    parser.set_defaults(call=_call)


def _call(args: argparse.Namespace) -> int:
    if args.example_config:
        print(example(), end="")
        return Exit.GOOD
    if args.experiment is None:
        return fail(
            "no experiment file is named; `mqtick-lab run --example-config` prints one to start "
            "with",
            Exit.WRONG_USE,
        )
    if args.broker_matrix is not None:
        return call_matrix(args, overrides_from(args))
    try:
        experiment = load_experiment(args.experiment, overrides_from(args))
    except SettingsError as error:
        return fail(str(error), Exit.WRONG_USE)
    if args.print_config:
        print(render(experiment), end="")
        return Exit.GOOD
    if args.check_config:
        print(f"the experiment is good ({args.experiment})")
        return Exit.GOOD
    if args.dry_run:
        plan = plan_of(experiment)
        print(
            json.dumps({"plan": plan_to_json(plan)}, indent=1)
            if args.json
            else describe_plan(experiment, plan)
        )
        return Exit.GOOD
    if args.out is None:
        return fail("--out FOLDER is missing: where the shots are to be kept", Exit.WRONG_USE)
    say: Progress = Quiet() if args.quiet else Watch(experiment.kind)
    try:
        outcome = run_experiment(experiment, args.out, resume=args.resume, say=say)
    except RunFolderError as error:
        return fail(str(error), Exit.WRONG_USE)
    report(outcome, as_json=args.json)
    if outcome.sentence:
        again = f" Continue with: {_again(args)}" if outcome.can_resume else ""
        fail(outcome.sentence + again)
    return outcome.code


def _again(args: argparse.Namespace) -> str:
    """Return the command line that continues the run, with the flags that were given."""
    words = ["mqtick-lab", "run", args.experiment, "--out", str(args.out), "--resume"]
    for name, value in overrides_from(args).items():
        flag = "--" + name.replace(".", "-").replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [flag, text]
    return shlex.join(words)


def report(outcome: RunOutcome, *, as_json: bool) -> None:
    """Print the results in the folder, if there is a run in it."""
    if not (outcome.folder / "run.json").exists():
        return
    summary = summarise(load_run(outcome.folder))
    if as_json:
        ended = {"complete": outcome.complete, "sentence": outcome.sentence}
        print(json.dumps({**ended, "folder": str(outcome.folder), **summary.as_json()}, indent=1))
    elif summary.rows:
        print(summary.as_text())
        refused = f", {outcome.refused} refused" if outcome.refused else ""
        print(
            f"\n{outcome.captured} captured, {outcome.missed} missed{refused} in {outcome.folder}"
            f"\nreport: mqtick-report {shlex.quote(str(outcome.folder))}"
        )
