"""Tektronix MSO, DPO, MDO, LPD: 2000 to 70000 series, and the 2, 4, 5, 6 series.

Sources: see tektronix_common; the differences between the series from tm_devices' commands.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mqtick.analysis.signals.waveform import Waveform, femtoseconds
from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import Identity, Segment, number
from mqtick.lab.scope.dialects.tektronix_common import TektronixBase, step_up
from mqtick.lab.scope.setup import Channel, Setup

__all__ = ["Tektronix", "time_stamps"]

_SLOPES = {"rising": "RISe", "falling": "FALL", "either": "EITHer"}
_ALL_POINTS = 1_000_000_000
"""More than any memory: the manuals use this for "to the end"."""
_PICTURE = '"mqtick.png"'
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_STAMP = re.compile(
    r"(\d{1,2})[. ](\d{1,2}|[A-Z]{3})[. ](\d{4})[. ](\d{2}):(\d{2}):(\d{2})\.(\d[\d ]*\d)",
    re.IGNORECASE,
)
_PICOSECONDS = 10**12


@dataclass(frozen=True, slots=True)
class Series:
    """How the series differ.

    Attributes:
        width: octets of a sample: 2 where the converter has more than 8 bits.
        manual: sample rate and record length are set (MODE MANual), not scale and record length.
        depths: record lengths to choose from, where they are not free.
        level: the command for the trigger's level.
        gain: CH<x>:PRObe:GAIN can be set; else it is the probe's, and what is wanted beyond it
            goes into an external attenuation.
        delay: the command that switches the delay mode off, so that the position counts.
        stamps, zeros: the queries for the instants of all frames and for their XZEro; "" where
            there is no FastFrame.
        either: whether it triggers on either edge.
        picture: the commands that write the screen to a file.
    """

    width: int = 1
    manual: bool = True
    depths: tuple[int, ...] = ()
    level: str = "TRIGger:A:LEVel:CH{channel}"
    gain: bool = False
    delay: str = "HORizontal:DELay:MODe 0"
    stamps: str = ""
    zeros: str = ""
    either: bool = True
    picture: tuple[str, ...] = ("SAVe:IMAGe:FILEFormat PNG", f"SAVe:IMAGe {_PICTURE}")


_FAST = "HORizontal:FASTframe:"
_SERIES = (
    # MSO 4/5/6, LPD64, DPO7AX: two digits
    (
        re.compile(r"((MSO|LPD)[456]\d|DPO7\d\dAX)(?!\d)", re.IGNORECASE),
        Series(
            width=2,
            stamps=f"{_FAST}TIMEStamp:ALL?",
            zeros=f"{_FAST}XZEro:ALL?",
            picture=(f"SAVe:IMAGe {_PICTURE}",),
        ),
    ),
    (
        re.compile(r"MSO2\d(?!\d)", re.IGNORECASE),
        Series(width=2, picture=(f"SAVe:IMAGe {_PICTURE}",)),
    ),
    # MSO/DPO5000, 7000, 70000
    (
        re.compile(r"(MSO|DPO|DSA|DPS)[57]\d{3,4}", re.IGNORECASE),
        Series(
            level="TRIGger:A:LEVel",
            delay="HORizontal:MAIn:DELay:MODe 0",
            stamps=f"{_FAST}TIMEStamp:ALL:CH{{channel}}? 1,{{count}}",
            zeros=f"{_FAST}XZEro:ALL:CH{{channel}}? 1,{{count}}",
            picture=("EXPort:FORMat PNG", f"EXPort:FILEName {_PICTURE}", "EXPort STARt"),
        ),
    ),
    (
        re.compile(r"(MSO|DPO)2\d{3}", re.IGNORECASE),
        Series(manual=False, depths=(100_000, 1_000_000), gain=True, either=False),
    ),
)
_OTHERS = Series(manual=False, depths=(1000, 10_000, 100_000, 1_000_000, 10_000_000), gain=True)
"""MSO/DPO3000 and 4000, MDO3000, 4000, MDO3."""


class Tektronix(TektronixBase):
    """MSO and DPO. PT_Off counts to the trigger, XZEro is the rest, new with each record."""

    name = "tektronix"
    title = "Tektronix MSO/DPO/MDO 2000 to 70000, MSO 2, 4, 5, 6"
    pattern = re.compile(r"TEKTRONIX (MSO|DPO|MDO|LPD|DSA|DPS)", re.IGNORECASE)
    preamble = "WFMOutpre"

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        model = identity.model.replace(" ", "")
        self.series = next((one for regex, one in _SERIES if regex.match(model)), _OTHERS)

    @property
    def either(self) -> bool:
        """All but the 2000 series."""
        return self.series.either

    # -- setting up ----------------------------------------------------------------------------

    def set_up(self, setup: Setup) -> Conversation[None]:
        """Set everything; the inputs first, for the record depends on how many there are."""
        if setup.segments > 1 and not self.series.stamps:
            raise InstrumentError(self._no_frames())
        yield from self.begin(setup)
        on = {channel.number: channel for channel in setup.channels}
        for channel in range(1, self.inputs + 1):
            yield from write(f"SELect:CH{channel} {int(channel in on)}")
            if channel in on:
                yield from self._input(on[channel])
        if self.series.stamps:
            yield from write(f"{_FAST}STATE {int(setup.segments > 1)}")
        yield from self._time(setup)
        if setup.segments > 1:
            yield from write(f"{_FAST}COUNt {setup.segments}")
            count = number((yield from query(f"{_FAST}COUNt?")), "the frames")
            if count != setup.segments:
                raise InstrumentError(
                    f"{self.identity.model} takes {count:g} frames of this length, but "
                    f"{setup.segments} are wanted; set fewer segments or fewer points."
                )
        trigger = setup.trigger
        level = self.series.level.format(channel=trigger.channel)
        yield from write(
            "TRIGger:A:TYPe EDGE",
            "TRIGger:A:MODe NORMal",
            f"TRIGger:A:EDGE:SOUrce CH{trigger.channel}",
            "TRIGger:A:EDGE:COUPling DC",
            f"TRIGger:A:EDGE:SLOpe {_SLOPES[trigger.slope]}",
            f"{level} {trigger.level_v:.6G}",
        )

    def _input(self, channel: Channel) -> Conversation[None]:
        head = f"CH{channel.number}:"
        # First: scale and offset count at the probe's tip.
        if self.series.gain:
            yield from write(f"{head}PRObe:GAIN {1 / channel.probe:.6G}")
        else:
            gain = number((yield from query(f"{head}PRObe:GAIN?")), "the probe's gain")
            yield from write(f"{head}PROBEFunc:EXTAtten {channel.probe * gain:.6G}")
        yield from write(
            f"{head}COUPling {channel.coupling}",
            f"{head}SCAle {channel.volts_per_division:.6G}",
            f"{head}POSition 0",
            f"{head}OFFSet {channel.offset_v:.6G}",
            f"{head}DESKew 0",
        )

    def _time(self, setup: Setup) -> Conversation[None]:
        if self.series.manual:
            mode = "HORizontal:MODE"
            yield from write(
                f"{mode} MANual",
                f"{mode}:SAMPLERate {setup.points / setup.span_s:.9G}",
            )
            rate_hz = number((yield from query(f"{mode}:SAMPLERate?")), "the sample rate")
            points = max(round(setup.span_s * rate_hz), 100)
            yield from write(f"{mode}:RECOrdlength {points}")
            length = number((yield from query(f"{mode}:RECOrdlength?")), "the record length")
            if length < points * 0.99:
                raise InstrumentError(
                    f"{self.identity.model} records {length:g} points at most, but {points} "
                    f"are needed ({setup.span_s:g} s at {rate_hz:g} per second); set fewer points."
                )
        else:
            depths = self.series.depths
            depth = next((depth for depth in depths if depth >= setup.points), depths[-1])
            scale_s = step_up(setup.span_s / 10, (1, 2, 4))
            yield from write(f"HORizontal:RECOrdlength {depth}", f"HORizontal:SCAle {scale_s:.6G}")
        yield from write(self.series.delay, f"HORizontal:POSition {100 * setup.before:.6G}")

    # -- reading -------------------------------------------------------------------------------

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel."""
        preamble = yield from self.select(channel, self.series.width, _ALL_POINTS)
        return (yield from self.curve(channel, preamble))

    def read_segments(self, channels: Sequence[int]) -> Conversation[list[Segment]]:
        """Read all frames of a channel at once: CURVe? sends a block for each, `;` between."""
        if not self.series.stamps:
            raise InstrumentError(self._no_frames())
        count = int(number((yield from query("ACQuire:NUMFRAMESACQuired?")), "the frames"))
        if count < 1:
            raise InstrumentError(
                f"{self.identity.model} has acquired no frame; has there been a trigger?"
            )
        waveforms = {}
        for channel in channels:
            yield from write("DATa:FRAMESTARt 1", f"DATa:FRAMESTOP {count}")
            preamble = yield from self.select(channel, self.series.width, _ALL_POINTS)
            zeros = yield from self._zeros(channel, count)
            data = yield from block("CURVe?", count=count)
            size, deskew_fs = len(data) // count, self.deskew_fs.get(channel, 0)
            waveforms[channel] = [
                preamble.waveform(data[index * size : (index + 1) * size], deskew_fs, zero)
                for index, zero in enumerate(zeros)
            ]
        asked = self.series.stamps.format(channel=channels[0], count=count)
        stamps = time_stamps((yield from query(asked)))
        if len(stamps) != count:
            raise InstrumentError(
                f"{self.identity.model} gave {len(stamps)} time stamps for {count} frames; the "
                "capture is refused."
            )
        return [
            Segment(
                {channel: waveforms[channel][index] for channel in channels},
                (stamps[index] - stamps[0]) / _PICOSECONDS,
                1e-12,
            )
            for index in range(count)
        ]

    def _zeros(self, channel: int, count: int) -> Conversation[list[int]]:
        """Ask for each frame's XZEro in fs ("1:-1.2E-10,2:..."): the preamble has one only."""
        reply = yield from query(self.series.zeros.format(channel=channel, count=count))
        values = [part.rsplit(":", 1)[-1] for part in reply.strip('"').split(",")]
        if len(values) != count:
            raise InstrumentError(
                f"{self.identity.model} gave {len(values)} trigger instants for {count} frames; "
                "the capture is refused."
            )
        return [femtoseconds(number(value, "a trigger instant")) for value in values]

    def _no_frames(self) -> str:
        return (
            f"{self.identity.model} has no FastFrame, which segments need; set segments = 1 and "
            "take more shots."
        )

    def screenshot(self) -> Conversation[bytes]:
        """Save the screen on the instrument, fetch the file, and delete it there."""
        yield from write(*self.series.picture)
        yield from query("*OPC?")
        picture = yield from block(f"FILESystem:READFile {_PICTURE}")
        yield from write(f"FILESystem:DELEte {_PICTURE}")
        return picture


def time_stamps(reply: str) -> list[int]:
    """Read the instants of an answer, in whole picoseconds since year 1 of the calendar.

    "1:20.11.2026.14:15:16.123456789012,..." or "20 NOV 2026 14:15:16.123 456 789 012": as a float
    of seconds, a day would leave microseconds of it. InstrumentError for an invalid day.
    """
    found = []
    for day, month, year, hours, minutes, seconds, rest in _STAMP.findall(reply):
        try:
            month_number = int(month) if month.isdigit() else _MONTHS.index(month.upper()) + 1
            days = datetime.date(int(year), month_number, int(day)).toordinal()
        except ValueError:
            raise InstrumentError(
                f"The instrument dates a frame {day}.{month}.{year}, which is not a valid day; "
                "the capture is refused. Set the clock of the instrument."
            ) from None
        whole = ((days * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
        digits = rest.replace(" ", "")[:12].ljust(12, "0")
        found.append(whole * _PICOSECONDS + int(digits))
    return found
