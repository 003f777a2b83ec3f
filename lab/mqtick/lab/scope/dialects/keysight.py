"""Keysight and Agilent InfiniiVision: 1000 X to 6000 X series.

Source: InfiniiVision programmer's guides, :WAVeform, :ACQuire, :OPERegister, :CHANnel chapters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import Dialect, Segment, number, numbers
from mqtick.lab.scope.settings import ScopeSettings, State
from mqtick.recording.waveform import Waveform, femtoseconds

_RUN, _WAIT_TRIGGER = 8, 32  # bits of the operation status condition register
_SLOPES = {"rising": "POSitive", "falling": "NEGative", "either": "EITHer"}


class Keysight(Dialect):
    """InfiniiVision. Volts: (raw - yref) yinc + yorig, yorig in volts; t = xorig + i xinc."""

    name = "keysight"
    title = "Keysight InfiniiVision 1000X, 2000X, 3000X, 4000X, 6000X"
    pattern = re.compile(r"(KEYSIGHT|AGILENT) TECHNOLOGIES (DSO|MSO|EDUX)", re.IGNORECASE)
    port = 5025
    _points: int | None = None

    def set_up(self, settings: ScopeSettings) -> Conversation[None]:
        """Set everything; the reference is at the left edge, so that the delay is one number."""
        # The whole memory is always used; every n-th sample of it is read (RAW points).
        steps = (step * 10**power for power in range(2, 7) for step in (1, 2, 5))
        self._points = next((step for step in steps if step >= settings.points), None)
        yield from write(":STOP", "*CLS", ":TIMebase:MODE MAIN", ":TIMebase:REFerence LEFT")
        yield from write(f":TIMebase:RANGe {settings.span_s:.9G}")
        # Reference LEFT is one division from the left: position counts from there.
        position_s = (0.1 - settings.before) * settings.span_s
        yield from write(f":TIMebase:POSition {position_s:.9G}")
        on = {channel.number: channel for channel in settings.channels}
        # If a wanted channel does not exist, the instrument refuses it, which is reported.
        for channel in sorted({*range(1, self.inputs + 1), *on}):
            if channel not in on:
                yield from write(f":CHANnel{channel}:DISPlay 0")
                continue
            wanted, head = on[channel], f":CHANnel{channel}:"
            yield from write(
                f"{head}DISPlay 1",
                f"{head}COUPling {wanted.coupling}",
                f"{head}PROBe {wanted.probe:G}",
                f"{head}SCALe {wanted.volts_per_division:.6G}",
                f"{head}OFFSet {wanted.offset_v:.6G}",
                f"{head}PROBe:SKEW {wanted.deskew_s:.6G}",
            )
        trigger = settings.trigger
        yield from write(
            ":TRIGger:SWEep NORMal",
            ":TRIGger:MODE EDGE",
            f":TRIGger:EDGE:SOURce CHANnel{trigger.channel}",
            f":TRIGger:EDGE:SLOPe {_SLOPES[trigger.slope]}",
            f":TRIGger:EDGE:LEVel {trigger.level_v:.6G}",
        )
        if settings.segments > 1:
            yield from write(
                ":ACQuire:MODE SEGMented", f":ACQuire:SEGMented:COUNt {settings.segments}"
            )
        else:
            yield from write(":ACQuire:MODE RTIMe", ":ACQuire:TYPE NORMal")

    def arm(self) -> Conversation[None]:
        """Clear the events and begin."""
        yield from write("*CLS", ":SINGle")

    def state(self) -> Conversation[State]:
        """Ask the condition register: the event register would still show the previous shot."""
        condition = int(number((yield from query(":OPERegister:CONDition?")), "the run state"))
        if not condition & _RUN:
            return State.STOPPED
        return State.ARMED if condition & _WAIT_TRIGGER else State.PREPARING

    def stop(self) -> Conversation[None]:
        """End an acquisition."""
        yield from write(":STOP")

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel as words, low octet first."""
        yield from write(
            f":WAVeform:SOURce CHANnel{channel}",
            ":WAVeform:POINts:MODE RAW",
            f":WAVeform:POINts {self._points or 'MAXimum'}",
            ":WAVeform:FORMat WORD",
            ":WAVeform:BYTeorder LSBFirst",
            ":WAVeform:UNSigned 1",
        )
        return (yield from self._data())

    def _data(self) -> Conversation[Waveform]:
        # The 2000 X sometimes answers "+0" if it is asked too early: then read again.
        fields = numbers((yield from query(":WAVeform:PREamble?")), 10, "the preamble")
        points = int(fields[2])
        xinc, xorig, xref, yinc, yorig, yref = fields[4:]
        data = yield from block(":WAVeform:DATA?")
        codes = np.frombuffer(data, "<u2") if len(data) % 2 == 0 else np.empty(0, "<u2")
        if codes.size != points or not points:
            raise InstrumentError(
                f"The instrument announced {points} points and sent {len(data)} octets, "
                "which is not that many words; the capture is refused."
            )
        interval_fs = femtoseconds(xinc)
        return Waveform(
            codes=codes.astype(np.uint16, copy=False),
            volts_per_code=yinc,
            code_at_zero=yref - yorig / yinc,
            interval_fs=interval_fs,
            start_fs=femtoseconds(xorig) - round(xref * interval_fs),
        )

    def read_segments(self, channels: Sequence[int]) -> Conversation[list[Segment]]:
        """Read one segment after another; the time tags have the instrument's full resolution."""
        count = int(number((yield from query(":WAVeform:SEGMented:COUNt?")), "the segments"))
        segments = []
        for index in range(1, count + 1):
            yield from write(f":ACQuire:SEGMented:INDex {index}")
            waveforms = {}
            for channel in channels:
                waveforms[channel] = yield from self.read(channel)
            tag_s = number((yield from query(":WAVeform:SEGMented:TTAG?")), "the time tag")
            segments.append(Segment(waveforms, tag_s, 1e-12))
        return segments

    def screenshot(self) -> Conversation[bytes]:
        """Return the screen as PNG."""
        return (yield from block(":DISPlay:DATA? PNG, COLor"))
