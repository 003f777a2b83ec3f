"""The common part of Rigol's DS1000Z, MSO5000 and DHO.

Sources: programming guides MSO1000Z/DS1000Z, MSO5000, DHO800/DHO900, chapters :ACQuire, :CHANnel,
:TIMebase, :TRIGger, :WAVeform; for their gaps libsigrok (rigol-ds), scopehal
(RigolOscilloscope.cpp) and pymeasure (rigol_dho_base.py).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, pause, query, write
from mqtick.lab.scope.dialects.base import number, numbers, step_up
from mqtick.lab.scope.dialects.rigol_record import Recording
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, State
from mqtick.recording.waveform import Waveform, femtoseconds

_SLOPES = {"rising": "POSitive", "falling": "NEGative", "either": "RFALl"}
_STATES = {
    "STOP": State.STOPPED,
    "WAIT": State.ARMED,
    "RUN": State.PREPARING,  # fills the part before the trigger
    "AUTO": State.PREPARING,  # free running: not our acquisition
    "TD": State.TRIGGERED,  # not sticky: it may be STOP at the next look
    "T'D": State.TRIGGERED,
}
_MULTIPLES = {"K": 1e3, "M": 1e6}
_FAST_SCALE = "1E-6"
_RUN_S = 0.1
_LOOK_S = 0.02
_LOOKS = 25
"""How often, and how long apart, to check whether a command has taken effect."""


class Rigol(Recording):
    """Volts: (raw - yorigin - yreference) yincrement, both in codes; t = xorigin + i xincrement.

    The deskew is subtracted from the time base here, not by the instrument: its own (:TCALibrate)
    has steps that grow with the time base, ends at 100 ns, and is refused above 10 us per division.
    """

    port = 5555
    divisions: ClassVar[int]
    """Horizontal divisions of the screen."""
    page: ClassVar[int]
    """Points in one answer to :WAVeform:DATA?."""
    words: ClassVar[bool] = False
    """Whether a sample has more than 8 bits."""
    picture: ClassVar[str]
    """The query for the screen."""

    @abstractmethod
    def depths(self, channels: int) -> tuple[int, ...]:
        """Return the memory depths in points, ascending, with that many channels on."""

    def depth_text(self, depth: int) -> str:
        """Write a memory depth as the series wants it: 10k, 1M."""
        return f"{depth // 1_000_000}M" if depth >= 1_000_000 else f"{depth // 1000}k"

    # -- setting up ----------------------------------------------------------------------------

    def set_up(self, settings: ScopeSettings) -> Conversation[None]:
        """Set everything while it runs: stopped, it refuses the depth and most time offsets."""
        self.refuse_beyond(settings)
        self.keep_deskew(settings)
        yield from self.end_recording()
        yield from write("*CLS", ":TRIGger:SWEep AUTO", ":RUN", ":TIMebase:DELay:ENABle 0")
        yield from pause(_RUN_S)
        yield from write(
            f":TIMebase:MAIN:SCALe {_FAST_SCALE}"
        )  # so that it accepts the :TCALibrate
        on = {channel.number: channel for channel in settings.channels}
        for channel in range(1, self.inputs + 1):
            if channel in on:
                yield from self._input(on[channel])
            else:
                yield from write(f":CHANnel{channel}:DISPlay 0")
        yield from self._time(settings)
        yield from self._trigger(settings)
        yield from query("*OPC?")
        yield from self.begin_recording(settings.segments)
        if settings.segments == 1:
            yield from write(":STOP")

    def _input(self, channel: ChannelSettings) -> Conversation[None]:
        head = f":CHANnel{channel.number}:"
        yield from write(
            f"{head}DISPlay 1",
            f"{head}COUPling {channel.coupling}",
            f"{head}INVert 0",
            f"{head}UNITs VOLTage",
            f"{head}PROBe {channel.probe:G}",  # first: scale and offset refer to its tip
            f"{head}VERNier 1",  # scales between 1, 2 and 5 as well
            f"{head}SCALe {channel.volts_per_division:.6G}",
            # Positive moves the trace up, so the voltage in the middle has the opposite sign.
            f"{head}OFFSet {-channel.offset_v:.6G}",
            f"{head}TCAL 0",
        )
        # Commands sent too fast are lost (libsigrok asks after each one); a running DHO says 0.
        yield from query("*OPC?")

    def _time(self, settings: ScopeSettings) -> Conversation[None]:
        """Set scale, then depth: setting the scale recalculates the depth."""
        scale_s = step_up(settings.span_s / self.divisions)
        span_s = scale_s * self.divisions
        depths = self.depths(len(settings.channels))
        wanted = settings.points * span_s / settings.span_s * (1 - 1e-9)
        depth = next((depth for depth in depths if depth >= wanted), depths[-1])
        yield from write(
            ":ACQuire:TYPE NORMal",
            f":TIMebase:MAIN:SCALe {scale_s:.6G}",
            ":TIMebase:MODE MAIN",  # not roll, which has no trigger
            # The offset is the instant of the middle of the screen.
            f":TIMebase:MAIN:OFFSet {(0.5 - settings.before) * span_s:.9G}",
            f":ACQuire:MDEPth {self.depth_text(depth)}",
        )
        for _ in range(_LOOKS):  # a DS1000Z reports no error if it does not accept the depth
            taken = yield from ask_depth(0)
            if taken == depth:
                return
            yield from pause(_LOOK_S)
        raise InstrumentError(
            f"{self.identity.model} did not accept a memory of {depth} points (it has "
            f"{taken or 'an automatic one'}); ask for fewer points or fewer channels."
        )

    def _trigger(self, settings: ScopeSettings) -> Conversation[None]:
        trigger = settings.trigger
        yield from write(
            ":TRIGger:MODE EDGE",
            ":TRIGger:COUPling DC",
            f":TRIGger:EDGE:SOURce CHANnel{trigger.channel}",
            f":TRIGger:EDGE:SLOPe {_SLOPES[trigger.slope]}",
            f":TRIGger:EDGE:LEVel {trigger.level_v:.6G}",
            ":TRIGger:SWEep NORMal",
        )

    # -- acquisition ---------------------------------------------------------------------------

    def arm(self) -> Conversation[None]:
        """Begin; while it records, :SINGle is refused.

        It keeps saying STOP for some 300 ms, which does not mean the end yet.
        """
        yield from write(self.recording_run if self.segments > 1 else ":SINGle")
        for _ in range(_LOOKS):
            if (yield from self.state()) is not State.STOPPED:
                break
            yield from pause(_LOOK_S)

    def state(self) -> Conversation[State]:
        """Ask the trigger's state; there is no register that remembers a trigger."""
        if self.segments > 1 and not (yield from self.is_recording()):
            return State.STOPPED
        answer = yield from query(":TRIGger:STATus?")
        if answer.upper() not in _STATES:
            raise InstrumentError(
                f"The instrument answered {answer[:40]!r} where the trigger's state was asked for; "
                "the rest of an earlier answer is in the way. Try again."
            )
        state = _STATES[answer.upper()]
        if self.segments > 1:
            return (yield from self.recording_state(state))
        return state

    def stop(self) -> Conversation[None]:
        """End an acquisition; while it records, :STOP might begin another recording."""
        yield from write(self.recording_stop if self.segments > 1 else ":STOP")

    # -- reading -------------------------------------------------------------------------------

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel's memory, which is only there when it is stopped."""
        yield from self.select(channel)
        fields = numbers((yield from query(":WAVeform:PREamble?")), 10, "the preamble")
        xinc, xorig, _, yinc, yorig, yref = fields[4:]
        points = yield from self.points(int(fields[2]))
        if not (xinc > 0 and yinc > 0 and points > 0):
            raise InstrumentError(
                f"The instrument announced {points} points that are {xinc:g} s and {yinc:g} V "
                "apart, as when it is asked too early; the capture is refused. Is the channel on?"
            )
        data = yield from self._pages(points)
        codes = np.frombuffer(data, "<u2" if self.words else "u1")
        return Waveform(
            codes=codes.astype(np.uint16 if self.words else np.uint8, copy=False),
            volts_per_code=yinc,
            code_at_zero=yorig + yref,
            interval_fs=femtoseconds(xinc),
            start_fs=femtoseconds(xorig) - self.deskew_fs.get(channel, 0),
        )

    def select(self, channel: int) -> Conversation[None]:
        """Select a channel's memory, from its first point on."""
        yield from write(
            f":WAVeform:SOURce CHANnel{channel}",
            ":WAVeform:MODE RAW",
            f":WAVeform:FORMat {'WORD' if self.words else 'BYTE'}",
            ":WAVeform:STARt 1",
        )

    def points(self, announced: int) -> Conversation[int]:
        """Return how many points there are if the preamble says this many."""
        return announced
        yield  # makes this a generator, as the signature says

    def _pages(self, points: int) -> Conversation[bytes]:
        """Read all points; a page's first and last point are counted from 1, both inclusive."""
        width = 2 if self.words else 1
        pages = []
        for first in range(1, points + 1, self.page):
            last = min(first + self.page - 1, points)
            yield from write(f":WAVeform:STARt {first}", f":WAVeform:STOP {last}")
            page = yield from block(":WAVeform:DATA?")
            if len(page) != (last - first + 1) * width:
                raise InstrumentError(
                    f"The instrument sent {len(page)} octets for points {first} to {last}, which "
                    f"have {width} each; the capture is refused."
                )
            pages.append(page)
        return b"".join(pages)

    def screenshot(self) -> Conversation[bytes]:
        """Return the screen."""
        return (yield from block(self.picture))


def ask_depth(otherwise: int) -> Conversation[int]:
    """Ask for the memory depth (1.0000E+06, 1M, or AUTO: then `otherwise`)."""
    answer = (yield from query(":ACQuire:MDEPth?")).upper()
    if answer.startswith("AUTO"):
        return otherwise
    multiple = _MULTIPLES.get(answer[-1:], 1.0)
    return round(number(answer.rstrip("KM"), "the memory depth") * multiple)
