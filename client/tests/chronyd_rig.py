"""Real chronyd processes for tests: unprivileged, several at once, none touches the clock.

    with ChronydRig() as rig:
        rig.start("refclock SOCK {folder}/mqtt.sock refid MQT0 poll 0 filter 1")
        rig.wait_until(lambda: rig.source("MQT0").reach)

`chronyd -U -x -d -u USER`: -x never touches the clock (it only tracks), -U skips the check for
root. USER must be who runs it, so where the tests run as root chronyd runs as nobody.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest

from demo.local_broker import program
from mqtick.service import ChronydError, Source, Tracking, chronyd

T = TypeVar("T")

CHRONYD = program("chronyd")


class ChronydRig:
    """One chronyd with a folder of its own."""

    def __init__(self) -> None:
        self.user = "nobody" if os.geteuid() == 0 else getpass.getuser()
        # A short path: the name of a socket has 108 octets.  chronyd wants to own the folder.
        self.folder = Path(tempfile.mkdtemp(prefix="chronyd-"))
        self.command_socket = str(self.folder / "command.sock")
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user, pwd.getpwnam(self.user).pw_gid)

    def __enter__(self) -> ChronydRig:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    @property
    def log(self) -> str:
        """What chronyd said since the first start."""
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    def configure(self, *lines: str) -> Path:
        """Write the configuration; `{folder}` in a line stands for the rig's folder."""
        own = (
            "port 0",
            "cmdport 0",
            f"bindcmdaddress {self.command_socket}",
            f"pidfile {self.folder}/pid",
            f"driftfile {self.folder}/drift",
        )
        file = self.folder / "chrony.conf"
        text = "\n".join((*lines, *own)).replace("{folder}", str(self.folder))
        file.write_text(text + "\n")
        file.chmod(0o644)
        return file

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run chronyd as the unprivileged user, its output in the log."""
        assert CHRONYD is not None
        entry = pwd.getpwnam(self.user)
        is_root = os.geteuid() == 0
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [CHRONYD, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=entry.pw_uid if is_root else None,
                group=entry.pw_gid if is_root else None,
                extra_groups=[] if is_root else None,
            )

    def start(self, *lines: str) -> None:
        """Start with these lines, or as before, and wait until it answers."""
        file = self.configure(*lines) if lines else self.folder / "chrony.conf"
        self._process = self.command("-U", "-x", "-d", "-u", self.user, "-f", str(file))
        self.wait_until(self._is_answering, timeout_s=10)

    def _is_answering(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"chronyd ended at once:\n{self.log}")
        try:
            self.tracking()
        except ChronydError:
            return False
        return True

    def stop(self) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it as a crash would: its socket stays behind."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def tracking(self) -> Tracking:
        """Ask it for its tracking state."""
        return chronyd.tracking(host=self.command_socket)

    def sources(self) -> tuple[Source, ...]:
        """Ask it for its sources."""
        return chronyd.sources(host=self.command_socket)

    def source(self, refid: str) -> Source:
        """Ask it for one source."""
        return next(source for source in self.sources() if source.name == refid)

    def wait_until(self, condition: Callable[[], T], timeout_s: float = 10.0) -> T:
        """Return what the condition gave as soon as it is true; fails with chronyd's log."""
        deadline_s = time.monotonic() + timeout_s
        while not (outcome := condition()):
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {timeout_s} s; chronyd said:\n{self.log}")
            time.sleep(0.02)
        return outcome


@pytest.fixture
def chronyds() -> Iterator[Callable[[], ChronydRig]]:
    """Make as many rigs as a test wants; all of them end with it."""
    if CHRONYD is None:
        pytest.skip("chronyd is not installed; install it with: apt install chrony")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(ChronydRig())
