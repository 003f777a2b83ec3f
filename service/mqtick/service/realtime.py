"""Settings against delays: memory, garbage collector, CPUs, scheduling policy.

Each function returns None on success, or a sentence with the reason of the failure. None of them
raises: a program without these settings is less punctual, but works. The unit file sets the policy
(FIFO), before the program starts, so that the program needs no privilege for it; here it is only
checked.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
from collections.abc import Iterable

_MCL_CURRENT = 1  # asm-generic/mman.h; the same on x86 and ARM
_MCL_FUTURE = 2
_CAP_IPC_LOCK = 14  # capability.h
_STACK = 1 << 20

_POLICIES = {
    os.SCHED_OTHER: "other",
    os.SCHED_RR: "rr",
    os.SCHED_BATCH: "batch",
    os.SCHED_IDLE: "idle",
}


def small_stacks() -> None:
    """Give threads that start from now on stacks of 1 MiB instead of the usual 8.

    Locked memory is resident memory: a locked stack takes its full size, used or not.
    """
    threading.stack_size(_STACK)


def lock_memory() -> str | None:
    """Lock all memory of the process, present and future, so that no page fault delays it.

    Refused where RLIMIT_MEMLOCK is finite: an allocation past the limit would fail later.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and not _has_capability(_CAP_IPC_LOCK):
        return (
            f"memory is not locked: the limit is {soft} octets, and a later allocation past it "
            "would fail; set LimitMEMLOCK=infinity in the unit"
        )
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.mlockall(_MCL_CURRENT | _MCL_FUTURE) == 0:
            return None
        reason = os.strerror(ctypes.get_errno())
    except (OSError, AttributeError) as error:
        reason = str(error)
    return f"memory is not locked: {reason}; page faults may delay the program by milliseconds"


def _has_capability(number: int) -> bool:
    try:
        with open("/proc/self/status", "rb") as file:
            lines = [line for line in file if line.startswith(b"CapEff:")]
        return bool(int(lines[0].split()[1], 16) >> number & 1)
    except (OSError, ValueError, IndexError):
        return False


def quiet_garbage_collector() -> str | None:
    """Collect once, exempt all present objects from later collections, and switch those off.

    Call it when start-up is finished, and `gc.collect()` now and then in idle time.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    return None


def pin_to_cpus(cpus: Iterable[int]) -> str | None:
    """Run this thread, and threads it starts later, on the given CPUs only."""
    wanted = sorted(set(cpus))
    try:
        os.sched_setaffinity(0, wanted)
    except (OSError, ValueError, OverflowError, TypeError) as error:
        here = sorted(os.sched_getaffinity(0))
        reason = getattr(error, "strerror", None) or str(error)
        return f"the program is not pinned to CPUs {wanted}: {reason}; it may run on {here}"
    return None


def expect_fifo() -> str | None:
    """Check that this thread runs with the policy that the unit file should set."""
    try:
        policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    except OSError as error:
        return f"the scheduling policy cannot be read: {error.strerror}"
    if policy == os.SCHED_FIFO:
        return None
    return (
        f"the scheduling policy is {_POLICIES.get(policy, policy)}, but fifo was expected; "
        "set CPUSchedulingPolicy=fifo in the unit"
    )
