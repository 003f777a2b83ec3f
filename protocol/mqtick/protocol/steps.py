"""Whether the host's clock was set, or the host slept, since the last look."""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import time
import weakref
from collections.abc import Callable

# sys/timerfd.h; before 3.13 Python has neither these nor the calls.
_ABSTIME, _CANCEL_ON_SET = 1, 2
_DOUBTFUL_NS = 1_000_000_000
"""This long after a change was noticed, all messages that arrived before it have been read."""
_UNARMED = bytes(32)  # struct itimerspec: all zero, whether its times have 32 or 64 bits


class Change(enum.Enum):
    """A change of CLOCK_REALTIME other than slewing; the value is the name of a counter."""

    SET = "clock-steps"
    SLEPT = "suspends"


class _Timer:
    """A timer of the kernel: reading it fails once after CLOCK_REALTIME was set.

    This covers steps of any size, leap seconds, sleep of the host, and steps that were undone
    meanwhile (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.timerfd_create(time.CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            weakref.finalize(self, os.close, self._fd)
        flags = _ABSTIME | _CANCEL_ON_SET
        if self._fd < 0 or libc.timerfd_settime(self._fd, flags, _UNARMED, None) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"no timer tells when the clock is set: {os.strerror(number)}")

    def was_cancelled(self) -> bool:
        """Whether the clock was set since the last call."""
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno == errno.ECANCELED
        return False


class StepDetector:
    """Notices that CLOCK_REALTIME was set, however briefly, or that the host slept.

    CLOCK_BOOTTIME gains on CLOCK_MONOTONIC only while the host sleeps. `read(clock)` reads a clock,
    in ns; `was_set` returns whether the clock was set since its last call.
    """

    __slots__ = ("_doubtful_until_ns", "_most_slept_ns", "_read_ns", "_was_set")

    def __init__(
        self,
        read: Callable[[int], int] = time.clock_gettime_ns,
        was_set: Callable[[], bool] | None = None,
    ) -> None:
        self._was_set = _Timer().was_cancelled if was_set is None else was_set
        self._read_ns = read
        self._most_slept_ns = self._slept_ns()[1]
        self._doubtful_until_ns = 0

    def _slept_ns(self) -> tuple[int, int]:
        """How long the host has slept since boot, ns: at least, and at most."""
        before_ns = self._read_ns(time.CLOCK_MONOTONIC)
        boottime_ns = self._read_ns(time.CLOCK_BOOTTIME)
        return boottime_ns - self._read_ns(time.CLOCK_MONOTONIC), boottime_ns - before_ns

    def look(self) -> Change | None:
        """Return what happened since the last look."""
        was_set = self._was_set()
        least_ns, most_ns = self._slept_ns()
        slept = least_ns > self._most_slept_ns
        self._most_slept_ns = most_ns if slept else min(most_ns, self._most_slept_ns)
        if slept or was_set:
            self._doubtful_until_ns = self._read_ns(time.CLOCK_MONOTONIC) + _DOUBTFUL_NS
        if slept:
            return Change.SLEPT
        return Change.SET if was_set else None

    @property
    def is_recent(self) -> bool:
        """Whether a message that is read now may have been stamped before the last change."""
        return self._read_ns(time.CLOCK_MONOTONIC) < self._doubtful_until_ns
