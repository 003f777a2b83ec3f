"""udp-core: how long a message takes through the hardware broker behind a 10 Gb/s UDP/IP core.

Everything is simulated: LiteEth's MAC and UDP/IP, 64 bits wide, around the broker's RTL, exact to
the cycle of 6.4 ns; the received clock runs apart from the broker's own.

    python -m bench.udp_core
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.harness import Report, options, progress

_ROOT = Path(__file__).resolve().parent.parent
_TESTS = "broker/rtl/boards/xgmii/tests/run.py"
_FIGURES = _ROOT / "build/rtl/xgmii/figures.json"
_WHO = "mqtick broker, RTL, and LiteEth"
_FILTER = "400_ns|without_a_pause|residence"
_PUBLISHED_NS, _GOAL_NS = 799.2, 400.0
_OCTET_NS = 0.8
_OVERHEAD = 66
"""Octets on the wire besides a datagram's payload: headers, checksum, preamble and gap."""


def run(report: Report, figures: dict[str, list[float]]) -> None:
    """Add a row for each figure, and the comparisons."""
    for quantity, values in figures.items():
        row = report.add(quantity, "ns", _WHO, values)
        size = next((int(word) for word in quantity.split() if word.isdecimal()), 0)
        if quantity.startswith("last octet in"):
            name = f"{size} octets: latency, max"
            report.compare(f"{name} / goal, ns", row.max, _GOAL_NS, 1.0)
            report.compare(f"{name} / whole published broker, ns", row.max, _PUBLISHED_NS)
            least = min(values)
            report.add(f"{size} octets: constant part", "ns", _WHO, [least])
            above = [value - least for value in values]
            report.add(f"{size} octets: above it, by phase and lane", "ns", _WHO, above)
        if quantity.startswith("copy to copy"):
            wire = round(_OCTET_NS * (size + _OVERHEAD), 3)
            report.compare(f"{size} octets: copy to copy / wire's time, ns", row.median, wire)


def main() -> int:
    """Run the benchmark."""
    options(__doc__, short={})
    progress("simulation")
    done = subprocess.run(
        [_ROOT / ".venv-rtl/bin/python", _TESTS],
        cwd=_ROOT,
        env={**os.environ, "COCOTB_TEST_FILTER": _FILTER},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"error: the simulation failed:\n{done.stdout[-3000:]}", file=sys.stderr)
        return 1
    report = Report("udp-core", simulated=True)
    run(report, json.loads(_FIGURES.read_text()))
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
