"""From a run folder to a measurement: 1,000 shots of four channels of 100,000 points in one pass.

Ours finds every edge again (levels, hysteresis, sub-sample time, uncertainty), in one process and
in as many as the command has. The peers read the same files in one process: a plain numpy loop that
loads each shot and takes the first sample beyond the middle; one that only reads and decompresses;
and one that only reads the octets, which is the disk's share. Before each pass the files are
dropped from the page cache.

    python -m bench.report_speed            1,000 shots, 5 rounds
    python -m bench.report_speed --short    64 shots, 3 rounds
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench.harness import Report, options, progress
from mqtick.analysis.commands.common import PROCESSES
from mqtick.analysis.runs.from_run import measurement_from_run
from mqtick.recording.layout import Layout, Trigger
from mqtick.recording.run_folder import create_run, load_run, shot_path
from mqtick.recording.shot import Shot, read_whole_shot, write_shot
from mqtick.recording.waveform import Waveform
from recording.tests.wave_parts import channel, record_of

CHANNELS = ("publisher", "first", "last", "other")
POINTS = 100_000
INTERVAL_FS = 10 * 10**6
BEFORE = POINTS // 10
LOW, HIGH, NOISE = 1000, 2650, 4.0
"""Codes of a converter of 12 bits, 2 mV each."""
LAYOUT = Layout(
    "skew",
    {name: channel(number, f"client:{name}") for number, name in enumerate(CHANNELS, start=1)},
    {"scope": Trigger("publisher", "rising")},
    publisher="publisher",
    first="first",
    last="last",
)
PLAIN, DECOMPRESSED, DISK = "plain numpy loop", "read and decompress", "the disk's octets"


def ours_in(processes: int) -> str:
    """Return our name as a contestant with that many processes."""
    return f"mqtick, {processes} process{'es' if processes > 1 else ''}"


ONE, ALL = ours_in(1), ours_in(PROCESSES)


def write_run(folder: Path, shots: int) -> list[list[float]]:
    """Write a run of pulses with noise and rounded edges; returns each shot's latencies in us."""
    create_run(folder, record_of(LAYOUT, title="report-speed", simulated=True))
    random = np.random.default_rng(1)
    truth = []
    at = np.arange(POINTS)
    for number in range(1, shots + 1):
        progress(f"writing shot {number} of {shots}")
        late = [0.0, *sorted(random.uniform(50, 400, len(CHANNELS) - 1).tolist())]
        waveforms = {}
        for name, late_us in zip(CHANNELS, late, strict=True):
            edge = BEFORE + late_us * 10**9 / INTERVAL_FS
            rise = np.clip((at - edge) / 4 + 0.5, 0, 1) - np.clip((at - edge - 10_000) / 4, 0, 1)
            codes = LOW + (HIGH - LOW) * rise + random.normal(0, NOISE, POINTS)
            waveforms[name] = Waveform(
                codes.round().astype(np.uint16), 2e-3, LOW, INTERVAL_FS, -BEFORE * INTERVAL_FS
            )
        meta = Shot(number, 2, started_ns=number * 10**9, simulated=True)
        write_shot(shot_path(folder, number), meta, waveforms)
        truth.append(late)
    return truth


def forget(folder: Path) -> list[Path]:
    """Drop the shots from the page cache, and delete earlier results: the next pass reads all."""
    (folder / "reduced.json").unlink(missing_ok=True)
    paths = sorted((folder / "shots").iterdir())
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
    return paths


def ours(processes: int, folder: Path, _paths: list[Path]) -> list[float]:
    """Return the skews in us, by our own code."""
    shots = measurement_from_run(load_run(folder), processes=processes).shots
    return [shot.skew_fs / 1e9 for shot in shots if shot.skew_fs is not None]


def plain(_folder: Path, paths: list[Path]) -> list[float]:
    """Return the skews in us, as a short script would find them."""
    skews = []
    for path in paths:
        with np.load(path) as file:
            at = {}
            for name in CHANNELS:
                codes = file[f"codes/{name}"]
                middle = (int(codes.min()) + int(codes.max())) / 2
                at[name] = int((codes > middle).argmax())
        skews.append((at["last"] - at["first"]) * INTERVAL_FS / 1e9)
    return skews


def decompressed(_folder: Path, paths: list[Path]) -> list[float]:
    """Read the waveforms and do nothing with them."""
    for path in paths:
        read_whole_shot(path)
    return []


def disk(_folder: Path, paths: list[Path]) -> list[float]:
    """Read the octets and do nothing with them."""
    for path in paths:
        path.read_bytes()
    return []


def measure(shots: int, rounds: int) -> Report:
    """Let all of them read the same run, one after another, several times."""
    report = Report("report-speed", simulated=True)
    taken: dict[str, list[float]] = defaultdict(list)
    contestants: dict[str, Callable[[Path, list[Path]], list[float]]] = {
        ONE: partial(ours, 1),
        ALL: partial(ours, PROCESSES),
        PLAIN: plain,
        DECOMPRESSED: decompressed,
        DISK: disk,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        needed = shots * len(CHANNELS) * POINTS * 2
        if shutil.disk_usage(name).free < needed:
            raise SystemExit(
                f"{name} has less than {needed >> 20} MB free for {shots} shots; use fewer "
                "with --shots, or another folder with TMPDIR."
            )
        truth = write_run(folder, shots)
        octets = sum(path.stat().st_size for path in (folder / "shots").iterdir())
        skews = {}
        for number in range(rounds):
            for who, read in contestants.items():
                progress(f"round {number + 1} of {rounds}: {who}")
                paths = forget(folder)
                began = time.perf_counter()
                skews[who] = read(folder, paths)
                taken[who].append((time.perf_counter() - began) * 1e3 / shots)
    true_us = np.array([late[2] - late[1] for late in truth])
    errors_ns = {who: np.abs(np.array(skews[who]) - true_us) * 1e3 for who in (ONE, ALL, PLAIN)}
    for who, values in taken.items():
        report.add("reading a shot", "ms", who, values)
    for who, errors in errors_ns.items():
        report.add("|error| of the skew", "ns", who, errors.tolist())
    report.add("a shot's file", "kB", "zip", [octets / shots / 1e3], digits=1)
    median = {row.who: row.median for row in report.rows if row.unit == "ms"}
    report.compare("a shot, 1 process / plain numpy loop", median[ONE], median[PLAIN], 2.0)
    report.compare("a shot, all processes / plain numpy loop", median[ALL], median[PLAIN], 1.5)
    report.compare("a shot / read and decompress", median[ALL], median[DECOMPRESSED], 2.0)
    report.compare("a shot / the disk's octets", median[ALL], median[DISK])
    return report


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"shots": 64, "rounds": 3}, shots=1000, rounds=5)
    measure(args.shots, args.rounds).finish()


if __name__ == "__main__":
    main()
