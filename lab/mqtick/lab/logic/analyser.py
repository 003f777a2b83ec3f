"""Logic analysers as instruments of a run, through sigrok-cli: 8 or 16 pins share one shot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from mqtick.lab.logic.acquisition import Acquisition, FileAcquisition, StreamAcquisition
from mqtick.lab.logic.device import Resource, ask, program_version
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.settings import ScopeSettings
from mqtick.recording.sigrok import logic_waveform
from mqtick.recording.waveform import FS_PER_SECOND, Waveform, femtoseconds

_MATCHES: Final = {"rising": "r", "falling": "f", "either": "e"}
_MOST_SAMPLES: Final = 1 << 28
_POLL_S: Final = 0.005
# From the command to sample to the first samples: a transfer over USB, and a packet.
_SETTLE_S: Final = 0.02


class LogicAnalyser:
    """A connected logic analyser; channel 1 is its first input (D0).

    Its waveforms have the codes 0 and 1. An edge lies in the middle between two samples and is off
    by half a sample at most (`recording.sigrok.logic_waveform`); the trigger's own edge is
    at 0.
    Trigger level, volts per division, offset and probe have no effect: its threshold is fixed
    (`voltage_threshold` in the resource, if it can be set). Deskew is applied when reading.

    InstrumentError if sigrok-cli is missing, or if the driver finds no device, or several.
    """

    def __init__(self, resource: str, *, program: str = "sigrok-cli") -> None:
        self._resource = Resource.parse(resource)
        self._program = program
        self._version = program_version(program)
        self.offer = ask(program, self._resource)
        self._settings: ScopeSettings | None = None
        self._acquisition: Acquisition | None = None
        self.rate_hz = 0
        """Samples per second, after `set_up`."""
        self._samples = self._before = 0

    @property
    def description(self) -> str:
        """The device, sigrok's driver for it, sigrok-cli's version."""
        return f"{self.offer.name}, driver {self._resource.driver}, {self._version}"

    @property
    def simulated(self) -> bool:
        """Whether it is sigrok's demo device, which generates its samples."""
        return self._resource.driver == "demo"

    def set_up(self, settings: ScopeSettings) -> None:
        """Choose rate and samples; InstrumentError if the device cannot do that."""
        if settings.segments > 1:
            raise InstrumentError(
                f"{self.offer.name} cannot record {settings.segments} segments; set segments to 1."
            )
        if settings.trigger.slope not in _MATCHES:
            raise InstrumentError(
                f"The trigger's slope is {settings.trigger.slope!r}, which is not one of "
                f"{', '.join(_MATCHES)}."
            )
        numbers = {channel.number for channel in settings.channels} | {settings.trigger.channel}
        for number in numbers:
            self._name(number)
        rate_hz = self.offer.rate_hz(
            settings.points / settings.span_s, self._resource.driver, wide=max(numbers) > 8
        )
        samples = round(settings.span_s * rate_hz)
        if not 2 <= samples <= _MOST_SAMPLES:
            raise InstrumentError(
                f"{settings.span_s:g} s at {rate_hz} samples/s are {samples} samples, but only "
                f"2 to {_MOST_SAMPLES} can be recorded; change the time span."
            )
        self.rate_hz, self._samples = rate_hz, samples
        self._before = min(round(settings.before * samples), samples - 1)
        self._settings = settings

    def _name(self, number: int) -> str:
        if not 1 <= number <= len(self.offer.channels):
            raise InstrumentError(
                f"{self.offer.name} has no channel {number}; it has 1 to "
                f"{len(self.offer.channels)} ({self.offer.channels[0]} to "
                f"{self.offer.channels[-1]})."
            )
        return self.offer.channels[number - 1]

    def _begin(self, settings: ScopeSettings) -> Acquisition:
        trigger, slope = settings.trigger.channel, settings.trigger.slope
        numbers = sorted({channel.number for channel in settings.channels} | {trigger})
        if self.simulated:  # of n channels the demo fills the first n (demo/protocol.c)
            numbers = list(range(1, numbers[-1] + 1))
        names = ",".join(self._name(number) for number in numbers)
        config = f"samplerate={self.rate_hz}"
        by_driver = self._driver_triggers(_MATCHES[slope])
        if by_driver and "captureratio" in self.offer.options:
            config += f":captureratio={round(100 * self._before / self._samples)}"
        command = [self._program, "--loglevel", "3", *self._resource.arguments]
        for each in (config, *self._resource.config):
            command += ["--config", each]
        command += ["--channels", names]
        if by_driver:
            at = self._samples * round(100 * self._before / self._samples) // 100
            command += ["--triggers", f"{self._name(trigger)}={_MATCHES[slope]}"]
            command += ["--samples", str(self._samples)]
            edge = (self._name(trigger), slope)
            return FileAcquisition(command, edge, at, self._samples)
        octets = -(-len(self.offer.channels) // 8)
        return StreamAcquisition(command, trigger - 1, slope, self._before, self._samples, octets)

    def _driver_triggers(self, match: str) -> bool:
        able = match in self.offer.matches and "limit_samples" in self.offer.options
        free = "continuous" in self.offer.options
        wanted = self._resource.trigger
        # The demo ends after the requested number of samples, even without a trigger.
        if wanted == "auto":
            wanted = "driver" if able and not (self.simulated and free) else "software"
        if (wanted == "driver" and not able) or (wanted == "software" and not free):
            raise InstrumentError(
                f"{self.offer.name} can neither trigger on this slope nor send enough samples "
                "without a gap; choose another slope, or another trigger= in the "
                "resource."
            )
        return wanted == "driver"

    def arm(self, timeout_s: float = 5.0) -> bool:
        """Begin one acquisition; True once the part before the trigger is filled."""
        if self._settings is None:
            raise InstrumentError(f"{self.offer.name} was not set up; set it up before arming.")
        self._end()
        acquisition = self._acquisition = self._begin(self._settings)
        end_s = time.monotonic() + timeout_s
        try:
            while not acquisition.armed.wait(_POLL_S):
                if acquisition.complete():
                    return True
                if time.monotonic() > end_s:
                    raise InstrumentError(
                        f"{self.offer.name} did not begin to sample within {timeout_s:g} s "
                        f"({acquisition.complaint}); unplug it and plug it in again."
                    )
        except InstrumentError:
            self._end()
            raise
        if isinstance(acquisition, FileAcquisition):
            time.sleep(_SETTLE_S + self._before / self.rate_hz)
        return True

    def is_waiting(self) -> bool:
        """Whether its record is not complete yet; the device reports no other state."""
        return not self._armed().complete()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the acquisition is complete; False if it took too long and was stopped."""
        acquisition = self._armed()
        end_s = time.monotonic() + timeout_s
        try:
            while not acquisition.complete():
                if time.monotonic() > end_s:
                    self._end()
                    return False
                time.sleep(_POLL_S)
        except InstrumentError:
            self._end()
            raise
        acquisition.stop()
        return True

    def _armed(self) -> Acquisition:
        if self._acquisition is None:
            raise InstrumentError(f"{self.offer.name} was not armed, so it has no record.")
        return self._acquisition

    def read(self, channels: Sequence[int]) -> dict[int, Waveform]:
        """Read channels of the finished acquisition."""
        acquisition, settings = self._armed(), self._settings
        assert settings is not None
        if not acquisition.complete():
            raise InstrumentError(f"{self.offer.name} is still recording; wait for it first.")
        recorded = {channel.number for channel in settings.channels} | {settings.trigger.channel}
        for number in channels:
            if number not in recorded:
                raise InstrumentError(
                    f"Channel {number} was not recorded; add it to the experiment's channels."
                )
        levels, trigger = acquisition.read({number: self._name(number) for number in channels})
        interval_fs = round(FS_PER_SECOND / self.rate_hz)
        deskew_fs = {c.number: femtoseconds(c.deskew_s) for c in settings.channels}
        # The trigger's edge, half a sample before the first one after it, is 0.
        start_fs = -((2 * trigger - 1) * interval_fs) // 2
        return {
            number: logic_waveform(bits, interval_fs, start_fs - deskew_fs.get(number, 0))
            for number, bits in levels.items()
        }

    def _end(self) -> None:
        acquisition, self._acquisition = self._acquisition, None
        if acquisition is not None:
            acquisition.end()

    def close(self) -> None:
        """Stop a running acquisition."""
        self._end()
