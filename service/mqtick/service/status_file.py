"""A program's status as a small JSON file, for its own `status` command and for other programs.

The file is replaced atomically (temporary name in the same folder, then rename), so a reader sees
the old status or the new one, never a part. It belongs on a file system in memory (/run): it is
written every second, is not synced to a disk, and has no meaning after a restart.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqtick.service.processes import find_program

VERSION = 1
MAXIMUM_SIZE = 1 << 20
"""Larger files are neither written nor read."""
STALE_NS = 5_000_000_000
"""A program writes its status every second: if it is older than this, it has ended, or hangs."""


def status_path(program: str, folder: str) -> Path:
    """Return the path of the program's status: in the configured folder, systemd's, or the usual.

    Users other than root have no /run/PROGRAM: their usual folder is below $XDG_RUNTIME_DIR.
    """
    if folder:
        return Path(folder) / "status.json"
    # The unit's RuntimeDirectory= sets this for the service itself, but not for a status command.
    own = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if own:
        return Path(own) / "status.json"
    usual = Path("/run") / program
    private = os.environ.get("XDG_RUNTIME_DIR", "")
    if private and not usual.exists() and os.geteuid() != 0:
        usual = Path(private) / program
    return usual / "status.json"


class StatusError(ValueError):
    """The status cannot be read; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Status:
    """The last status that a program has written."""

    program: str
    pid: int
    age_ns: int
    """How long ago it was written, by CLOCK_BOOTTIME: steps of the clock do not change it."""
    values: dict[str, Any]
    path: str = ""

    @property
    def is_old(self) -> bool:
        """Whether the program should have written a newer one."""
        return self.age_ns > STALE_NS

    def why_old(self) -> str:
        """Say why the program writes no newer one, as far as this host shows."""
        return _why_none(self.path, self.program, self.pid)


class StatusFile:
    """Writes the status of this program."""

    def __init__(self, path: str | os.PathLike[str], program: str) -> None:
        """Store the path only."""
        self.path = os.fspath(path)
        self._program = program

    def write(self, values: Mapping[str, object]) -> str | None:
        """Replace the file; returns None, or a sentence with the reason why it was not replaced.

        Never raises, neither for errors of the system (full disk, missing folder, no permission)
        nor for values that JSON cannot hold; the old file then stays as it was. A missing folder is
        made, also one that was deleted while the program ran.
        """
        try:
            octets = self._encoded(values)
            try:
                self._replace(octets)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                self._replace(octets)
        except (OSError, TypeError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return (
                f"the status could not be written to {self.path}: {reason}; "
                "the status command shows an old one or none"
            )
        return None

    def _encoded(self, values: Mapping[str, object]) -> bytes:
        content = {
            "version": VERSION,
            "program": self._program,
            "pid": os.getpid(),
            "written_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            "status": dict(values),
        }
        # Without indent: with it, the encoder is the one in Python, many times slower than in C.
        octets = json.dumps(content, allow_nan=False).encode("ascii") + b"\n"
        if len(octets) > MAXIMUM_SIZE:
            raise ValueError(f"it has {len(octets)} octets, but at most {MAXIMUM_SIZE} are read")
        return octets

    def _replace(self, octets: bytes) -> None:
        folder, name = os.path.split(self.path)
        temporary = os.path.join(folder, f".{name}.{os.getpid()}.new")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)  # left behind by a crashed process with the same ID
            # O_EXCL: if other users may write to the folder, their links are not followed.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(octets)
                # All users who may enter the folder may read it, even if a unit sets UMask=0077.
                os.fchmod(file.fileno(), 0o644)
            os.rename(temporary, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def read_status(path: str | os.PathLike[str], program: str = "") -> Status:
    """Read a file of `StatusFile`; raises StatusError with a sentence.

    `program` is who should write it, to say why there is none.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            octets = file.read(MAXIMUM_SIZE + 1)
    except FileNotFoundError:
        why = _why_none(name, program)
        raise StatusError(f"{name}: there is no status: {why}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, PermissionError):
            reason = f"{reason}: {_why_none(name, program)}"
        raise StatusError(f"{name}: the status cannot be read: {reason}") from error
    if len(octets) > MAXIMUM_SIZE:
        raise StatusError(f"{name}: is larger than {MAXIMUM_SIZE} octets; it is not a status")
    try:
        content = json.loads(octets)
    except (ValueError, RecursionError):
        raise StatusError(
            f"{name}: is not JSON; something other than mqtick wrote it: remove it"
        ) from None
    return _checked(name, content)


def _checked(name: str, content: object) -> Status:
    if not isinstance(content, dict):
        raise StatusError(f"{name}: is JSON, but not a status: it is not an object")
    version = content.get("version")
    if version != VERSION or isinstance(version, bool):
        raise StatusError(
            f"{name}: has version {str(version)[:20]!r}, but this program reads version {VERSION}; "
            "restart the service, so that both are the same version"
        )
    wanted: dict[str, type] = {
        "program": str,
        "pid": int,
        "written_boottime_ns": int,
        "status": dict,
    }
    for member, kind in wanted.items():
        if type(content.get(member)) is not kind:
            raise StatusError(f"{name}: is not a status: its member {member} is missing or wrong")
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - content["written_boottime_ns"]
    if age_ns < 0:
        raise StatusError(f"{name}: was written before the last boot; it says nothing about now")
    return Status(content["program"], content["pid"], age_ns, content["status"], name)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _why_none(path: str, program: str, pid: int | None = None) -> str:
    """Say why a program writes no status: it has ended, or its folder takes none."""
    who, folder = program or "the program", os.path.dirname(path) or "."
    if pid is None or not _is_alive(pid):
        pid = find_program(program, folder)
    if pid is None:
        return f"{who} is not running"
    try:
        mode, space = os.stat(folder).st_mode & 0o777, os.statvfs(folder)
    except OSError as error:
        wrong = f"the folder {folder}: {error.strerror}"
    else:
        if not space.f_bavail or (space.f_files and not space.f_favail):
            wrong = f"the disk of {folder} is full"
        elif space.f_flag & os.ST_RDONLY:
            wrong = f"{folder} is read-only"
        elif not mode & 0o222:
            wrong = f"the folder {folder} has mode {mode:04o}"
        elif not os.access(folder, os.X_OK):
            return f"{who} runs (process {pid}), but only its user may read: use sudo"
        else:
            return f"{who} runs (process {pid}), but hangs, or writes to another state_folder"
    return f"{who} runs (process {pid}), but cannot write its status: {wrong}"
