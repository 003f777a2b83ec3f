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

from bench.steered import generated_lines
from bench.wire import Wire, enter
from demo.local_broker import program
from demo.local_programs import Chronyd, true_error_ns
from mqtick.client.interval import NowError, now_from
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.service import Leap, StatusError, read_status

PORT = 1883


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
        bounds_ns: The bound that it stated then.
        steered_looks: How often chronyd was looked at since.
        steered_outside: Looks at which the clock that chronyd steers was outside the interval.
        uncertified: Looks at which it was outside the root distance that chronyd states.
        uncovered: Looks at which that root distance was less than half the client's interval.
        steered_ns: The error of the clock that chronyd steers at each look.
        distances_ns: The root distance that chronyd stated then.
    """

    good_s: float | None = None
    interval_ns: tuple[int, int] = (0, 0)
    looks: int = 0
    outside: int = 0
    bounds_ns: list[int] = field(default_factory=list)
    steered_looks: int = 0
    steered_outside: int = 0
    uncertified: int = 0
    uncovered: int = 0
    steered_ns: list[int] = field(default_factory=list)
    distances_ns: list[int] = field(default_factory=list)


class Place:
    """One client at the end of its wire, and its chronyd."""

    def __init__(self, folder: Path, cell: Cell, wire: Wire, clock: VirtualClockSettings) -> None:
        self.folder, self.cell, self.wire = folder, cell, wire
        self.settings, self.clock = clock, VirtualClock(clock)
        self.seen = Seen()
        self.chronyd: Chronyd | None = None
        self.began_s = 0.0

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
            now = now_from(read_status(self.folder / "status.json"))
        except (NowError, StatusError):
            return
        if now.state != "synchronised":
            return
        seen.good_s = seen.good_s or time.monotonic() - self.began_s
        error_ns = true_error_ns(now, self.settings)
        truth_ns = now.estimate_ns - error_ns
        seen.interval_ns = now.earliest_ns - truth_ns, now.latest_ns - truth_ns
        seen.looks += 1
        seen.outside += not seen.interval_ns[0] <= 0 <= seen.interval_ns[1]
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
        seen.steered_looks += 1
        seen.steered_outside += not lower_ns <= error_ns <= upper_ns
        seen.uncertified += abs(error_ns) > distance_ns
        seen.uncovered += 2 * distance_ns < upper_ns - lower_ns
        seen.steered_ns.append(error_ns)
        seen.distances_ns.append(distance_ns)


class World:
    """A hub with Mosquitto and a time server, and a place for each cell."""

    def __init__(self, folder: Path, cells: Sequence[Cell]) -> None:
        self.folder = folder
        self._stack = contextlib.ExitStack()
        self.hub = f"wan{os.getpid()}"
        self.places = [self._place(number, cell) for number, cell in enumerate(cells, 1)]

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
        mosquitto, config = program("mosquitto"), str(self.folder / "broker.conf")
        assert mosquitto is not None
        self._popen(self.hub, [mosquitto, "-c", config], self.folder / "broker.log")
        server = self.folder / "server"
        flags = ("--broker", f"mqtt://127.0.0.1:{PORT}", "--trust-system-clock")
        self._run(self.hub, "mqtick.timeserver.cli", server, *flags)
        for number, place in enumerate(self.places):
            self._start_client(place)
            for other in self.places[:number]:  # it takes seconds to start them all
                other.look()

    def _popen(self, namespace: str, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as said:
            process = subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                preexec_fn=lambda: enter(namespace),  # noqa: PLW1509  no thread runs here
            )
        self._stack.callback(_end, process)

    def _run(self, namespace: str, module: str, folder: Path, *flags: str) -> None:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", module, "--state-folder", str(folder), *flags]
        self._popen(namespace, command, folder / "log")

    def _start_client(self, place: Place) -> None:
        daemon = place.folder / "chronyd"
        daemon.mkdir()
        place.chronyd = self._stack.enter_context(Chronyd(daemon, generated_lines(daemon)))
        place.began_s = time.monotonic()
        self._run(
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

    def close(self) -> None:
        """End everything."""
        self._stack.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait(15)


@contextlib.contextmanager
def running(folder: Path, cells: Sequence[Cell]) -> Iterator[World]:
    """A world for the length of a with block."""
    world = World(folder, cells)
    try:
        world.start()
        yield world
    finally:
        world.close()
