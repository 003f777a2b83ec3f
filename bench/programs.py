"""The programs under test, each in its own process, started as their users start them."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# client/systemd/mqtick-client.service: CPUSchedulingPriority and its neighbours.
FIFO_PRIORITY = 10


def may_be_real_time() -> bool:
    """Whether this process may give its children what the unit file gives (root may)."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, priority)
    return True


def like_the_unit() -> None:
    """Set up the process as the client's unit file does; to be called in the child."""
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    with contextlib.suppress(ValueError):  # with CAP_IPC_LOCK no limit is needed
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(FIFO_PRIORITY))


@contextlib.contextmanager
def started(
    module: str,
    *arguments: str,
    log: Path,
    pass_fds: tuple[int, ...] = (),
    prepare: Callable[[], None] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of this Python for the length of a with block; what it says goes to a file.

    RuntimeError if it ended by itself meanwhile.
    """
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=said,
            stderr=said,
            pass_fds=pass_fds,
            preexec_fn=prepare,  # noqa: PLW1509  no thread runs when programs are started
        )
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{module} ended with {process.returncode}:\n{log.read_text()}")
    finally:
        process.terminate()
        process.wait(15)


def time_server(
    url: str, folder: Path, *arguments: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Return a time server that trusts this host's clock."""
    return started(
        "mqtick.timeserver.cli",
        *("--broker", url, "--trust-system-clock", "--state-folder", str(folder / "server")),
        *arguments,
        log=folder / "server.log",
    )
