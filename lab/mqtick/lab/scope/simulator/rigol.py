"""What the simulated Rigols have in common.

Sources: the programming guides; what they leave out from libsigrok, scopehal and pymeasure. Sample
rates go in steps of 1, 2, 2.5, 4 and 5; where the depth does not fit the screen with them, the
memory is longer than the screen, as it is on a real DHO800.
"""

from __future__ import annotations

import time
from typing import ClassVar

from mqtick.lab.scope.setup import State
from mqtick.lab.scope.simulator.front import boolean
from mqtick.lab.scope.simulator.model import Model
from mqtick.lab.scope.simulator.rigol_record import Recorder
from mqtick.lab.scope.simulator.rigol_waveform import RigolWaveform, channel_of, choice_of

__all__ = ["RigolFront"]

_STATES = {
    State.STOPPED: "STOP",
    State.PREPARING: "RUN",
    State.ARMED: "WAIT",
    State.TRIGGERED: "TD",
}
_SLOPES = {"POS": "rising", "NEG": "falling", "RFAL": "either"}
_MULTIPLES = {"K": 1e3, "M": 1e6}
_LARGEST_OFFSET_S = 1e3
_TCAL_SCALE_S, _TCAL_LIMIT_S = 10e-6, 100e-9


class RigolFront(RigolWaveform):
    """What they have in common."""

    depths: ClassVar[tuple[tuple[int, ...], ...]]
    """Memory depths with one, two, three and four channels on."""
    record: ClassVar[str] = ":RECord"
    frames: ClassVar[str] = "FRAMes"
    tags: ClassVar[bool] = True
    lag_s: ClassVar[float] = 0.03
    """How long after :SINGle it still says STOP; 0.3 s on real ones."""
    says_refused_depth: ClassVar[bool] = True
    """Whether a depth that it does not accept is an error."""
    stale_depth: ClassVar[bool] = False
    """Whether reading keeps the old depth until the mode has changed."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.depth = self.depths[0][0]
        self._sweep, self._begins_s = "AUTO", float("-inf")
        self.recorder = Recorder(self)
        self._add_acquisition()
        self._add_inputs()
        self._fit()

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on(":SINGle", lambda _: self._single())
        on(":RUN", lambda _: self.start(single=False))
        on(":STOP", lambda _: model.stop())
        on(":TFORce", lambda _: model.force())
        on(":TRIGger:STATus?", lambda _: self._status())
        on(":TRIGger:SWEep", lambda text: setattr(self, "_sweep", text.upper()[:4]))
        on(":TRIGger:SWEep?", lambda _: self._sweep)
        on(":TRIGger:MODE", lambda _: None)
        on(":TRIGger:COUPling", lambda _: None)
        on(":TRIGger:EDGE:SOURce", lambda text: setattr(model, "trigger_channel", channel_of(text)))
        on(":TRIGger:EDGE:SLOPe", self._set_slope)
        on(":TRIGger:EDGE:LEVel", lambda text: setattr(model, "trigger_level_v", float(text)))
        on(":ACQuire:TYPE", lambda _: None)
        on(":ACQuire:MDEPth", self._set_depth)
        on(":ACQuire:MDEPth?", lambda _: self.depth_text())
        on(":ACQuire:SRATe?", lambda _: f"{model.rate_hz:.6E}")
        on(":TIMebase:MODE", lambda _: None)
        on(":TIMebase:DELay:ENABle", lambda _: None)
        on(":TIMebase[:MAIN]:SCALe", self._set_scale)
        on(":TIMebase[:MAIN]:SCALe?", lambda _: f"{self.scale_s:.6E}")
        on(":TIMebase[:MAIN]:OFFSet", self._set_offset)
        on(":TIMebase[:MAIN]:OFFSet?", lambda _: f"{self.offset_s:.6E}")
        on(":SYSTem:ERRor[:NEXT]?", lambda _: self.scpi.next_error())
        on(":DISPlay:DATA?", lambda _: self.block(self.screen()))

    def _status(self) -> str:
        state = self.model.poll()
        return "STOP" if time.monotonic() < self._begins_s else _STATES[state]

    def _single(self) -> None:
        if self.recorder.enabled:
            raise ValueError
        self._sweep = "SING"
        self.start(single=True)

    def start(self, *, single: bool, segments: int = 1) -> None:
        """Begin to record that many frames."""
        for source in self.model.inputs.values():
            # The offset comes in steps of eight bits, so that yorigin can be a whole number.
            step = source.volts_per_division * self.model.physics.divisions / 256
            source.offset_v = round(source.offset_v / step) * step
        self.model.segments = segments
        self.model.start(single=single)
        self._begins_s = time.monotonic() + (self.lag_s if single else 0.0)

    def frame_index(self) -> int:
        """Return the frame that is played, or the last one."""
        return self.recorder.shown - 1 if self.recorder.enabled else -1

    def _set_slope(self, text: str) -> None:
        self.model.trigger_slope = _SLOPES[choice_of(text, _SLOPES)]

    def _set_depth(self, text: str) -> None:
        upper = text.upper()
        depth = round(float(upper.rstrip("KM")) * _MULTIPLES.get(upper[-1:], 1.0))
        channels = max(sum(source.on for source in self.model.inputs.values()), 1)
        if not self.model.running or depth not in self.depths[channels - 1]:
            if self.says_refused_depth:
                raise ValueError
            return
        self.depth = depth
        self._fit()

    def depth_text(self) -> str:
        """Write the memory depth."""
        return f"{self.depth:.4E}"

    def _set_scale(self, text: str) -> None:
        scale_s = float(text)
        mantissa = float(f"{scale_s:.6e}".split("e")[0])
        if mantissa not in (1.0, 2.0, 5.0):
            raise ValueError
        self.scale_s = scale_s
        self._fit()

    def _set_offset(self, text: str) -> None:
        offset_s = float(text)
        if not abs(offset_s) < _LARGEST_OFFSET_S:
            raise ValueError
        self.offset_s = offset_s
        self._fit()

    def _fit(self) -> None:
        """Work out rate and record from scale, offset and depth."""
        model = self.model
        model.depth = self.depth
        model.span_s = self.divisions * self.scale_s
        model.span_s = self.depth / model.rate_hz
        # The offset is the instant in the middle of screen and memory.
        model.before = min(max(0.5 - self.offset_s / model.span_s, 0.0), 1.0)
        if not self.stale_depth:
            self.readable = self.length(self.mode)

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        on = self.scpi.on
        for key, field, convert in (
            ("DISPlay", "on", boolean),
            ("SCALe", "volts_per_division", float),
            ("PROBe", "probe", float),
            ("COUPling", "coupling", str.upper),
        ):
            on(
                f":CHANnel<n>:{key}",
                lambda channel, text, field=field, convert=convert: setattr(
                    self.model.inputs[channel], field, convert(text)
                ),
            )
        on(":CHANnel<n>:DISPlay?", lambda channel, _: str(int(self.model.inputs[channel].on)))
        on(":CHANnel<n>:SCALe?", lambda n, _: f"{self.model.inputs[n].volts_per_division:.6E}")
        # Positive moves the trace up.
        on(
            ":CHANnel<n>:OFFSet",
            lambda n, text: setattr(self.model.inputs[n], "offset_v", -float(text)),
        )
        on(":CHANnel<n>:OFFSet?", lambda n, _: f"{-self.model.inputs[n].offset_v:.6E}")
        on(":CHANnel<n>:TCALibrate", self._set_deskew)
        for key in ("INVert", "UNITs", "VERNier", "BWLimit"):
            on(f":CHANnel<n>:{key}", lambda channel, _: None)

    def _set_deskew(self, channel: int, text: str) -> None:
        if self.scale_s > _TCAL_SCALE_S or abs(float(text)) > _TCAL_LIMIT_S:
            raise ValueError
        self.model.inputs[channel].deskew_s = float(text)
