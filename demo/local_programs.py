"""Programs of their own for the demo, the tests and the benchmarks: ours, and a private chronyd."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeVar

from demo.local_broker import program
from mqtick.client.interval import Now
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings, read_kernel_time
from mqtick.service import ChronydError, Tracking, chronyd

Process = subprocess.Popen[bytes]
T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """Return what the condition gave as soon as it is true; AssertionError after the time-out."""
    end = time.monotonic() + timeout_s
    while not (outcome := condition()):
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)
    return outcome


@contextlib.contextmanager
def started(
    module: str,
    *arguments: str,
    log: Path,
    pass_fds: tuple[int, ...] = (),
    prepare: Callable[[], None] | None = None,
) -> Iterator[Process]:
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
) -> contextlib.AbstractContextManager[Process]:
    """Return a time server that trusts this host's clock; its status is in `folder`/server."""
    return started(
        "mqtick.timeserver.cli",
        *("--broker", url, "--trust-system-clock", "--state-folder", str(folder / "server")),
        *arguments,
        log=folder / "server.log",
    )


def time_client(
    url: str,
    folder: Path,
    name: str,
    *arguments: str,
    pass_fds: tuple[int, ...] = (),
    prepare: Callable[[], None] | None = None,
) -> contextlib.AbstractContextManager[Process]:
    """Return a client; its status is in the folder of its name."""
    return started(
        "mqtick.client.cli",
        *("--broker", url, "--name", name, "--state-folder", str(folder / name)),
        *arguments,
        log=folder / f"{name}.log",
        pass_fds=pass_fds,
        prepare=prepare,
    )


def true_error_ns(
    now: Now, clock: VirtualClockSettings, reference: VirtualClock | None = None
) -> int:
    """Return estimate minus truth of a client with a virtual clock, ns.

    The truth is what `reference` reads, the clock that the server serves; without one, this host's.
    """
    kernel = read_kernel_time(10)
    # The virtual clock tells at which CLOCK_MONOTONIC_RAW it was read.
    raw_ns = VirtualClock(clock).monotonic_raw_ns(now.clock_ns)
    if reference is not None:
        return now.estimate_ns - reference.at_monotonic_raw_ns(raw_ns)
    return now.estimate_ns - (raw_ns + kernel.realtime_ns - kernel.raw_ns)


class Chronyd:
    """One chronyd with all its files in one folder; it steers nothing unless told to.

    It ends with `stop`, or with a with block.
    """

    def __init__(
        self, folder: Path, lines: Sequence[str], *, port: int = 0, steers: bool = False
    ) -> None:
        found = program("chronyd")
        if found is None:
            raise FileNotFoundError("chronyd is not installed: apt-get install chrony")
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)  # chronyd makes no command socket where others may write
        self.folder, self.log = folder, folder / "log"
        self.command_socket = f"{folder}/command.sock"
        (folder / "conf").write_text(
            "\n".join(lines) + f"\nport {port}\ncmdport 0\nbindcmdaddress {self.command_socket}\n"
            f"pidfile {folder}/pid\ndriftfile {folder}/drift\n"
        )
        # -x never touches the clock, -U does without root. It only accepts to run as who runs it.
        harmless = () if steers else ("-U", "-x")
        user = pwd.getpwuid(os.getuid()).pw_name
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [found, *harmless, "-d", "-u", user, "-f", str(folder / "conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for(self, file: str) -> None:
        """Wait until it has made a file, such as a socket; RuntimeError if it ends instead."""
        while not Path(file).exists():
            if self.process.poll() is not None:
                raise RuntimeError(f"chronyd ended at once:\n{self.log.read_text()}")
            time.sleep(0.01)

    def tracking(self) -> Tracking | None:
        """Ask for its state; None while it does not answer."""
        try:
            return chronyd.tracking(host=self.command_socket)
        except ChronydError:
            return None

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)
