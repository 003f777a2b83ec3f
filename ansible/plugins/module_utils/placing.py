"""Placing a file so that at every moment the earlier one is there, or the new one, and whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path


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


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for others who place files in a folder; the kernel's lock, which none leaves behind."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_whole(
    path: Path, octets: bytes, finish: Callable[[str], object] = lambda _draft: None
) -> None:
    """Put octets in the place of what is at a path; only who is alone in its folder may call it.

    They are written beside it, for nobody else to read; `finish` has to take that draft before it
    gets its name. The draft always has the same name, so that one that a killed run has left, which
    may hold keys, goes with the next.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as writing:
            writing.write(octets)
            writing.flush()
            os.fsync(handle)
        finish(str(draft))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def replace_file(path: Path, octets: bytes, command: str, finish: Callable[[str], object]) -> None:
    """Put octets in the place of what is at a path, whoever else does so at the same time.

    `command`, if there is one, has to take the draft, and `finish` gives it its owner and mode.
    Raises OSError or RefusedError, and has then changed nothing but folders that were missing.
    """

    def prepare(draft: str) -> None:
        if command:
            check(command, draft)
        finish(draft)

    make_folder(path.parent)
    with alone_in(path.parent):
        write_whole(path, octets, prepare)
