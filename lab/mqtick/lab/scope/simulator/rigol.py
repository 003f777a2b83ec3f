"""The common part of the simulated Rigols.

Sources: the programming guides; for their gaps libsigrok, scopehal and pymeasure. Sample rates go
in steps of 1, 2, 2.5, 4 and 5. If no step makes the depth fit the screen, the memory is longer than
the screen, as on a real DHO800.
"""

from __future__ import annotations

import time
from typing import ClassVar

from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import boolean, flag
from mqtick.lab.scope.simulator.model import Model
from mqtick.lab.scope.simulator.rigol_record import Recorder
from mqtick.lab.scope.simulator.rigol_waveform import RigolWaveform, channel_of, choice_of

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
    """The common commands, except :WAVeform."""

    depths: ClassVar[tuple[tuple[int, ...], ...]]
    """Memory depths with one, two, three and four channels on."""
    record: ClassVar[str] = ":RECord"
    frames: ClassVar[str] = "FRAMes"
    tags: ClassVar[bool] = True
    lag_s: ClassVar[float] = 0.03
    """How long after :SINGle it still answers STOP; 0.3 s on real ones."""
    says_refused_depth: ClassVar[bool] = True
    """Whether a depth that it does not accept gives an error."""
    stale_depth: ClassVar[bool] = False
    """Whether reads use the old depth until the mode has changed."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.depth = self.depths[0][0]
        self._sweep, self._begins_s = "AUTO", float("-inf")
        self.recorder = Recorder(self, self.start, self.record, self.frames, self.tags)
        self._add_acquisition()
        self._add_inputs()
        self._fit()

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model = self.scpi.on, self.model
        on(":SINGle", lambda _: self._single())
        on(":RUN", lambda _: self.start(single=False))
        on(":STOP", lambda _: model.stop())
        on(":TRIGger:STATus?", lambda _: self._status())
        self.keep(":TRIGger:SWEep", self, "_sweep", lambda text: text.upper()[:4], str)
        self.keep(":TRIGger:EDGE:SOURce", model, "trigger_channel", channel_of)
        self.keep(
            ":TRIGger:EDGE:SLOPe", model, "trigger_slope", lambda t: _SLOPES[choice_of(t, _SLOPES)]
        )
        self.keep(":TRIGger:EDGE:LEVel", model, "trigger_level_v")
        self.ignore(":TRIGger:MODE", ":TRIGger:COUPling", ":ACQuire:TYPE")
        self.ignore(":TIMebase:MODE", ":TIMebase:DELay:ENABle")
        on(":ACQuire:MDEPth", self._set_depth)
        on(":ACQuire:MDEPth?", lambda _: self.depth_text())
        on(":ACQuire:SRATe?", lambda _: f"{model.rate_hz:.6E}")
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
        for each in self.model.inputs.values():
            # The offset comes in steps of eight bits, so that yorigin can be a whole number.
            step = each.volts_per_division * self.model.physics.divisions / 256
            each.offset_v = round(each.offset_v / step) * step
        self.model.segments = segments
        self.model.start(single=single)
        self._begins_s = time.monotonic() + (self.lag_s if single else 0.0)

    def frame_index(self) -> int:
        """Return the frame that is played, or the last one."""
        return self.recorder.shown - 1 if self.recorder.enabled else -1

    def _set_depth(self, text: str) -> None:
        upper = text.upper()
        depth = round(float(upper.rstrip("KM")) * _MULTIPLES.get(upper[-1:], 1.0))
        channels = max(sum(each.on for each in self.model.inputs.values()), 1)
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
        """Compute rate and record from scale, offset and depth."""
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
        head = ":CHANnel<n>:"
        self.keep_input(f"{head}DISPlay", "on", boolean, flag)
        self.keep_input(f"{head}SCALe", "volts_per_division", float, "{:.6E}".format)
        self.keep_input(f"{head}PROBe", "probe")
        self.keep_input(f"{head}COUPling", "coupling", str.upper)
        # Positive moves the trace up.
        self.keep_input(
            f"{head}OFFSet", "offset_v", lambda text: -float(text), lambda volts: f"{-volts:.6E}"
        )
        self.scpi.on(f"{head}TCALibrate", self._set_deskew)
        self.ignore(*(f"{head}{key}" for key in ("INVert", "UNITs", "VERNier", "BWLimit")))

    def _set_deskew(self, channel: int, text: str) -> None:
        if self.scale_s > _TCAL_SCALE_S or abs(float(text)) > _TCAL_LIMIT_S:
            raise ValueError
        self.model.inputs[channel].deskew_s = float(text)
