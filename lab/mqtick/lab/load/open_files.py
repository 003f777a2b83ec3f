"""Room for many connections: the limit of open files."""

from __future__ import annotations

import resource

__all__ = ["make_room"]

# Files that the process has open besides its connections.
_SPARE_FILES = 64


def make_room(members: int) -> None:
    """Raise the soft limit of open files to what members need; OSError where it cannot be."""
    needed = members + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(
            f"{members} connections need {needed} open files, but this process may have at most "
            f"{hard}, so no connection is made: raise the hard limit (`ulimit -Hn`, or "
            "LimitNOFILE= in a unit), or share the members among more processes."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
