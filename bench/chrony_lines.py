"""chrony_lines: which refclock line serves best, and how soon does chronyd choose its source?

Steady: a real mqtick-client measures a time server on a virtual clock (simulated), and what it
hands over goes to several chronyd at once, each with its own line, so that all judge the same
samples. None steers (-x): each says by how much this machine's clock is off, and so what it would
make of it; the truth is known. Two more get exact samples at the same instants.

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
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness import Ratio, Report, Row, progress
from bench.programs import started, time_server
from bench.steered import Chronyd, generated_lines
from demo.local_broker import Mosquitto, running
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
    stack.enter_context(
        started(
            "mqtick.client.cli",
            *("--broker", url, "--name", name, "--state-folder", str(folder / name)),
            *("--discipline", "chrony", "--chrony-check-interval-s", "0"),
            *("--chrony-socket", f"{sockets}/chrony.mqtick{{server}}.sock"),
            log=folder / f"{name}.log",
        )
    )


# ---- the steady state ----------------------------------------------------------------------------


class Judges:
    """Several chronyd that get the same samples, or exact ones of the same instants."""

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
            self._daemons[name], self.errors[name] = Chronyd(place, lines), []
            stack.callback(self._daemons[name].stop)
        self._truth, self._lock = truth, threading.Lock()
        self._layout = layout_for(chronyd.version())
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"{folder}/chrony.mqtick0.sock")
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _off_ns(self) -> int:
        """By how much this machine's clock is off; positive: it is behind."""
        now = read_kernel_time(10)
        with self._lock:
            return self._truth.at_monotonic_raw_ns(now.raw_ns) - now.realtime_ns

    def _pass_on(self) -> None:
        while sample := self._socket.recv(100):
            exact = encode_sample(time.time_ns(), self._off_ns(), layout=self._layout)
            for name, daemon in self._daemons.items():
                self._socket.sendto(exact if name.endswith(EXACT) else sample, daemon.socket)

    def look(self) -> None:
        """Ask each by how much the clock is off, and note by how much that is wrong, us."""
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
    # Slow, so that nothing depends on exactly when chronyd looked after it was asked.
    served = VirtualClockSettings.starting_now(
        offset_ns=2_000_000, frequency_ppb=2_000.0, wander_ppb=10.0, seed=args.seed
    )
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(folder)))
        stack.enter_context(time_server(broker.url, folder, "--virtual-clock", served.to_text()))
        judges = Judges(stack, folder, candidates, VirtualClock(served))
        client(stack, folder, broker.url, "c1", folder)
        _sleep("settling", args.warm_up_s)
        begun = time.monotonic()
        for number in range(int(args.seconds / 2)):
            judges.look()
            progress(f"steady: {args.seconds - 2 * number:4.0f} s left")
            time.sleep(max(0.0, begun + 2 * (number + 1) - time.monotonic()))
    rows = {
        name: Row.of("|clock as chronyd sees it - truth|", "us", name, errors, simulated=True)
        for name, errors in judges.errors.items()
    }
    report.rows += rows.values()
    ours, before = rows[GENERATED].median, rows[BEFORE].median
    report.ratios.append(Ratio.of(f"median error, {GENERATED} / {BEFORE}", ours, before, 1.1))


def _sleep(what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        progress(f"{what}: {left:4.0f} s left")
        time.sleep(min(1.0, left))


# ---- the start -----------------------------------------------------------------------------------


class Starter(threading.Thread):
    """Starts a chronyd and a client at once, then chronyd alone, and takes the times."""

    def __init__(self, folder: Path, url: str, change: str, name: str) -> None:
        super().__init__(daemon=True)
        self._folder, self._url, self._change, self._client = folder, url, change, name
        self.seconds: list[float] = []
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Do both."""
        try:
            with contextlib.ExitStack() as stack:
                self.seconds.append(
                    self._chosen(
                        "first",
                        lambda: client(
                            stack, self._folder, self._url, self._client, self._folder / "chronyd"
                        ),
                    )
                )
                time.sleep(random.uniform(16, 32))
                self.seconds.append(self._chosen("second", lambda: None))
        except BaseException as error:
            self.failed = error

    def _chosen(self, which: str, also: Callable[[], None]) -> float:
        """Start chronyd, do something else, and return when chronyd had selected a source, s."""
        place = self._folder / "chronyd"
        lines = lines_of(place, self._change)
        begun = time.monotonic()
        daemon = Chronyd(place, lines)
        try:
            also()
            while "Selected source MQT0" not in (place / "log").read_text():
                if time.monotonic() - begun > _PATIENCE_S:
                    raise RuntimeError(f"{self._change}: no source within {_PATIENCE_S:g} s")
                time.sleep(0.05)
            return time.monotonic() - begun
        finally:
            daemon.stop()
            place.rename(self._folder / which)


def _wait_until_it_serves(status: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(StatusError):
            if read_status(status).values["done"].get("times", 0):
                return
        time.sleep(0.1)
    raise RuntimeError(f"the time server publishes nothing within {_PATIENCE_S:g} s")


def starts(folder: Path, args: argparse.Namespace, report: Report) -> None:
    """Time the starts with each line."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running(Mosquitto(folder)))
        stack.enter_context(time_server(broker.url, folder))
        _wait_until_it_serves(folder / "server" / "status.json")
        for change in (GENERATED, BEFORE):
            starters = []
            for number in range(args.starts):
                place = folder / f"{change.replace(' ', '-')}-{number}"
                place.mkdir()
                starters.append(Starter(place, broker.url, change, f"c{number}"))
                starters[-1].start()
                time.sleep(random.uniform(0.5, 1.5))
            for number, starter in enumerate(starters):
                progress(f"start, {change}: waiting for {number + 1} of {args.starts}")
                starter.join()
                if starter.failed is not None:
                    raise starter.failed
            for index, what in enumerate(("chronyd and client at once", "chronyd alone")):
                times = [starter.seconds[index] for starter in starters]
                row = Row.of(f"start of {what}, until its choice", "s", change, times)
                report.rows.append(row)
                if change == GENERATED:
                    report.ratios.append(
                        Ratio.of(f"start of {what}, longest / 15 s", row.max, START_GOAL_S, 1.0)
                    )


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm-up-s", type=float, default=180)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--change", action="append", dest="changes", default=[*CHANGES], help="compare this too"
    )
    parser.add_argument("--short", action="store_true", help="90 s, 2 minutes; 3 starts")
    args = parser.parse_args()
    if args.short:
        args.warm_up_s, args.seconds, args.starts = 90, 120, 3
    report = Report("chrony-lines")
    with tempfile.TemporaryDirectory(prefix="mqtick-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the broker may run as another user
        starts(folder / "starts", args, report)
        steady(folder / "steady", args, report)
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
