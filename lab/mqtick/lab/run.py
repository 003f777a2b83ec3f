"""Runs an experiment: brings subscribers up, captures shots, keeps them in a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mqtick.lab.experiment import Experiment
from mqtick.lab.progress import Progress
from mqtick.service.commandline import Exit

__all__ = ["RunOutcome", "run_experiment"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        code: exit code; 130 where a signal ended it.
        sentence: why it ended before its plan did, and how to go on; "" where it is complete.
        folder: the run folder; it can be read whatever happened.
        captured, missed, refused: shots in the folder by outcome.
    """

    code: int
    sentence: str
    folder: Path
    captured: int = 0
    missed: int = 0
    refused: int = 0

    @property
    def complete(self) -> bool:
        """Whether every shot of the plan was tried."""
        return not self.sentence


def run_experiment(
    experiment: Experiment, folder: Path, *, resume: bool = False, say: Progress
) -> RunOutcome:
    """Run what is left of an experiment and keep it in `folder`.

    RunFolderError where the folder cannot be used; whatever happens later is in the outcome.
    """
    return RunOutcome(Exit.FAILED, "Not written yet.", folder)
