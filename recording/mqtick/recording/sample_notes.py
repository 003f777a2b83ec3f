"""What is said about a waveform's samples if they have no edge, or more than two levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mqtick.recording.levels import StateLevels
from mqtick.recording.waveform import Waveform, seen

_RARE: Final = 4
"""A level of fewer samples may not be a real level."""


def no_passage(waveform: Waveform, levels: StateLevels) -> str:
    """Say what was seen where two levels have no edge between them."""
    low_v, high_v = levels.volts(waveform)
    return (
        f"Its {seen(waveform)} have levels of {low_v:.3g} and {high_v:.3g} V, and nowhere a "
        "complete transition from one to the other."
    )


def outliers_of(waveform: Waveform, levels: StateLevels) -> str:
    """Say which samples lie far outside both levels, "" where none does.

    A level of a few samples is mentioned too: they may be outliers next to levels not seen.
    """
    low_v, high_v = levels.volts(waveform)
    if not levels.outliers and 0 < levels.samples < _RARE:
        are = "are" if levels.samples > 1 else "is"
        return (
            f"Only {levels.samples} of {waveform.codes.size:,} samples {are} at one of its levels "
            f"of {low_v:.3g} and {high_v:.3g} V: a pulse as short as that, or outliers."
        )
    if not levels.outliers:
        return ""
    farthest_v = (levels.farthest - waveform.code_at_zero) * waveform.volts_per_code
    limits = np.iinfo(waveform.codes.dtype)
    beyond = " or beyond" if levels.farthest in (limits.min, limits.max) else ""
    lie = "lie" if levels.outliers > 1 else "lies"
    return (
        f"{levels.outliers:,} of {waveform.codes.size:,} samples {lie} far outside its levels of "
        f"{low_v:.3g} and {high_v:.3g} V, as far as {farthest_v:.2g} V{beyond}: "
        + (
            "they were ignored as outliers."
            if levels.passed_over
            else "too many for outliers, so its edges may not be what they seem."
        )
    )


def first_of_each(outliers: Mapping[str, Sequence[str]], what: str) -> list[str]:
    """Return the first sentence of each channel, and in how many more of `what` it has such."""
    return [
        said[0] + (f" {len(said) - 1:,} more {what} have such samples too." if said[1:] else "")
        for said in outliers.values()
    ]
