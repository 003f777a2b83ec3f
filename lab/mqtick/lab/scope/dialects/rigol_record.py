"""Rigol's segmented memory, which it calls waveform recording.

Sources: programming guides, :FUNCtion:WRECord (DS1000Z) and :RECord (MSO5000, DHO). Other authors
measured on an MHO900, which has the same commands (rigol_fastrec), that the recorder is ready only
when the current frame is 1, and that a frame's time comes 300 ms after the frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from mqtick.lab.scope.conversation import Conversation, InstrumentError, pause, query, write
from mqtick.lab.scope.dialects.base import Dialect, Segment, number
from mqtick.lab.scope.settings import State
from mqtick.recording.waveform import Waveform

_WORKS_OUT_S = 0.5
_UNITS = {"ks": 1e3, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}


class Recording(Dialect):
    """The part of a Rigol dialect that records frames and plays them."""

    record: ClassVar[str] = ":RECord"
    frames: ClassVar[str] = "FRAMes"
    tags: ClassVar[bool] = True
    """Whether the instrument states when a frame was taken."""
    tag_settle_s = 0.5
    """How long after a frame was selected its stated time becomes valid."""

    segments = 1
    """How many frames are set up."""

    @property
    def recording_run(self) -> str:
        """The command that begins to record."""
        return f"{self.record}:WRECord:OPERate RUN"

    @property
    def recording_stop(self) -> str:
        """The command that stops recording."""
        return f"{self.record}:WRECord:OPERate STOP"

    def end_recording(self) -> Conversation[None]:
        """Switch the recording mode off, if a user left it on."""
        if self.segments > 1:
            yield from write(self.recording_stop)
        self.segments = 1
        yield from write(f"{self.record}:WRECord:ENABle 0")

    def begin_recording(self, segments: int) -> Conversation[None]:
        """Enter the mode, if there is more than one segment; leaves it stopped."""
        self.segments = segments
        if segments == 1:
            return
        yield from write(
            f"{self.record}:WRECord:ENABle 1",
            self.recording_stop,
            f"{self.record}:WRECord:FINTerval 1E-7",  # the shortest: every trigger counts
            f"{self.record}:WRECord:PROMpt 0",  # the beep
        )
        fit = yield from self._set_frames(segments)
        if fit < segments and self.tags:
            # The instrument computes how many fit when it runs; before, the number may be old.
            yield from self._set_frames(2)
            yield from write(self.recording_run)
            yield from pause(_WORKS_OUT_S)
            yield from write(self.recording_stop)
            fit = yield from self._set_frames(segments)
        if fit < segments:
            raise InstrumentError(
                f"{self.identity.model} has room for {fit} segments of this length, but "
                f"{segments} are asked for; take fewer segments or fewer points."
            )

    def _set_frames(self, frames: int) -> Conversation[int]:
        """Ask for that many frames, and return how many it will take."""
        head = f"{self.record}:WRECord:{self.frames}"
        yield from write(f"{head} {frames}")
        return int(number((yield from query(f"{head}?")), "the number of frames"))

    def is_recording(self) -> Conversation[bool]:
        """Ask whether it is still recording."""
        answer = yield from query(f"{self.record}:WRECord:OPERate?")
        return not answer.upper().startswith("STOP")

    def recording_state(self, state: State) -> Conversation[State]:
        """Return the state of the recording, from the `state` of the trigger.

        The trigger is ready before the recorder is; events in between are lost.
        """
        if not self.tags or state not in (State.ARMED, State.STOPPED):
            return State.PREPARING if state is State.STOPPED else state
        answer = yield from query(f"{self.record}:WREPlay:FCURrent?")
        return State.ARMED if number(answer, "the current frame") >= 1 else State.PREPARING

    def read_segments(self, channels: Sequence[int]) -> Conversation[list[Segment]]:
        """Read one frame after another; the resolution of their times is that of the answer."""
        play = f"{self.record}:WREPlay:"
        count = int(number((yield from query(f"{play}FMAX?")), "the number of frames"))
        yield from write(f"{play}OPERate STOP")
        segments: list[Segment] = []
        first = (0.0, 0.0)
        for frame in range(1, count + 1):
            yield from write(f"{play}FCURrent {frame}")
            shown = int(number((yield from query(f"{play}FCURrent?")), "the current frame"))
            if shown != frame:
                raise InstrumentError(
                    f"The instrument shows frame {shown} where {frame} was asked for; the "
                    "segments are refused. Does someone turn its knobs?"
                )
            waveforms: dict[int, Waveform] = {}
            for channel in channels:
                waveforms[channel] = yield from self.read(channel)
            if not self.tags:
                segments.append(Segment(waveforms, None, None))
                continue
            yield from pause(self.tag_settle_s)
            at = frame_time_s((yield from query(f"{play}FCURrent:TIME?")))
            first = at if frame == 1 else first
            segments.append(Segment(waveforms, at[0] - first[0], max(at[1], first[1])))
        return segments


def frame_time_s(text: str) -> tuple[float, float]:
    """Read a frame's time, such as 1.28217ks; returns it and the weight of its last digit, in s."""
    match = re.fullmatch(r"([+-]?\d+(?:\.(\d+))?(?:[eE]([+-]?\d+))?)\s*([a-zµ]*)", text.strip())
    if match is None or match[4] not in {*_UNITS, ""}:
        raise InstrumentError(
            f"The instrument answered {text[:40]!r} where the time of a frame was asked for; set "
            "segments = 1 if its times do not matter."
        )
    unit = _UNITS.get(match[4], 1.0)
    value = float(match[1]) * unit
    last = 10.0 ** (int(match[3] or 0) - len(match[2] or "")) * unit
    return value, last if value else 0.0
