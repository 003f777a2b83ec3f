"""Runs an experiment and saves it in a run folder, also after errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.lab.runner.bring_up import Nodes
from mqtick.lab.runner.control import Control, NodeError
from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.runner.instrument import open_instrument
from mqtick.lab.runner.instruments import Opener
from mqtick.lab.runner.local_crowd import CrowdStartError, local_crowd
from mqtick.lab.runner.lock import BusyError, lock
from mqtick.lab.runner.loop import RunLoop
from mqtick.lab.runner.progress import Progress
from mqtick.lab.runner.signals import InterruptedRunError, Signals
from mqtick.lab.runner.subscribers import StopRunError
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.mqtt.broker import BrokerError, broker_from
from mqtick.recording.run_folder import RunFolderError, load_run, refuse_used
from mqtick.recording.shot import CAPTURED, MISSED, REFUSED
from mqtick.service.commandline import Exit

INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        code: exit code; 130 if a signal ended it.
        sentence: why it ended before the end of its plan; "" if it is complete.
        folder: the run folder; it can be read in any case.
        captured, missed, refused: shots in the folder by outcome.
    """

    code: int
    sentence: str
    folder: Path
    captured: int = 0
    missed: int = 0
    refused: int = 0
    can_resume: bool = False
    """Whether the folder has a run with shots that were refused, or not tried yet."""

    @property
    def complete(self) -> bool:
        """Whether the plan was carried out, with at least one good shot."""
        return not self.sentence


def _connect(experiment: Experiment) -> Nodes:
    return Control(broker_from(experiment), experiment.prefix)


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    say: Progress,
    connect: Callable[[Experiment], Nodes] = _connect,
    opener: Opener = open_instrument,
    crowd: Callable[
        [Experiment], contextlib.AbstractContextManager[Callable[[], None]]
    ] = local_crowd,
) -> RunOutcome:
    """Run the remaining shots of an experiment and save them in `folder`.

    RunFolderError if the folder cannot be used, or was begun with another experiment; later errors
    are in the outcome. `connect`, `opener` and `crowd` connect to nodes and instruments, and start
    the crowd of this host.
    """
    signals = Signals()
    run = RunLoop(experiment, folder, say, signals)
    code: int = Exit.GOOD
    sentence = ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(signals.caught())
        try:
            stack.enter_context(_locked_folder(folder, resume=resume))
            run.begin(stack, resume, connect, opener, crowd)
            run.all_blocks()
        except InterruptedRunError:
            code, sentence = INTERRUPTED, "The run was interrupted; every shot before it is kept."
        except (
            StopRunError,
            BusyError,
            NodeError,
            InstrumentError,
            BrokerError,
            CrowdStartError,
        ) as error:
            code, sentence = Exit.FAILED, str(error)
        except OSError as error:
            code = Exit.FAILED
            sentence = f"The run ended: {error}."
        finally:
            signals.ignore()
            run.end(sentence)
    outcomes = run.outcomes
    can_resume = run.begun and bool(sentence or outcomes[REFUSED])
    if not sentence and outcomes[REFUSED]:
        code = Exit.FAILED
        sentence = f"{outcomes[REFUSED]} shots were refused: {run.refusal}"
    elif not sentence and not outcomes[CAPTURED]:
        code = Exit.FAILED
        sentence = f"No shot was captured, the last one because: {run.miss}"
    return RunOutcome(
        code, sentence, folder, outcomes[CAPTURED], outcomes[MISSED], outcomes[REFUSED], can_resume
    )


@contextlib.contextmanager
def _locked_folder(folder: Path, *, resume: bool) -> Iterator[None]:
    if resume:
        load_run(folder)
    else:
        refuse_used(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{folder} cannot be made ({error.strerror}).") from error
    file = folder / ".lock"
    with lock(file, f"The run folder {folder}"):
        try:
            yield
        finally:
            if not (folder / "run.json").exists():  # the run did not begin
                with contextlib.suppress(OSError):
                    file.unlink()
                    folder.rmdir()
