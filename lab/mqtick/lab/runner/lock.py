"""One runner at a time: on a folder, and on an instrument."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


class BusyError(Exception):
    """Another program uses the folder or the instrument; the text says which."""


def lock_of(resource: str) -> Path:
    """Return the lock file of an instrument, or of a bench.

    It is the same for all programs on this host that have the same TMPDIR.
    """
    name = hashlib.sha256(resource.strip().upper().encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"mqtick-lab-{name}.lock"


@contextlib.contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file for the length of a with block; the kernel frees it if the process dies.

    BusyError if another process holds it. The file stays: if it were removed, two other processes
    could each lock a file of that name.
    """
    file = _open(path, what)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            by = os.pread(file, 20, 0).decode("ascii", "replace").strip()
            holder = f" (process {by})" if by.isdigit() else ""
            raise BusyError(
                f"{what} is in use by another mqtick-lab run on this host{holder}; wait for it "
                "to end, or stop it."
            ) from None
        with contextlib.suppress(OSError):  # another user's file cannot be written, only locked
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def _open(path: Path, what: str) -> int:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(PermissionError):
                return os.open(path, os.O_RDWR | flags)
            return os.open(path, os.O_RDONLY | flags)
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
    except OSError as error:
        raise BusyError(
            f"{what} cannot be locked: {path} cannot be opened ({error.strerror}); remove that "
            "file if no run is in progress."
        ) from error
