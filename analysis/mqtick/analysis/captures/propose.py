"""What is in files, in words, and the complete command for all of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.captures.groups import in_order
from mqtick.analysis.captures.naming import FIRST, LAST, PUBLISHER
from mqtick.analysis.captures.options import MINIMUM_V, CaptureOptions
from mqtick.analysis.statistics.limit import duration
from mqtick.recording.capture import Capture, CaptureFile, find_signal
from mqtick.recording.channel_edges import ChannelEdges
from mqtick.recording.edge_overrides import AUTOMATIC, EVERY, EdgeOverrides
from mqtick.recording.edges import instants_of
from mqtick.recording.units import FS_PER_US

_MOST_NAMES: Final = 8
_FS_PER_NS: Final = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Glance:
    """What a channel shows, its edges in little memory.

    Attributes:
        instants_fs, rising: of its edges, in their order.
        seen: all else of it; it has no edges.
    """

    instants_fs: npt.NDArray[Any]
    rising: npt.NDArray[np.bool_]
    seen: ChannelEdges

    def first_fs(self) -> int:
        """Return the instant of the first rising edge, or of the first one where none rises."""
        up = np.flatnonzero(self.rising)
        return int(self.instants_fs[up[0] if up.size else 0])


def glance_of(seen: ChannelEdges) -> Glance:
    """Return the same in little memory."""
    return Glance(
        instants_of(seen.edges),
        np.array([edge.rising for edge in seen.edges], np.bool_),
        replace(seen, edges=[]),
    )


def what(file: CaptureFile) -> str:
    """Name the format and the instrument of a file."""
    return file.format + (f" ({file.instrument})" if file.instrument else "")


def notes(
    opened: Sequence[CaptureFile], seen: Mapping[str, Glance], reasons: Sequence[str]
) -> list[str]:
    """Return what is damaged or was left out: in files, channels, samples."""
    said = [note if len(opened) == 1 else f"{f.path}: {note}" for f in opened for note in f.notes]
    far = [f"{name}: {each.seen.outliers}" for name, each in seen.items() if each.seen.outliers]
    return [*reasons, *said, *far]


def table(seen: Mapping[str, Glance]) -> list[str]:
    """Return one line for each channel: its edges, or why it has none."""
    width = max(map(len, seen), default=0)
    lines = []
    for name, each in seen.items():
        if count := each.rising.size:
            text = (
                f"{count} edge{'s' if count > 1 else ''}, the first one "
                f"{'rising' if each.rising[0] else 'falling'} at "
                f"{duration(int(each.instants_fs[0]) / FS_PER_US, 7)}"
            )
        else:
            text = f"no edge. {each.seen.why_not}".strip()
        lines.append(f"  {name:<{width}}  {text}")
    return lines


def proposed(seen: Mapping[str, Glance]) -> tuple[dict[str, str], str]:
    """Return who may be who, name to channel, and which edges count, by the first edges' order.

    Nothing where fewer than two channels have edges.
    """
    with_edges = {name: each for name, each in seen.items() if each.rising.size}
    if len(with_edges) < 2:
        return {}, "rising"
    ordered = sorted(with_edges, key=lambda name: with_edges[name].first_fs())
    # One of a bus of sixteen lines is hardly a node: only the first few are proposed.
    roles = dict(zip((PUBLISHER, FIRST, LAST), ordered, strict=False))
    return roles, "rising" if all(each.rising.any() for each in with_edges.values()) else "both"


def advice(
    paths: Sequence[Path],
    capture: Capture,
    seen: Mapping[str, Glance],
    channels: Mapping[str, str],
    options: CaptureOptions,
) -> list[str]:
    """Return the command to go on with, or what is missing for one.

    `channels` are those that were named, or that are proposed: name to channel; `options.edge` is
    the direction of edges that counts.
    """
    if len(seen) < 2:
        return [
            "A measurement compares the edges of two channels or more, but this file holds one. "
            "If the instrument saves each channel in its own file, name all of them: files whose "
            "names differ only in the channel's number (T0001CH1, T0001CH2) are one capture."
        ]
    with_edges = [name for name, each in seen.items() if each.rising.size]
    if len(with_edges) < 2 or not channels:
        return [
            "A measurement compares the edges of two channels or more, but there is "
            + ("only one with edges." if with_edges else "none with edges.")
            + " Check whether the pins are driven, the probes connected, and the record "
            f"long enough. Amplitudes below {options.minimum_v:g} V count with a smaller "
            "--minimum-v, and --threshold says at which voltage an edge is."
        ]
    words = ",".join(f"{name}={_short_name(capture, of)}" for name, of in channels.items())
    given = _given(options)
    lines = [
        "The command for a report is:"
        if options.channels
        else "Say which channel is whose. If the edges come in their usual order (the publisher's "
        "first), the command is:",
        "",
        f"  mqtick-report {_files(paths)} --channels {shlex.quote(words)}{given}",
    ]
    if capture.triggered and not options.every_event:
        rising = seen[next(iter(channels.values()))].rising
        count = {"rising": rising.sum(), "falling": (~rising).sum()}
        events = int(count.get(options.edge, rising.size))
        if events > 1:
            lines += ["", f"With --every-event, each of the {events:,} such edges is an event."]
    if not options.channels:
        two = sorted(with_edges, key=lambda name: seen[name].first_fs())[:2]
        names = [_short_name(capture, name) for name in two]
        lines += [
            "",
            "For pps pins, compared with a reference's: --kind clock --channels "
            + shlex.quote(f"reference={names[0]},NAME={names[1]}")
            + _given(options, edge=False),
        ]
    return lines


def _given(options: CaptureOptions, *, edge: bool = True) -> str:
    """Return the flags that were given, to be given again."""
    flags = []
    if options.kind:
        flags.append(f"--kind {options.kind}")
    if edge and options.edge != "rising":
        flags.append(f"--edge {options.edge}")
    if options.minimum_v != MINIMUM_V:
        flags.append(f"--minimum-v {options.minimum_v:g}")
    if options.cable_delay_fs:
        delays = (f"{name}={fs / _FS_PER_NS:g}" for name, fs in options.cable_delay_fs.items())
        flags.append(f"--cable-delay {shlex.quote(','.join(delays))}")
    if options.every_event:
        flags.append("--every-event")
    if options.within_fs:
        flags.append(f"--within {options.within_fs / FS_PER_US:.12g}us")
    flags += override_flags(options.edge_overrides)
    return "".join(f" {flag}" for flag in flags)


def override_flags(edge_overrides: EdgeOverrides) -> list[str]:
    """Return the flags that say it on a command line."""
    rules = edge_overrides.rules.items()
    every = edge_overrides.rules.get(EVERY, AUTOMATIC)
    common = {
        "--threshold": every.threshold_v,
        "--hysteresis": every.hysteresis_v,
        "--skip": every.skip or None,
    }
    flags = []
    for flag, values in (
        ("--threshold", [(name, rule.threshold_v, "V") for name, rule in rules]),
        ("--hysteresis", [(name, rule.hysteresis_v, "V") for name, rule in rules]),
        ("--skip", [(name, rule.skip or None, "") for name, rule in rules]),
    ):
        said = [
            f"{name}{'=' if name != EVERY else ''}{value:.12g}{unit}"
            for name, value, unit in values
            if value is not None and (name == EVERY or value != common[flag])
        ]
        if said:
            flags.append(f"{flag} {shlex.quote(','.join(said))}")
    if inverted := [name if name != EVERY else "all" for name, rule in rules if rule.invert]:
        flags.append(f"--invert {shlex.quote(','.join(inverted))}")
    for flag, fs in (("--from", edge_overrides.begin_fs), ("--to", edge_overrides.end_fs)):
        if fs is not None:
            flags.append(f"{flag} {fs / FS_PER_US:.12g}us")
    return flags


def _short_name(capture: Capture, name: str) -> str:
    """Return the number of a channel if that is enough to identify it."""
    digits = "".join(letter for letter in name if letter.isdecimal())
    number = str(int(digits)) if digits else ""
    return number if number and find_signal(capture.signals, number) == name else name


def _files(paths: Sequence[Path]) -> str:
    """Return the files as shell arguments: a pattern if it matches exactly these."""
    if len(paths) > _MOST_NAMES:
        parent, suffix = paths[0].parent, paths[0].suffix
        try:
            alike = [each for each in parent.iterdir() if each.name.endswith(suffix)]
        except OSError:
            alike = []
        if suffix and set(alike) == set(paths):
            folder = "" if str(parent) == "." else f"{shlex.quote(str(parent))}/"
            return f"{folder}*{suffix}"
    return " ".join(shlex.quote(str(path)) for path in in_order(paths))
