"""What is said about captures besides their values: notes, and where they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.captures.options import CaptureOptions, matches
from mqtick.analysis.instants import instant_text
from mqtick.analysis.measurement import Shot
from mqtick.analysis.statistics.dependence import autocorrelation_time, effective_number
from mqtick.analysis.statistics.limit import duration
from mqtick.recording.capture import CaptureFile
from mqtick.recording.layout import Layout
from mqtick.recording.units import FS_PER_US

_ENOUGH: Final = 3
_LATE: Final = 1 / 3
_WORTH: Final = 0.9
"""Values worth less than this share of their number are called dependent, as in verdicts."""


def notes_of(
    files: Sequence[CaptureFile],
    paths: Sequence[Path],
    unused: Sequence[str],
    patterns: Sequence[str],
) -> list[str]:
    """Return what was left out, what matched nothing, and the readers' notes."""
    notes = []
    if unused:
        notes.append(f"Channels that nobody named were left out: {', '.join(sorted(unused))}.")
    for pattern in patterns:
        if not any(matches(each, pattern) for each in paths):
            notes.append(f"No file name matches {pattern!r}, for which a number was given.")
    said = [(note, file.path) for file in files for note in file.notes]
    for note, count in Counter(note for note, _ in said).items():
        first = next(path for each, path in said if each == note)
        where = f"{count} files, {first} among them" if count > 1 else str(first)
        notes.append(f"{where}: {note}")
    return notes


def late_note(layout: Layout, shots: Sequence[Shot], instants_fs: Sequence[int]) -> str:
    """Say if answers come so late that they may belong to another event of the same record."""
    late = [shot.latency_fs for shot in shots if shot.latency_fs is not None]
    if layout.symmetric or len(instants_fs) < _ENOUGH or not late:
        return ""
    period_fs = float(np.median(np.diff(instants_fs)))
    if float(np.median(late)) < period_fs * _LATE:
        return ""
    latency, apart = (duration(fs / FS_PER_US) for fs in (float(np.median(late)), period_fs))
    return (
        f"The latency is {latency} and the events are {apart} apart: either the pins toggle (then "
        "use --edge both), or edges were assigned to the wrong event."
    )


def describe_events(options: CaptureOptions) -> list[str]:
    """Say how events and answers are paired where every event of a record counts."""
    if not options.every_event:
        return []
    reach = "the usual time between two events"
    if options.within_fs:
        reach = duration(options.within_fs / FS_PER_US, 10)
    return [
        "Every edge of the publisher (or reference) in the direction that counts is an event, "
        "unless it follows another one so closely that it is a double. An answer belongs to the "
        f"event before it, if it comes before the next one (this is assumed) and within {reach}."
    ]


def dependent_notes(shots: Sequence[Shot]) -> list[str]:
    """Say which values of many events are not independent of one another, and what they are worth.

    The intervals account for it already.
    """
    notes = []
    for what, found in (
        ("latencies", [shot.latency_fs for shot in shots]),
        ("skews", [shot.skew_fs for shot in shots]),
    ):
        values = np.array([each for each in found if each is not None], np.float64)
        worth = effective_number(values.size, autocorrelation_time(values))
        if worth < _WORTH * values.size:
            notes.append(
                f"The {values.size:,} {what} are not independent: each is like those next to it "
                f"in time, and together they are worth {worth:,.0f}. The intervals account for "
                "that; records taken at other times would say more than more events of one."
            )
    return notes


def provenance_of_captures(
    files: Sequence[CaptureFile],
    paths: Sequence[Path],
    shots: Sequence[Shot],
    channels: Mapping[str, str],
    cable_delay_fs: Mapping[str, int],
    edge: str,
) -> list[tuple[str, str]]:
    """Return label and text of what was measured with what, as far as the files say it."""
    named = str(paths[0]) if len(paths) == 1 else f"{len(paths)}: {paths[0]} to {paths[-1]}"
    formats = Counter(file.format for file in files)
    many = len(formats) > 1
    instruments = dict.fromkeys(file.instrument for file in files if file.instrument)
    began = [instant_text(shot.started_ns) for shot in shots if shot.started_ns]
    delays = [f"{name} {duration(fs / FS_PER_US)}" for name, fs in cable_delay_fs.items()]
    lines = [
        ("Files", named),
        ("Format", ", ".join(f"{name} ({n})" if many else name for name, n in formats.items())),
        ("Instrument", ", ".join(instruments)),
        ("Taken", " to ".join(dict.fromkeys((began[0], began[-1]))) if began else ""),
        ("Channels", ", ".join(f"{name} = {of}" for name, of in channels.items())),
        ("Edges", "both directions" if edge == "both" else edge),
        ("Cable delays subtracted", ", ".join(delays)),
    ]
    return [(label, text) for label, text in lines if text]
