"""A private chronyd for the benchmarks; and how far a clock is from a virtual clock's time."""

from __future__ import annotations

import contextlib
import getpass
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.clock_keeper import ClockKeeper
from demo.local_broker import program
from mqtick.client.chrony import socket_path
from mqtick.service import ChronydError, Tracking, chronyd

# What the fleet's role writes besides the reference clocks, except for the RTC.
DIRECTIVES = ("makestep 1 3", "maxclockerror 10")


class Taken(NamedTuple):
    """A sample as chronyd took it."""

    realtime_ns: int
    offset_ns: int
    """Reference minus the system clock, as it was sent."""


class Chronyd:
    """One chronyd with all its files in one folder; it steers nothing unless told to."""

    def __init__(self, folder: Path, lines: Sequence[str], *, steers: bool = False) -> None:
        found = program("chronyd")
        if found is None:
            raise FileNotFoundError("chronyd is not installed: apt-get install chrony")
        folder.mkdir(mode=0o700)
        self.folder, self.socket = folder, socket_path(0, str(folder))
        self._command_socket = f"{folder}/command.sock"
        (folder / "conf").write_text(
            "\n".join((*lines, *DIRECTIVES))
            + f"\nport 0\ncmdport 0\nbindcmdaddress {self._command_socket}\n"
            f"pidfile {folder}/pid\ndriftfile {folder}/drift\nlog refclocks\nlogdir {folder}\n"
        )
        harmless = () if steers else ("-U", "-x")
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [found, *harmless, "-d", "-u", getpass.getuser(), "-f", str(folder / "conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while not Path(self.socket).exists():
            if self.process.poll() is not None:
                raise RuntimeError(f"chronyd ended at once:\n{(folder / 'log').read_text()}")
            time.sleep(0.01)

    def tracking(self) -> Tracking | None:
        """Ask for its state; None while it does not answer."""
        try:
            return chronyd.tracking(host=self._command_socket)
        except ChronydError:
            return None

    def taken(self) -> list[Taken]:
        """Return every sample that it has taken so far, from its own log."""
        file = self.folder / "refclocks.log"
        return list(taken(file.read_text())) if file.exists() else []

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)


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
        daemon = Chronyd(folder, lines, steers=True)
        keeper.end_first(daemon.process.pid)
        try:
            yield daemon
        finally:
            daemon.stop()
    finally:
        print(keeper.put_back(), flush=True)
