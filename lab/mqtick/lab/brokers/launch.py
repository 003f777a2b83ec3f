"""A broker that runs for the turn of one experiment, by a command of the user's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

from mqtick.mqtt.broker import Broker

__all__ = ["LaunchError", "launched", "listens"]

_START_S = 15.0
_STOP_S = 10.0
_POLL_S = 0.05
_LAST_WORDS = 400


class LaunchError(Exception):
    """The broker could not be launched; the text says why."""


@contextlib.contextmanager
def launched(command: Sequence[str], broker: Broker) -> Iterator[None]:
    """Run the command for the length of a with block, which begins when the broker listens.

    No command: it runs already. LaunchError if somebody else listens at its address, if it cannot
    be started, or if it ends or does not listen within 15 s.
    """
    if not command:
        yield
        return
    if listens(broker):
        raise LaunchError(
            f"{broker.address}: somebody listens there already, so launch would measure another "
            "broker; stop that one, or leave launch out"
        )
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise LaunchError(f"launch: {command[0]}: {error.strerror}") from error
        try:
            if not _comes_up(process, broker):
                code = process.poll()
                did = "does not listen" if code is None else f"ended with {code} and never listened"
                said.seek(0)
                words = said.read().decode(errors="replace").strip()[-_LAST_WORDS:]
                raise LaunchError(f"launch: {command[0]} {did} at {broker.address}. {words}")
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _comes_up(process: subprocess.Popen[bytes], broker: Broker) -> bool:
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        if listens(broker):
            return True
        time.sleep(_POLL_S)
    return False


def listens(broker: Broker) -> bool:
    """Whether anybody listens at a broker's address."""
    try:
        if broker.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as door:
                door.connect(broker.path)
        else:
            socket.create_connection((broker.host, broker.port), timeout=1).close()
    except OSError:
        return False
    return True
