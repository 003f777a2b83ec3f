"""A look at a capture: each channel, its levels and edges, and which edges a report would use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.captures.groups import group_files, read_group
from mqtick.analysis.captures.naming import (
    channels_of,
    edge_overrides_of,
    layout_of_channels,
    resolve,
)
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.captures.propose import (
    Glance,
    advice,
    glance_of,
    notes,
    proposed,
    table,
    what,
)
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.channel_edges import ChannelEdges, channel_edges
from mqtick.recording.edge_overrides import Rule
from mqtick.recording.judge import Origin, judge
from mqtick.recording.layout import Layout
from mqtick.recording.pairing import Tally, describe, pair

_NOTHING_SAID: Final = CaptureOptions()
_MOST_KEPT: Final = 500_000
"""Edges that are kept as objects while other channels are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One channel as it is drawn.

    Attributes:
        name: the channel, as the file calls it.
        part: whose it is ("publisher"), "" where nobody said or proposed it.
        signal: what was recorded.
        glance: its edges in the window, and its levels.
        used: for each edge whether a report would use it.
        rule: what was said by hand.
    """

    name: str
    part: str
    signal: Signal
    glance: Glance
    used: npt.NDArray[np.bool_]
    rule: Rule


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One capture, looked at.

    Attributes:
        title: which file it is, and which capture of it.
        path: the file.
        lanes: its channels.
        head: what the file is, and its channels, in words.
        advice: what to do next, in words: the command for a report.
        window_fs: the part of the record that counts, as far as it was limited.
        triggered: whether instants count from the trigger.
        assumed: whether the parts are a proposal.
        simulated: whether the file says that what it holds was simulated.
    """

    title: str
    path: Path
    lanes: tuple[Lane, ...]
    head: tuple[str, ...]
    advice: tuple[str, ...]
    window_fs: tuple[int | None, int | None]
    triggered: bool
    assumed: bool
    simulated: bool

    @property
    def text(self) -> str:
        """Everything in words."""
        return "\n".join([*self.head, "", *self.advice])


def look_at(
    paths: Sequence[Path], options: CaptureOptions = _NOTHING_SAID, number: int = 1
) -> Look:
    """Look at the capture of this number (1: the first that can be read) of these files.

    CaptureError where there is none, which says why each file cannot be read; NamingError as
    `look_of`.
    """
    reasons: list[str] = []
    count = 0
    captures = _captures(paths, reasons)
    for opened, source, capture in captures:
        count += 1
        if count == number:
            said = [*reasons]
            if next(captures, None) is not None:
                said.append(f"This is capture {count}; --capture {count + 1} draws the next.")
            return look_of(paths, opened, capture, options, said, source)
    if count:
        raise CaptureError(
            f"There is no capture number {number}: these files hold {count}; name one of them."
        )
    none = f"{paths[0]} holds no capture; save it again." if paths else "No file was named."
    raise CaptureError("\n".join(reasons) or none)


def _captures(
    paths: Sequence[Path], reasons: list[str]
) -> Iterator[tuple[list[CaptureFile], str, Capture]]:
    """Yield every capture that can be read; why others cannot goes to `reasons`."""
    for group in group_files([Path(path) for path in paths]):
        opened: list[CaptureFile] = []
        captures = read_group(group, opened)
        while True:
            try:
                source, capture = next(captures)
            except StopIteration:
                break
            except CaptureError as error:
                reasons.append(str(error))
                break
            yield opened, source, capture


def look_of(
    paths: Sequence[Path],
    opened: Sequence[CaptureFile],
    capture: Capture,
    options: CaptureOptions,
    reasons: Sequence[str] = (),
    source: str = "",
) -> Look:
    """Look at a capture that was read from the `opened` files.

    `reasons` are those why earlier ones of the `paths` could not be read. NamingError where
    something is said of channels that are not there.
    """
    signals = capture.signals
    channels = options.channels or channels_of(capture)
    named = resolve(channels, capture) if channels else {}
    others = [name for name in signals if name not in named.values()]
    edge_overrides = edge_overrides_of(
        options.edge_overrides, {**named, **{name: name for name in others}}, signals
    )
    names = {signal: name for name, signal in named.items()}
    rules = {signal: edge_overrides.of(names.get(signal, signal)) for signal in signals}

    def seen_of(name: str) -> ChannelEdges:
        return channel_edges(signals[name], options.minimum_v, None, rules[name], edge_overrides)

    whole: dict[str, ChannelEdges] = {}
    glances: dict[str, Glance] = {}
    for name in signals:
        found = seen_of(name)
        glances[name] = glance_of(found)
        if sum(len(each.edges) for each in whole.values()) + len(found.edges) <= _MOST_KEPT:
            whole[name] = found
        del found  # as objects, many edges of many channels have no room
    assumed = not named
    if assumed:
        named, edge = proposed(glances)
        if edge != "rising" and options.edge == "rising":
            options = replace(options, edge=edge)
    used: Mapping[str, npt.NDArray[np.bool_]] = {}
    describe_events: list[str] = []
    if named:
        layout, _ = layout_of_channels(named, options)
        seen = {name: whole.get(of) or seen_of(of) for name, of in named.items()}
        used, describe_events = _used(layout, named, seen, capture, options)
    parts = {signal: name for name, signal in named.items()}
    lanes = tuple(
        Lane(
            name,
            parts.get(name, ""),
            signal,
            glances[name],
            used.get(name, np.zeros(glances[name].rising.size, np.bool_)),
            rules[name],
        )
        for name, signal in signals.items()
    )
    file = opened[0]
    remarks = [*notes(opened, glances, reasons), *describe_events]
    return Look(
        title=source or str(file.path),
        path=file.path,
        lanes=lanes,
        head=(
            f"{file.path} is a file of {what(file)}. Its channels:",
            *table(glances),
            *(f"note: {note}" for note in remarks),
        ),
        advice=tuple(advice(paths, capture, glances, named, options)),
        window_fs=(edge_overrides.begin_fs, edge_overrides.end_fs),
        triggered=capture.triggered,
        assumed=assumed,
        simulated=any(file.simulated for file in opened),
    )


def _used(
    layout: Layout,
    named: Mapping[str, str],
    seen: Mapping[str, ChannelEdges],
    capture: Capture,
    options: CaptureOptions,
) -> tuple[dict[str, npt.NDArray[np.bool_]], list[str]]:
    """Return which edges of each channel a report would use, and what pairs with nothing."""
    tally = Tally()
    if options.every_event:
        shots = pair(layout, seen, tally)
    else:
        shots = judge(layout, seen, Origin.TRIGGER if capture.triggered else Origin.START)
    used = {}
    for name, signal in named.items():
        delay_fs = layout.channels[name].cable_delay_fs
        instants = {
            shot.edges[name].instant_fs + shot.origins_fs[0] + delay_fs
            for shot in shots
            if name in shot.edges and not shot.reason
        }
        used[signal] = np.array([e.instant_fs in instants for e in seen[name].edges], np.bool_)
    missed = [shot.reason for shot in shots if shot.reason]
    lines = describe(tally)
    if missed:
        more = f" (and {len(missed) - 1:,} more)" if len(missed) > 1 else ""
        lines.append(f"{len(missed):,} of {len(shots):,} events cannot be used: {missed[0]}{more}")
    return used, lines
