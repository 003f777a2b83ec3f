"""What all benchmarks share: quantiles, the machine, the table, the results file (JSON)."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of values that are sorted already (nearest rank)."""
    return values[min(len(values) - 1, int(len(values) * share))]


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

        def at(share: float) -> float:
            return round(quantile(ordered, share), digits)

        return cls(
            quantity=quantity,
            unit=unit,
            who=who,
            n=len(ordered),
            median=at(0.5),
            p5=at(0.05),
            p95=at(0.95),
            p99=at(0.99),
            max=round(ordered[-1], digits),
            simulated=simulated,
        )


@dataclass(frozen=True)
class Ratio:
    """Ours against a peer's or a limit; `goal` is the upper limit aimed at, or None."""

    quantity: str
    ours: float
    peer: float
    ratio: float
    goal: float | None
    met: bool | None

    @classmethod
    def of(cls, quantity: str, ours: float, peer: float, goal: float | None) -> Ratio:
        """Divide; ValueError where the peer's is zero."""
        if not peer:
            raise ValueError(
                f"{quantity}: the peer's figure is 0; nothing can be compared with it."
            )
        ratio = round(ours / peer, 4)
        return cls(quantity, ours, peer, ratio, goal, None if goal is None else ratio <= goal)


@dataclass
class Report:
    """Collects rows and ratios, prints them and writes bench/results/NAME.json."""

    name: str
    rows: list[Row] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

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
        file.write_text(json.dumps(content, indent=1) + "\n")
        print(f"written to {file.relative_to(RESULTS.parent.parent)}")


def progress(text: str) -> None:
    """Show progress on a terminal; the next such line replaces it."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def commit() -> str:
    """Return the commit that was measured, marked where the tree differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def machine() -> str:
    """Say what was measured on."""
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
