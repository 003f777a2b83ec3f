"""Puts the clock of this machine back to where it would be had nobody touched it.

    python tests/clock_keeper.py        notes how the clock stands, says `ready`, waits

Each line on standard input is the number of a process to end first (chronyd). At the end of the
input the clock is put back: frequency, tick and status as they were, CLOCK_REALTIME by
CLOCK_MONOTONIC_RAW, which nobody can step or slew. A process of its own, because its input also
ends when the one that steers is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

# linux/timex.h
ADJ_FREQUENCY, ADJ_MAXERROR, ADJ_ESTERROR, ADJ_STATUS = 0x0002, 0x0004, 0x0008, 0x0010
ADJ_MICRO, ADJ_NANO, ADJ_TICK, ADJ_OFFSET_SINGLESHOT = 0x1000, 0x2000, 0x4000, 0x8001
STA_NANO, STATUS_WRITABLE = 0x2000, 0x00FF

LIMIT_NS = 1_000_000


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
    """Set what `modes` says, and return how the clock is kept; OSError without the right."""
    state = Timex(modes=modes, **values)
    if _libc.adjtimex(ctypes.byref(state)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "adjtimex")
    return state


def frequency(state: Timex) -> float:
    """How much faster CLOCK_REALTIME is made to run than CLOCK_MONOTONIC_RAW, ns per ns."""
    hertz = os.sysconf("SC_CLK_TCK")
    return (state.tick * hertz - 1_000_000) / 1_000_000 + state.freq / 65536e6


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
    """Remembers how the clock stood."""

    def __init__(self) -> None:
        self.state = adjtimex()
        self.raw_ns, self.realtime_ns = realtime_at_raw()

    def error_ns(self) -> int:
        """How far the clock is from where it would be by itself; positive: ahead."""
        raw_ns, realtime_ns = realtime_at_raw()
        elapsed_ns = raw_ns - self.raw_ns
        expected_ns = self.realtime_ns + elapsed_ns + round(elapsed_ns * frequency(self.state))
        return realtime_ns - expected_ns

    def put_back(self) -> int:
        """Restore everything; returns what is left of the error, ns."""
        was = self.state
        adjtimex(ADJ_OFFSET_SINGLESHOT, offset=0)  # an adjtime() that is not finished
        adjtimex(ADJ_FREQUENCY | ADJ_TICK, freq=was.freq, tick=was.tick)
        for _ in range(5):
            error_ns = self.error_ns()
            if abs(error_ns) < LIMIT_NS // 20:
                break
            time.clock_settime_ns(
                time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_REALTIME) - error_ns
            )
        # Last: setting the clock has marked it as unsynchronised.
        adjtimex(
            ADJ_STATUS | ADJ_MAXERROR | ADJ_ESTERROR,
            status=was.status & STATUS_WRITABLE,
            maxerror=was.maxerror,
            esterror=was.esterror,
        )
        adjtimex(ADJ_NANO if was.status & STA_NANO else ADJ_MICRO)
        return self.error_ns()

    def is_as_before(self) -> bool:
        """Whether frequency, tick and status are what they were."""
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
    """Whether the process is there and no zombie."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
    with contextlib.suppress(OSError):  # nobody listens where the test was killed
        state = "as before" if keeper.is_as_before() else "NOT as before"
        print(f"the clock is back within {abs(left_ns) / 1e3:.1f} us, its settings are {state}")
        sys.stdout.flush()
    return 0 if keeper.is_as_before() and abs(left_ns) < LIMIT_NS else 1


if __name__ == "__main__":
    sys.exit(main())
