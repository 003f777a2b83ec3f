"""A private chronyd for the benchmarks, and the samples in its log."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.clock_keeper import ClockKeeper
from demo import local_programs
from mqtick.client.chrony_lines import socket_path

# The directives of the fleet's Ansible role besides the reference clocks, without the RTC's.
DIRECTIVES = ("makestep 1 3", "maxclockerror 10")


class Taken(NamedTuple):
    """A sample that chronyd has accepted."""

    realtime_ns: int
    offset_ns: int
    """Reference minus the system clock, as it was sent."""


class Chronyd(local_programs.Chronyd):
    """A chronyd that waits for samples of server 0, and logs those that it accepts."""

    def __init__(self, folder: Path, lines: Sequence[str], *, steers: bool = False) -> None:
        kept = ("log refclocks", f"logdir {folder}")
        super().__init__(folder, (*lines, *DIRECTIVES, *kept), steers=steers)
        self.socket = socket_path(0, str(folder))
        self.wait_for(self.socket)

    def taken(self) -> list[Taken]:
        """Return all samples that it has accepted so far, from its own log."""
        file = self.folder / "refclocks.log"
        return list(taken(file.read_text())) if file.exists() else []


def taken(log: str) -> Iterator[Taken]:
    """Yield every sample of a refclocks.log; filtered samples have no raw offset."""
    for line in log.splitlines():
        words = line.split()
        # date, time, refid, DP, L, P, raw offset, cooked offset, dispersion
        if len(words) == 9 and words[2] == "MQT0" and words[6] != "-":
            at = datetime.fromisoformat(f"{words[0]} {words[1]}").replace(tzinfo=UTC)
            at_ns = int(at.replace(microsecond=0).timestamp()) * 10**9 + at.microsecond * 1000
            yield Taken(at_ns, round(float(words[6]) * 1e9))


def generated_lines(folder: Path, *flags: str) -> list[str]:
    """Return the lines that `mqtick-client chrony-config` prints, with the socket in a folder."""
    command = [sys.executable, "-m", "mqtick.client.cli", "chrony-config", *flags]
    printed = subprocess.run(
        [*command, "--run-folder", str(folder)], capture_output=True, text=True, check=True
    )
    return printed.stdout.splitlines()


@contextlib.contextmanager
def steering(folder: Path, lines: Sequence[str]) -> Iterator[Chronyd]:
    """Let a chronyd steer the clock of this machine for the length of a with block."""
    keeper = ClockKeeper()
    try:
        with Chronyd(folder, lines, steers=True) as daemon:
            keeper.end_first(daemon.process.pid)
            yield daemon
    finally:
        print(keeper.put_back(), flush=True)
