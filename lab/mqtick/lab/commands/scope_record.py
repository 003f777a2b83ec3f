"""The output of `mqtick-lab scope capture`: text about a record, and its files."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.recording.edges import Edge, EdgeError, StateLevels, find_edges, state_levels
from mqtick.recording.shot import Shot, replace_file, write_shot
from mqtick.recording.waveform import FS_PER_SECOND, Waveform


def write(path: Path, waveforms: dict[int, Waveform], started_ns: int, simulated: bool) -> None:
    """Write a record as a shot (.npz) or as a table of volts (.csv); OSError."""
    if path.suffix == ".npz":
        shot = Shot(1, started_ns=started_ns, simulated=simulated)
        write_shot(path, shot, {str(channel): waveforms[channel] for channel in waveforms})
        return
    columns: dict[str, Any] = {}
    last = None
    for channel, waveform in waveforms.items():
        axis = (waveform.start_fs, waveform.interval_fs, waveform.codes.size)
        if axis != last:  # one column of times for all channels that share it
            columns["time_s" if last is None else f"time_{channel}_s"] = (
                _seconds(waveform.instant_fs(index)) for index in range(waveform.codes.size)
            )
            last = axis
        columns[f"channel_{channel}_v"] = (f"{volts:.6g}" for volts in waveform.volts())
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(itertools.zip_longest(*columns.values(), fillvalue=""))
    replace_file(path, text.getvalue().encode())


def _seconds(instant_fs: int) -> str:
    """Write an instant in s with all its digits; a float would round it."""
    whole, rest = divmod(abs(instant_fs), FS_PER_SECOND)
    return f"{'-' if instant_fs < 0 else ''}{whole}.{rest:015d}"


def show(
    args: argparse.Namespace,
    scope: Oscilloscope | LogicAnalyser,
    waveforms: dict[int, Waveform],
    trigger: int,
) -> None:
    """Print levels, edges, and the times between the first edges of channels."""
    said: dict[int, dict[str, Any]] = {}
    firsts: dict[int, Edge] = {}
    for channel, waveform in waveforms.items():
        said[channel] = one = _found(waveform, firsts, channel)
        one["samples"] = waveform.codes.size
        one["interval_ns"] = waveform.interval_fs / 1e6
    reference = trigger if trigger in firsts else min(firsts, default=None)
    times_ns = {
        channel: (edge.instant_fs - firsts[reference].instant_fs) / 1e6
        for channel, edge in firsts.items()
        if reference is not None and channel != reference
    }
    if args.json:
        print(
            json.dumps(
                {
                    "instrument": scope.description,
                    "simulated": scope.simulated,
                    "read_again": getattr(scope, "read_again", 0),
                    "channels": said,
                    "reference": reference,
                    "after_reference_ns": times_ns,
                    "file": None if args.out is None else str(args.out),
                }
            )
        )
        return
    print(f"{scope.description}{' (simulated)' if scope.simulated else ''}")
    for channel, one in said.items():
        print(f"channel {channel}: {one['samples']} samples, {one['interval_ns']:g} ns apart")
        if "problem" in one:
            print(f"  {one['problem']}")
            continue
        clipped = f", {one['clipped']} samples clipped" if one["clipped"] else ""
        print(f"  low {one['low_v']:.3f} V, high {one['high_v']:.3f} V{clipped}")
        for edge in one["edges"][:8]:
            way = "rising " if edge["rising"] else "falling"
            print(f"  {way} {edge['at_ns']:+15.3f} ns +-{edge['uncertainty_ns']:.3f}")
        if len(one["edges"]) > 8:
            print(f"  and {len(one['edges']) - 8} more edges")
    for channel, after_ns in times_ns.items():
        print(f"channel {channel} after channel {reference}: {after_ns:+.3f} ns (first edges)")
    if args.out is not None:
        print(f"written to {args.out}")


def _found(waveform: Waveform, firsts: dict[int, Edge], channel: int) -> dict[str, Any]:
    try:
        levels: StateLevels = state_levels(waveform)
        edges = find_edges(waveform)
    except EdgeError as error:
        return {"problem": str(error), "edges": []}
    if edges:
        firsts[channel] = edges[0]
    scale, zero = waveform.volts_per_code, waveform.code_at_zero
    return {
        "low_v": (levels.low - zero) * scale,
        "high_v": (levels.high - zero) * scale,
        "clipped": levels.clipped,
        "edges": [
            {
                "at_ns": edge.instant_fs / 1e6,
                "rising": edge.rising,
                "uncertainty_ns": edge.uncertainty_fs / 1e6,
            }
            for edge in edges
        ],
    }
