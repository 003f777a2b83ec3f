"""Which formats there are, and which of them a file has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.analysis.capture import CaptureError, CaptureFile

__all__ = ["FORMATS", "HEAD_OCTETS", "Format", "open_capture"]

HEAD_OCTETS: Final = 1 << 14
"""How much of a file its format is recognised by."""


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    Attributes:
        name: of the format: "Rigol CSV".
        tested: whose files the tests read ("DS1054Z, DS2072A"), "" where there is none:
            the format is then called untested wherever it is named.
        recognises: whether these first octets (`HEAD_OCTETS` at most) are of such a file. Must not
            raise, whatever they are.
        open: opens a file that was recognised; CaptureError.
        needs: a Python package that it needs beside ours ("RigolWFM"), else "".
    """

    name: str
    tested: str
    recognises: Callable[[bytes], bool]
    open: Callable[[Path], CaptureFile]
    needs: str = ""


# The more a format's head says, the earlier it stands: plain CSV recognises nearly everything.
FORMATS: Final[tuple[Format, ...]] = ()


def open_capture(path: Path) -> CaptureFile:
    """Recognise a file by its content and open it; CaptureError says what was expected."""
    raise CaptureError(f"{path}: not yet")
