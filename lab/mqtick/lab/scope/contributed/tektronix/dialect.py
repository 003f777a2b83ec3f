"""Tektronix MSO, DPO, MDO: 2000 to 4000 and the 2, 4, 5, 6 series; TBS1000C and TBS2000.

Sources: programmer manuals 077-1149 (TBS2000; the TBS1000C speaks the same), 077-0510
(MSO/DPO4000), 077-1305 (MSO 4/5/6), chapters Acquisition, Status and Error, Trigger, Waveform
Transfer; the same texts and the differences between the series stand in tm_devices' commands.
"""

from __future__ import annotations

import re

from mqtick.lab.scope.contributed.tektronix.answers import FIELDS, Preamble, fields
from mqtick.lab.scope.contributed.tektronix.series import series_of
from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import Dialect, Identity, number, step_up
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, State
from mqtick.recording.waveform import Waveform

_STATES = {
    "REA": State.ARMED,  # READY: the part before the trigger is complete
    "ARM": State.PREPARING,  # ARMED: takes the part before the trigger, and ignores triggers
    "TRI": State.TRIGGERED,
    "AUT": State.PREPARING,  # free running: not our acquisition
    "SCA": State.PREPARING,
    "SAV": State.TRIGGERED,  # still processes the record, because ACQuire:STATE is 1
}
_SLOPES = {"rising": "RISe", "falling": "FALL", "either": "EITHer"}
_EVENT = re.compile(r'(\d+),"([^"]*)"')
_ALL_POINTS = 1_000_000_000
"""More than any memory: the manuals use this for "to the end"."""
_PICTURE = '"mqtick.png"'
_FARTHEST = 5
"""A TBS moves a channel by at most this many divisions."""


class Tektronix(Dialect):
    """PT_Off counts to the trigger, XZEro is the rest, new with each record.

    The deskew is subtracted from the time base here, not by the instrument: CH<x>:DESKew is missing
    on the smaller ones, ends at 125 ns, has steps of 40 ps, and no manual states its sign.
    """

    name = "tektronix"
    title = "Tektronix MSO/DPO/MDO 2000 to 4000, MSO 2, 4, 5, 6, TBS1000C, TBS2000"
    pattern = re.compile(
        r"TEKTRONIX ((MSO|LPD)[2456]\d(?!\d)|(MSO|DPO|MDO)[234]\d{3}|MDO3\d|TBS ?(1\d{3}C|2\d{3}))",
        re.IGNORECASE,
    )
    port = 4000

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self.series = series_of(identity.model)

    # -- setting up ----------------------------------------------------------------------------

    def set_up(self, settings: ScopeSettings) -> Conversation[None]:
        """Set everything; the inputs first, because the record length depends on their number."""
        self._check(settings)
        self.keep_deskew(settings)
        yield from write("*CLS", "HEADer 0", "VERBose 1", "ACQuire:STATE 0")
        yield from write("ACQuire:MODe SAMple", "ACQuire:STOPAfter SEQuence")
        on = {channel.number: channel for channel in settings.channels}
        for channel in range(1, self.inputs + 1):
            yield from write(f"SELect:CH{channel} {int(channel in on)}")
            if channel in on:
                yield from self._input(on[channel])
        if self.series.frames:  # a user may have left it on
            yield from write("HORizontal:FASTframe:STATE 0")
        yield from self._time(settings)
        trigger = settings.trigger
        yield from write(
            "TRIGger:A:TYPe EDGE",
            "TRIGger:A:MODe NORMal",
            f"TRIGger:A:EDGE:SOUrce CH{trigger.channel}",
            "TRIGger:A:EDGE:COUPling DC",
            f"TRIGger:A:EDGE:SLOpe {_SLOPES[trigger.slope]}",
            f"TRIGger:A:LEVel:CH{trigger.channel} {trigger.level_v:.6G}",
        )

    def _check(self, settings: ScopeSettings) -> None:
        """Refuse settings that the instrument does not have, before anything is set."""
        self.refuse_beyond(settings)
        self.refuse_segments(settings)
        if settings.trigger.slope == "either" and not self.series.either:
            raise InstrumentError(
                f"{self.identity.model} triggers on one direction only, but trigger_slope is "
                '"either"; set it to "rising" or "falling".'
            )

    def _input(self, channel: ChannelSettings) -> Conversation[None]:
        head = f"CH{channel.number}:"
        # First the probe: scale and offset refer to its tip.
        if self.series.depths:
            yield from write(f"{head}PRObe:GAIN {1 / channel.probe:.6G}")
        else:
            gain = number((yield from query(f"{head}PRObe:GAIN?")), "the probe's gain")
            yield from write(f"{head}PROBEFunc:EXTAtten {channel.probe * gain:.6G}")
        yield from write(
            f"{head}COUPling {channel.coupling}", f"{head}SCAle {channel.volts_per_division:.6G}"
        )
        if not self.series.position:
            offset = f"{head}OFFSet {channel.offset_v:.6G}"
            yield from write(f"{head}POSition 0", offset, f"{head}DESKew 0")
            return
        # In divisions, up is positive: the voltage in the middle has the opposite sign.
        position = -channel.offset_v / channel.volts_per_division
        if abs(position) > _FARTHEST:
            raise InstrumentError(
                f"{self.identity.model} moves a channel by {_FARTHEST} divisions at most, and "
                f"channel {channel.number} needs {abs(position):.3g} for {channel.offset_v:g} V "
                f"in the middle at {channel.volts_per_division:g} V per division; "
                "set volts_per_division higher."
            )
        yield from write(f"{head}POSition {position:.6G}")

    def _time(self, settings: ScopeSettings) -> Conversation[None]:
        if depths := self.series.depths:
            depth = next((depth for depth in depths if depth >= settings.points), depths[-1])
            # A record has ten divisions, also on a TBS, whose screen has 15 (077-1149, WFMOutpre?).
            scale_s = step_up(settings.span_s / 10, (1, 2, 4))
            yield from write(f"HORizontal:RECOrdlength {depth}", f"HORizontal:SCAle {scale_s:.6G}")
        else:
            mode = "HORizontal:MODE"
            yield from write(
                f"{mode} MANual",
                f"{mode}:SAMPLERate {settings.points / settings.span_s:.9G}",
            )
            rate_hz = number((yield from query(f"{mode}:SAMPLERate?")), "the sample rate")
            points = max(round(settings.span_s * rate_hz), 100)
            yield from write(f"{mode}:RECOrdlength {points}")
            length = number((yield from query(f"{mode}:RECOrdlength?")), "the record length")
            if length < points * 0.99:
                raise InstrumentError(
                    f"{self.identity.model} records {length:g} points at most, but {points} are "
                    f"needed ({settings.span_s:g} s at {rate_hz:g} per second); set fewer points."
                )
        # With the delay mode off, the position is used.
        position = f"HORizontal:POSition {100 * settings.before:.6G}"
        yield from write("HORizontal:DELay:MODe 0", position)

    # -- acquisition ---------------------------------------------------------------------------

    def arm(self) -> Conversation[None]:
        """Clear the events and begin; a user may have pressed RUN meanwhile."""
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

    # -- reading -------------------------------------------------------------------------------

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel."""
        preamble = yield from self._select(channel)
        data = yield from block("CURVe?")
        return preamble.waveform(data, self.deskew_fs.get(channel, 0))

    def _select(self, channel: int) -> Conversation[Preamble]:
        """Select the data of CURVe?, all points, and ask for the preamble."""
        last = _ALL_POINTS
        if self.series.position:
            last = int(number((yield from query("HORizontal:RECOrdlength?")), "the record length"))
        yield from write(
            "HEADer 0",
            f"DATa:SOUrce CH{channel}",
            "DATa:ENCdg SRIbinary",
            f"DATa:WIDth {self.series.width}",
            "DATa:STARt 1",
            f"DATa:STOP {last}",
        )
        asked = [f":SELect:CH{channel}?", *(f":WFMOutpre:{name}?" for name in FIELDS)]
        values = fields((yield from query(";".join(asked))))
        if values[0] not in ("1", "ON"):
            raise InstrumentError(
                f"Channel {channel} of {self.identity.model} is switched off, so there is no "
                "waveform of it; name it in the experiment, or switch it on."
            )
        if len(values) != len(asked):
            raise InstrumentError(
                f"{self.identity.model} answered {len(values) - 1} of {len(FIELDS)} fields of the "
                "preamble; the capture is refused. Has there been a trigger?"
            )
        return Preamble(values[1:])

    def screenshot(self) -> Conversation[bytes]:
        """Save the screen on the instrument, fetch the file, and delete it there."""
        if self.series.depths:  # other series choose the format by the file's name
            yield from write("SAVe:IMAGe:FILEFormat PNG")
        yield from write(f"SAVe:IMAGe {_PICTURE}")
        yield from query("*OPC?")
        picture = yield from block(f"FILESystem:READFile {_PICTURE}")
        yield from write(f"FILESystem:DELEte {_PICTURE}")
        return picture

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
