"""Tektronix TDS1000, TDS2000, TPS2000, TBS1000 and TBS2000.

Sources: programmer manuals 077-0444 (TDS, TPS, TBS1000/B) and 077-1149 (TBS2000; the TBS1000C
speaks the same), QCoDeS TPS2012.
"""

from __future__ import annotations

import re

from mqtick.analysis.signals.waveform import Waveform
from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import number
from mqtick.lab.scope.dialects.tektronix_common import TektronixBase, step_up
from mqtick.lab.scope.setup import Channel, Setup

__all__ = ["TektronixTds"]

_SLOPES = {"rising": "RISe", "falling": "FALL"}
_OLD_POINTS = 2500
_DEPTHS = (1000, 2000, 20_000, 200_000, 2_000_000, 5_000_000)
_LONGEST_TBS1000C = 20_000
_FARTHEST = 5
_NEW = re.compile(r"TBS ?(1\d{3}C|2\d{3})", re.IGNORECASE)


class TektronixTds(TektronixBase):
    """XZEro is the first point's instant and PT_Off 0; 8 bits (a word holds them times 256).

    The TBS1000C and TBS2000 have the trigger and the record lengths of the larger instruments, the
    older ones a trigger of their own and 2500 points.
    """

    name = "tektronix-tds"
    title = "Tektronix TDS1000, TDS2000, TPS2000, TBS1000, TBS2000"
    pattern = re.compile(r"TEKTRONIX (TBS|TPS|TDS) ?[12]", re.IGNORECASE)
    preamble = "WFMPre"

    @property
    def new(self) -> bool:
        """Whether it is one of the newer instruments."""
        return _NEW.match(self.identity.model) is not None

    @property
    def either(self) -> bool:
        """They trigger on one direction only."""
        return False

    def set_up(self, setup: Setup) -> Conversation[None]:
        """Set everything."""
        if setup.segments > 1:
            raise InstrumentError(
                f"{self.identity.model} has no segmented memory; set segments = 1 and take more "
                "shots."
            )
        yield from self.begin(setup)
        on = {channel.number: channel for channel in setup.channels}
        for channel in range(1, self.inputs + 1):
            yield from write(f"SELect:CH{channel} {'ON' if channel in on else 'OFF'}")
            if channel in on:
                yield from self._input(on[channel])
        if self.new:
            yield from self._new_time(setup)
        else:
            yield from self._old_time(setup)
        trigger = setup.trigger
        head = "TRIGger:A:" if self.new else "TRIGger:MAIn:"
        level = f"LEVel:CH{trigger.channel}" if self.new else "LEVel"
        yield from write(
            f"{head}TYPe EDGE",
            f"{head}MODe NORMal",
            f"{head}EDGE:SOUrce CH{trigger.channel}",
            f"{head}EDGE:COUPling DC",
            f"{head}EDGE:SLOpe {_SLOPES[trigger.slope]}",
            f"{head}{level} {trigger.level_v:.6G}",
        )

    def _input(self, channel: Channel) -> Conversation[None]:
        head = f"CH{channel.number}:"
        # In divisions, and up is positive: what stands in the middle is its opposite.
        position = -channel.offset_v / channel.volts_per_division
        if self.new and abs(position) > _FARTHEST:
            raise InstrumentError(
                f"{self.identity.model} moves a channel by {_FARTHEST} divisions at most, and "
                f"channel {channel.number} needs {abs(position):.3g} for {channel.offset_v:g} V "
                f"in the middle at {channel.volts_per_division:g} V per division; "
                "set volts_per_division higher."
            )
        # First: the scale counts at the probe's tip.
        if self.new:
            yield from write(f"{head}PRObe:GAIN {1 / channel.probe:.6G}")
        else:
            yield from write(f"{head}PRObe {channel.probe:G}")
        yield from write(
            f"{head}COUPling {channel.coupling}",
            f"{head}SCAle {channel.volts_per_division:.6G}",
            f"{head}POSition {position:.6G}",
        )

    def _new_time(self, setup: Setup) -> Conversation[None]:
        depths = [depth for depth in _DEPTHS if depth <= _LONGEST_TBS1000C]
        if self.identity.model.upper().replace(" ", "").startswith("TBS2"):
            depths = list(_DEPTHS)
        depth = next((depth for depth in depths if depth >= setup.points), depths[-1])
        # The screen has 15 divisions, the record is ten of them (077-1149, WFMOutpre? example).
        yield from write(
            f"HORizontal:RECOrdlength {depth}",
            f"HORizontal:SCAle {step_up(setup.span_s / 10, (1, 2, 4)):.6G}",
            "HORizontal:DELay:MODe 0",
            f"HORizontal:POSition {100 * setup.before:.6G}",
        )

    def _old_time(self, setup: Setup) -> Conversation[None]:
        scale_s = step_up(setup.span_s / 10, (1, 2.5, 5))
        yield from write(
            f"HORizontal:MAIn:SCAle {scale_s:.6G}",
            # The middle of the screen, counted from the trigger.
            f"HORizontal:MAIn:POSition {10 * scale_s * (0.5 - setup.before):.6G}",
        )

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel."""
        last = _OLD_POINTS
        if self.new:
            last = int(number((yield from query("HORizontal:RECOrdlength?")), "the record length"))
        preamble = yield from self.select(channel, 1, last)
        return (yield from self.curve(channel, preamble))

    def screenshot(self) -> Conversation[bytes]:
        """Return the screen: a file that is fetched, or what would be printed, as BMP."""
        if not self.new:
            yield from write("HARDCopy:PORT USB", "HARDCopy:FORMat BMP")
            return (yield from block("HARDCopy STARt"))
        picture = '"mqtick.png"'
        yield from write("SAVe:IMAGe:FILEFormat PNG", f"SAVe:IMAGe {picture}")
        yield from query("*OPC?")
        octets = yield from block(f"FILESystem:READFile {picture}")
        yield from write(f"FILESystem:DELEte {picture}")
        return octets
