"""What all Tektronix oscilloscopes have in common: acquisition, waveforms, events.

Sources: programmer manuals 077-0444 (TDS, TBS1000), 077-1149 (TBS2000), 077-0510 (MSO/DPO4000),
077-0010 (MSO/DPO5000, 7000), 077-1305 (MSO 4/5/6), chapters Acquisition, Status and Error,
Trigger, Waveform Transfer; the same texts stand in tm_devices' commands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mqtick.analysis.signals.waveform import Waveform, femtoseconds
from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import Dialect, Identity, number
from mqtick.lab.scope.setup import Setup, State

__all__ = ["Preamble", "TektronixBase", "fields", "step_up"]

_STATES = {
    "REA": State.ARMED,  # READY: all of the part before the trigger is there
    "ARM": State.PREPARING,  # ARMED: takes the part before the trigger, and would miss one
    "TRI": State.TRIGGERED,
    "AUT": State.PREPARING,  # free running: what it records is not ours
    "SCA": State.PREPARING,
    "SAV": State.TRIGGERED,  # works on what it took, for ACQuire:STATE is still 1
}
_EVENT = re.compile(r'(\d+),"([^"]*)"')
_NUMBERS = ("NR_Pt", "XINcr", "PT_Off", "XZEro", "YMUlt", "YOFf", "YZEro", "BYT_Nr")
_FIELDS = (*_NUMBERS, "BN_Fmt", "BYT_Or")


class Preamble:
    """The preamble of a waveform, asked for by names: their order differs with the firmware."""

    def __init__(self, values: Sequence[str]) -> None:
        points, interval, offset, zero, self.scale, self.code, self.volts, octets = (
            number(value, "the preamble") for value in values[: len(_NUMBERS)]
        )
        self.points = int(points)
        kind = {"RI": "i", "RP": "u"}.get(values[8].upper()[:2])
        if (
            kind is None
            or octets not in (1, 2)
            or not (self.points > 0 and self.scale > 0 and interval >= 1e-15)
        ):
            raise InstrumentError(
                f"The instrument announces {self.points} points of {octets:g} octets in the format "
                f"{values[8][:10]}, {interval:g} s apart, with {self.scale:g} V per code, which "
                "is not a valid waveform; the capture is refused. Has there been a trigger?"
            )
        order = "<" if values[9].upper().startswith("LSB") else ">"
        self.type = np.dtype(f"{order}{kind}{int(octets)}")
        self.interval_fs = femtoseconds(interval)
        self.before_fs = round(offset * self.interval_fs)
        self.zero_fs = femtoseconds(zero)

    def waveform(self, data: bytes, deskew_fs: int = 0, zero_fs: int | None = None) -> Waveform:
        """Make the waveform: V = YZEro + YMUlt (raw - YOFf), t = XZEro + XINcr (i - PT_Off).

        `zero_fs` is another record's XZEro, if this preamble is for several.
        """
        if len(data) != self.points * self.type.itemsize:
            raise InstrumentError(
                f"The instrument announced {self.points} points of {self.type.itemsize} octets and "
                f"sent {len(data)} octets; the capture is refused."
            )
        codes = np.frombuffer(data, self.type)
        zero = self.zero_fs if zero_fs is None else zero_fs
        return Waveform(
            codes=codes.astype(self.type.newbyteorder("="), copy=False),
            volts_per_code=self.scale,
            code_at_zero=self.code - self.volts / self.scale,
            interval_fs=self.interval_fs,
            start_fs=zero - self.before_fs - deskew_fs,
        )


class TektronixBase(Dialect):
    """What they have in common.

    The deskew is subtracted from the time base here, not by the instrument: CH<x>:DESKew is missing
    on the smaller ones, ends at 125 ns, has steps of 40 ps, and no manual states its sign.
    """

    port = 4000
    preamble: ClassVar[str]
    """WFMOutpre or WFMPre."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self.deskew_fs: dict[int, int] = {}
        """By channel, what `read` subtracts from the time base."""

    @property
    def inputs(self) -> int:
        """Number of analogue inputs: the last digit of the model's number."""
        digits = re.search(r"\d+", self.identity.model)
        last = int(digits[0][-1]) if digits else 4
        return last if last in (2, 4, 6, 8) else 2 if last == 0 else 4

    @property
    def either(self) -> bool:
        """Whether it can trigger on either edge."""
        raise NotImplementedError

    def check(self, setup: Setup) -> None:
        """Refuse what the instrument does not have, before setting anything."""
        beyond = [channel.number for channel in setup.channels if channel.number > self.inputs]
        if beyond:
            raise InstrumentError(
                f"{self.identity.model} has {self.inputs} inputs, but channel {beyond[0]} is asked "
                "for; correct the channel numbers in the experiment."
            )
        if setup.trigger.slope == "either" and not self.either:
            raise InstrumentError(
                f"{self.identity.model} triggers on one direction only, but trigger_slope is "
                '"either"; set it to "rising" or "falling".'
            )

    def begin(self, setup: Setup) -> Conversation[None]:
        """Stop, have answers without headers, and take single records of samples."""
        self.check(setup)
        self.deskew_fs = {each.number: femtoseconds(each.deskew_s) for each in setup.channels}
        yield from write("*CLS", "HEADer 0", "VERBose 1", "ACQuire:STATE 0")
        yield from write("ACQuire:MODe SAMple", "ACQuire:STOPAfter SEQuence")

    def arm(self) -> Conversation[None]:
        """Clear the events and begin; somebody may have pressed RUN meanwhile."""
        yield from write("*CLS", "ACQuire:STOPAfter SEQuence", "ACQuire:STATE 1")

    def state(self) -> Conversation[State]:
        """Ask whether it acquires, and if so, what the trigger does."""
        reply = yield from query("ACQuire:STATE?;:TRIGger:STATE?")
        values = fields(reply)
        if values[0] == "0":
            return State.STOPPED
        if values[0] != "1" or len(values) != 2:
            raise InstrumentError(
                f"{self.identity.model} answered {reply[:40]!r} where the state of the acquisition "
                "was asked for; is it of a different family than its name says?"
            )
        return _STATES.get(values[1].upper()[:3], State.PREPARING)

    def stop(self) -> Conversation[None]:
        """End an acquisition."""
        yield from write("ACQuire:STATE 0")

    def select(self, channel: int, width: int, last: int) -> Conversation[Preamble]:
        """Choose what CURVe? sends, all points of it, and ask how it is to be read."""
        yield from write(
            "HEADer 0",
            f"DATa:SOUrce CH{channel}",
            "DATa:ENCdg SRIbinary",
            f"DATa:WIDth {width}",
            "DATa:STARt 1",
            f"DATa:STOP {last}",
        )
        asked = [f":SELect:CH{channel}?", *(f":{self.preamble}:{name}?" for name in _FIELDS)]
        values = fields((yield from query(";".join(asked))))
        if values[0] not in ("1", "ON"):
            raise InstrumentError(
                f"Channel {channel} of {self.identity.model} is switched off, so there is no "
                "waveform of it; name it in the experiment, or switch it on."
            )
        if len(values) != len(asked):
            raise InstrumentError(
                f"{self.identity.model} answered {len(values) - 1} of {len(_FIELDS)} fields of the "
                "preamble; the capture is refused. Has there been a trigger?"
            )
        return Preamble(values[1:])

    def curve(self, channel: int, preamble: Preamble) -> Conversation[Waveform]:
        """Read what was chosen."""
        data = yield from block("CURVe?")
        return preamble.waveform(data, self.deskew_fs.get(channel, 0))

    def errors(self) -> Conversation[list[str]]:
        """Empty the event queue; *ESR? makes the events since the last one readable.

        0 and 1 mean no event; 400 to 599 are normal events (power on, operation complete) and
        warnings, for example that a value was rounded.
        """
        yield from query("*ESR?")
        events = _EVENT.findall((yield from query("ALLEv?")))
        refused = [(int(code), text) for code, text in events]
        return [f"{code} {text}" for code, text in refused if code > 1 and not 400 <= code < 600][
            :32
        ]


def fields(reply: str) -> list[str]:
    """Split the answers to several queries; a header that stands before a value is left out."""
    return [part.strip().rsplit(" ", 1)[-1] for part in reply.split(";")]


def step_up(value: float, steps: Sequence[float]) -> float:
    """Return the next value of a 1-2-4 or 1-2.5-5 sequence that is not below `value`."""
    decade = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return next(step * decade for step in (*steps, 10) if step * decade >= value * (1 - 1e-9))
