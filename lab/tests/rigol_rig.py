"""What the tests of the Rigol dialects share."""

from __future__ import annotations

from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.dialects.rigol import Rigol
from mqtick.lab.scope.dialects.rigol_series import RigolDho, RigolDs1000z, RigolMso5000


def identity(model: str) -> Identity:
    """What a model answers to *IDN?."""
    return Identity.parse(f"RIGOL TECHNOLOGIES,{model},X1,00.01")


DS1000Z, MSO5000, DHO = (
    RigolDs1000z(identity("DS1054Z")),
    RigolMso5000(identity("MSO5074")),
    RigolDho(identity("DHO924S")),
)
ALL: list[Rigol] = [DS1000Z, MSO5000, DHO]
DEPTH = ":ACQuire:MDEPth?"
