"""How the series of Tektronix oscilloscopes differ, from tm_devices' commands."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """How the series differ.

    Attributes:
        width: octets of a sample: 2 if the converter has more than 8 bits.
        depths: record lengths to choose from, with a scale. Empty: sample rate and record length
            are set freely, and the probe's gain is fixed: a further factor is set as external
            attenuation.
        frames: whether it has FastFrame, which must be off.
        either: whether it can trigger on either edge.
        position: whether a channel is moved by divisions, not by an offset in volts.
    """

    width: int = 1
    depths: tuple[int, ...] = ()
    frames: bool = False
    either: bool = True
    position: bool = False


_TBS1000C = (1000, 2000, 20_000)
_SERIES = tuple(
    (re.compile(pattern, re.IGNORECASE), series)
    for pattern, series in (
        (r"(MSO|LPD)[456]\d(?!\d)", Series(width=2, frames=True)),
        (r"MSO2\d(?!\d)", Series(width=2)),
        (r"(MSO|DPO)2\d{3}", Series(depths=(100_000, 1_000_000), either=False)),
        (r"TBS1", Series(depths=_TBS1000C, either=False, position=True)),
        (
            r"TBS2",
            Series(depths=(*_TBS1000C, 200_000, 2_000_000, 5_000_000), either=False, position=True),
        ),
        # MSO/DPO3000 and 4000, MDO3000, 4000, MDO3
        (r"", Series(depths=(1000, 10_000, 100_000, 1_000_000, 10_000_000))),
    )
)


def series_of(model: str) -> Series:
    """Return the series of a model, MSO54 or TBS2104B."""
    return next(series for pattern, series in _SERIES if pattern.match(model.replace(" ", "")))
