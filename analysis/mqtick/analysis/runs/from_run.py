"""A run folder becomes a measurement: every edge is found again in the waveforms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from mqtick.analysis.clocks.pps import time_errors_of
from mqtick.analysis.measurement import (
    CAPTURED,
    CLOCK,
    MISSED,
    REFUSED,
    SKEW,
    Example,
    Measurement,
    TimeErrors,
)
from mqtick.analysis.overlay import thinned, typical
from mqtick.analysis.runs.processes import parallel_map
from mqtick.analysis.runs.record import missing_note, provenance_of
from mqtick.analysis.runs.reduced import Reduced
from mqtick.recording.edge_overrides import NO_OVERRIDES, EdgeOverrides
from mqtick.recording.judge import judge_triggered
from mqtick.recording.layout import Layout, LayoutError, layout_of
from mqtick.recording.run_folder import Run, shot_path
from mqtick.recording.sample_notes import first_of_each
from mqtick.recording.shot import (
    DamagedShotError,
    Shot,
    expanded_octets,
    read_waveforms,
    read_whole_shot,
)
from mqtick.recording.units import NS_PER_S

_LARGE_OCTETS: Final = 16 << 20
"""If an expanded shot is larger, a single process reads them, to save memory."""
_WORTH_A_PROCESS: Final = 16
"""Another process pays off for this many shots."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A shot without its waveforms, as the bench kept it, and as it is judged again.

    `again` is None where there were no waveforms to judge; `kept` is None where it is damaged.
    """

    kept: Shot | None
    again: Shot | None = None
    damage: str = ""


def measurement_from_run(
    run: Run,
    progress: Callable[[int, int], None] | None = None,
    processes: int = 1,
    edge_overrides: EdgeOverrides = NO_OVERRIDES,
) -> Measurement:
    """Read a run's shots once, find their edges again, and keep nothing else of the waveforms.

    What was found is kept in the run folder, for the next time.

    `progress` is told how many shots of how many were read. With several `processes` (forked ones:
    for a program that has no threads) a long run is read faster. Shots that cannot be read are
    in `damaged`; what differs from what the bench found, and what had no waveforms, is in `notes`.
    RunFolderError where a process was killed; EdgeOverridesError where `edge_overrides` names a
    channel that the run does not have, or where run.json does not say what was wired to what.
    """
    measurement = Measurement(
        title=str(run.record.get("title") or run.folder.resolve().name),
        kind=run.kind or SKEW,
        simulated=run.simulated,
        provenance=[("Run folder", str(run.folder)), *provenance_of(run.record)],
    )
    layout: Layout | None = None
    try:
        layout = layout_of(run.record)
    except LayoutError as error:
        measurement.notes.append(
            f"run.json does not say what was wired to what ({error}): the edges are those that the "
            "bench found."
        )
    else:
        measurement.instruments = len(layout.triggers)
        layout = replace(layout, edge_overrides=edge_overrides)
        measurement.edge_overrides = edge_overrides.describe()
    edge_overrides.check(layout.channels if layout else ())
    _name_nodes(measurement, run, layout)
    paths = sorted(
        (run.folder / "shots").glob("[0-9]*.npz"), key=lambda path: (len(path.name), path)
    )
    tally: Counter[str] = Counter()
    outliers: dict[str, list[str]] = {}
    drawable: list[Shot] = []
    for done, judged in enumerate(_known_or_judged(run, paths, layout, processes), start=1):
        if progress is not None:
            progress(done, len(paths))
        if judged.kept is None:
            measurement.damaged.append(judged.damage)
            continue
        shot = _shot(judged.kept, judged.again, measurement.nodes, tally)
        measurement.simulated = measurement.simulated or shot.simulated
        measurement.shots.append(shot)
        if judged.again is not None:
            drawable.append(shot)
        for name, far in shot.outliers.items():
            outliers.setdefault(name, []).append(f"Shot {shot.number}, {name}: {far}")
    _say(measurement, tally)
    measurement.notes += first_of_each(outliers, "shots")
    if missing := missing_note(run.record, paths):
        measurement.notes.append(missing)
    measurement.time_errors = _time_errors(measurement)
    drawn = typical(drawable)
    if drawn is not None and layout is not None:
        measurement.example = _example(layout, drawn)
    return measurement


def _name_nodes(measurement: Measurement, run: Run, layout: Layout | None) -> None:
    """Put the reference first, then the first and last subscriber, then all others watched."""
    if layout is None:
        order = run.record.get("order")
        order = order if isinstance(order, dict) else {}
        parts = [str(order.get(part) or "") for part in ("publisher", "first", "last")]
        others: list[str] = []
    else:
        parts = [layout.publisher, layout.first, layout.last]
        pins = {(layout.channels[name].node, layout.channels[name].pin) for name in parts if name}
        # A second instrument's trigger is the publisher's pin again, not another node.
        others = [
            name for name, each in layout.channels.items() if (each.node, each.pin) not in pins
        ]
    measurement.reference, measurement.first, measurement.last = parts
    measurement.nodes = tuple(dict.fromkeys(name for name in (*parts, *others) if name))


def _known_or_judged(
    run: Run, paths: list[Path], layout: Layout | None, processes: int
) -> Iterator[_Judged]:
    """Judge the shots of which nothing is kept beside the run, and keep what was found."""
    reduced = Reduced(run.folder, layout)
    known = {path: found for path in paths if (found := reduced.get(path)) is not None}
    judged = _all_judged([path for path in paths if path not in known], layout, processes)
    for path in paths:
        if path in known:
            yield _Judged(*known[path])
            continue
        looked_at = next(judged)
        if looked_at.kept is not None:
            reduced.put(path, (looked_at.kept, looked_at.again))
        yield looked_at
    reduced.save()


def _all_judged(paths: list[Path], layout: Layout | None, processes: int) -> Iterator[_Judged]:
    """Read and judge shots in order, in that many processes."""
    work = partial(_judged, layout)
    alone = processes < 2 or len(paths) < _WORTH_A_PROCESS * processes
    if alone or any(expanded_octets(path) > _LARGE_OCTETS for path in paths):
        return map(work, paths)
    return parallel_map(work, paths, processes)


def _judged(layout: Layout | None, path: Path) -> _Judged:
    """Read one shot and find its edges."""
    try:
        kept, waveforms = read_whole_shot(path)
    except DamagedShotError as error:
        return _Judged(None, damage=str(error))
    if path.name != shot_path(path, kept.number).name:
        return _Judged(None, damage=f"{path} says that it is shot {kept.number}; it is left out.")
    if layout is None or kept.outcome == REFUSED or not waveforms:
        return _Judged(kept)
    return _Judged(kept, judge_triggered(layout, waveforms, kept))


def _shot(kept: Shot, again: Shot | None, nodes: tuple[str, ...], tally: Counter[str]) -> Shot:
    """Return what counts: what a shot shows when judged again, with what the bench knew of it."""
    if again is None:
        tally["without waveforms"] += kept.outcome == CAPTURED
        judged = kept
    else:
        tally[f"{kept.outcome} to {again.outcome}"] += 1
        tally["differing"] += again.outcome == kept.outcome == CAPTURED and _differs(kept, again)
        # what the bench said knows more: what the nodes did meanwhile
        judged = replace(again, reason=again.reason and (kept.reason or again.reason))
    named = {name: edge for name, edge in judged.edges.items() if not nodes or name in nodes}
    return replace(judged, edges=named)


def _differs(kept: Shot, again: Shot) -> bool:
    """Whether an edge is further from the stored one than its uncertainty."""
    if set(kept.edges) != set(again.edges):
        return True
    triggered_fs = max((edge.uncertainty_fs for edge in again.edges.values()), default=0)
    return any(
        abs(edge.instant_fs - kept.edges[name].instant_fs) > edge.uncertainty_fs + triggered_fs
        for name, edge in again.edges.items()
    )


def _say(measurement: Measurement, tally: Counter[str]) -> None:
    notes = (
        (
            tally["differing"],
            "differ from what the bench had found by more than their uncertainty: "
            "the run was judged by another version, or otherwise by hand; the report has the new "
            "ones",
        ),
        (
            tally[f"{CAPTURED} to {MISSED}"],
            "were captured for the bench but are missed when judged again; the report says why",
        ),
        (
            tally[f"{MISSED} to {CAPTURED}"],
            "were missed for the bench but are captured when judged again; they count",
        ),
        (
            tally["without waveforms"],
            "have no waveforms that could be judged again: their edges are those that the bench "
            "found, without uncertainty",
        ),
    )
    for count, what in notes:
        if count:
            measurement.notes.append(f"{count} of {len(measurement.shots)} shots {what}.")


def _time_errors(measurement: Measurement) -> list[TimeErrors]:
    if measurement.kind != CLOCK:
        return []
    shots = [shot for shot in measurement.shots if shot.outcome == CAPTURED and shot.started_ns]
    armed_ns = [shot.started_ns or 0 for shot in shots]
    # A shot is armed some time within the second that ends with its edge.
    edges_s = [-(-each // NS_PER_S) for each in armed_ns]
    if len(set(edges_s)) == len(edges_s):
        armed_ns = [each * NS_PER_S for each in edges_s]
    begin_ns = min(armed_ns, default=0)
    seconds = [(each - begin_ns) / NS_PER_S for each in armed_ns]
    return time_errors_of(measurement.nodes, shots, seconds, begin_ns)


def _example(layout: Layout, shot: Shot) -> Example | None:
    try:
        waveforms = read_waveforms(Path(shot.source))
    except DamagedShotError:
        return None
    traces = {}
    origins_fs = dict(zip(layout.triggers, shot.origins_fs, strict=True))
    for name, edge in shot.edges.items():
        channel = layout.channels[name]
        moved_fs = origins_fs[channel.instrument] + channel.cable_delay_fs
        traces[name] = thinned(waveforms[name], [edge.instant_fs + moved_fs], moved_fs)
    return Example(shot.number, traces, shot.edges)
