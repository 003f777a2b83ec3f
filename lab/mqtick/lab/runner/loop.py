"""The loop of a run: blocks, shots, handling of faults, saving."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mqtick.lab.runner.bring_up import Nodes
from mqtick.lab.runner.control import NodeError, NodeSilentError
from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.runner.instruments import Instruments, MissedShotError, Opener
from mqtick.lab.runner.lock import lock, lock_of
from mqtick.lab.runner.plan import Batch, plan_from_json, plan_of
from mqtick.lab.runner.progress import Progress
from mqtick.lab.runner.record import first_difference, is_simulated, record_of, session_of
from mqtick.lab.runner.signals import Signals
from mqtick.lab.runner.subscribers import StopRunError, Subscribers
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.recording.judge import judge_triggered
from mqtick.recording.layout import layout_of
from mqtick.recording.run_folder import (
    Run,
    RunFolderError,
    create_run,
    load_run,
    shot_path,
    write_record,
)
from mqtick.recording.shot import CAPTURED, MISSED, REFUSED, Shot, write_shot
from mqtick.recording.waveform import Waveform

_ATTEMPTS: Final = 3


class RunLoop:
    """A run from start to end; `run_experiment` handles its exceptions."""

    def __init__(
        self, experiment: Experiment, folder: Path, say: Progress, signals: Signals
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self.refusal = ""
        self.miss = ""
        self._experiment, self._folder = experiment, folder
        self._say, self._signals = say, signals
        self._record: dict[str, Any] = {}
        self._done: set[int] = set()
        self._plan: tuple[Batch, ...] = ()
        self._misses = 0
        self._simulated = False
        self._subscribers: Subscribers | None = None
        self._instruments: Instruments | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a record of the run."""
        return bool(self._record)

    # -- begin and end -----------------------------------------------------------------------

    def begin(
        self,
        stack: contextlib.ExitStack,
        resume: bool,
        connect: Callable[[Experiment], Nodes],
        opener: Opener,
        crowd: Callable[[Experiment], contextlib.AbstractContextManager[Callable[[], None]]],
    ) -> None:
        """Connect to instruments and nodes, then begin the folder, or read its content."""
        experiment = self._experiment
        before = self._read_earlier() if resume else None
        if before is not None and not self._left():
            self._record = before.record
            return
        for name, instrument in experiment.instrument.items():
            what = f"The instrument {name} ({instrument.resource})"
            stack.enter_context(lock(lock_of(instrument.resource), what))
        if experiment.kind != "clock":  # two runs would disturb each other's subscribers
            where = f"{experiment.broker} {experiment.prefix}"
            stack.enter_context(lock(lock_of(where), f"The bench at {experiment.broker}"))
        nodes = connect(experiment)
        stack.callback(nodes.close)
        nodes.start(experiment.timeouts.broker_s)
        refuse_ended: Callable[[], None] = lambda: None  # noqa: E731
        if experiment.kind != "clock" and max(experiment.subscribers) > 1:
            refuse_ended = stack.enter_context(crowd(experiment))
        self._subscribers = Subscribers(nodes, experiment, self._say)
        stack.callback(self._subscribers.release)
        infos = self._subscribers.infos(refuse_ended)
        self._instruments = Instruments(experiment, opener, self._say)
        stack.callback(self._instruments.close)
        self._instruments.open()
        session = session_of(experiment, self._instruments.opened, infos)
        self._simulated = is_simulated(experiment, session)
        if before is None:
            self._plan = plan_of(experiment)
            record = record_of(experiment, self._plan, session)
            create_run(self._folder, record)
            self._record = record
            self._say.begin(self._total())
        else:
            self._note_change(before, session)
            self._record = before.record
            self._record["sessions"] = [*before.record.get("sessions", []), session]
            self._record["simulated"] = before.simulated or self._simulated
            with self._writing():
                write_record(self._folder, self._record)

    def _total(self) -> int:
        return sum(block.shots for block in self._plan)

    def _left(self) -> bool:
        """Whether a shot of the plan is not done."""
        return any(number not in self._done for block in self._plan for number in block.numbers())

    def _note_change(self, before: Run, session: dict[str, Any]) -> None:
        """Tell the user if a resumed run has a different instrument; run.json has both."""
        earlier = before.record.get("sessions") or [{}]
        for name, instrument in session["instruments"].items():
            try:
                was = earlier[0]["instruments"][name]["description"]
            except (TypeError, KeyError):
                continue
            if was not in (None, instrument["description"]):
                self._say.note(
                    f"{name} is now {instrument['description']} but was {was} when the run began; "
                    "the shots of both are in one folder."
                )

    def _read_earlier(self) -> Run:
        run = load_run(self._folder)
        if difference := first_difference(self._experiment, run.record):
            raise RunFolderError(
                f"{self._folder} was begun with a different experiment: {difference}. Undo "
                "that change, or start a new folder."
            )
        try:
            self._plan = plan_from_json(run.record.get("plan"))
        except ValueError as error:
            raise RunFolderError(f"{self._folder} cannot be resumed: {error}") from error
        self._say.begin(self._total())
        for shot in run.shots():
            if shot.outcome != REFUSED:  # the cause of a refusal may have been fixed since
                self._count(shot)
        return run

    def end(self, sentence: str) -> None:
        """Write to run.json how the run ended, if possible."""
        self._say.end()
        if self._record:
            self._record["ended"] = {"at_ns": time.time_ns(), "early_because": sentence}
            with contextlib.suppress(OSError):
                write_record(self._folder, self._record)

    # -- blocks and shots --------------------------------------------------------------------

    def all_blocks(self) -> None:
        """Take the remaining shots of the plan."""
        for block in self._plan:
            left = [number for number in block.numbers() if number not in self._done]
            if not left:
                continue
            assert self._subscribers is not None
            refusal = self._subscribers.bring_up(block.subscribers)
            for number in left:
                if refusal:
                    self.refusal = refusal
                    self._keep(self._blank(block, number, REFUSED, refusal), {})
                else:
                    shot, waveforms = self._shot(block, number)
                    if shot.outcome == REFUSED:
                        refusal = self.refusal = shot.reason
                    if number == left[-1]:
                        counts = self._subscribers.counts()
                        shot = replace(shot, nodes={**shot.nodes, **counts})
                    self._keep(shot, waveforms)
                    if self._experiment.fire == "request":
                        time.sleep(self._experiment.interval_s)

    def _blank(self, block: Batch, number: int, outcome: str, reason: str = "") -> Shot:
        return Shot(
            number,
            block.subscribers,
            outcome,
            reason,
            time.time_ns(),
            round=block.round,
            simulated=self._simulated,
        )

    def _shot(self, block: Batch, number: int) -> tuple[Shot, dict[str, Waveform]]:
        """Take one shot; repeat it if an instrument or the broker was lost meanwhile."""
        assert self._instruments is not None
        assert self._subscribers is not None
        fault = ""
        for _ in range(_ATTEMPTS):
            try:
                shot, waveforms = self._capture(block, number)
                if self._subscribers.settled(thorough=shot.outcome != CAPTURED):
                    return shot, waveforms
                fault = "The broker or a node was away meanwhile."
            except InstrumentError as error:
                fault = str(error)
                self._instruments.regain(error)
                continue
            except NodeSilentError as error:
                fault = str(error)
            if refusal := self._subscribers.regain(block.subscribers, fault):
                return self._blank(block, number, REFUSED, refusal), {}
        return self._blank(block, number, MISSED, fault), {}

    def _capture(self, block: Batch, number: int) -> tuple[Shot, dict[str, Waveform]]:
        """Take one shot; InstrumentError, NodeError."""
        assert self._instruments is not None
        assert self._subscribers is not None
        blank = self._blank(block, number, CAPTURED)
        try:
            waveforms = self._instruments.record(self._subscribers.fire)
        except NodeSilentError:
            raise
        except (MissedShotError, NodeError) as error:  # NodeError: the server could not fire
            nodes, idle = self._subscribers.edges()
            return replace(blank, outcome=MISSED, reason=f"{error}{idle}", nodes=nodes), {}
        layout = layout_of(self._record)  # judge the shot as a report will do later
        shot = judge_triggered(layout, waveforms, blank)
        nodes, idle = self._subscribers.edges()
        return replace(shot, reason=shot.reason and shot.reason + idle, nodes=nodes), waveforms

    def _keep(self, shot: Shot, waveforms: dict[str, Waveform]) -> None:
        """Write a shot; StopRunError after too many missed ones in a row."""
        with self._signals.held():
            with self._writing():
                write_shot(shot_path(self._folder, shot.number), shot, waveforms)
            self._count(shot)
        self._misses = self._misses + 1 if shot.outcome == MISSED else 0
        if self._misses >= self._experiment.timeouts.misses:
            raise StopRunError(
                f"{self._misses} shots in a row were missed, the last one because: {shot.reason}"
            )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StopRunError(
                f"{self._folder} cannot be written ({error.strerror or error}); what was recorded "
                "is complete. Make room, then continue."
            ) from error

    def _count(self, shot: Shot) -> None:
        self._done.add(shot.number)
        self.outcomes[shot.outcome] += 1
        self.miss = shot.reason if shot.outcome == MISSED else self.miss
        self._say.shot(shot)
