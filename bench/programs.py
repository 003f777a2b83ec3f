"""The rights under which the programs under test run."""

from __future__ import annotations

import contextlib
import os
import resource

# As in client/systemd/mqtick-client.service: CPUSchedulingPriority and related keys.
FIFO_PRIORITY = 10


def may_be_real_time() -> bool:
    """Whether this process may give its children the rights of the unit file (root may)."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, priority)
    return True


def like_the_unit() -> None:
    """Set up the process as the client's unit file does; call it in the child."""
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    with contextlib.suppress(ValueError):  # with CAP_IPC_LOCK no limit is needed
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(FIFO_PRIORITY))
