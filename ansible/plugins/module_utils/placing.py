"""Placing a file so that at every moment the earlier one is there, or the new one, and whole."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["RefusedError", "replace_file"]


class RefusedError(Exception):
    """A file that a command does not take; its words."""


def make_folder(folder: Path) -> None:
    """Make a folder and those above it for everybody to read, whatever the mask is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def check(command: str, file: str) -> None:
    """Raise `RefusedError` unless the command, with the file for %s, ends well."""
    words = [word.replace("%s", file) for word in shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise RefusedError((done.stderr or done.stdout).strip() or "no reason given")


def replace_file(path: Path, octets: bytes, command: str, finish: Callable[[str], object]) -> None:
    """Put octets in the place of what is at a path.

    They are written beside it, for nobody else to read; `command`, if there is one, has to take
    that draft, and `finish` gives it its owner and mode before it gets its name. Raises OSError or
    RefusedError, and has then changed nothing but folders that were missing.
    """
    make_folder(path.parent)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as writing:
            writing.write(octets)
            writing.flush()
            os.fsync(handle)
        if command:
            check(command, draft)
        finish(draft)
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
