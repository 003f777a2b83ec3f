"""Starts clients as forks of one process that has imported what they need.

To import it takes half a second of a processor, and thousands of scripts need a client each. Each
line of standard input is a JSON list: the file for the client's log, and its arguments.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[place]) for place in (1, 2)]
from rig import Client  # noqa: E402


class Nursery:
    """The process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fork(self, log: str, arguments: list[str]) -> int:
        """Start a client; its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([log, *arguments]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=10)


class ForkedClient(Client):
    """A client that a nursery started."""

    nursery: Nursery
    pid = 0

    def start(self) -> None:
        """See `Program`."""
        self.pid = self.nursery.fork(str(self.folder / "log"), self.arguments)

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """See `Program`; the exit code is not known."""
        pid, self.pid = self.pid, 0
        end = time.monotonic() + 20
        while pid and os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, with_signal if time.monotonic() < end else signal.SIGKILL)
            time.sleep(0.05)
        return 0


def _main() -> None:
    from mqtick.client.cli import main  # noqa: PLC0415  the one who starts it does not need it

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        log, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for descriptor, other in ((0, os.open(os.devnull, os.O_RDONLY)), (1, file), (2, file)):
                os.dup2(other, descriptor)
            os._exit(main(["run", *arguments]))
        print(pid, flush=True)
    # Whoever started it has ended: so do the clients that are left, which are of its group.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    _main()
