"""What every test may count on."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from demo.local_broker import MqtickBroker, program
from mqtick.mqtt.stamps import KernelSocket, StampSource

# How long an example takes says how busy the machine is. Where a change is judged, the same
# examples each time: whoever explores has new ones.
settings.register_profile(
    "ours",
    deadline=None,
    derandomize=os.environ.get("MQTICK_SAME_EXAMPLES") == "1",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ours")

# `make test-broker` builds it with the checks of a debug build.
MqtickBroker.builds = ("release", "debug")

# An instrument has a lock in the folder for temporary files. Tests that run beside each other are
# as on hosts of their own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    temporary = Path(tempfile.gettempdir()) / f"mqtick-{worker}"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are not all installed."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if program(name) is None:
                pytest.skip(f"{name} is not installed (make setup-test brings most programs)")


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Give back the level of our log: a program sets it for its whole life."""
    log = logging.getLogger("mqtick")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _kernel_that_stamps() -> Iterator[None]:
    """Keep the kernel stamping for as long as the tests run.

    It begins to stamp what arrives a moment after the first socket of the machine asks for it,
    and ends with the last one, so that the first message of a test alone would have no stamp.
    """
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = KernelSocket(socket.create_connection(server.getsockname()))
        stack.callback(sender.close)
        receiver = KernelSocket(server.accept()[0])
        stack.callback(receiver.close)
        end = time.monotonic() + 2
        while receiver.received.source is not StampSource.KERNEL and time.monotonic() < end:
            sender.send(b"?")
            receiver.read_chunk()
            time.sleep(0.005)
        yield
