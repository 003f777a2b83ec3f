"""All instruments of a run: opened, set up, armed and read together, and reopened when lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.runner.instrument import Instrument
from mqtick.lab.runner.progress import Progress
from mqtick.lab.runner.record import setup_of
from mqtick.lab.runner.subscribers import StopRunError, pauses_s
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.recording.waveform import Waveform

T = TypeVar("T")

_ARMINGS: Final = 3
_APART: Final = 0.25
"""How far apart instruments may finish after one message, as a share of the interval."""


class Opener(Protocol):
    """Opens the instrument of a resource, like `open_instrument`."""

    def __call__(
        self, resource: str, dialect: str = "auto", *, timeout_s: float = 3.0
    ) -> Instrument:
        """Open the instrument; InstrumentError."""


class MissedShotError(Exception):
    """The event was not recorded; the text says what may be wrong."""


class Instruments:
    """Every instrument of an experiment, by name."""

    def __init__(self, experiment: Experiment, opener: Opener, say: Progress) -> None:
        self.opened: dict[str, Instrument] = {}
        self._experiment, self._opener, self._say = experiment, opener, say
        self._descriptions: dict[str, str] = {}

    def open(self) -> None:
        """Open and set up all; InstrumentError."""
        timeouts = self._experiment.timeouts
        for name, keys in self._experiment.instrument.items():
            instrument = self._opener(keys.resource, keys.dialect, timeout_s=timeouts.instrument_s)
            self.opened[name] = instrument
            known = self._descriptions.setdefault(name, instrument.description)
            if known != instrument.description:
                raise StopRunError(
                    f"{name} was {known} and is now {instrument.description}; a run needs the "
                    "same instrument throughout: put it back, or start a new folder."
                )
            instrument.set_up(setup_of(self._experiment, name))

    def regain(self, error: InstrumentError) -> None:
        """Close all and open them again, with growing pauses; StopRunError if that fails."""
        self._say.note(f"{error} Trying again.")
        for pause_s in pauses_s(self._experiment.timeouts.give_up_s):
            try:
                self.close()
                self.open()
                return
            except InstrumentError as failed:
                error = failed
                time.sleep(pause_s)
        raise StopRunError(
            f"The instrument is gone: {error} It was retried for "
            f"{self._experiment.timeouts.give_up_s:g} s."
        )

    def close(self) -> None:
        """Release all."""
        while self.opened:
            with contextlib.suppress(InstrumentError, OSError):
                self.opened.popitem()[1].close()

    def record(self, fire: Callable[[], None]) -> dict[str, Waveform]:
        """Arm, call `fire`, wait, and return the waveform of every channel.

        MissedShotError if there was no record, InstrumentError if an instrument failed.
        """
        timeouts = self._experiment.timeouts
        for _ in range(_ARMINGS):
            armed = self._each(lambda each, _name: each.arm(timeouts.arm_s))
            if all(armed.values()) and len(armed) > 1:
                # One instrument may have recorded a message before another was armed.
                armed = self._each(lambda each, _name: each.is_waiting())
            if all(armed.values()):
                break
        else:
            name = next(name for name, ready in armed.items() if not ready)
            unseen = getattr(self.opened[name], "unseen", "") or (
                f"Is its trigger {self._experiment.instrument[name].trigger} noisy, or its level "
                "wrong?"
            )
            raise MissedShotError(f"{name} fired each time before it was seen waiting. {unseen}")
        fire()
        began_s = time.monotonic()
        ended_s: dict[str, float] = {}

        def wait(each: Instrument, name: str) -> bool:
            complete = each.wait(timeouts.trigger_s)
            ended_s[name] = time.monotonic() - began_s
            return complete

        for name, complete in self._each(wait).items():
            if not complete:
                raise MissedShotError(self._no_trigger(name))
        if max(ended_s.values()) - min(ended_s.values()) > _APART * self._experiment.interval_s:
            raise MissedShotError(
                "The instruments were triggered at different times, so they may have seen "
                "different messages; do they all trigger on one pin?"
            )
        read = self._each(self._read)
        return {name: record for records in read.values() for name, record in records.items()}

    def _read(self, each: Instrument, name: str) -> dict[str, Waveform]:
        inputs = {key: of.input for key, of in self._experiment.channels_of(name).items()}
        records = each.read(list(inputs.values()))
        if missing := set(inputs.values()) - set(records):
            raise InstrumentError(f"{name} gave no record of input {min(missing)}; is it on?")
        return {key: records[number] for key, number in inputs.items()}

    def _each(self, do: Callable[[Instrument, str], T]) -> dict[str, T]:
        """Do something with all at the same time."""
        if len(self.opened) == 1:  # in the main thread, so that a signal ends it at once
            return {name: do(each, name) for name, each in self.opened.items()}
        with ThreadPoolExecutor(len(self.opened)) as pool:
            running = {name: pool.submit(do, each, name) for name, each in self.opened.items()}
            return {name: future.result() for name, future in running.items()}

    def _no_trigger(self, name: str) -> str:
        keys = self._experiment.instrument[name]
        channel = self._experiment.channel[keys.trigger]
        return (
            f"{name} was not triggered within {self._experiment.timeouts.trigger_s:g} s: no "
            f"{keys.trigger_slope} edge through {keys.trigger_level_v:g} V on {keys.trigger} "
            f"(input {channel.input}). Is {channel.node} running, is its pin {channel.pin} "
            "wired there, and is the channel on?"
        )
