"""Clients at the ends of long wires, around one broker and one time server, as real programs.

Each client has a virtual clock, so that the truth is known, and a chronyd of its own that steers
nothing (-x): what that would set the clock to is `clock + what it says`, by the samples that the
client handed it. Needs root, for network namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.wire import Wire, enter
from demo.local_broker import program
from demo.local_programs import Chronyd, true_error_ns, wait_until
from mqtick.client.interval import NowError, now_from
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.service import Leap, StatusError, read_status

PORT = 1883
_READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Cell:
    """A link: `delay_ms` is half the round trip; `up_share` of that trip is the way up."""

    delay_ms: float
    up_share: float = 0.5
    loss: float = 0.0
    jitter: float = 0.0
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is, for people."""
        up_ms = 2 * self.delay_ms * self.up_share
        ways = f"{up_ms:.3g}/{2 * self.delay_ms - up_ms:.3g}"
        loss = f", loss {self.loss:.0%}" if self.loss else ""
        return f"{ways} ms{loss}{f', jitter {self.jitter:.0%}' if self.jitter else ''}"

    def wire(self, number: int, far: str) -> Wire:
        """The wire of this link."""
        trip_s = 2e-3 * self.delay_ms
        up_s, down_s = trip_s * self.up_share, trip_s * (1 - self.up_share)
        return Wire(number, far, up_s, down_s, self.jitter, self.loss)


@dataclass(slots=True)
class Seen:
    """What was seen of one client: durations and errors in ns, instants in s since its start.

    Attributes:
        good_s: When it first said that it knows the time.
        interval_ns: The interval that it stated last, minus the truth.
        looks: How often it was looked at while it said so.
        outside: Looks at which the truth was outside the stated interval.
        errors_ns: The error of its estimate at each look.
        bounds_ns: The bound that it stated then.
        steered_s: When chronyd first selected it.
        steered_looks: How often chronyd was looked at since.
        steered_outside: Looks at which the clock that chronyd steers was outside the interval.
        uncertified: Looks at which it was outside the root distance that chronyd states.
        uncovered: Looks at which that root distance was less than half the client's interval.
        steered_ns: The error of the clock that chronyd steers at each look.
        distances_ns: The root distance that chronyd stated then.
        why: Why the time is not known, at the last look; empty if it is.
    """

    good_s: float | None = None
    interval_ns: tuple[int, int] = (0, 0)
    looks: int = 0
    outside: int = 0
    errors_ns: list[int] = field(default_factory=list)
    bounds_ns: list[int] = field(default_factory=list)
    steered_s: float | None = None
    steered_looks: int = 0
    steered_outside: int = 0
    uncertified: int = 0
    uncovered: int = 0
    steered_ns: list[int] = field(default_factory=list)
    distances_ns: list[int] = field(default_factory=list)
    why: str = ""


class Place:
    """One client at the end of its wire, and its chronyd."""

    def __init__(self, folder: Path, cell: Cell, wire: Wire, clock: VirtualClockSettings) -> None:
        self.folder, self.cell, self.wire = folder, cell, wire
        self.settings, self.clock = clock, VirtualClock(clock)
        self.seen = Seen()
        self.chronyd: Chronyd | None = None
        self.client: subprocess.Popen[bytes] | None = None
        self.began_s = 0.0

    def memory_kib(self) -> int:
        """The resident memory of the client."""
        assert self.client is not None
        said = Path(f"/proc/{self.client.pid}/status").read_text()
        return int(said.partition("VmRSS:")[2].split()[0])

    def octets(self) -> int:
        """How many octets have passed the far end of the wire, both ways, IP headers included."""
        said = subprocess.run(
            ["ip", "-n", self.wire.far, "-s", "-j", "link", "show", f"w{self.wire.number}"],
            capture_output=True,
            check=True,
        )
        counted = json.loads(said.stdout)[0]["stats64"]
        return int(counted["rx"]["bytes"]) + int(counted["tx"]["bytes"])

    def look(self) -> None:
        """Compare what the client says with the truth."""
        seen = self.seen
        try:
            status = read_status(self.folder / "status.json")
        except StatusError:
            return
        rows = status.values["servers"]
        seen.why = rows[0].get("why_unknown", "") if rows else "no server was heard yet"
        try:
            now = now_from(status)
        except NowError:
            return
        if now.state != "synchronised":
            return
        seen.good_s = seen.good_s or time.monotonic() - self.began_s
        error_ns = true_error_ns(now, self.settings)
        truth_ns = now.estimate_ns - error_ns
        seen.interval_ns = now.earliest_ns - truth_ns, now.latest_ns - truth_ns
        seen.looks += 1
        seen.outside += not seen.interval_ns[0] <= 0 <= seen.interval_ns[1]
        seen.errors_ns.append(error_ns)
        seen.bounds_ns.append(now.bound_ns)

    def look_at_chronyd(self) -> None:
        """Compare what chronyd would make of the clock with the truth."""
        assert self.chronyd is not None
        seen, tracking = self.seen, self.chronyd.tracking()
        if tracking is None or tracking.leap is not Leap.NORMAL:
            return
        # What chronyd has not corrected yet counts as distance; here it corrects nothing.
        left_ns = tracking.offset_reference_minus_local_ns
        error_ns = left_ns - (time.time_ns() - self.clock.raw_ns())
        distance_ns = tracking.root_distance_ns - abs(left_ns)
        lower_ns, upper_ns = seen.interval_ns
        seen.steered_s = seen.steered_s or time.monotonic() - self.began_s
        seen.steered_looks += 1
        seen.steered_outside += not lower_ns <= error_ns <= upper_ns
        seen.uncertified += abs(error_ns) > distance_ns
        seen.uncovered += 2 * distance_ns < upper_ns - lower_ns
        seen.steered_ns.append(error_ns)
        seen.distances_ns.append(distance_ns)


class World:
    """A hub with Mosquitto and a time server, and a place for each cell.

    `python` is the interpreter of the programs that are tested: this one's, or another checkout's.
    """

    def __init__(self, folder: Path, cells: Sequence[Cell], python: str = sys.executable) -> None:
        self.folder, self._python = folder, python
        self._stack = contextlib.ExitStack()
        self.hub = f"wan{os.getpid()}"
        self.places = [self._place(number, cell) for number, cell in enumerate(cells, 1)]
        self.broker: subprocess.Popen[bytes] | None = None

    def _place(self, number: int, cell: Cell) -> Place:
        folder = self.folder / f"c{number}"
        folder.mkdir()
        clock = VirtualClockSettings.starting_now(offset_ns=3_000_000, frequency_ppb=20_000.0)
        return Place(folder, cell, cell.wire(number, f"{self.hub}-{number}"), clock)

    def start(self) -> None:
        """Start everything; the clients last."""
        wires = [place.wire for place in self.places]
        for name in (self.hub, *(wire.far for wire in wires)):
            subprocess.run(["ip", "netns", "add", name], check=True)
            self._stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        carrier = subprocess.Popen(
            [sys.executable, "-m", "bench.wire", self.hub],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        self._stack.callback(_end, carrier)
        assert carrier.stdin is not None
        assert carrier.stdout is not None
        carrier.stdin.write(json.dumps([asdict(wire) for wire in wires]).encode() + b"\n")
        carrier.stdin.flush()
        assert carrier.stdout.readline() == b"ready\n"
        (self.folder / "broker.conf").write_text(
            f"user root\nlistener {PORT} 0.0.0.0\nset_tcp_nodelay true\nallow_anonymous true\n"
        )
        self.start_broker()
        server = self.folder / "server"
        flags = ("--broker", f"mqtt://127.0.0.1:{PORT}", "--trust-system-clock")
        self._run(self.hub, "mqtick.timeserver.cli", server, *flags)
        for number, place in enumerate(self.places):
            self._start_client(place)
            for other in self.places[:number]:  # it takes seconds to start them all
                other.look()

    def start_broker(self) -> None:
        """Start Mosquitto; again, after `stop_broker`."""
        mosquitto = program("mosquitto")
        assert mosquitto is not None
        self.broker = self._popen(
            self.hub,
            [mosquitto, "-c", str(self.folder / "broker.conf")],
            self.folder / "broker.log",
        )

    def stop_broker(self) -> None:
        """End Mosquitto."""
        assert self.broker is not None
        _end(self.broker)

    def _popen(self, namespace: str, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as said:
            process = subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                preexec_fn=lambda: enter(namespace),  # noqa: PLW1509  no thread runs here
            )
        self._stack.callback(_end, process)
        return process

    def _run(
        self, namespace: str, module: str, folder: Path, *flags: str
    ) -> subprocess.Popen[bytes]:
        folder.mkdir(exist_ok=True)
        command = [self._python, "-m", module, "--state-folder", str(folder), *flags]
        return self._popen(namespace, command, folder / "log")

    def _start_client(self, place: Place) -> None:
        daemon = place.folder / "chronyd"
        daemon.mkdir()
        printed = subprocess.run(
            [self._python, "-m", "mqtick.client.cli", "chrony-config", "--run-folder", str(daemon)],
            capture_output=True,
            text=True,
            check=True,
            cwd=self.folder,
        )
        place.chronyd = self._stack.enter_context(Chronyd(daemon, printed.stdout.splitlines()))
        place.began_s = time.monotonic()
        place.client = self._run(
            place.wire.far,
            "mqtick.client.cli",
            place.folder,
            *("--broker", f"mqtt://{place.wire.near_address}:{PORT}"),
            *("--name", f"c{place.wire.number}", "--virtual-clock", place.settings.to_text()),
            *("--discipline", "chrony", "--chrony-check-interval-s", "0"),
            *("--chrony-socket", f"{daemon}/chrony.mqtick{{server}}.sock"),
            *place.cell.flags,
        )

    def watch(self, duration_s: float, every_s: float = 1.0) -> None:
        """Look at each client, and less often at its chronyd, for so long."""
        end_s = time.monotonic() + duration_s
        turn = 0
        while (began_s := time.monotonic()) < end_s:
            for number, place in enumerate(self.places):
                place.look()
                if (turn + number) % 4 == 0:
                    place.look_at_chronyd()
            turn += 1
            time.sleep(max(0.0, began_s + every_s - time.monotonic()))

    def wait_all_good(self, timeout_s: float = _READY_S) -> None:
        """Wait until each client knows the time."""

        def all_good() -> bool:
            self.watch(0.5, 0.5)
            return all(place.seen.good_s for place in self.places)

        wait_until(all_good, "every client knows the time", timeout_s)

    def close(self) -> None:
        """End everything."""
        self._stack.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait(15)


@contextlib.contextmanager
def running(folder: Path, cells: Sequence[Cell], python: str = sys.executable) -> Iterator[World]:
    """A world for the length of a with block."""
    world = World(folder, cells, python)
    try:
        world.start()
        yield world
    finally:
        world.close()
