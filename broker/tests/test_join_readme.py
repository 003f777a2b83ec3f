"""The README of `mqtick-join`: its commands work as they stand, and print what it shows."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.tests.harness.events import until
from broker.tests.harness.sites import JOIN, MARKS
from demo.local_broker import program

pytestmark = [
    *MARKS,
    pytest.mark.skipif(program("mosquitto_sub") is None, reason="mosquitto-clients is missing"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: networks of its own"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed"),
]
README = JOIN.parents[2] / "join/README.md"
SECTION = README.read_text().partition("\n## Two sites in five minutes\n")[2].partition("\n## ")[0]
TRIED = SECTION.partition("\n### Tried on one machine\n")[2].partition("\n### ")[0]
TWO = SECTION.partition("\n### At two sites\n")[2].partition("\n### ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Shell:
    """A shell in a network of its own, which finds the programs."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name, self.folder, self.log = name, folder, folder / "log"
        self.path = f"{JOIN.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", name, "bash", "-m"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={"PATH": self.path},
                start_new_session=True,
            )

    def enter(self, text: str) -> None:
        """Type a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def said(self) -> str:
        """Everything that was printed."""
        return self.log.read_text()

    def says(self, what: str, times: int = 1) -> None:
        """Wait until a text was printed a number of times."""
        until(lambda: self.said().count(what) >= times, f"no {what!r} in {self.said()}")

    def end(self) -> None:
        """End the shell and everything that runs in it."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True
        )
        for pid in done.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self.process.wait()
        ip("netns", "del", self.name)


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[tuple[Shell, Shell]]:
    """Two machines with a link, which call each other site-a.example and site-b.example."""
    with contextlib.ExitStack() as open_ones:
        found = []
        for number, letter in enumerate("ab", 1):
            name = f"join-{letter}-{os.getpid()}"
            # `ip netns exec` shows this file as /etc/hosts.
            hosts = Path("/etc/netns") / name / "hosts"
            hosts.parent.mkdir(parents=True)
            open_ones.callback(shutil.rmtree, hosts.parent)
            hosts.write_text(
                "127.0.0.1 localhost\n::1 localhost\n"
                "10.78.0.1 site-a.example\n10.78.0.2 site-b.example\n"
            )
            shell = Shell(name, tmp_path / letter)
            open_ones.callback(shell.end)
            found.append(shell)
            if number == 2:
                peer = ("peer", "name", "w", "netns", found[0].name)
                ip("-n", name, "link", "add", "w", "type", "veth", *peer)
        for number, shell in enumerate(found, 1):
            ip("-n", shell.name, "address", "add", f"10.78.0.{number}/24", "dev", "w")
            ip("-n", shell.name, "link", "set", "w", "up")
        yield found[0], found[1]


def test_two_sites_on_one_machine_are_one_by_the_commands_of_the_readme(
    shells: tuple[Shell, Shell],
) -> None:
    shell, _ = shells
    start, use = blocks(TRIED, "sh")
    (shown,) = blocks(TRIED, "text")
    shell.enter(start)
    said = re.search("that their broker is `(.*?)`, and `(.*?)`", TRIED)
    assert said is not None
    for broker in re.findall("--broker (.*?) ", start):
        shell.says(f"broker mqtt://{broker}: {said[1]}")
    shell.says(said[2], times=2)
    before = len(shell.said())
    shell.enter(f"{use}echo end\n")
    shell.says("\nend\n")
    assert shell.said()[before:].partition("end\n")[0] == shown
    ended = re.search("`(kill .*?)`", TRIED)
    assert ended is not None
    shell.enter(f"{ended[1]}; wait; echo all ended\n")
    shell.says("all ended")


def test_two_machines_are_joined_by_the_commands_of_the_readme(
    shells: tuple[Shell, Shell],
) -> None:
    (lines,) = blocks(TWO, "text")
    at_a, at_b = blocks(TWO, "sh")
    for shell in shells:
        (shell.folder / "mosquitto.conf").write_text(lines)
        shell.enter("mosquitto -c mosquitto.conf &\n")
        shell.says("running")
    shells[0].enter(at_a)
    secret = shells[0].folder / "join.secret"
    until(lambda: secret.exists() and secret.read_text(), "the secret is made")
    shells[1].enter(f"cp {secret} .\n{at_b}")
    for shell in shells:
        shell.says("broker mqtt://localhost:1884: connected")
        shell.says("the tree has 2 nodes")
    # Clients know the broker's old port only.
    for shell in shells:
        inside = ["ip", "netns", "exec", shell.name]
        other = shells[shell is shells[0]]
        reader = subprocess.Popen(
            ["ip", "netns", "exec", other.name, "mosquitto_sub", "-t", "plant/#", "-C", "1"],
            stdout=subprocess.PIPE,
            text=True,
        )
        payload = shell.folder.name
        publish = ["mosquitto_pub", "-q", "1", "-r", "-t", f"plant/{payload}", "-m", payload]
        subprocess.run([*inside, *publish], check=True)
        assert reader.communicate(timeout=60)[0] == f"{payload}\n"
        delete = ["mosquitto_pub", "-q", "1", "-r", "-t", f"plant/{payload}", "-n"]
        subprocess.run([*inside, *delete], check=True)
