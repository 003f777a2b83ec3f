"""What the code that recognises files has to know of a file format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mqtick.recording.capture import CaptureFile


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    Attributes:
        name: of the format: "Rigol CSV".
        tested: whose files the tests read ("DS1054Z, DS2072A"), "" if there are none:
            the format is then called untested wherever it is named.
        recognises: whether these first octets (`HEAD_OCTETS` at most) are of such a file. Must not
            raise, whatever they are.
        open: opens a file that was recognised; CaptureError.
        needs: a Python package that it needs besides ours ("RigolWFM"), else "".
    """

    name: str
    tested: str
    recognises: Callable[[bytes], bool]
    open: Callable[[Path], CaptureFile]
    needs: str = ""
