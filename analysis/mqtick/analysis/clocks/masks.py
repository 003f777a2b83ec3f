"""Masks of standards for a clock's time error, and whether it keeps below them.

Provenance: the numbers of the masks over tau are those of allantools 2024.06 (`mask.py`), which
names the tables; those of G.8272 were compared with a second program's (vse-sync-test of Red Hat).
The Recommendations themselves were not at hand, and where each mask begins and ends is from memory.
ITU-T measures through a low pass and samples at least 30 times a second; here it is what the
samples allow, so only the observation intervals that were measured are judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.deviation import Deviation

__all__ = ["MASKS", "MAXIMUM", "Mask", "MaskVerdict", "judge_masks"]

MAXIMUM: Final = "max|TE|"


@dataclass(frozen=True, slots=True)
class Piece:
    """From `begin_s` on, without it, the limit is a + b tau, in ns and ns/s."""

    begin_s: float
    a_ns: float
    b_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Mask:
    """The most that a measure may be.

    Attributes:
        name: of the standard and its class.
        measure: "MTIE", "TDEV" or MAXIMUM, which has no tau.
        pieces: ascending, one following the other.
        end_s: the largest tau of which the standard speaks.
        source: document and clause.
    """

    name: str
    measure: str
    pieces: tuple[Piece, ...]
    end_s: float
    source: str

    def at(self, tau_s: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the limit in ns at each tau in s; NaN where the standard says nothing."""
        tau = np.asarray(tau_s, np.float64)
        limit = np.full(tau.shape, np.nan)
        for piece in self.pieces:
            limit = np.where(tau > piece.begin_s, piece.a_ns + piece.b_ns * tau, limit)
        return np.where(tau > self.end_s, np.nan, limit)


@dataclass(frozen=True, slots=True)
class MaskVerdict:
    """Whether a measure stays below a mask of a standard.

    `worst_ratio` is the largest measure / mask, at `worst_tau_s`; None where they share no tau,
    and no tau where the mask has none. `source` is the mask's document and clause.
    """

    mask: str
    measure: str
    holds: bool | None
    worst_ratio: float | None
    worst_tau_s: float | None
    source: str = ""


_G811 = "ITU-T G.811 (09/97) with Amendment 1 (04/16), clause 6"
_G8272 = "ITU-T G.8272/Y.1367 (11/18), clause 6"
_G8272_1 = "ITU-T G.8272.1/Y.1367.1 (11/16) with Amendment 1 (08/17), clause 6"
_C37 = "IEEE C37.118.1: TVE of 1 % by phase alone, 0.01 rad"


def _most(name: str, limit_ns: float, source: str) -> Mask:
    return Mask(name, MAXIMUM, (Piece(-math.inf, limit_ns),), math.inf, source)


MASKS: Final[tuple[Mask, ...]] = (
    _most("C37.118 at 60 Hz", 26_530.0, _C37),
    _most("C37.118 at 50 Hz", 31_830.0, _C37),
    _most("G.8272 PRTC-A", 100.0, f"{_G8272}.1"),
    Mask(
        "G.8272 PRTC-A",
        "MTIE",
        (Piece(0.1, 25.0, 0.275), Piece(273.0, 100.0)),
        math.inf,
        f"{_G8272}.2, table 1",
    ),
    Mask(
        "G.8272 PRTC-A",
        "TDEV",
        (Piece(0.1, 3.0), Piece(100.0, 0.0, 0.03), Piece(1000.0, 30.0)),
        10_000.0,
        f"{_G8272}.2, table 3",
    ),
    _most("G.8272 PRTC-B", 40.0, f"{_G8272}.1"),
    Mask(
        "G.8272 PRTC-B",
        "MTIE",
        (Piece(0.1, 25.0, 0.275), Piece(54.5, 40.0)),
        math.inf,
        f"{_G8272}.2, table 2",
    ),
    Mask(
        "G.8272 PRTC-B",
        "TDEV",
        (Piece(0.1, 1.0), Piece(100.0, 0.0, 0.01), Piece(500.0, 5.0)),
        100_000.0,
        f"{_G8272}.2, table 4",
    ),
    _most("G.8272.1 ePRTC", 30.0, f"{_G8272_1}.1, from memory"),
    Mask(
        "G.8272.1 ePRTC",
        "MTIE",
        (
            Piece(0.1, 4.0),
            Piece(1.0, 3.89, 0.11114),
            Piece(100.0, 15.0, 0.0000375),
            Piece(400_000.0, 30.0),
        ),
        10_000_000.0,
        f"{_G8272_1}.2, table 1",
    ),
    Mask(
        "G.8272.1 ePRTC",
        "TDEV",
        (Piece(0.1, 1.0), Piece(30_000.0, 0.0, 3.33333e-5), Piece(300_000.0, 10.0)),
        1_000_000.0,
        f"{_G8272_1}.2, table 2",
    ),
    Mask(
        "G.811 PRC",
        "MTIE",
        (Piece(0.1, 25.0, 0.275), Piece(1000.0, 290.0, 0.01)),
        math.inf,
        f"{_G811}, MTIE",
    ),
    Mask(
        "G.811 PRC",
        "TDEV",
        (Piece(0.1, 3.0), Piece(100.0, 0.0, 0.03), Piece(1000.0, 30.0)),
        10_000.0,
        f"{_G811}, TDEV",
    ),
)


def judge_masks(
    deviations: Iterable[Deviation], most_ns: float | None = None, masks: Iterable[Mask] = MASKS
) -> tuple[MaskVerdict, ...]:
    """Compare MTIE and TDEV, and the largest |time error| `most_ns`, with masks, in their order.

    A mask holds where the measure itself is nowhere above it; its confidence interval is not
    counted. Measures that are not given are not judged.
    """
    measures = {deviation.name: deviation for deviation in deviations}
    verdicts = []
    for mask in masks:
        if mask.measure == MAXIMUM:
            if most_ns is not None:
                ratio = most_ns / float(mask.at(1.0))
                verdicts.append(MaskVerdict(mask.name, mask.measure, ratio <= 1, ratio, None))
        elif (deviation := measures.get(mask.measure)) is not None:
            verdicts.append(_judge(mask, deviation))
    return tuple(verdicts)


def _judge(mask: Mask, deviation: Deviation) -> MaskVerdict:
    ratios = deviation.value / mask.at(deviation.tau_s)
    if not np.isfinite(ratios).any():
        return MaskVerdict(mask.name, mask.measure, None, None, None)
    worst = int(np.nanargmax(ratios))
    ratio = float(ratios[worst])
    return MaskVerdict(mask.name, mask.measure, ratio <= 1, ratio, float(deviation.tau_s[worst]))
