"""Siglent's :WAVeform command set: the HD generation, 2000X Plus, 5000X, 6000, 7000.

Source: SDS series programming guide EN11D (2023) and EN11F; what an SDS814X HD really does:
github.com/vindavs/siglent-bin, SPEC.md, chapter "Live SCPI path".
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from mqtick.lab.scope.contributed.siglent.descriptor import Descriptor
from mqtick.lab.scope.contributed.siglent.values import (
    interleaved,
    nearest_depth,
    quantity,
    recorded,
    run_state,
)
from mqtick.lab.scope.conversation import Conversation, InstrumentError, block, query, write
from mqtick.lab.scope.dialects.base import Dialect, Identity, step_up
from mqtick.lab.scope.settings import ScopeSettings, State
from mqtick.recording.waveform import Waveform

_SLOPES = {"rising": "RISing", "falling": "FALLing", "either": "ALTernate"}
_DEPTHS = (
    # Model, depths with a converter for each channel, and with two channels on one.
    (r"SDS5", "250k 1.25M 2.5M 12.5M 25M 125M 250M", "125k 625k 1.25M 6.25M 12.5M 62.5M 125M"),
    (r"SDS[67]", "2.5k 5k 25k 50k 250k 500k 2.5M 5M 12.5M 25M", ""),
    (r"SDS8", "10k 100k 1M 10M", ""),
    (r"", "20k 200k 2M 20M", "10k 100k 1M 10M"),
)
_DIVISIONS: Final = 10
_CLOSE: Final = 1e-5
"""Tolerance between the sample rate and the descriptor's 32-bit interval, as a share."""


class Siglent(Dialect):
    """Volts: code * (V/div * probe / codes/div) - offset * probe; t from the reference position.

    The deskew is subtracted from the time base here, not by the instrument: its own ends at 100 ns,
    and the guide does not state its sign.
    """

    name = "siglent"
    title = "Siglent SDS800X HD, 1000X HD, 2000X HD, 2000X Plus, 3000X HD, 5000X, 6000, 7000"
    pattern = re.compile(
        r"SIGLENT( TECHNOLOGIES)? (SDS\d+X (HD|PLUS)|SDS[567]\d{3})", re.IGNORECASE
    )
    port = 5025

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity)
        self._octets_only = False
        """True once firmware was found that counts samples instead of octets."""

    def set_up(self, settings: ScopeSettings) -> Conversation[None]:
        """Set everything; while it runs, because memory depth cannot be set when it is stopped."""
        self.refuse_beyond(settings)
        self.refuse_segments(settings)
        scale_s = step_up(settings.span_s / _DIVISIONS)
        delay_s = (0.5 - settings.before) * scale_s * _DIVISIONS
        on = {channel.number: channel for channel in settings.channels}
        self.keep_deskew(settings)
        yield from write(":TRIGger:MODE AUTO", ":HISTORy OFF")
        for channel in range(1, self.inputs + 1):
            if channel not in on:
                yield from write(f":CHANnel{channel}:SWITch OFF")
                continue
            wanted, head = on[channel], f":CHANnel{channel}:"
            yield from write(
                f"{head}SWITch ON",
                f"{head}COUPling {wanted.coupling}",
                f"{head}BWLimit FULL",
                f"{head}INVert OFF",
                f"{head}UNIT V",
                f"{head}PROBe VALue,{wanted.probe:G}",
                f"{head}SCALe {wanted.volts_per_division:.6G}",
                f"{head}OFFSet {-wanted.offset_v:.6G}",
                f"{head}SKEW 0",
            )
        yield from write(
            ":TIMebase:WINDow OFF",
            ":TIMebase:REFerence DELay",
            ":TIMebase:REFerence:POSition 50",
            f":TIMebase:SCALe {scale_s:.6G}",
            f":TIMebase:DELay {delay_s:.9G}",
            ":ACQuire:MODE YT",
            ":ACQuire:TYPE NORMal",
            ":ACQuire:MMANagement AUTO",
            f":ACQuire:MDEPth {self._depth(settings)}",
            ":ACQuire:SEQuence OFF",
        )
        trigger = settings.trigger
        yield from write(
            ":TRIGger:TYPE EDGE",
            ":TRIGger:EDGE:COUPling DC",
            ":TRIGger:EDGE:HOLDoff OFF",
            f":TRIGger:EDGE:SOURce C{trigger.channel}",
            f":TRIGger:EDGE:SLOPe {_SLOPES[trigger.slope]}",
            f":TRIGger:EDGE:LEVel {trigger.level_v:.6G}",
            ":TRIGger:STOP",
        )

    def _depth(self, settings: ScopeSettings) -> str:
        numbers = [channel.number for channel in settings.channels]
        for model, alone, shared in _DEPTHS:
            if re.match(model, self.identity.model, re.IGNORECASE):
                depths = alone if interleaved(numbers) or not shared else shared
                return nearest_depth(depths.split(), settings.points)
        raise AssertionError

    def arm(self) -> Conversation[None]:
        """Begin: single mode arms by itself."""
        yield from write(":TRIGger:STOP", ":TRIGger:MODE SINGle")

    def state(self) -> Conversation[State]:
        """Ask for the state: Arm, Ready, Trig'd, Stop."""
        return run_state((yield from query(":TRIGger:STATus?")))

    def stop(self) -> Conversation[None]:
        """End an acquisition."""
        yield from write(":TRIGger:STOP")

    # -- reading -------------------------------------------------------------------------------

    def read(self, channel: int) -> Conversation[Waveform]:
        """Read the channel page by page; settings left by other users are set again."""
        yield from self._select(channel)
        descriptor = yield from self._descriptor()
        return (yield from self._read(channel, descriptor))

    def _select(self, channel: int) -> Conversation[None]:
        # The instrument keeps start, count and stride of the last user, across connections.
        yield from write(
            f":WAVeform:SOURce C{channel}",
            ":WAVeform:STARt 0",
            ":WAVeform:POINt 0",
            ":WAVeform:INTerval 1",
        )

    def _descriptor(self) -> Conversation[Descriptor]:
        """Ask for the descriptor, with the width set that the converter needs."""
        found = Descriptor.parse((yield from block(":WAVeform:PREamble?")))
        words = found.bits > 8 and not self._octets_only
        if found.words != words:
            yield from write(f":WAVeform:WIDTh {'WORD' if words else 'BYTE'}")
            found = Descriptor.parse((yield from block(":WAVeform:PREamble?")))
        if found.words != words or found.stride > 1:
            raise InstrumentError(
                f"The descriptor says {'words' if found.words else 'octets'} and a stride of "
                f"{found.stride} points but others were asked for; the capture is refused. "
                "Does another program use the instrument?"
            )
        return found

    def _read(self, channel: int, descriptor: Descriptor) -> Conversation[Waveform]:
        start_s = yield from self._start()
        rate_hz = quantity((yield from query(":ACQuire:SRATe?")), "the sample rate")
        codes = yield from self._codes(descriptor)
        interval_s = descriptor.interval_s
        if abs(rate_hz * interval_s - 1) < _CLOSE:  # the same value, with more digits
            interval_s = 1 / rate_hz
        return recorded(
            codes,
            volts_per_code=descriptor.volts_per_code,
            offset_v=descriptor.offset_v * descriptor.probe,
            interval_s=interval_s,
            start_s=start_s,
            deskew_fs=self.deskew_fs.get(channel, 0),
        )

    def _start(self) -> Conversation[float]:
        """Return the first point's instant: the delay adds, from the reference position.

        The descriptor's time base is an index into a table that differs from model to model.
        """
        scale_s = quantity((yield from query(":TIMebase:SCALe?")), "the time base")
        delay_s = quantity((yield from query(":TIMebase:DELay?")), "the delay")
        percent = quantity((yield from query(":TIMebase:REFerence:POSition?")), "the reference")
        return delay_s - percent / 100 * scale_s * _DIVISIONS

    def _codes(self, descriptor: Descriptor) -> Conversation[np.ndarray]:
        size = 2 if descriptor.words else 1
        page = int(quantity((yield from query(":WAVeform:MAXPoint?")), "the page size"))
        if page < 1:
            raise InstrumentError(f"The instrument answered {page} to :WAVeform:MAXPoint?.")
        parts = []
        for first in range(0, descriptor.points, page):
            count = min(page, descriptor.points - first)
            if descriptor.points > page:
                # Set the count first: start plus count must not exceed the end.
                yield from write(f":WAVeform:POINt {count}", f":WAVeform:STARt {first}")
            data = yield from block(":WAVeform:DATA?")
            if size == 2 and len(data) == count:
                # SDS2000X Plus up to 1.3.9R6: the rest is still to come; read again, as octets.
                self._octets_only = True
            if len(data) != count * size:
                raise InstrumentError(
                    f"The instrument sent {len(data)} octets where {count} points of {size} "
                    f"octets were asked for (from point {first}); the capture is refused."
                )
            parts.append(data)
        kind = ">i2" if descriptor.high_first else "<i2"
        codes = np.frombuffer(b"".join(parts), kind if descriptor.words else "i1")
        return codes.astype(np.int16 if descriptor.words else np.int8, copy=False)

    def screenshot(self) -> Conversation[bytes]:
        """Return the screen as PNG, which comes without a block header."""
        return (yield from block(":PRINt? PNG"))
