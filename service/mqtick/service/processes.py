"""The processes of this host, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process.

    Attributes:
        name: What the kernel calls it: 15 characters at most.
        words: Its command line.
    """

    pid: int
    parent: int
    name: str
    words: tuple[str, ...] = ()


def processes(proc: Path = PROC) -> Iterator[Process]:
    """Yield every process that can be seen but those of containers, the lowest number first."""
    ours = _space(proc / "self")
    for folder in sorted(proc.glob("[0-9]*"), key=lambda each: int(each.name)):
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            line = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended
        # proc(5): "PID (NAME) STATE PARENT ...", and the name may hold blanks and parentheses.
        name, _, rest = text.partition("(")[2].rpartition(")")
        state, parent = rest.split()[:2]
        if state != "Z" and _space(folder) in ("", ours):
            words = tuple(line.rstrip("\0").split("\0")) if line else ()
            yield Process(int(folder.name), int(parent), name, words)


def _space(folder: Path) -> str:
    """Return the name space of process numbers, which a container has of its own; empty: unseen."""
    try:
        return os.readlink(folder / "ns/pid")
    except OSError:
        return ""


def find_program(program: str, folder: str, proc: Path = PROC) -> int | None:
    """Return the process of one of our services that writes its status to a folder; None: none.

    Its other commands do not count, nor what was told another folder on its command line.
    """
    module = f"mqtick.{program.removeprefix('mqtick-')}.cli"
    for process in processes(proc):
        for place, word in enumerate(process.words[:4]):
            is_it = word.rpartition("/")[2] == program or word == module
            after = process.words[place + 1 : place + 2]
            if is_it and (not after or after[0] == "run" or after[0].startswith("--")):
                told = dict(zip(process.words, process.words[1:], strict=False))
                if told.get("--state-folder", f"/run/{program}") == folder:
                    return process.pid
    return None
