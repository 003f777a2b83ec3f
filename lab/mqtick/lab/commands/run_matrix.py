"""`mqtick-lab run --broker-matrix`: the same experiment over several brokers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from mqtick.lab.brokers.load import MISSING, found
from mqtick.lab.brokers.matrix import (
    experiments_of,
    load_brokers,
    result_json,
    result_text,
    run_matrix,
)
from mqtick.lab.runner.plan import describe_plan, plan_of, plan_to_json
from mqtick.lab.runner.progress import Quiet, Watch
from mqtick.lab.runner.run import run_experiment
from mqtick.recording.run_folder import RunFolderError
from mqtick.service.commandline import Exit, fail
from mqtick.service.settings.load import SettingsError


def call_matrix(args: argparse.Namespace, overrides: Mapping[str, object]) -> int:
    """Carry out `run` with `--broker-matrix`; returns the exit code."""
    try:
        experiments = experiments_of(args.experiment, args.broker_matrix, overrides)
    except SettingsError as error:
        return fail(str(error), Exit.WRONG_USE)
    if args.check_config:
        print(f"the experiment is good for {', '.join(experiments)}")
        return Exit.GOOD
    if args.print_config:
        sentence = "--print-config shows one experiment: leave --broker-matrix out"
        return fail(sentence, Exit.WRONG_USE)
    if args.dry_run:
        plans = {name: plan_of(one) for name, one in experiments.items()}
        if args.json:
            said = {name: {"plan": plan_to_json(plan)} for name, plan in plans.items()}
            print(json.dumps({"brokers": said}, indent=1))
        else:
            print("\n\n".join(describe_plan(experiments[name], plans[name]) for name in plans))
        return Exit.GOOD
    if args.out is None:
        return fail("--out FOLDER is missing: where the runs are to be kept", Exit.WRONG_USE)
    load_program = found()
    if load_program is None:
        print(MISSING, file=sys.stderr)
    try:
        outcome = run_matrix(
            experiments,
            args.out,
            resume=args.resume,
            say=lambda one: Quiet() if args.quiet else Watch(one.kind),
            run=run_experiment,
            keys=load_brokers(args.broker_matrix),
            load_program=load_program,
        )
    except RunFolderError as error:
        return fail(str(error), Exit.WRONG_USE)
    print(json.dumps(result_json(outcome), indent=1) if args.json else result_text(outcome))
    if outcome.code:
        fail(
            "Not every run is complete; what was recorded is kept. Continue with the same command "
            "and --resume."
        )
    return outcome.code
