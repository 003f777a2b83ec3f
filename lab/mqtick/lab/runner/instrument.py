"""The interface of all instruments for a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.settings import ScopeSettings
from mqtick.recording.waveform import Waveform


class Instrument(Protocol):
    """A connected oscilloscope or logic analyser; each method may raise InstrumentError.

    `set_up` once, then for each shot: `arm`, make the event happen, `wait`, `read`.
    """

    @property
    def description(self) -> str:
        """Manufacturer, model, serial number, firmware: for run.json."""

    @property
    def simulated(self) -> bool:
        """Whether it is a simulated instrument, or a demo device."""

    def set_up(self, settings: ScopeSettings) -> None:
        """Apply the settings."""

    def arm(self, timeout_s: float = 5.0) -> bool:
        """Begin one acquisition; True once it waits for the trigger, False if it fired already."""

    def is_waiting(self) -> bool:
        """Whether it is still waiting for the trigger for which it was armed."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until the acquisition is complete; False if it took too long and was stopped."""

    def read(self, channels: Sequence[int]) -> dict[int, Waveform]:
        """Read channels of the finished acquisition."""

    def close(self) -> None:
        """Release the instrument."""


def open_instrument(resource: str, dialect: str = "auto", *, timeout_s: float = 3.0) -> Instrument:
    """Open an instrument: a VISA resource, or "sigrok:DRIVER" for a logic analyser."""
    if resource.startswith("sigrok:"):
        return LogicAnalyser(resource)
    return Oscilloscope.open(resource, dialect, timeout_s=timeout_s)
