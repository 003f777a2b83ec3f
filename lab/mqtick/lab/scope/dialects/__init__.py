"""Families of oscilloscopes, one file each; the family is found from *IDN?."""

from __future__ import annotations

import difflib

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects.base import Dialect, Identity, Segment
from mqtick.lab.scope.dialects.keysight import Keysight
from mqtick.lab.scope.dialects.rigol_series import RigolDho, RigolDs1000z, RigolMso5000
from mqtick.lab.scope.dialects.siglent import Siglent
from mqtick.lab.scope.dialects.siglent_wf import SiglentWf
from mqtick.lab.scope.dialects.tektronix import Tektronix
from mqtick.lab.scope.dialects.tektronix_tds import TektronixTds

__all__ = ["DIALECTS", "Dialect", "Identity", "Segment", "dialect_for"]

DIALECTS: dict[str, type[Dialect]] = {
    dialect.name: dialect
    for dialect in (
        Keysight,
        RigolDs1000z,
        RigolMso5000,
        RigolDho,
        Siglent,
        SiglentWf,
        Tektronix,
        TektronixTds,
    )
}


def dialect_for(identity: Identity, name: str = "auto") -> Dialect:
    """Return the dialect of an instrument, or the named one; InstrumentError if there is none."""
    known = ", ".join(DIALECTS)
    if name != "auto":
        if name not in DIALECTS:
            near = difflib.get_close_matches(name, DIALECTS, n=1)
            raise InstrumentError(
                f"There is no dialect {name!r}"
                f"{f'; did you mean {near[0]}' if near else ''}. Known: {known}."
            )
        return DIALECTS[name](identity)
    for dialect in DIALECTS.values():
        if dialect.pattern.match(f"{identity.manufacturer} {identity.model}"):
            return dialect(identity)
    raise InstrumentError(
        f"No dialect is known for {identity}. If it speaks like a known family, name that with "
        f"--dialect (or dialect = in the experiment): {known}; "
        "else see docs/adding-an-oscilloscope.md."
    )
