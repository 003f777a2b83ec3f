"""From a deep capture to its first picture, and to every event in it, against numpy reading it.

Files of four channels, made up: 1 million points a channel for `mqtick-report look`, 10 million
for every event of a record (100 of them), each as a shot of mqtick (`.npz`, compressed) and as a
binary file of Keysight's layout (floats of 32 bits). Each contestant is a process of its own, from
its start to its end, in turn; the files are in the page cache. The peer of the picture reads the
samples with numpy and imports matplotlib; that of every event imports numpy and reads the samples.
Ours is the whole of `mqtick-report look`, up to the picture on the disk (and, apart, to the page);
and, for every event, importing, reading, finding and pairing, without statistics and page.
Memory is the largest resident set of the process, with everything that it imports.

    python -m bench.look            7 rounds
    python -m bench.look --short    2 rounds, 1 million points for both
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from bench.harness import Report, options, progress
from mqtick.recording.shot import Shot, write_shot
from mqtick.recording.waveform import Waveform

CHANNELS = 4
EVENTS = 100
INTERVAL_FS = 10**7
STEP_V = 3.3 / 200
ZERO = 20
MOST_MB = 300.0
HEADER, BUFFER = 140, 12
NAMES = {"npz": "mqtick shot", "bin": "Keysight binary"}

COMMON = """
import json, re, sys, time
from pathlib import Path
def done(**more):
    peak = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    print(json.dumps({"ended": time.time(), "mb": peak, **more}))
"""
NUMPY = """
import numpy as np
if sys.argv[1].endswith(".npz"):
    with np.load(sys.argv[1]) as file:
        samples = [file[name] for name in file.files if name != "meta"]
else:
    points = int(sys.argv[2])
    with open(sys.argv[1], "rb") as file:
        file.seek(12)
        samples = []
        for channel in range(4):
            file.seek(152, 1)
            samples.append(np.fromfile(file, "<f4", points))
assert len(samples) == 4 and all(len(each) == int(sys.argv[2]) for each in samples)
"""
PLOT = "import matplotlib.pyplot\n"
LOOK = """
import contextlib, io
from mqtick.analysis.cli import main
from mqtick.recording import shot
written = []
whole = shot.replace_file
def timed(path, octets):
    whole(path, octets)
    written.append(time.time())
shot.replace_file = timed
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["look", sys.argv[1], "--every-event", "--out", sys.argv[3]]) == 0
"""
EVERY = """
from mqtick.analysis import load
channels = {"publisher": "1", "first": "2", "last": "3", "other": "4"}
found = load(sys.argv[1], channels=channels, every_event=True)
latencies = [shot.latency_fs for shot in found.shots]
"""


def made(path: Path, points: int) -> list[float]:
    """Write pulses with noise as both formats, and return the true latencies in us."""
    random = np.random.default_rng(1)
    period = points // EVENTS
    late = [np.zeros(EVENTS), *np.sort(random.uniform(0.02, 0.3, (CHANNELS - 1, EVENTS)), axis=0)]
    waveforms = {}
    records = []
    for number, of in enumerate(late, start=1):
        codes = np.full(points, ZERO, np.float32)
        codes += random.normal(0, 1, points).astype(np.float32)
        for event, share in enumerate(of):
            begin = event * period + period * (0.1 + share)
            first = int(np.ceil(begin))
            codes[first : first + period // 3] += 200
            codes[first - 1] += 200 * (first - begin)  # in the middle of its rise
        whole = np.clip(codes.round(), 0, 255).astype(np.uint8)
        waveforms[f"CH{number}"] = Waveform(whole, STEP_V, float(ZERO), INTERVAL_FS, 0)
        volts = ((whole - np.float32(ZERO)) * np.float32(STEP_V)).astype("<f4")
        head = struct.pack(
            "<5If3d2I16s16s24s16sdI",
            *(HEADER, 1, 1, points, 1, 1e-3, 0.0, INTERVAL_FS / 1e15, 0.0, 2, 1),
            *(b"", b"", b"made up", str(number).encode(), 0.0, 0),
        )
        records.append(head + struct.pack("<IHHI", BUFFER, 1, 4, volts.nbytes) + volts.tobytes())
    write_shot(path.with_suffix(".npz"), Shot(simulated=True), waveforms)
    size = sum(map(len, records)) + 12
    with path.with_suffix(".bin").open("wb") as file:
        file.write(b"AG10" + struct.pack("<II", size, CHANNELS))
        file.writelines(records)
    return [(b - a) * period * INTERVAL_FS / 1e9 for a, b in zip(late[0], late[1], strict=True)]


def run(program: str, end: str, *arguments: str) -> dict[str, float]:
    """Run a program in its own process; returns s from start to end, MB, and its output."""
    words = [sys.executable, "-c", COMMON + program + end, *arguments]
    clock = (
        f"import os, sys, time; print(time.time(), flush=True); os.execv(sys.executable, {words!r})"
    )
    # Keep our byte code, as for installed packages: that of numpy and matplotlib is kept, too.
    kept = {name: of for name, of in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = subprocess.run(
        [sys.executable, "-c", clock], stdout=subprocess.PIPE, check=True, text=True, env=kept
    )
    began, _, said = found.stdout.partition("\n")
    told: dict[str, float] = json.loads(said)
    return {**told, "s": told["ended"] - float(began)}


def measure(rounds: int, deep: int) -> Report:
    """Let all of them read the same files, one after another, several times."""
    report = Report("look", simulated=True)
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    memory: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        first, every = Path(folder) / "first", Path(folder) / "every"
        progress("writing the files")
        made(first, 1_000_000)
        truth = made(every, deep)
        out = os.path.join(folder, "out")
        for number in range(rounds):
            for ending, name in NAMES.items():
                progress(f"round {number + 1} of {rounds}: {name}")
                short, long = (str(path.with_suffix(f".{ending}")) for path in (first, every))
                plot = run(NUMPY + PLOT, "done()", short, "1000000")
                taken["first picture", f"numpy and matplotlib, {name}"].append(plot["s"])
                end = "done(picture=written[0])"
                look = run(LOOK, end, short, "1000000", out)
                page_s = look["s"]
                picture_s = page_s - (look["ended"] - look["picture"])
                taken["first picture", f"mqtick, {name}"].append(picture_s)
                taken["picture and page", f"mqtick, {name}"].append(page_s)
                memory["look: peak memory", f"mqtick, {name}"].append(look["mb"])
                plain = run(NUMPY, "done()", long, str(deep))
                taken["every event", f"numpy reading, {name}"].append(plain["s"])
                memory["every event: peak memory", f"numpy reading, {name}"].append(plain["mb"])
                ours = run(EVERY, "done(latencies=latencies)", long)
                taken["every event", f"mqtick, {name}"].append(ours["s"])
                memory["every event: peak memory", f"mqtick, {name}"].append(ours["mb"])
                found = np.array(ours["latencies"], np.float64) / 1e9
                wrong_ns = np.abs(found - truth) * 1e3
                if found.size != EVENTS or wrong_ns.max() > INTERVAL_FS / 1e6:
                    raise SystemExit(f"{name}: {found.size} events, {wrong_ns.max()} ns off.")
    for (quantity, who), values in taken.items():
        report.add(quantity, "s", who, values)
    for (quantity, who), values in memory.items():
        report.add(quantity, "MB", who, values, digits=1)
    median = {(row.quantity, row.who): row.median for row in report.rows}
    for name in NAMES.values():
        ours_s = median["first picture", f"mqtick, {name}"]
        peer_s = median["first picture", f"numpy and matplotlib, {name}"]
        report.compare(f"first picture / numpy and matplotlib, {name}", ours_s, peer_s, 2.0)
        ours_s = median["every event", f"mqtick, {name}"]
        peer_s = median["every event", f"numpy reading, {name}"]
        report.compare(f"every event / numpy reading, {name}", ours_s, peer_s, 3.0)
        most = median["every event: peak memory", f"mqtick, {name}"]
        report.compare(f"every event: peak memory / 300 MB, {name}", most, MOST_MB, 1.0)
    return report


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"rounds": 2, "deep": 1_000_000}, rounds=7, deep=10_000_000)
    measure(args.rounds, args.deep).finish()


if __name__ == "__main__":
    main()
