"""The text formats, the one that says least of itself last."""

from __future__ import annotations

from typing import Final

from mqtick.analysis.readers import rigol_csv
from mqtick.analysis.readers.format import Format

__all__ = ["FORMATS"]

FORMATS: Final[tuple[Format, ...]] = (rigol_csv.FORMAT,)
