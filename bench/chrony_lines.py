"""chrony_lines: which refclock line serves best, and how soon does chronyd select its source?

Steady: a real mqtick-client measures a time server on a virtual clock (simulated). Its samples go
to several chronyd at once, each with its own line, so that all get the same samples. None steers
(-x): each states how far it thinks that this machine's clock is off, and the truth is known. Two
more get exact samples at the same instants.

Start: chronyd and a client start at the same moment, then chronyd alone starts again; measured is
the time until chronyd selects the source.

    python -m bench.chrony_lines              3 minutes to settle, 10 minutes; 10 starts
    python -m bench.chrony_lines --short      90 s, 2 minutes; 3 starts
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.harness import Report, options, progress, wait
from bench.steered import Chronyd, generated_lines
from demo.local_broker import Mosquitto, running
from demo.local_programs import time_client, time_server, wait_until
from mqtick.client.chrony import encode_sample, layout_for
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings, read_kernel_time
from mqtick.service import StatusError, chronyd, read_status

_US = 1000
GENERATED = "as generated"
BEFORE = "poll 4"
CHANGES = (
    *(BEFORE, "poll 3", "poll 1", "poll 0", "delay 0.0002", "precision 0.000001"),
    *("maxsamples 16", "minsamples 8"),
)
EXACT = ", exact samples (floor)"
START_GOAL_S = 15.0
_PATIENCE_S = 120.0


def changed(line: str, change: str) -> str:
    """Return a refclock line with one option changed, or added: `poll 4`."""
    if change == GENERATED:
        return line
    name, value = change.split()
    replaced, found = re.subn(rf" {name} \S+", f" {name} {value}", line)
    return replaced if found else f"{line} {change}"


def lines_of(folder: Path, change: str) -> list[str]:
    """Return the lines for a chronyd in a folder."""
    return [changed(line, change) for line in generated_lines(folder) if "refclock" in line]


def client(stack: contextlib.ExitStack, folder: Path, url: str, name: str, sockets: Path) -> None:
    """Run a client until the stack is closed."""
    flags = ("--discipline", "chrony", "--chrony-check-interval-s", "0")
    socket_flag = ("--chrony-socket", f"{sockets}/chrony.mqtick{{server}}.sock")
    stack.enter_context(time_client(url, folder, name, *flags, *socket_flag))


# ---- the steady state ----------------------------------------------------------------------------


class Judges:
    """Several chronyd that get the same samples, or exact ones at the same instants."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        folder: Path,
        candidates: Sequence[str],
        truth: VirtualClock,
    ) -> None:
        self.errors: dict[str, list[float]] = {}
        self._daemons: dict[str, Chronyd] = {}
        for index, name in enumerate(candidates):
            place = folder / f"c{index}"
            lines = lines_of(place, name.removesuffix(EXACT))
            self._daemons[name], self.errors[name] = stack.enter_context(Chronyd(place, lines)), []
        self._truth, self._lock = truth, threading.Lock()
        self._layout = layout_for(chronyd.version())
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"{folder}/chrony.mqtick0.sock")
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _off_ns(self) -> int:
        """The true offset of this machine's clock; positive: it is behind."""
        now = read_kernel_time(10)
        with self._lock:
            return self._truth.at_monotonic_raw_ns(now.raw_ns) - now.realtime_ns

    def _pass_on(self) -> None:
        while sample := self._socket.recv(100):
            exact = encode_sample(time.time_ns(), self._off_ns(), layout=self._layout)
            for name, daemon in self._daemons.items():
                self._socket.sendto(exact if name.endswith(EXACT) else sample, daemon.socket)

    def look(self) -> None:
        """Ask each for the offset of the clock, and note the error of the answer, us."""
        for name, daemon in self._daemons.items():
            before_ns = self._off_ns()
            tracking = daemon.tracking()
            off_ns = (before_ns + self._off_ns()) / 2
            if tracking is None or not tracking.name:
                raise RuntimeError(f"chronyd with {name!r} follows nothing yet: raise --warm-up-s")
            said_ns = tracking.offset_reference_minus_local_ns
            self.errors[name].append(abs(said_ns - off_ns) / _US)


def steady(folder: Path, args: argparse.Namespace, report: Report) -> None:
    """Compare lines by the samples of one client."""
    folder.mkdir()
    candidates = [GENERATED, *args.changes, GENERATED + EXACT, BEFORE + EXACT]
    # Slow, so that the moment at which chronyd reads the clock does not matter.
    served = VirtualClockSettings.starting_now(
        offset_ns=2_000_000, frequency_ppb=2_000.0, wander_ppb=10.0, seed=args.seed
    )
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(folder)))
        stack.enter_context(time_server(broker.url, folder, "--virtual-clock", served.to_text()))
        judges = Judges(stack, folder, candidates, VirtualClock(served))
        client(stack, folder, broker.url, "c1", folder)
        wait("settling", args.warm_up_s)
        begun = time.monotonic()
        for number in range(int(args.seconds / 2)):
            judges.look()
            progress(f"steady: {args.seconds - 2 * number:4.0f} s left")
            time.sleep(max(0.0, begun + 2 * (number + 1) - time.monotonic()))
    rows = {
        name: report.add("|clock as chronyd sees it - truth|", "us", name, errors, simulated=True)
        for name, errors in judges.errors.items()
    }
    ours, before = rows[GENERATED].median, rows[BEFORE].median
    report.compare(f"median error, {GENERATED} / {BEFORE}", ours, before, 1.1)


# ---- the start -----------------------------------------------------------------------------------


def timed_starts(folder: Path, url: str, change: str, name: str) -> tuple[float, float]:
    """Start a chronyd and a client at once, then chronyd alone; return how long each took, s."""
    place = folder / "chronyd"

    def until_chosen(stack: contextlib.ExitStack | None) -> float:
        lines = lines_of(place, change)
        begun = time.monotonic()
        with Chronyd(place, lines) as daemon:
            if stack is not None:
                client(stack, folder, url, name, place)
            wait_until(lambda: "Selected source" in daemon.log.read_text(), change, _PATIENCE_S)
            chosen = time.monotonic()
        return chosen - begun

    with contextlib.ExitStack() as stack:
        first = until_chosen(stack)
        place.rename(folder / "first")
        time.sleep(random.uniform(16, 32))
        return first, until_chosen(None)


def _serves(status: Path) -> bool:
    try:
        return bool(read_status(status).values["done"].get("times", 0))
    except StatusError:
        return False


def starts(folder: Path, args: argparse.Namespace, report: Report) -> None:
    """Time the starts with each line."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(folder)))
        stack.enter_context(time_server(broker.url, folder))
        status = folder / "server/status.json"
        wait_until(lambda: _serves(status), "the time server publishes", _PATIENCE_S)
        for change in (GENERATED, BEFORE):
            with ThreadPoolExecutor(args.starts) as pool:
                timed = []
                for number in range(args.starts):
                    place = folder / f"{change.replace(' ', '-')}-{number}"
                    place.mkdir()
                    timed.append(pool.submit(timed_starts, place, broker.url, change, f"c{number}"))
                    time.sleep(random.uniform(0.5, 1.5))
                progress(f"start, {change}: waiting for {args.starts}")
                found = [each.result() for each in timed]
            for index, what in enumerate(("chronyd and client at once", "chronyd alone")):
                times = [each[index] for each in found]
                row = report.add(f"start of {what}, until its choice", "s", change, times)
                if change == GENERATED:
                    report.compare(f"start of {what}, longest / 15 s", row.max, START_GOAL_S, 1.0)


def main() -> None:
    """Run the benchmark."""
    short = {"warm_up_s": 90.0, "seconds": 120.0, "starts": 3}
    args = options(__doc__, short, warm_up_s=180.0, seconds=600.0, starts=10, seed=1, change=[])
    args.changes = [*CHANGES, *args.change]
    report = Report("chrony-lines")
    with tempfile.TemporaryDirectory(prefix="mqtick-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the broker may run as another user
        starts(folder / "starts", args, report)
        steady(folder / "steady", args, report)
    report.finish()


if __name__ == "__main__":
    main()
