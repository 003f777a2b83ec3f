from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.systemd import Notifier


@pytest.fixture
def socket_path() -> Iterator[str]:
    # A short path: a socket's name holds 108 octets, and pytest's own folders can be longer.
    folder = tempfile.mkdtemp()
    yield f"{folder}/notify"
    shutil.rmtree(folder)


@pytest.fixture
def manager(socket_path: str) -> Iterator[socket.socket]:
    """The end of the socket that systemd would hold."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(socket_path)
        end.settimeout(2)
        yield end


def received(manager: socket.socket) -> str:
    return manager.recv(4096).decode()


@pytest.mark.parametrize(
    "environ", [{}, *({"NOTIFY_SOCKET": one} for one in ("", "@", "vsock:2:1234", "relative/path"))]
)
def test_without_an_address_of_a_unix_socket_nothing_is_sent(environ: dict[str, str]) -> None:
    notifier = Notifier(environ)
    assert not notifier.ready()
    assert not notifier.watchdog()


def test_each_state_is_one_datagram(manager: socket.socket, socket_path: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": socket_path})
    assert notifier.ready("publishing")
    assert received(manager) == "READY=1\nSTATUS=publishing"
    assert notifier.status("offset 3 µs")
    assert received(manager) == "STATUS=offset 3 µs"
    assert notifier.watchdog()
    assert received(manager) == "WATCHDOG=1"
    assert notifier.stopping()
    assert received(manager) == "STOPPING=1"
    notifier.close()
    assert notifier.ready(), "it opens its socket again"
    notifier.close()


def test_an_abstract_socket_is_reached() -> None:
    name = f"mqtick-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name)
        end.settimeout(2)
        assert Notifier({"NOTIFY_SOCKET": "@" + name}).ready()
        assert received(end) == "READY=1"


def test_a_status_cannot_smuggle_another_assignment(
    manager: socket.socket, socket_path: str
) -> None:
    Notifier({"NOTIFY_SOCKET": socket_path}).status("a\nREADY=1\r\nMAINPID=1")
    assert received(manager) == "STATUS=a READY=1 MAINPID=1"


@given(st.text(min_size=1, max_size=5000))
def test_any_status_is_one_short_line(text: str) -> None:
    name = f"mqtick-test-{os.getpid()}-any"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name)
        notifier = Notifier({"NOTIFY_SOCKET": "@" + name})
        assert notifier.ready(text)
        message = end.recv(8192)
        notifier.close()
    assert len(message) < 4096
    assert message.count(b"\n") == 1


@pytest.mark.parametrize(
    "address", ["/nonexistent/notify", "/" + "long" * 50, "/dev/null", "@nobody-listens-here"]
)
def test_a_missing_socket_never_raises(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert not notifier.ready()
    assert not notifier.watchdog()


def test_a_full_socket_neither_blocks_nor_raises(manager: socket.socket, socket_path: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": socket_path})
    outcomes = [notifier.watchdog() for _ in range(2000)]  # nobody reads
    assert outcomes[0] is True
    assert outcomes[-1] is False
    assert received(manager) == "WATCHDOG=1"


@pytest.mark.needs("systemd-notify")
def test_what_systemd_itself_sends_is_what_is_sent_here(
    manager: socket.socket, socket_path: str
) -> None:
    subprocess.run(
        ["systemd-notify", "--no-block", "--ready", "--status=all is well"],
        env={"NOTIFY_SOCKET": socket_path, "PATH": os.environ["PATH"]},
        check=True,
        timeout=5,
        stderr=subprocess.DEVNULL,
    )
    theirs = sorted(received(manager).strip().split("\n"))
    Notifier({"NOTIFY_SOCKET": socket_path}).ready("all is well")
    ours = sorted(received(manager).strip().split("\n"))
    assert [line for line in theirs if not line.startswith("MAINPID=")] == ours


def test_a_real_program_inherits_the_variables(manager: socket.socket, socket_path: str) -> None:
    program = "from mqtick.service.systemd import Notifier; Notifier().ready()"
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NOTIFY_SOCKET": socket_path},
        check=True,
        cwd=Path(socket_path).parent,
    )
    assert received(manager) == "READY=1"
