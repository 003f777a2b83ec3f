"""Crowd processes on the runner's host: started for a run, and always ended with it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import IO, Final

from mqtick.lab.runner.experiment import Experiment
from mqtick.service.settings.program import BrokerSettings

_SPARE_FILES: Final = 64
_END_S: Final = 3.0


class CrowdStartError(Exception):
    """The crowd of this host cannot be started; the text says why."""


def refuse_low_limit(experiment: Experiment) -> None:
    """Raise CrowdStartError if the hard limit of open files is too low for the largest N."""
    processes, most = len(experiment.crowd_nodes()), max(experiment.subscribers)
    if not experiment.crowd.processes:
        return
    needed = _members_each(experiment) + _SPARE_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, -1) and hard < needed:
        raise CrowdStartError(
            f"{most} subscribers in {processes} crowd processes need {needed} open files each, "
            f"but `ulimit -Hn` allows {hard}: raise it, or set crowd.processes to "
            f"{-(-most // max(1, hard - _SPARE_FILES))} or more."
        )


def _members_each(experiment: Experiment) -> int:
    return -(-max(experiment.subscribers) // len(experiment.crowd_nodes()))


# The kernel ends a crowd if its runner dies (prctl 1 is PR_SET_PDEATHSIG). Otherwise it would keep
# its connections, and would answer the commands of the next run, too.
_BOOT: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.getppid() == int(sys.argv.pop(1)) or sys.exit(0); "
    "from mqtick.lab.cli import main; sys.exit(main(sys.argv[1:]))"
)


def crowd_command(experiment: Experiment, node: str) -> list[str]:
    """Return the command line of one crowd process."""
    flags: list[str] = []
    for field in fields(BrokerSettings):
        value = getattr(experiment, field.name)
        if value != field.default:
            flags += [f"--{field.name.replace('_', '-')}", str(value)]
    name = node.partition(":")[2]
    return [
        *(sys.executable, "-c", _BOOT, str(os.getpid()), "crowd", "--name", name),
        *("--prefix", experiment.prefix, *flags),
        *("--most-members", str(_members_each(experiment))),
    ]


def _refuse_ended(running: list[tuple[subprocess.Popen[bytes], IO[bytes]]]) -> None:
    for process, words in running:
        if process.poll() is not None:
            words.seek(0)
            text = words.read(1 << 16).decode("utf-8", "replace").strip()[-1000:]
            raise CrowdStartError(
                f"A crowd process of this host ended with code {process.returncode}: "
                f"{text.removeprefix('error: ') or 'it said nothing'}"
            )


@contextlib.contextmanager
def local_crowd(experiment: Experiment) -> Iterator[Callable[[], None]]:
    """Run the crowd processes of this host for the length of a with block.

    Yields a function that raises CrowdStartError, with the output of the process, if one has ended.
    """
    refuse_low_limit(experiment)
    running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
    try:
        for node in experiment.crowd_nodes()[: experiment.crowd.processes]:
            said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed below
            process = subprocess.Popen(
                crowd_command(experiment, node),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # Ctrl-C shall reach only us: we end the processes later
            )
            running.append((process, said))
        yield lambda: _refuse_ended(running)
    finally:
        for process, _ in running:
            process.terminate()
        for process, words in running:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            words.close()
