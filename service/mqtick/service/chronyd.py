"""chronyd's state of the clock, from `chronyc -c -n` (CSV, SI units, no name look-up).

`mqtick.service.chronyd_csv` parses the lines, and converts the signs: every offset is *reference
minus local*, and the names say so. Every function here starts a program and waits for it: call it
from a thread, not from a loop that must not wait.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from mqtick.service.chronyd_csv import (
    ChronydError,
    ChronyVersion,
    Source,
    Tracking,
    parse_sources,
    parse_tracking,
    parse_version,
)

__all__ = ["ChronydError", "query", "sources", "tracking", "version"]

# The binaries are in /usr/sbin and /usr/bin, and an ordinary user's PATH may lack the first.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/bin"))


def query(
    *arguments: str, host: str | None = None, port: int | None = None, timeout_s: float = 2.0
) -> str:
    """Return what `chronyc -c -n ARGUMENTS` prints; raises ChronydError.

    `host` is an address or the path of a command socket. Blocks up to `timeout_s`: do not call it
    from a loop that must not wait.
    """
    place = [*(["-h", host] if host else []), *(["-p", str(port)] if port is not None else [])]
    return _run("chronyc", ["-c", "-n", *place, *arguments], timeout_s)


def tracking(
    *, host: str | None = None, port: int | None = None, timeout_s: float = 2.0
) -> Tracking:
    """Ask chronyd for its tracking state; raises ChronydError."""
    return parse_tracking(query("tracking", host=host, port=port, timeout_s=timeout_s))


def sources(
    *, host: str | None = None, port: int | None = None, timeout_s: float = 2.0
) -> tuple[Source, ...]:
    """Ask chronyd for its sources; raises ChronydError."""
    return parse_sources(query("sources", host=host, port=port, timeout_s=timeout_s))


def version(timeout_s: float = 2.0) -> ChronyVersion:
    """Return the version of chronyd, or of chronyc if there is no chronyd; raises ChronydError.

    Neither has to be running.
    """
    program = "chronyd" if shutil.which("chronyd", path=_PATH) else "chronyc"
    return parse_version(_run(program, ["--version"], timeout_s))


def _run(program: str, arguments: Sequence[str], timeout_s: float) -> str:
    path = shutil.which(program, path=_PATH)
    if path is None:
        raise ChronydError(
            "not-installed", f"{program} is not installed; install it with: apt install chrony"
        )
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            env={"PATH": _PATH, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ChronydError(
            "time-out",
            f"{program} did not answer within {timeout_s} s; is chronyd stopped or busy?",
        ) from None
    except (OSError, ValueError) as error:
        raise ChronydError("failed", f"{program} could not be started: {error}") from error
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode == 0:
        return text
    raise _failure(" ".join([program, *arguments]), text)


def _failure(command: str, text: str) -> ChronydError:
    said = text[:200] or "no reason given"
    if "501" in text:
        return ChronydError(
            "permission",
            f"chronyd refuses this to an ordinary user ({said}); "
            f"run it as root or _chrony: {command}",
        )
    if "506" in text or "Could not open connection" in text:
        return ChronydError(
            "not-running",
            f"chronyd does not answer ({said}): it is not running, its command port is off "
            "(cmdport 0), or its socket is closed to this user; see: systemctl status chrony",
        )
    return ChronydError("failed", f"{command} failed: {said}")
