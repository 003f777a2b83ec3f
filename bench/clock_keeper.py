"""Sets this machine's clock back to where it would be without steering.

    python bench/clock_keeper.py        notes the state of the clock, says `ready`, waits

Each line on standard input is the ID of a process to end first (chronyd). At the end of the input
the clock is put back: frequency, tick and status as they were, CLOCK_REALTIME by
CLOCK_MONOTONIC_RAW, which cannot be stepped or slewed. Small errors, which take only seconds, are
slewed, because a step disturbs other measurements on this machine. It is a separate process
(`ClockKeeper` starts it), because its input also ends if the benchmark is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# linux/timex.h
ADJ_FREQUENCY, ADJ_MAXERROR, ADJ_ESTERROR, ADJ_STATUS = 0x0002, 0x0004, 0x0008, 0x0010
ADJ_SETOFFSET, ADJ_MICRO, ADJ_NANO, ADJ_TICK = 0x0100, 0x1000, 0x2000, 0x4000
ADJ_OFFSET_SINGLESHOT = 0x8001
STA_NANO, STATUS_WRITABLE = 0x2000, 0x00FF

LIMIT_NS = 1_000_000
# Errors up to this are slewed, by half a percent: 20 s at most.
_SLEWED_NS = 100_000_000
_SLEW_TICK_US = 50

CAP_SYS_TIME = 25
DAEMONS = {"chronyd", "systemd-timesyn", "ntpd", "ntpsec", "openntpd", "ptp4l", "phc2sys"}


class Timex(ctypes.Structure):
    """struct timex, of adjtimex(2)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time_s", ctypes.c_long),
        ("time_us", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("more", ctypes.c_int * 32),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def adjtimex(modes: int = 0, **values: int) -> Timex:
    """Set the values that `modes` names; return the clock's state; OSError without permission."""
    state = Timex(modes=modes, **values)
    if _libc.adjtimex(ctypes.byref(state)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "adjtimex")
    return state


def frequency(state: Timex) -> float:
    """How much faster CLOCK_REALTIME is made to run than CLOCK_MONOTONIC_RAW, ns per ns."""
    hertz = os.sysconf("SC_CLK_TCK")
    return float(state.tick * hertz - 1_000_000) / 1_000_000 + float(state.freq) / 65536e6


def realtime_at_raw() -> tuple[int, int]:
    """Read CLOCK_MONOTONIC_RAW and the CLOCK_REALTIME of that instant, ns."""
    best = (1 << 62, 0, 0)
    for _ in range(200):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        best = min(best, (after - before, (before + after) // 2, realtime))
    return best[1:]


class Keeper:
    """Remembers the state of the clock."""

    def __init__(self) -> None:
        self.state = adjtimex()
        self.raw_ns, self.realtime_ns = realtime_at_raw()

    def error_ns(self) -> int:
        """How far the clock is from where it would be without steering; positive: ahead."""
        raw_ns, realtime_ns = realtime_at_raw()
        elapsed_ns = raw_ns - self.raw_ns
        expected_ns = self.realtime_ns + elapsed_ns + round(elapsed_ns * frequency(self.state))
        return realtime_ns - expected_ns

    def put_back(self) -> int:
        """Restore everything; returns the remaining error, ns."""
        was = self.state
        adjtimex(ADJ_OFFSET_SINGLESHOT, offset=0)  # cancel an unfinished adjtime()
        adjtimex(ADJ_FREQUENCY | ADJ_TICK, freq=was.freq, tick=was.tick)
        for _ in range(5):
            error_ns = self.error_ns()
            if abs(error_ns) < LIMIT_NS // 20:
                break
            if abs(error_ns) < _SLEWED_NS:
                self._slew(error_ns)
            else:
                now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                time.clock_settime_ns(time.CLOCK_REALTIME, now_ns - error_ns)
        # This comes last, because setting the clock marks it as unsynchronised.
        adjtimex(
            ADJ_STATUS | ADJ_MAXERROR | ADJ_ESTERROR,
            status=was.status & STATUS_WRITABLE,
            maxerror=was.maxerror,
            esterror=was.esterror,
        )
        adjtimex(ADJ_NANO if was.status & STA_NANO else ADJ_MICRO)
        return self.error_ns()

    def _slew(self, error_ns: int) -> None:
        """Let the clock run slower or faster until the error is gone."""
        change_us = -_SLEW_TICK_US if error_ns > 0 else _SLEW_TICK_US
        adjtimex(ADJ_TICK, tick=self.state.tick + change_us)
        try:
            time.sleep(abs(error_ns) / (_SLEW_TICK_US * os.sysconf("SC_CLK_TCK") * 1000))
        finally:
            adjtimex(ADJ_TICK, tick=self.state.tick)

    def is_as_before(self) -> bool:
        """Whether frequency, tick and status are as before."""
        now, was = adjtimex(), self.state
        kept = STATUS_WRITABLE | STA_NANO
        return (now.freq, now.tick, now.status & kept) == (was.freq, was.tick, was.status & kept)


def end(number: int) -> None:
    """End a process and wait until it is gone, so that it steers no more."""
    for kind, patience_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, kind)
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if not is_running(number):
                return
            time.sleep(0.05)


def is_running(number: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class ClockKeeper:
    """The process that puts the clock back, even if this one is killed."""

    def __init__(self) -> None:
        # In a session of its own, so that Ctrl-C does not reach it.
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the process that puts the clock back did not start")

    def end_first(self, number: int) -> None:
        """Register a process that must no longer steer when the clock is put back."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()

    def put_back(self) -> str:
        """Put the clock back and return the process's output; RuntimeError if that failed."""
        said, _ = self.process.communicate(timeout=60)
        if self.process.returncode:
            raise RuntimeError(f"the clock of this machine was not put back: {said.strip()}")
        return said.strip()


def may_set_the_clock() -> bool:
    """Whether this process has the right (CAP_SYS_TIME)."""
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff"))
    return bool(int(effective.split()[1], 16) >> CAP_SYS_TIME & 1)


def other_daemons() -> list[str]:
    """Return which programs already steer this clock, as `chronyd (123)`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # With -x it does not steer.
        if name in DAEMONS and b"-x" not in words:
            found.append(f"{name} ({folder.name})")
    return found


def main() -> int:
    """Keep the clock; exit code 0 if it is back within a millisecond."""
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, signal.SIG_IGN)
    keeper = Keeper()
    print("ready", flush=True)
    steering = [int(line) for line in sys.stdin]
    for number in steering:
        end(number)
    left_ns = keeper.put_back()
    with contextlib.suppress(OSError):  # the pipe is closed if the test was killed
        state = "as before" if keeper.is_as_before() else "NOT as before"
        print(f"the clock is back within {abs(left_ns) / 1e3:.1f} us, its settings are {state}")
        sys.stdout.flush()
    return 0 if keeper.is_as_before() and abs(left_ns) < LIMIT_NS else 1


if __name__ == "__main__":
    sys.exit(main())
