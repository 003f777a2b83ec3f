"""Siglent's older command set (WF?): SDS1000X, X+, X-E, SDS2000X, X-E.

Source: programming guide for the SDS series PG01-E02 (WAVEFORM p. 142, INR p. 74, TRIG_DELAY); for
its gaps scopehal (SiglentSCPIOscilloscope.cpp), libsigrok (siglent-sds) and pymeasure
(LeCroyT3DSO1204, the same instrument).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from mqtick.lab.scope.contributed.siglent.values import (
    interleaved,
    nearest_depth,
    quantity,
    recorded,
    run_state,
)
from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import Dialect, Identity, step_up
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, State, Trigger
from mqtick.recording.waveform import Waveform

_CODES_PER_DIVISION: Final = 25
_DIVISIONS: Final = 14
"""Horizontal divisions of a record: only to choose a time base, not to compute times."""
_SLOPES = {"rising": "POS", "falling": "NEG", "either": "WINDOW"}
_COUPLINGS = {"DC": "D1M", "AC": "A1M"}
_ALONE, _SHARED = "14K 140K 1.4M 14M", "7K 70K 700K 7M"
_NEW_SIGNAL: Final = 1
"""Bit 0 of INR?: a signal was acquired. Bit 13 is "trigger ready"; no others are used."""


class SiglentWf(Dialect):
    """Volts: code * V/div / 25 - offset, signed octets; the record's middle lies at TRDL.

    There is no error queue, and commands that come too fast are dropped silently: so every
    setting is read back, and sent again if it did not arrive. The deskew is subtracted from the
    time base here: the instrument's own ends at 100 ns, and the guide does not state its sign.
    """

    name = "siglent-wf"
    title = "Siglent SDS1000X, X+, X-E and SDS2000X, X-E (WF? command set)"
    pattern = re.compile(
        r"(\*IDN )?SIGLENT( TECHNOLOGIES)? SDS[12]\d{3}X(?! (HD|PLUS))", re.IGNORECASE
    )
    port = 5025

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self._refused: list[str] = []
        self._armed = False
        self._acquired = False
        self._asked = False

    def _set(
        self, command: str, wanted: str, right: Callable[[str], bool] | None = None
    ) -> Conversation[bool]:
        """Set, read back, and set again; a setting that is still wrong goes into `errors`."""
        answer = ""
        for _ in range(2):
            yield from write(f"{command} {wanted}")
            answer = yield from query(f"{command}?")
            # If CHDR OFF did not arrive, the answer begins with a header.
            if right(answer) if right else answer.endswith(wanted):
                return True
        self._refused.append(f"{command} {wanted} was answered by {answer[:40]}")
        return False

    def _set_number(
        self, command: str, value: float, unit: str, tolerance: float
    ) -> Conversation[bool]:
        def right(answer: str) -> bool:
            return abs(quantity(answer, command) - value) <= tolerance

        return (yield from self._set(command, f"{value:.6E}{unit}", right))

    def set_up(self, settings: ScopeSettings) -> Conversation[None]:
        """Set everything; while it runs, because memory size cannot be set when it is stopped."""
        self.refuse_beyond(settings)
        self.refuse_segments(settings)
        self._refused, self._armed = [], False
        scale_s = step_up(settings.span_s / _DIVISIONS)
        centre_s = (0.5 - settings.before) * scale_s * _DIVISIONS
        yield from write("CHDR OFF")
        yield from self._set("TRMD", "AUTO")
        yield from self._set("ACQW", "SAMPLING")  # accepted only while it runs, like MSIZ
        on = {channel.number: channel for channel in settings.channels}
        self.keep_deskew(settings)
        for channel in range(1, self.inputs + 1):
            if channel in on:
                yield from self._set_channel(on[channel])
            else:
                yield from self._set(f"C{channel}:TRA", "OFF")
        yield from self._set_number("TDIV", scale_s, "S", scale_s / 100)
        yield from self._set_number("TRDL", centre_s, "S", scale_s / 10)
        depths = (_ALONE if interleaved(list(on)) else _SHARED).split()
        depth = nearest_depth(depths, settings.points)
        points = quantity(depth, "MSIZ")
        yield from self._set("MSIZ", depth, lambda text: quantity(text, "MSIZ") == points)
        yield from self._set_trigger(settings.trigger, on.get(settings.trigger.channel))
        yield from self._set("TRMD", "STOP")

    def _set_channel(self, wanted: ChannelSettings) -> Conversation[None]:
        head = f"C{wanted.number}:"
        scale_v = wanted.volts_per_division
        yield from self._set(f"{head}TRA", "ON")
        coupling = _COUPLINGS[wanted.coupling]
        yield from self._set(f"{head}CPL", coupling)
        yield from self._set(
            f"{head}ATTN", f"{wanted.probe:g}", lambda text: quantity(text, "ATTN") == wanted.probe
        )
        yield from self._set_number(f"{head}VDIV", scale_v, "V", scale_v / 20)
        yield from self._set_number(f"{head}OFST", -wanted.offset_v, "V", scale_v / 10)
        yield from self._set(f"{head}INVS", "OFF")
        yield from write(f"BWL C{wanted.number},OFF", f"{head}UNIT V", f"{head}SKEW 0S")

    def _set_trigger(self, trigger: Trigger, on: ChannelSettings | None) -> Conversation[None]:
        head, kind = f"C{trigger.channel}:", f"EDGE,SR,C{trigger.channel},HT,OFF"
        yield from self._set("TRSE", kind, lambda text: f"EDGE,SR,C{trigger.channel}" in text)
        yield from self._set(f"{head}TRSL", _SLOPES[trigger.slope])
        yield from write(f"{head}TRCP DC")
        tolerance = (on.volts_per_division if on else 1.0) / 5
        good = yield from self._set_number(f"{head}TRLV", trigger.level_v, "V", tolerance)
        if not good and on and on.probe != 1:
            # Some firmware multiplies the setting by the probe's factor, and reports that.
            message = self._refused.pop()
            yield from write(f"{head}TRLV {trigger.level_v / on.probe:.6E}V")
            level_v = quantity((yield from query(f"{head}TRLV?")), "the trigger level")
            if abs(level_v - trigger.level_v) > tolerance:
                self._refused.append(message)

    def arm(self) -> Conversation[None]:
        """Forget the previous signal (reading INR? clears it), and begin."""
        yield from write("CHDR OFF")
        yield from query("INR?")
        self._armed, self._acquired, self._asked = True, False, False
        yield from self._set("TRMD", "SINGLE")

    def state(self) -> Conversation[State]:
        """Ask for the state: Arm, Ready, Trig'd, Stop."""
        return run_state((yield from query("SAST?")))

    def stop(self) -> Conversation[None]:
        """End an acquisition."""
        self._armed = False
        yield from self._set("TRMD", "STOP")

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel, all points."""
        yield from write("CHDR OFF")
        if self._armed and not self._acquired:
            # Each read of INR? clears the bit, so a lost answer has lost it.
            lost, self._asked = self._asked, True
            changes = int(quantity((yield from query("INR?")), "the state changes"))
            self._asked, self._acquired = False, lost or bool(changes & _NEW_SIGNAL)
            if not self._acquired:
                raise InstrumentError(
                    "The instrument stopped, but has not acquired a signal since it was armed "
                    f"(INR? answers {changes}); what it has is older and is not read."
                )
        # Settings left by other users (every 4th point, from the 1000th) are set again.
        yield from write("WFSU SP,0,NP,0,FP,0")
        scale_v = quantity((yield from query(f"C{channel}:VDIV?")), "the scale")
        offset_v = quantity((yield from query(f"C{channel}:OFST?")), "the offset")
        rate_hz = quantity((yield from query("SARA?")), "the sample rate")
        centre_s = quantity((yield from query("TRDL?")), "the trigger delay")
        if not (rate_hz > 0 and scale_v > 0):
            raise InstrumentError(
                f"The instrument answered a rate of {rate_hz:g} Sa/s and {scale_v:g} V "
                "per division, which is not possible; the capture is refused."
            )
        head = f"C{channel}:WF"
        data = yield from block(f"{head}? DAT2", prefix=f"{head} DAT2,".encode())
        if not data:
            raise InstrumentError(
                f"The instrument has no data of channel {channel}; the capture is refused. Is the "
                "channel on, and has there been a trigger?"
            )
        # The guide counts half a grid of divisions from TRDL, and the grid is 14 or, as other
        # authors found, 10; the record's middle is the same place, for every model.
        return recorded(
            np.frombuffer(data, np.int8),
            volts_per_code=scale_v / _CODES_PER_DIVISION,
            offset_v=offset_v,
            interval_s=1 / rate_hz,
            start_s=centre_s - len(data) / rate_hz / 2,
            deskew_fs=self.deskew_fs.get(channel, 0),
        )

    def screenshot(self) -> Conversation[bytes]:
        """Return the screen as BMP, which comes without a block header."""
        return (yield from block("SCDP"))

    def errors(self) -> Conversation[list[str]]:
        """Return the settings that did not arrive; the instrument has no error queue."""
        found, self._refused = self._refused, []
        return found
        yield  # makes this a generator, as the signature says
