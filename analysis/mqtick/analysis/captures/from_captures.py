"""Files that were saved by hand on an oscilloscope or logic analyser become a measurement."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.captures.example import Place, example_of
from mqtick.analysis.captures.groups import Group, group_files, read_group, shown
from mqtick.analysis.captures.look import Look, look_at, look_of
from mqtick.analysis.captures.naming import (
    NamingError,
    UnknownChannelError,
    channels_of,
    edge_overrides_of,
    layout_of_channels,
    resolve,
)
from mqtick.analysis.captures.notes import (
    dependent_notes,
    describe_events,
    late_note,
    notes_of,
    provenance_of_captures,
)
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.clocks.pps import one_after_another, time_errors_of
from mqtick.analysis.measurement import (
    CLOCK,
    Measurement,
    TimeErrors,
)
from mqtick.analysis.overlay import typical
from mqtick.recording.capture import Capture, CaptureError, CaptureFile
from mqtick.recording.channel_edges import edges_of_all
from mqtick.recording.edge_overrides import NO_OVERRIDES
from mqtick.recording.judge import Origin, directions, judge
from mqtick.recording.layout import Layout
from mqtick.recording.octets import watched
from mqtick.recording.pairing import Tally, describe, pair
from mqtick.recording.sample_notes import first_of_each
from mqtick.recording.transitions import Transitions

_FS_PER_NS: Final = 10**6
_FS_PER_S: Final = 1e15


class ListingError(NamingError):
    """Nobody said which channel is whose; the text says what is in the files and what to do."""

    def __init__(self, found: Look) -> None:
        super().__init__(found.text)
        self.look = found


@dataclass(slots=True)
class _Reading:
    """What was found so far; `origins` says where each shot came from, to draw one of them.

    `only` is the capture as long as there is no other: to draw it, its file need not be read again.
    """

    options: CaptureOptions
    measurement: Measurement
    layout: Layout | None = None
    channels: dict[str, str] = field(default_factory=dict)
    opened: list[CaptureFile] = field(default_factory=list)
    origins: list[Place] = field(default_factory=list)
    captures: int = 0
    unused: dict[str, None] = field(default_factory=dict)
    further: int = 0
    unknown: str = ""
    outliers: dict[str, list[str]] = field(default_factory=dict)
    only: Capture | None = None
    tally: Tally = field(default_factory=Tally)


def measurement_from_captures(
    paths: Sequence[Path],
    options: CaptureOptions | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Measurement:
    """Read captures one at a time, find their edges, and keep nothing else of the waveforms.

    CaptureError if none can be read, or if nothing says which channel is whose: its text then
    says what is in the files, and which command to run.
    """
    options = options or CaptureOptions()
    groups = group_files([Path(path) for path in paths])
    reading = _Reading(options, Measurement(title=options.title, kind=options.kind))
    measurement = reading.measurement
    tell = progress or (lambda _done, _total: None)
    for done, group in enumerate(groups, start=1):
        reading.only = None
        try:
            with watched(partial(_tell_share, tell, done - 1, len(groups))):
                _read(reading, group, paths)
        except NamingError:
            tell(len(groups), len(groups))
            raise
        except UnknownChannelError as error:
            reading.unknown = str(error)
            measurement.damaged.append(f"{shown(group)}: {error}")
        except CaptureError as error:
            measurement.damaged.append(str(error))
        tell(done, len(groups))
    if reading.layout is None or not measurement.shots:
        raise (NamingError if reading.unknown else CaptureError)(_nothing(reading, paths))
    _finish(reading, groups)
    return measurement


def _tell_share(tell: Callable[[float, int], None], done: int, total: int, share: float) -> None:
    if share < 1:
        tell(done + share, total)


def _read(reading: _Reading, group: Group, paths: Sequence[Path]) -> None:
    for count, (source, capture) in enumerate(read_group(group, reading.opened)):
        if reading.layout is None:
            _name(reading, capture, paths, reading.opened[-len(group.files) :])
        _take(reading, group, count, source, capture)
        reading.only = capture if reading.captures == 1 else None
        del capture  # there is no memory for two while the next one is read


def _name(
    reading: _Reading, capture: Capture, paths: Sequence[Path], opened: Sequence[CaptureFile]
) -> None:
    """Settle the channel roles by the first capture that can be read."""
    options, measurement = reading.options, reading.measurement
    channels = options.channels or channels_of(capture)
    if not channels:
        raise ListingError(look_of(paths, opened, capture, options, measurement.damaged))
    layout, notes = layout_of_channels(channels, options)
    found = resolve(channels, capture)
    layout = replace(
        layout, edge_overrides=edge_overrides_of(layout.edge_overrides, found, capture.signals)
    )
    digital = [name for name, of in found.items() if isinstance(capture.signals[of], Transitions)]
    measurement.edge_overrides = [
        *layout.edge_overrides.describe(digital),
        *describe_events(options),
    ]
    reading.layout, reading.channels = layout, channels
    measurement.kind, measurement.nodes = layout.kind, tuple(layout.channels)
    measurement.reference = layout.publisher
    measurement.first, measurement.last = layout.first, layout.last
    measurement.timebase_ppm = options.timebase_ppm
    measurement.channel_uncertainty_fs = options.channel_uncertainty_fs
    measurement.notes += notes
    if options.within_fs and not options.every_event:
        raise NamingError(
            "How late an answer may be counts where a record has many events; give --every-event "
            "with --within, or leave it out."
        )


def _take(reading: _Reading, group: Group, count: int, source: str, capture: Capture) -> None:
    layout, measurement = reading.layout, reading.measurement
    assert layout is not None
    found = resolve(reading.channels, capture)
    reading.unused |= dict.fromkeys(set(capture.signals) - set(found.values()))
    seen = edges_of_all(layout, {name: capture.signals[found[name]] for name in layout.channels})
    for name, each in seen.items():
        if each.outliers:
            reading.outliers.setdefault(name, []).append(f"{source}: {name}: {each.outliers}")
    every = reading.options.every_event
    if every:
        shots = pair(layout, seen, reading.tally)
    else:
        shots = judge(layout, seen, Origin.TRIGGER if capture.triggered else Origin.START)
    trigger = layout.triggers[""]
    wanted = directions(trigger.slope)
    if not every:
        events = sum(e.rising in wanted for e in seen[trigger.channel].edges)
        reading.further += events > len(shots)
    reading.captures += 1
    subscribers = reading.options.subscribers_of([path for _, path in group.files])
    measurement.timebase_ppm = max(measurement.timebase_ppm, capture.timebase_ppm)
    for shot in shots:
        origin_fs = shot.origins_fs[0] if shot.origins_fs else 0
        started_ns = capture.started_ns
        if started_ns is not None and (every or not capture.triggered):
            started_ns += origin_fs // _FS_PER_NS
        number = len(measurement.shots) + 1
        measurement.shots.append(
            replace(
                shot, number=number, subscribers=subscribers, started_ns=started_ns, source=source
            )
        )
        reading.origins.append(Place(reading.captures, group, count, origin_fs))


def _nothing(reading: _Reading, paths: Sequence[Path]) -> str:
    """Say why there is no shot, and what to do."""
    damaged = reading.measurement.damaged
    if reading.unknown:
        said = f"{reading.unknown[0].upper()}{reading.unknown[1:]}"
        asked = replace(reading.options, channels={}, edge_overrides=NO_OVERRIDES)
        return f"{said}\n\n{look_at(paths, asked).text}"
    if not damaged:
        return f"{paths[0]} holds no capture: save it again." if paths else "No file was named."
    more = f"\nand {len(damaged) - 1} more files that cannot be read" if len(damaged) > 1 else ""
    return damaged[0] + more


def _finish(reading: _Reading, groups: Sequence[Group]) -> None:
    """Sort the shots by time, and say what they were made from."""
    measurement, options, layout = reading.measurement, reading.options, reading.layout
    assert layout is not None
    rows = list(zip(measurement.shots, reading.origins, strict=True))
    if all(shot.started_ns is not None for shot, _ in rows):
        rows.sort(key=lambda row: row[0].started_ns or 0)
    measurement.shots = [
        replace(shot, number=number) for number, (shot, _) in enumerate(rows, start=1)
    ]
    origins = [origin for _, origin in rows]
    files = reading.opened
    measurement.simulated = options.simulated or any(
        file.simulated
        or (file.format.startswith("sigrok") and "demo" in file.instrument.casefold())
        for file in files
    )
    names = [path for group in groups for _, path in group.files]
    measurement.title = options.title or names[0].stem + (
        f" and {len(names) - 1} more" if len(names) > 1 else ""
    )
    measurement.notes += notes_of(
        files, names, list(reading.unused), [pattern for pattern, _ in options.subscribers]
    )
    measurement.notes += first_of_each(reading.outliers, "captures")
    if count := reading.further:
        measurement.notes.append(
            f"{count} of {reading.captures} captures hold more than one such edge of "
            f"{measurement.nodes[0]}: only the one nearest to the trigger was used as an event."
        )
    measurement.notes += describe(reading.tally)
    if options.every_event:
        measurement.notes += dependent_notes(measurement.shots)
    instants_fs = [origin.instant_fs for origin in origins] if reading.captures == 1 else []
    if len(instants_fs) > 1 and measurement.shots[0].started_ns is None:
        _date(measurement, origins)
    if late := late_note(layout, measurement.shots, instants_fs):
        measurement.notes.append(late)
    measurement.provenance = provenance_of_captures(
        files, names, measurement.shots, reading.channels, options.cable_delay_fs, options.edge
    )
    if layout.kind == CLOCK:
        measurement.time_errors = _time_errors(measurement, origins)
    drawn = typical(measurement.shots)
    if drawn is not None:
        origin = origins[drawn.number - 1]
        measurement.example = example_of(
            drawn,
            origin,
            reading.only,
            reading.channels,
            options.cable_delay_fs,
            many=options.every_event,
        )


def _date(measurement: Measurement, origins: Sequence[Place]) -> None:
    """Use the file's date as the start of the only record."""
    try:
        saved_ns = origins[0].group.path.stat().st_mtime_ns
    except OSError:
        return
    measurement.shots = [
        replace(shot, started_ns=saved_ns + origin.instant_fs // _FS_PER_NS)
        for shot, origin in zip(measurement.shots, origins, strict=True)
    ]
    measurement.notes.append(
        "The record does not say when it began: the file's date is used instead. The time "
        "between its events is exact."
    )


def _time_errors(measurement: Measurement, origins: Sequence[Place]) -> list[TimeErrors]:
    """Return the clocks' time errors over time, as far as the files say when they were taken."""
    shots, started_ns = measurement.shots, measurement.shots[0].started_ns
    records = [
        np.array([origin.instant_fs for origin in of], np.float64) / _FS_PER_S
        for _, of in itertools.groupby(origins, key=lambda origin: origin.capture)
    ]
    begun_ns = [shot.started_ns for shot in shots if shot.started_ns is not None]
    if len(records) == 1:
        seconds = records[0] - records[0][0]
    elif len(set(begun_ns)) == len(shots):
        seconds = (np.array(begun_ns, np.int64) - begun_ns[0]) * 1e-9
    else:
        seconds, started_ns = one_after_another(records), None
        measurement.notes.append(
            "The files do not say exactly when they were taken: they are placed one after another "
            "in the order of their names, without gaps (captures of one event each: one per "
            "second), and everything over time (MTIE, TDEV, drift) is only as good as that."
        )
    return time_errors_of(measurement.nodes, shots, seconds.tolist(), started_ns)
