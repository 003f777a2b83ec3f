"""The output of `mqtick-lab scope capture --segments`: a table and a file for each record."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from mqtick.lab.commands.scope_record import write
from mqtick.lab.scope.dialects import Segment
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.recording.edges import EdgeError, find_edges


def segment_path(out: Path, number: int) -> Path:
    """Return the file of a segment: FILE-0001.npz and so on."""
    return out.with_stem(f"{out.stem}-{number:04d}")


def write_segments(
    args: argparse.Namespace, segments: list[Segment], started_ns: int, simulated: bool
) -> None:
    """Write each segment to its own file: FILE-0001.npz and so on; OSError."""
    for number, segment in enumerate(segments, 1):
        write(segment_path(args.out, number), segment.waveforms, started_ns, simulated)


def show_segments(
    args: argparse.Namespace, scope: Oscilloscope, segments: list[Segment], trigger: int
) -> None:
    """Print when each segment was triggered, and the times between the first edges of channels."""
    rows = [_row(number, segment, trigger) for number, segment in enumerate(segments, 1)]
    if args.json:
        said = {"instrument": scope.description, "simulated": scope.simulated, "segments": rows}
        print(json.dumps(said))
        return
    print(f"{scope.description}{' (simulated)' if scope.simulated else ''}")
    for row in rows:
        when = "?" if row["time_s"] is None else f"{row['time_s']:+.9f} s"
        after = ", ".join(
            f"channel {channel} {after_ns:+.3f} ns"
            for channel, after_ns in row["after_trigger_ns"].items()
        )
        print(f"segment {row['segment']:>4}  {when}  after channel {trigger}: {after or 'no edge'}")
    resolutions = {row["resolution_s"] for row in rows} - {None}
    if resolutions:
        print(f"the instrument states these instants to {max(resolutions):g} s")
    if args.out is not None:
        print(f"written to {segment_path(args.out, 1)} and the following")


def _row(number: int, segment: Segment, trigger: int) -> dict[str, Any]:
    first: dict[int, int] = {}
    for channel, waveform in segment.waveforms.items():
        try:
            edges = find_edges(waveform)
        except EdgeError:
            continue
        if edges:
            first[channel] = edges[0].instant_fs
    return {
        "segment": number,
        "time_s": segment.time_s,
        "resolution_s": segment.resolution_s,
        "after_trigger_ns": {
            channel: (at_fs - first[trigger]) / 1e6
            for channel, at_fs in first.items()
            if trigger in first and channel != trigger
        },
    }
