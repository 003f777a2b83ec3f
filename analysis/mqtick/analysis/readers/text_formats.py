"""The text formats, the one that says least of itself last."""

from __future__ import annotations

from typing import Final

from mqtick.analysis.readers import (
    keysight_csv,
    lecroy_csv,
    plain_csv,
    rigol_csv,
    saleae_csv,
    siglent_csv,
    tektronix_csv,
)
from mqtick.analysis.readers.format import Format

__all__ = ["FORMATS"]

FORMATS: Final[tuple[Format, ...]] = (
    rigol_csv.FORMAT,
    siglent_csv.FORMAT,
    keysight_csv.INFINIIVISION,
    keysight_csv.INFINIIUM,
    tektronix_csv.FORMAT,
    lecroy_csv.FORMAT,
    plain_csv.ROHDE_SCHWARZ,
    saleae_csv.FORMAT,
    plain_csv.PLAIN,
)
