"""The common part of all benchmarks: options, programs, clients, the machine, table, file."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from demo.local_broker import Mosquitto, running
from mqtick.mqtt.packets import connect_packet, subscribe_packet

RESULTS = Path(__file__).resolve().parent / "results"
PROGRAMS = Path(__file__).resolve().parent.parent / "broker/server/target/release"
_LIMIT_S = 120.0
B = TypeVar("B", bound=Mosquitto)


def options(
    about: str | None, short: Mapping[str, object] | None = None, **defaults: object
) -> argparse.Namespace:
    """Read the command line.

    Each default makes a flag: `warm_up_s=60.0` makes --warm-up-s, a number; False makes a switch,
    and a list makes a flag that may be repeated. With --short, those in `short` are the defaults.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, list):
            parser.add_argument(flag, action="append", default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"({default})")
    parser.add_argument("--short", "--quick", action="store_true", help="a look, not a result")
    args = parser.parse_args()
    if args.short:
        parser.set_defaults(**(short or {}))
        args = parser.parse_args()
    return args


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of values that are sorted already (nearest rank)."""
    return values[min(len(values) - 1, int(len(values) * share))]


def spread_of_blocks(what: str, blocks: Sequence[Sequence[float]]) -> list[float]:
    """Print how much blocks of a measurement, in us, differ; return their medians."""
    medians = [quantile(sorted(values), 0.5) for values in blocks if values]
    print(
        f"{what}: medians of {len(medians)} blocks {min(medians):.1f} to {max(medians):.1f} us",
        flush=True,
    )
    return medians


@dataclass(frozen=True)
class Row:
    """One measured quantity of one contestant."""

    quantity: str
    unit: str
    who: str
    n: int
    median: float
    p5: float
    p95: float
    p99: float
    max: float
    simulated: bool = False

    @classmethod
    def of(
        cls,
        quantity: str,
        unit: str,
        who: str,
        values: Sequence[float],
        *,
        simulated: bool = False,
        digits: int = 2,
    ) -> Row:
        """Summarise values; ValueError if there are none."""
        if not values:
            raise ValueError(f"{quantity}: nothing was measured for {who}; the run is useless.")
        ordered = sorted(values)
        shares = {"median": 0.5, "p5": 0.05, "p95": 0.95, "p99": 0.99, "max": 1.0}
        found = {name: round(quantile(ordered, share), digits) for name, share in shares.items()}
        return cls(quantity, unit, who, len(ordered), **found, simulated=simulated)


@dataclass(frozen=True)
class Ratio:
    """Our value over a peer's or a limit; `goal` is its upper limit, or None."""

    quantity: str
    ours: float
    peer: float
    ratio: float
    goal: float | None
    met: bool | None

    @classmethod
    def of(cls, quantity: str, ours: float, peer: float, goal: float | None) -> Ratio:
        """Divide; ValueError if the peer's value is zero."""
        if not peer:
            raise ValueError(
                f"{quantity}: the peer's figure is 0; nothing can be compared with it."
            )
        ratio = round(ours / peer, 4)
        return cls(quantity, ours, peer, ratio, goal, None if goal is None else ratio <= goal)


@dataclass
class Report:
    """Collects rows and ratios, prints them and writes bench/results/NAME.json.

    Attributes:
        simulated: Whether rows are marked as simulated by default.
    """

    name: str
    rows: list[Row] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    simulated: bool = False

    def add(
        self,
        quantity: str,
        unit: str,
        who: str,
        values: Sequence[float],
        *,
        simulated: bool | None = None,
        digits: int = 2,
    ) -> Row:
        """Add a row, and return it; ValueError if there are no values."""
        marked = self.simulated if simulated is None else simulated
        self.rows.append(Row.of(quantity, unit, who, values, simulated=marked, digits=digits))
        return self.rows[-1]

    def compare(self, quantity: str, ours: float, peer: float, goal: float | None = None) -> None:
        """Add a ratio; ValueError if the peer's value is zero."""
        self.ratios.append(Ratio.of(quantity, ours, peer, goal))

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Begin with the rows and ratios of the results file whose quantities are wanted."""
        file = RESULTS / f"{self.name}.json"
        found = json.loads(file.read_text()) if file.exists() else {"rows": [], "ratios": []}
        self.rows[:0] = [Row(**one) for one in found["rows"] if wanted(one["quantity"])]
        self.ratios[:0] = [Ratio(**one) for one in found["ratios"] if wanted(one["quantity"])]

    def finish(self) -> None:
        """Print the table and write the file."""
        progress("")
        print(f"\n{self.name}: {machine()}")
        head = ("quantity", "unit", "who", "n", "median", "p5", "p95", "p99", "max")
        table = [head, *(tuple(str(getattr(row, name)) for name in head) for row in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(head))]
        for line in table:
            cells = [
                cell.ljust(width) if column < 3 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            print("  ".join(cells).rstrip())
        for ratio in self.ratios:
            goal = "" if ratio.goal is None else f", goal at most {ratio.goal}"
            met = "" if ratio.met is None else (" (met)" if ratio.met else " (NOT met)")
            print(f"{ratio.quantity}: {ratio.ours} / {ratio.peer} = {ratio.ratio}{goal}{met}")
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{self.name}.json"
        content = {
            "name": self.name,
            "commit": commit(),
            "machine": machine(),
            "rows": [asdict(row) for row in self.rows],
            "ratios": [asdict(ratio) for ratio in self.ratios],
        }
        file.write_text(text_of(content))
        print(f"written to {file.relative_to(RESULTS.parent.parent)}")


@contextlib.contextmanager
def fresh(kind: Callable[[Path], B]) -> Iterator[B]:
    """Run a broker of this kind, with a folder of its own, for the length of a with block."""
    with tempfile.TemporaryDirectory() as folder:
        broker = kind(Path(folder))
        with running(broker):
            yield broker


def connected(port: int, name: str, *topics: str) -> socket.socket:
    """Return a connection of MQTT 3.1.1 to a broker, subscribed to these topics."""
    sock = socket.create_connection(("127.0.0.1", port), 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(connect_packet(name))
    sock.recv(4, socket.MSG_WAITALL)
    if topics:
        sock.sendall(subscribe_packet(topics))
        sock.recv(4 + len(topics), socket.MSG_WAITALL)
    return sock


def built(name: str) -> str:
    """Return where a program in Rust is; SystemExit if it is not built."""
    path = PROGRAMS / name
    if not path.exists():
        raise SystemExit(f"{path} is not built: start the benchmark with make, which builds it.")
    return str(path)


def start_load(*arguments: object, under: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start mqtick-load; `under`: a command that runs it, such as taskset."""
    return subprocess.Popen(
        [*under, built("mqtick-load"), *map(str, arguments), "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(load: subprocess.Popen[str], limit_s: float | None = _LIMIT_S) -> dict[str, Any]:
    """Wait for mqtick-load, and return its result; RuntimeError, with its text, if it fails."""
    try:
        out, error = load.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        load.kill()
        raise RuntimeError(f"it took more than {limit_s:.0f} s.") from None
    if load.returncode == 130:
        raise KeyboardInterrupt
    if load.returncode:
        raise RuntimeError(error.strip().removeprefix("mqtick-load: "))
    found: dict[str, Any] = json.loads(out)
    return found


def medians(result: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the medians in a result of mqtick-load, by key and who."""
    return {(row["key"], row["who"]): row["median"] for row in result["rows"]}


def cpu_ns(pid: int) -> int:
    """Return the processor time that a process has used, all its threads, user and system."""
    # clock_getcpuclockid(3): the process ID above CPUCLOCK_SCHED (kernel, posix-timers.h).
    return time.clock_gettime_ns(~pid << 3 | 2)


def text_of(content: Mapping[str, Any]) -> str:
    """Return a results file: a line for each row, so that a difference shows whole rows."""
    parts = []
    for key, value in content.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[" + ",".join(f"\n  {json.dumps(one)}" for one in value) + "\n ]"
        parts.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def progress(text: str) -> None:
    """Show progress on a terminal; the next such line replaces it."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def wait(what: str, seconds: float) -> None:
    """Sleep, and show for how long."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        progress(f"{what}: {left:4.0f} s left")
        time.sleep(min(1.0, left))


def commit() -> str:
    """Return the measured commit, marked if the tree differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def machine() -> str:
    """Describe the machine."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            model = line.partition(":")[2].strip()
            break
    virtual = " (virtual machine)" if "hypervisor" in Path("/proc/cpuinfo").read_text() else ""
    return (
        f"{os.cpu_count()} CPUs, {model}{virtual}, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}"
    )
