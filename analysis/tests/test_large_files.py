"""Long records: in bounded memory, and with a sign of life."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mqtick.analysis import load
from mqtick.analysis.commands import common
from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.edges import MOST_EDGES
from mqtick.recording.transitions import Transitions

SESSION = """[global]
sigrok version=0.5.2

[device 1]
capturefile=logic-1
total probes=8
samplerate=1 MHz
total analog=0
unitsize=1
""" + "".join(f"probe{number}=D{number - 1}\n" for number in range(1, 9))


def write_rows(path: Path, rows: int) -> Path:
    """Write two pulses, 50 us apart, sampled at 10 MHz by a converter of 8 bits."""
    with path.open("w") as file:
        file.write("time [s],CH1,CH2\n")
        for begin in range(0, rows, 100_000):
            at = np.arange(begin, min(begin + 100_000, rows)) - rows // 10
            volts = [np.where((at >= late) & (at < late + 9000), 3.3, 0.0) for late in (0, 500)]
            cells = zip((at * 1e-7).tolist(), *(each.tolist() for each in volts), strict=True)
            file.writelines(f"{time:.7e},{one:.4e},{two:.4e}\n" for time, one, two in cells)
    return path


def write_session(path: Path, parts: list[bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("version", "2")
        archive.writestr("metadata", SESSION)
        for number, part in enumerate(parts, start=1):
            archive.writestr(f"logic-1-{number}", part)
    return path


def peak_mb(path: Path) -> float:
    """Return the most memory that listing a file took, in MB."""
    program = (
        "import re, sys\n"
        "from mqtick.analysis.cli import main\n"
        "assert main([sys.argv[1]]) == 0\n"
        # not getrusage: that counts what was there before this program was begun
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=path.parent)
    return int(done.stdout.splitlines()[-1]) / 1024


@pytest.mark.slow
def test_three_million_lines_take_less_than_a_third_of_300_mb_beside_the_program(
    tmp_path: Path,
) -> None:
    empty = peak_mb(write_rows(tmp_path / "short.csv", 2000))
    assert peak_mb(write_rows(tmp_path / "long.csv", 3_000_000)) - empty < 90


@pytest.mark.slow
def test_a_logic_capture_takes_memory_for_its_changes_and_not_for_its_samples(
    tmp_path: Path,
) -> None:
    at = np.arange(1 << 22)
    part = ((at % 1_000_000 < 1000) * 0b1010_1010).astype(np.uint8).tobytes()
    empty = peak_mb(write_session(tmp_path / "short.sr", [part[:4000]]))
    assert peak_mb(write_session(tmp_path / "long.sr", [part] * 8)) - empty < 40


def test_more_changes_than_are_looked_at_are_counted_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqtick.recording.bits.MOST_EDGES", 1000)
    toggling = bytes([0, 1] * 1000 + [2, 3])
    (capture,) = open_capture(write_session(tmp_path / "x.sr", [toggling] * 9)).read()
    fast, slow = (capture.signals[name] for name in ("D0", "D1"))
    assert isinstance(fast, Transitions)
    assert isinstance(slow, Transitions)
    assert fast.ticks.size + fast.missing == 9 * 2002 - 1 > 1000 + fast.ticks.size
    assert (slow.ticks.size, slow.missing) == (17, 0)
    assert MOST_EDGES > 1000


def test_changes_are_found_across_the_pieces_of_a_session(tmp_path: Path) -> None:
    parts = [bytes([0, 0]), bytes([1]), bytes([1, 129, 128])]
    (capture,) = open_capture(write_session(tmp_path / "x.sr", parts)).read()
    found = {
        name: (each.instants_fs(), each.levels.tolist())
        for name, each in capture.signals.items()
        if isinstance(each, Transitions) and each.ticks.size
    }
    us = 10**9
    assert found == {
        "D0": ([2 * us - us // 2, 5 * us - us // 2], [1, 0]),
        "D7": ([4 * us - us // 2], [1]),
    }


def test_the_progress_within_a_file_is_told(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []
    path = write_rows(tmp_path / "a.csv", 100_000)
    load(
        path,
        channels={"publisher": "1", "first": "2"},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [each for each in seen if 0 < each[0] < 1]
    assert seen == sorted(seen)
    assert seen[-1] == (1, 1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_progress_after_a_second_and_nothing_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, screen = [100.0], Terminal()
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", screen)
    show = common.watch(argparse.Namespace(quiet=False))
    assert show is not None
    now[0] += 0.9
    show(0.3, 1)
    assert screen.getvalue() == ""
    now[0] += 0.2
    show(0.5, 1)
    assert screen.getvalue() == "\r############### " + " " * 15 + "50% \033[K"
    show(1, 1)
    assert screen.getvalue().endswith("\r\033[K")


def test_what_is_done_within_a_second_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(common.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(sys, "stderr", screen)
    show = common.watch(argparse.Namespace(quiet=False))
    assert show is not None
    show(0.5, 1)
    show(1, 1)
    assert screen.getvalue() == ""
