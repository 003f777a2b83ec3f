"""Families of oscilloscopes, one file each; the family is found from *IDN?."""

from __future__ import annotations

import difflib
import re
from typing import Final

from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.dialects.base import Dialect, Identity, Segment
from mqtick.lab.scope.dialects.keysight import Keysight
from mqtick.lab.scope.dialects.rigol_series import RigolDho, RigolDs1000z, RigolMso5000
from mqtick.lab.scope.families import Families

__all__ = ["DIALECTS", "Dialect", "Identity", "Segment", "dialect_for"]

DIALECTS: Final[Families[Dialect]] = Families(
    "mqtick.oscilloscopes",
    Dialect,
    (Keysight, RigolDs1000z, RigolMso5000, RigolDho),
    {"title": str, "pattern": re.Pattern, "port": int},
)


def dialect_for(identity: Identity, name: str = "auto") -> Dialect:
    """Return the dialect of an instrument, or the named one; InstrumentError if there is none."""
    if name != "auto":
        if name not in DIALECTS:
            near = difflib.get_close_matches(name, DIALECTS, n=1)
            raise InstrumentError(
                f"There is no dialect {name!r}"
                f"{f'; did you mean {near[0]}' if near else ''}. Known: {', '.join(DIALECTS)}."
            )
        return _made(DIALECTS[name], identity)
    unusable = ""
    for each in DIALECTS:
        try:
            dialect = DIALECTS[each]
        except InstrumentError as error:  # another dialect may match the instrument
            unusable += f" {error}"
            continue
        if dialect.pattern.match(f"{identity.manufacturer} {identity.model}"):
            return _made(dialect, identity)
    raise InstrumentError(
        f"No dialect is known for {identity}. If it speaks like a known family, name that with "
        f"--dialect (or dialect = in the experiment): {', '.join(DIALECTS)}; "
        f"else see docs/adding-an-oscilloscope.md.{unusable}"
    )


def _made(dialect: type[Dialect], identity: Identity) -> Dialect:
    try:
        return dialect(identity)
    except Exception as fault:  # a class of another package may raise anything
        raise InstrumentError(
            f"The dialect {dialect.name} cannot be used with {identity} "
            f"({type(fault).__name__}: {fault}); name another one with --dialect."
        ) from fault
