"""A look at one shot of a run folder: the edges that its report uses."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np

from mqtick.analysis.captures.look import Lane, Look
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.captures.propose import glance_of, override_flags, table
from mqtick.recording.capture import CaptureError
from mqtick.recording.channel_edges import edges_of_all
from mqtick.recording.edge_overrides import kept
from mqtick.recording.judge import judge
from mqtick.recording.layout import LayoutError, layout_of
from mqtick.recording.run_folder import load_run, shot_path
from mqtick.recording.shot import DamagedShotError, read_whole_shot


def look_at_run(folder: Path, options: CaptureOptions, number: int = 1) -> Look:
    """Look at the shot of this number, with what is said by hand, or else what the folder keeps.

    CaptureError where there is no such shot, or no waveform in it; RunFolderError;
    EdgeOverridesError.
    """
    run = load_run(folder)
    edge_overrides = options.edge_overrides or kept(folder)
    path = shot_path(folder, number)
    if not path.exists():
        count = sum(1 for _ in path.parent.glob("[0-9]*.npz"))
        raise CaptureError(
            f"{folder} has no shot number {number}: it has {count}; name one of them."
        )
    try:
        layout = replace(layout_of(run.record), edge_overrides=edge_overrides)
        known, waveforms = read_whole_shot(path)
    except (LayoutError, DamagedShotError) as error:
        raise CaptureError(f"{path} cannot be looked at: {error}") from error
    if not waveforms:
        raise CaptureError(f"{path} holds no waveform: it was {known.outcome}. {known.reason}")
    edge_overrides.check(layout.channels)
    seen = edges_of_all(layout, waveforms)
    (shot,) = judge(layout, seen, known=known)
    origins_fs = dict(zip(layout.triggers, shot.origins_fs, strict=True))
    lanes = []
    for name, its in seen.items():
        channel = layout.channels[name]
        edge = None if shot.reason else shot.edges.get(name)
        moved_fs = origins_fs[channel.instrument] + channel.cable_delay_fs
        glance = glance_of(its)
        at_fs = None if edge is None else edge.instant_fs + moved_fs
        used = np.array([each.instant_fs == at_fs for each in its.edges], np.bool_)
        lanes.append(Lane(name, name, waveforms[name], glance, used, edge_overrides.of(name)))
    head = [f"{path} is a shot of a run ({shot.outcome}). Its channels:"]
    head += table({lane.name: lane.glance for lane in lanes})
    if shot.reason:
        head.append(f"note: It cannot be used: {shot.reason}")
    flags = "".join(f" {flag}" for flag in override_flags(options.edge_overrides))
    command = f"  mqtick-report {shlex.quote(str(folder))}{flags}"
    keeps = (
        ", which keeps what is said by hand in the run folder:" if flags else " of all shots is:"
    )
    return Look(
        title=str(path),
        path=path,
        lanes=tuple(lanes),
        head=tuple(head),
        advice=(f"The command for a report{keeps}", "", command),
        window_fs=(edge_overrides.begin_fs, edge_overrides.end_fs),
        triggered=True,
        assumed=False,
        simulated=run.simulated or known.simulated,
    )
