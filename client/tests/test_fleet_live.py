"""Real clients publish their status on a real broker, and `mqtick-client fleet` shows them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from analysis.tests.browser import MISSING, Browser, browser
from demo.local_broker import Mosquitto, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("mosquitto"),
]
NAMES = ["far", "pi1", "pi2"]


class Site:
    """A broker, a time server and three clients that publish their status."""

    def __init__(self, folder: Path, stack: ExitStack, *lines: str) -> None:
        self.folder = folder
        self.broker = stack.enter_context(running(Mosquitto(folder, *lines))).url
        self._stack = stack
        self.start("timeserver", "server", "--trust-system-clock", "--interval-s", "0.5")
        self.clients = {
            name: self.start("client", name, "--name", name, "--publish-status", *words)
            for name, words in zip(
                NAMES, (["--virtual-clock", "offset_s=0.2"], [], []), strict=True
            )
        }

    def start(self, room: str, name: str, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", f"mqtick.{room}.cli", "run", "--broker", self.broker),
                *("--state-folder", str(self.folder / name), *words),
            ],
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def command(self, *words: str) -> list[str]:
        return [
            *(sys.executable, "-m", "mqtick.client.cli", "fleet", "--broker", self.broker),
            *words,
        ]

    def ask(self, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Return the exit code, and the clients by name, the worst first."""
        words = self.command("--json", *words)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, {each["name"]: each for each in json.loads(done.stdout)["clients"]}

    def until(self, is_true: Callable[[dict[str, dict[str, Any]]], object]) -> None:
        deadline_s = time.monotonic() + 60
        while not is_true(clients := self.ask()[1]):
            assert time.monotonic() < deadline_s, clients


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        site = Site(tmp_path, stack)
        site.until(lambda clients: states(clients) == dict.fromkeys(NAMES, "synchronised"))
        yield site


def states(clients: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: clients[name]["state"] for name in sorted(clients)}


def test_who_ends_and_who_is_killed_is_gone_and_a_doctor_is_neither(site: Site) -> None:
    code, clients = site.ask("--within", "100ms")
    assert (code, next(iter(clients))) == (4, "far")
    assert clients["far"]["clock_error_ns"] >= 200_000_000 > 1000 * clients["pi1"]["bound_ns"] / 1e3
    assert site.ask("--within", "1s")[0] == 0
    doctor = [sys.executable, "-m", "mqtick.client.cli", "doctor", "--broker", site.broker]
    subprocess.run(
        [*doctor, "--name", "pi1", "--publish-status"], capture_output=True, timeout=60, check=False
    )
    assert states(site.ask()[1])["pi1"] == "synchronised"
    site.clients["pi1"].terminate()
    site.clients["pi2"].kill()
    site.until(
        lambda clients: states(clients) == {"far": "synchronised", "pi1": "gone", "pi2": "gone"}
    )
    assert site.ask("--within", "1s")[0] == 3


@pytest.mark.parametrize(
    "lines", [["retain_available false"], ["acl_file {folder}/acl"]], ids=["no retained", "denied"]
)
def test_a_broker_that_takes_no_status_costs_the_time_nothing(
    tmp_path: Path, lines: list[str]
) -> None:
    rights = ["t/+", "s/+", "q/#", "r/#", "f/#", "l/#", "o/#", "c/#"]
    (tmp_path / "acl").write_text("".join(f"topic readwrite mqtick/{each}\n" for each in rights))
    with ExitStack() as stack:
        site = Site(tmp_path, stack, *(line.format(folder=tmp_path) for line in lines))
        deadline_s = time.monotonic() + 60
        while subprocess.run(
            [
                *(sys.executable, "-m", "mqtick.client.cli", "wait", "--of", "estimate"),
                *("--within", "100ms", "--state-folder", str(tmp_path / "pi1")),
            ],
            capture_output=True,
            check=False,
        ).returncode:
            assert time.monotonic() < deadline_s
        status = json.loads((tmp_path / "pi1/status.json").read_text())["status"]
        assert (status["connects"], status["connected"]) == (1, True)
        code, clients = site.ask()
        assert (code, clients) == (3, {})


@contextmanager
def served(site: Site) -> Iterator[str]:
    process = subprocess.Popen(
        site.command("--http", "127.0.0.1:0"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        process.stdout.close()


def test_the_page_shows_what_happens(site: Site) -> None:
    with served(site) as address:
        with urllib.request.urlopen(f"{address}fleet.json", timeout=30) as answer:
            assert {each["name"] for each in json.load(answer)["clients"]} == set(NAMES)
        if MISSING:
            pytest.skip(MISSING)
        with browser() as window:
            window.run(f"location.replace('{address}')")
            until_shown(window, ["far synchronised", "pi1 synchronised", "pi2 synchronised"])
            site.clients["pi2"].kill()
            until_shown(window, ["pi2 gone", "far synchronised", "pi1 synchronised"])
            assert not window.log("browser")


def until_shown(window: Browser, wanted: list[str]) -> None:
    """Wait until the worst client is the first wanted one, and all are there."""
    rows = (
        "return [...document.querySelectorAll('tbody tr')].map("
        "row => row.cells[0].textContent + ' ' + row.cells[1].textContent.split(' ')[0])"
    )
    deadline_s = time.monotonic() + 60
    found: list[str] = []
    while found[:1] != wanted[:1] or sorted(found) != sorted(wanted):
        assert time.monotonic() < deadline_s, found
        time.sleep(0.2)
        found = window.run(rows)
