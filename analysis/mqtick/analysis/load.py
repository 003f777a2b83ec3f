"""Whatever was measured, by path: a run folder, captures, or logs of clocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from mqtick.analysis.captures.from_captures import measurement_from_captures
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.clocks.clock_log import ClockLog
from mqtick.analysis.clocks.log_files import LogKind, kind_of, log_of, open_log, parts_of
from mqtick.analysis.clocks.offset_text import ColumnUnits, units_of
from mqtick.analysis.clocks.sample_log import open_sample_log, recognises
from mqtick.analysis.measurement import CLOCK, Measurement, TimeErrors
from mqtick.analysis.readers.registry import HEAD_OCTETS
from mqtick.analysis.runs.from_run import measurement_from_run
from mqtick.recording.capture import CaptureError
from mqtick.recording.edge_overrides import EdgeOverridesError, kept
from mqtick.recording.run_folder import RECORD, load_run

_OPTIONS: Final = tuple(each.name for each in fields(CaptureOptions))
_OF_RUNS: Final = ("title", "timebase_ppm", "channel_uncertainty_fs", "edge_overrides")
_OF_LOGS: Final = ("title", "simulated", "units")
"""What may be said of a run folder, and of logs; the rest they say themselves."""
_FLAGS: Final = {
    "cable_delay_fs": "--cable-delay",
    "channel_uncertainty_fs": "--deskew-uncertainty",
    "simulated": "simulated",
    "edge_overrides": "--threshold (and --hysteresis, --invert, --skip, --from, --to)",
    "within_fs": "--within",
}


class LoadError(CaptureError):
    """The request is impossible, whatever is in the files; the text says what to ask for."""


def load(
    *paths: str | os.PathLike[str],
    options: CaptureOptions | None = None,
    progress: Callable[[float, int], None] | None = None,
    processes: int = 1,
    **more: Any,
) -> Measurement:
    """Read what was measured: `load("runs/today")`, or captures with what they do not say.

    `load("a.csv", channels={"publisher": "1", "first": "2", "last": "3"})`: every field of
    `CaptureOptions` may be given by name, or all of them as `options`. Of a run folder, title,
    timebase_ppm, channel_uncertainty_fs and edge_overrides count (without edge_overrides what the
    folder keeps of it), of logs title, simulated and units; they say the rest themselves, and
    LoadError says so.
    `progress` is told how many of how many were read; a run folder is read by that many
    `processes`. CaptureError and RunFolderError say what cannot be read, and what to do; TypeError
    that there is no such option.
    """
    if unknown := [name for name in more if name not in _OPTIONS]:
        raise TypeError(f"There is no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}.")
    options = replace(options or CaptureOptions(), **more)
    named = [Path(path) for path in paths]
    if not named:
        raise LoadError("No file was named; name a run folder, captures, or a log.")
    if (run := run_folder_of(named)) is not None:
        return _of_run(run, options, progress, processes)
    files = files_in(named)
    units = _units_of(options.units)
    kinds = {path: _log_kind(path, units) for path in files}
    logs = [path for path, kind in kinds.items() if kind is not None]
    if options.units and not any(kind and kind.said_units for kind in kinds.values()):
        raise LoadError(
            f"{files[0]} is not two columns of numbers without a line of names that says their "
            "units; leave --units out."
        )
    if not logs:
        return measurement_from_captures(files, options, progress)
    if len(logs) < len(kinds):
        other = next(path for path in files if path not in logs)
        raise LoadError(
            f"{logs[0]} is {_name(kinds[logs[0]])} but {other} is no log of a clock; a report "
            "covers one or the other: use two commands."
        )
    _refuse(options, _OF_LOGS, f"{logs[0]} is {_name(kinds[logs[0]])}, which")
    folder = named[0].resolve().name if len(named) == 1 and named[0].is_dir() else ""
    return _of_logs(kinds, replace(options, title=options.title or folder), progress)


def run_folder_of(paths: Sequence[Path]) -> Path | None:
    """Return the run folder that is named, None where there is none; LoadError where more is."""
    named = [path.parent if path.name == RECORD else path for path in paths]
    if not any((path / RECORD).exists() for path in named):
        return None
    if len(named) > 1:
        raise LoadError(
            f"{len(named)} paths are named, and a run folder among them; read one run at a time "
            "(`mqtick-report compare` puts several side by side)."
        )
    return named[0]


def refuse_for_run(folder: Path, options: CaptureOptions) -> None:
    """LoadError if an option is given that is unusable with a run folder."""
    _refuse(options, _OF_RUNS, f"{folder} is a run folder, which")


def _refuse(options: CaptureOptions, may: Sequence[str], what: str) -> None:
    """LoadError if an option is given that only counts for captures."""
    default = CaptureOptions()
    for name in _OPTIONS:
        if name not in may and getattr(options, name) != getattr(default, name):
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise LoadError(
                f"{what} states what {flag} would, or does not need it; leave {flag} out."
            )


def _of_run(
    folder: Path,
    options: CaptureOptions,
    progress: Callable[[float, int], None] | None,
    processes: int,
) -> Measurement:
    refuse_for_run(folder, options)
    edge_overrides = options.edge_overrides or kept(folder)
    try:
        measurement = measurement_from_run(load_run(folder), progress, processes, edge_overrides)
    except EdgeOverridesError as error:
        raise (LoadError(str(error)) if options.edge_overrides else error) from error
    if edge_overrides and not options.edge_overrides:
        measurement.edge_overrides.append(
            "The run folder keeps this (edges.json), so it counts each time it is read."
        )
    measurement.title = options.title or measurement.title
    measurement.timebase_ppm = options.timebase_ppm
    measurement.channel_uncertainty_fs = options.channel_uncertainty_fs
    assumed = options.timebase_ppm == CaptureOptions().timebase_ppm
    how = "assumed, as a run does not say it (--timebase-ppm)" if assumed else "as was given"
    line = f"right to within {options.timebase_ppm:g} ppm: {how}"
    measurement.provenance.append(("Time base", line))
    return measurement


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Replace a folder by its files; CaptureError where it has none."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(
                each for each in path.iterdir() if each.is_file() and not each.name.startswith(".")
            )
        except OSError as error:
            raise CaptureError(f"{path} cannot be read ({error.strerror}).") from error
        if not inside:
            raise CaptureError(
                f"{path} is not a run folder (there is no {RECORD}), and there are no files in "
                "it; name the folder that was given to `mqtick-lab run --out`, or captures."
            )
        files += inside
    return files


_SAMPLES: Final = LogKind("a client's sample log", lambda: lambda _: None)


def needs_units(path: Path, units: str) -> bool:
    """Whether a log, or one of a folder, is read only if its units are said; LoadError."""
    if run_folder_of([path]) is not None:
        return False
    kinds = (_log_kind(each, _units_of(units)) for each in files_in([path]))
    return any(kind is not None and kind.said_units for kind in kinds)


def _units_of(text: str) -> ColumnUnits | None:
    try:
        return units_of(text) if text else None
    except ValueError as error:
        raise LoadError(f"--units {error}.") from None


def _log_kind(path: Path, units: ColumnUnits | None) -> LogKind | None:
    """Return which kind of log a file is, None where it is none."""
    try:
        if not path.is_file():  # a pipe would wait forever
            return None
        with path.open("rb") as stream:
            is_sample_log = recognises(stream.read(HEAD_OCTETS))
    except (OSError, ValueError):
        return None  # the readers of captures say why
    return _SAMPLES if is_sample_log else kind_of(path, units)


def _name(kind: LogKind | None) -> str:
    return kind.name if kind else "no log"


def _of_logs(
    kinds: Mapping[Path, LogKind | None],
    options: CaptureOptions,
    progress: Callable[[float, int], None] | None,
) -> Measurement:
    paths = list(kinds)
    measurement = Measurement(
        title=options.title or " and ".join(path.stem for path in paths[:3]),
        kind=CLOCK,
        simulated=options.simulated,
        timebase_ppm=0.0,
        provenance=[("Log", f"{path}: {_name(kind)}") for path, kind in kinds.items()],
    )
    clocks: list[TimeErrors] = []
    nodes: list[str] = []
    logs = [[path] for path in paths if kinds[path] is _SAMPLES]
    logs += parts_of([path for path in paths if kinds[path] is not _SAMPLES])
    for done, parts in enumerate(logs, start=1):
        name = _node_of(log_of(parts[0]), [log_of(each[0]) for each in logs])
        try:
            errors, log = _errors_of(name, parts, kinds[parts[0]])
            clocks += errors
            nodes += [each.name for each in errors]
            measurement.notes += log.notes
            measurement.damaged += log.damaged
        except CaptureError as error:
            # Its clock was to be judged too, and is not: the user has to know.
            nodes.append(name)
            measurement.damaged.append(str(error))
            measurement.notes.append(
                f"Nothing is known about the clock of {name}: its log is left out."
            )
        if progress is not None:
            progress(done, len(logs))
    if not clocks:
        raise CaptureError(measurement.damaged[0])
    measurement.time_errors = clocks
    measurement.nodes = tuple(nodes)
    return measurement


def _errors_of(
    name: str, parts: Sequence[Path], kind: LogKind | None
) -> tuple[list[TimeErrors], ClockLog]:
    """Read one log; its clocks are called by its name, and by theirs if there are several."""
    if kind is None or kind is _SAMPLES:
        log = open_sample_log(parts[0])
        return [
            replace(each, name=name + each.name[len(parts[0].stem) :]) for each in log.errors
        ], log
    log = open_log(name, parts, kind)
    return log.errors, log


def _node_of(path: Path, paths: Sequence[Path]) -> str:
    """Return the name of a log's clock: that of its file, with its folder if file names repeat.

    Clients of several nodes give their logs the same name.
    """
    if sum(each.stem == path.stem for each in paths) == 1:
        return path.stem
    name = f"{path.parent.name}/{path.stem}"
    if sum(f"{each.parent.name}/{each.stem}" == name for each in paths) == 1:
        return name
    return str(path)
