"""Runs a broker for one experiment, by the user's command or by a recipe."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import socket
import string
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mqtick.mqtt.broker import Broker

_START_S = 15.0
_STOP_S = 10.0
_POLL_S = 0.05
_LAST_WORDS = 400


class LaunchError(Exception):
    """The broker could not be launched; the text says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to run a broker: `recipes.toml` explains the placeholders."""

    program: str
    arguments: tuple[str, ...]
    tried: str
    """The version with which it was tried."""
    installed: str
    """How to install the program."""
    file: str = ""
    """Name of the configuration file; empty: it has none."""
    configuration: str = ""

    def found(self) -> str | None:
        """The program's path; Debian has some outside of a normal user's PATH."""
        beside = Path(sys.executable).parent
        places = (os.environ.get("PATH", ""), "/usr/sbin", "/sbin", str(beside))
        return shutil.which(self.program, path=os.pathsep.join(places))


@functools.cache
def recipes() -> Mapping[str, Recipe]:
    """Return the brokers that need no configuration from the user, by name."""
    text = resources.files("mqtick.lab.brokers").joinpath("recipes.toml").read_text("utf-8")
    return {
        name: Recipe(**{**keys, "arguments": tuple(keys["arguments"])})
        for name, keys in tomllib.loads(text).items()
    }


@contextlib.contextmanager
def prepared(name: str, broker: Broker) -> Iterator[tuple[str, ...]]:
    """Write a recipe's files into a folder for the length of a with block; yield the command.

    LaunchError if its program is not installed.
    """
    recipe = recipes()[name]
    program = recipe.found()
    if program is None:
        raise LaunchError(f"recipe: {recipe.program} is not installed: {recipe.installed}")
    with tempfile.TemporaryDirectory(prefix="mqtick-broker-", ignore_cleanup_errors=True) as folder:
        configuration = Path(folder, recipe.file or "none")
        known = {"host": broker.host, "port": broker.port, "folder": folder}
        known |= {"configuration": configuration, "user": pwd.getpwuid(os.getuid()).pw_name}
        configuration.write_text(string.Template(recipe.configuration).substitute(known))
        yield program, *(string.Template(one).substitute(known) for one in recipe.arguments)


@contextlib.contextmanager
def launched(command: Sequence[str], broker: Broker) -> Iterator[None]:
    """Run the command for the length of a with block, which begins when the broker listens.

    No command: the broker runs already. LaunchError if another program listens at its address, if
    it cannot be started, or if it ends or does not listen within 15 s.
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
    """Whether a program listens at a broker's address."""
    try:
        if broker.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as door:
                door.connect(broker.path)
        else:
            socket.create_connection((broker.host, broker.port), timeout=1).close()
    except OSError:
        return False
    return True
