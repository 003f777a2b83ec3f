"""Masks of standards for a clock's time error, and whether it stays below them.

Provenance: the numbers of the masks over tau are those of allantools 2024.06 (`mask.py`), which
names the tables; those of G.8272 were compared with a second program's (vse-sync-test of Red Hat).
The Recommendations themselves were not available, and where each mask begins and ends is from
memory. ITU-T measures through a low pass and samples at least 30 times a second; here it is what
the samples allow, so only the observation intervals that were measured are judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.clocks.stability import Deviation
from mqtick.recording.units import Floats

MAXIMUM: Final = "max|TE|"
FEWEST_FOR_MASKS: Final = math.ceil(math.log(0.05) / math.log(0.95))
"""With fewer samples, all within a mask, more than 5 % may be beyond it (95 % confidence)."""
_AMPLIFIED: Final = {MAXIMUM: 1.0, "MTIE": 2.0, "TDEV": 4 / math.sqrt(6)}
"""By how much a measure may be off at most if each sample may be off by 1."""


@dataclass(frozen=True, slots=True)
class Mask:
    """The most that a measure may be.

    Attributes:
        name: of the standard and its class.
        measure: "MTIE", "TDEV" or MAXIMUM, which has no tau.
        pieces: begin_s, a_ns and b in ns/s of each, ascending: from begin_s on, without it, the
            limit is a + b tau.
        end_s: the largest tau of which the standard speaks.
        source: document and clause.
    """

    name: str
    measure: str
    pieces: tuple[tuple[float, float, float], ...]
    end_s: float
    source: str

    def at(self, tau_s: npt.ArrayLike) -> Floats:
        """Return the limit in ns at each tau in s; NaN where the standard says nothing."""
        tau = np.asarray(tau_s, np.float64)
        limit = np.full(tau.shape, np.nan)
        for begin_s, a_ns, b in self.pieces:
            limit = np.where(tau > begin_s, a_ns + b * tau, limit)
        return np.where(tau > self.end_s, np.nan, limit)


@dataclass(frozen=True, slots=True)
class MaskVerdict:
    """Whether a measure stays below a mask of a standard.

    `holds` is None where the samples do not tell: too few, too uncertain, or no tau in common.
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


def _most(name: str, limit_ns: float, source: str) -> Mask:
    return Mask(name, MAXIMUM, ((-math.inf, limit_ns, 0.0),), math.inf, source)


_A, _B, _EPRTC, _PRC = "G.8272 PRTC-A", "G.8272 PRTC-B", "G.8272.1 ePRTC", "G.811 PRC"
_TDEV_A = (0.1, 3.0, 0.0), (100.0, 0.0, 0.03), (1000.0, 30.0, 0.0)
_TDEV_B = (0.1, 1.0, 0.0), (100.0, 0.0, 0.01), (500.0, 5.0, 0.0)
_MTIE_EPRTC = (
    (0.1, 4.0, 0.0),
    (1.0, 3.89, 0.11114),
    (100.0, 15.0, 0.0000375),
    (400_000.0, 30.0, 0.0),
)
_TDEV_EPRTC = (0.1, 1.0, 0.0), (30_000.0, 0.0, 3.33333e-5), (300_000.0, 10.0, 0.0)

MASKS: Final[tuple[Mask, ...]] = (
    _most(_A, 100.0, f"{_G8272}.1"),
    Mask(_A, "MTIE", ((0.1, 25.0, 0.275), (273.0, 100.0, 0.0)), math.inf, f"{_G8272}.2, table 1"),
    Mask(_A, "TDEV", _TDEV_A, 1e4, f"{_G8272}.2, table 3"),
    _most(_B, 40.0, f"{_G8272}.1"),
    Mask(_B, "MTIE", ((0.1, 25.0, 0.275), (54.5, 40.0, 0.0)), math.inf, f"{_G8272}.2, table 2"),
    Mask(_B, "TDEV", _TDEV_B, 1e5, f"{_G8272}.2, table 4"),
    _most(_EPRTC, 30.0, f"{_G8272_1}.1, from memory"),
    Mask(_EPRTC, "MTIE", _MTIE_EPRTC, 1e7, f"{_G8272_1}.2, table 1"),
    Mask(_EPRTC, "TDEV", _TDEV_EPRTC, 1e6, f"{_G8272_1}.2, table 2"),
    Mask(_PRC, "MTIE", ((0.1, 25.0, 0.275), (1000.0, 290.0, 0.01)), math.inf, f"{_G811}, MTIE"),
    Mask(_PRC, "TDEV", _TDEV_A, 1e4, f"{_G811}, TDEV"),
)


def mask_verdicts(
    deviations: Iterable[Deviation],
    most_ns: float | None,
    masks: Iterable[Mask] = MASKS,
    *,
    samples: int,
    uncertainty_ns: float = 0.0,
) -> tuple[MaskVerdict, ...]:
    """Compare MTIE and TDEV, and the largest |time error| `most_ns`, with masks, in their order.

    A mask holds where the measure is nowhere above it, and would not be if every sample were off by
    `uncertainty_ns`; it does not where the measure is above it whatever that makes of it. Of fewer
    `samples` than FEWEST_FOR_MASKS none holds. Otherwise it is not told. Measures that are not
    given have no verdict. Confidence intervals of TDEV are not counted.
    """
    found = {each.name: (each.tau_s, each.value) for each in deviations}
    if most_ns is not None:
        found[MAXIMUM] = np.ones(1), np.array([most_ns])
    return tuple(
        _verdict(mask, *found[mask.measure], samples, uncertainty_ns)
        for mask in masks
        if mask.measure in found
    )


def _verdict(
    mask: Mask, tau_s: Floats, measure: Floats, samples: int, uncertainty_ns: float
) -> MaskVerdict:
    allowed = mask.at(tau_s)
    common = np.isfinite(allowed)
    if not common.any():
        return MaskVerdict(mask.name, mask.measure, None, None, None, mask.source)
    tau_s, measure, allowed = tau_s[common], measure[common], allowed[common]
    off = _AMPLIFIED[mask.measure] * uncertainty_ns
    holds = None
    if (measure - off > allowed).any():
        holds = False
    elif samples >= FEWEST_FOR_MASKS and (measure + off <= allowed).all():
        holds = True
    ratios = measure / allowed
    worst = int(ratios.argmax())
    tau = None if mask.measure == MAXIMUM else float(tau_s[worst])
    return MaskVerdict(mask.name, mask.measure, holds, float(ratios[worst]), tau, mask.source)
