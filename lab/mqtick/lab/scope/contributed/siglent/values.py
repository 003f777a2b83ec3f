"""The common part of Siglent's two command sets: numbers with units, words of the run state."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects.base import number
from mqtick.lab.scope.settings import State
from mqtick.recording.waveform import Codes, Waveform, femtoseconds

_QUANTITY: Final = re.compile(
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([pnuµmkKMG]?)(Sa(?:/s)?|pts?|Pts?|[sSvV])?$"
)
_SMALL: Final = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3, "": 1.0}
_LARGE: Final = {"k": 1e3, "m": 1e6, "g": 1e9, "": 1.0}
_STATES: Final = {
    # Arm: it takes the samples before the trigger, and ignores triggers. Ready: it waits for the
    # trigger (Siglent, "More on trigger status messages").
    "arm": State.PREPARING,
    "ready": State.ARMED,
    "trig": State.TRIGGERED,
    "stop": State.STOPPED,
    "fstop": State.STOPPED,
    # A mode that this dialect does not use, or the moment before a command takes effect.
    "auto": State.PREPARING,
    "roll": State.PREPARING,
    "scan": State.PREPARING,
}


def quantity(text: str, what: str) -> float:
    """Read "1.00GSa/s", "5.00E-01V", "C1:VDIV 500mV", "TDIV 2.00E-04S", "14K" or a bare number.

    M is mega before samples, before points and without a unit (memory sizes), but milli before S
    and V. A header (CHDR SHORT or LONG) may come first. InstrumentError if there is no number.
    """
    last = re.split(r"[ ,](?=[-+.\d])", text.strip())[-1]
    match = _QUANTITY.match(last)
    if match is None:
        return number(text, what)
    digits, prefix, unit = match.groups(default="")
    small = unit.lower() in ("s", "v")
    factor = (_SMALL if small else _LARGE).get(prefix.lower() if prefix != "µ" else prefix)
    if factor is None:
        return number(text, what)
    return number(digits, what) * factor


def run_state(text: str) -> State:
    """Read the word of SAST? or :TRIGger:STATus?; InstrumentError if it is not one of them."""
    words = re.findall(r"[A-Za-z]+", text.removeprefix("SAST").removeprefix("SAMPLE_STATUS"))
    word = words[0].lower() if words else ""
    for start, state in _STATES.items():
        if word.startswith(start):
            return state
    raise InstrumentError(
        f"The instrument answered {text[:40]!r} where the state of the acquisition was asked for; "
        "the rest of an earlier answer may be in the way."
    )


def interleaved(channels: Sequence[int]) -> bool:
    """Whether no two channels share a converter: channels 1 and 2 do, and 3 and 4."""
    return not ({1, 2} <= set(channels) or {3, 4} <= set(channels))


def nearest_depth(depths: Sequence[str], points: int) -> str:
    """Return the memory depth ("10k", "1.4M") whose ratio to the points is nearest to 1."""

    def distance(depth: str) -> float:
        return abs(math.log(quantity(depth, "a memory depth") / max(points, 1)))

    return min(depths, key=distance)


def recorded(
    codes: Codes,
    volts_per_code: float,
    offset_v: float,
    interval_s: float,
    start_s: float,
    deskew_fs: int,
) -> Waveform:
    """Return the waveform; V = code * volts_per_code - offset_v, `start_s` before the deskew.

    InstrumentError if the numbers give no valid scale or time base.
    """
    try:
        return Waveform(
            codes=codes,
            volts_per_code=volts_per_code,
            code_at_zero=offset_v / volts_per_code,
            interval_fs=femtoseconds(interval_s),
            start_fs=femtoseconds(start_s) - deskew_fs,
        )
    except (ValueError, ArithmeticError) as error:
        raise InstrumentError(
            f"The instrument answered {volts_per_code:g} V per code, an offset of {offset_v:g} V, "
            f"points {interval_s:g} s apart from {start_s:g} s on, which do not fit together; the "
            "capture is refused."
        ) from error
