"""Another network beyond a link, for one test: as root."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from broker.tests.harness.events import until

HERE, ABROAD = "10.9.0.1", "10.9.0.2"
NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
Result = TypeVar("Result")

needs_networks = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None,
    reason="only root may make networks, with ip and tc",
)


def run(*command: str) -> None:
    """Run a command, which must succeed."""
    subprocess.run(command, check=True)


class Link:
    """Two networks, which the interfaces `near` and `far` join; this thread is in the near one."""

    def __init__(self, abroad: int) -> None:
        self.inside = ("nsenter", f"--net=/proc/{abroad}/ns/net")
        """Before a command: run it in the other network."""
        self._here, self._there = Path("/proc/thread-self/ns/net"), Path(f"/proc/{abroad}/ns/net")
        until(lambda: self._there.readlink() != self._here.readlink(), "there is one network")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "near", "type", "veth", "peer", "far", "netns", str(abroad))
        run("ip", "address", "add", f"{HERE}/24", "dev", "near")
        run("ip", "link", "set", "near", "up")

    @contextlib.contextmanager
    def abroad(self) -> Iterator[None]:
        """Be in the other network: what is opened meanwhile is there."""
        with self._here.open() as here, self._there.open() as there:
            assert _libc.setns(there.fileno(), NEW_NETWORK) == 0
            try:
                yield
            finally:
                assert _libc.setns(here.fileno(), NEW_NETWORK) == 0


def with_a_link(what: Callable[[Link], Result]) -> Result:
    """Do something at the near end, in a thread of its own: it may have a network of its own."""

    def begin() -> Result:
        if _libc.unshare(NEW_NETWORK) != 0:
            pytest.skip("no network can be made here")
        abroad = subprocess.Popen(["unshare", "--net", "sleep", "120"])
        try:
            return what(Link(abroad.pid))
        finally:
            abroad.kill()
            abroad.wait()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(begin).result()
