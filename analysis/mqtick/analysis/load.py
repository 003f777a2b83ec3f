"""Whatever was measured, by path: a run folder, captures, or a client's sample log."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mqtick.analysis.captures.from_captures import CaptureOptions, measurement_from_captures
from mqtick.analysis.clocks.sample_log import open_sample_log, recognises
from mqtick.analysis.measurement import CLOCK, Measurement, TimeErrors
from mqtick.analysis.readers.registry import HEAD_OCTETS
from mqtick.analysis.runs.from_run import measurement_from_run
from mqtick.analysis.runs.run_folder import load_run
from mqtick.analysis.signals.capture import CaptureError

__all__ = ["load"]

_RECORD: Final = "run.json"


def load(
    *paths: str | os.PathLike[str],
    options: CaptureOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    processes: int = 1,
    **more: Any,
) -> Measurement:
    """Read what was measured: `load("runs/today")`, or captures with what they do not say.

    `load("a.csv", channels={"publisher": "1", "first": "2", "last": "3"})`: every field of
    `CaptureOptions` may be given by name, or all of them as `options`. `progress` is told how many
    of how many were read; a run folder is read by so many `processes`. CaptureError and
    RunFolderError say what cannot be read, and what to do.
    """
    named = [Path(path) for path in paths]
    named = [path.parent if path.name == _RECORD else path for path in named]
    if not named:
        raise CaptureError("No file was named; name a run folder, captures, or a sample log.")
    if any((path / _RECORD).exists() for path in named):
        if len(named) > 1:
            raise CaptureError(
                f"{len(named)} paths are named, and a run folder among them; read one run at a "
                "time (`mqtick-report compare` puts several side by side)."
            )
        return measurement_from_run(load_run(named[0]), progress, processes)
    files = _files(named)
    options = replace(options or CaptureOptions(), **more)
    logs = [path for path in files if _is_sample_log(path)]
    if not logs:
        return measurement_from_captures(files, options, progress)
    if len(logs) < len(files):
        other = next(path for path in files if path not in logs)
        raise CaptureError(
            f"{logs[0]} is a client's sample log and {other} is none; a report is of one or the "
            "other: name them in two commands."
        )
    return _of_logs(logs, options, progress)


def _files(paths: Sequence[Path]) -> list[Path]:
    """Put a folder's files in its place."""
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
                f"{path} is neither a run folder (there is no {_RECORD}) nor are there files in "
                "it; name the folder that was given to `mqtick-lab run --out`, or captures."
            )
        files += inside
    return files


def _is_sample_log(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would wait for ever
            return False
        with path.open("rb") as stream:
            return recognises(stream.read(HEAD_OCTETS))
    except (OSError, ValueError):
        return False  # the readers of captures say why


def _of_logs(
    paths: Sequence[Path], options: CaptureOptions, progress: Callable[[int, int], None] | None
) -> Measurement:
    measurement = Measurement(
        title=options.title or " and ".join(path.stem for path in paths[:3]),
        kind=CLOCK,
        simulated=options.simulated,
        timebase_ppm=0.0,
        provenance=[("Sample log", str(path)) for path in paths],
    )
    clocks: list[tuple[Path, TimeErrors]] = []
    for done, path in enumerate(paths, start=1):
        try:
            log = open_sample_log(path)
            clocks += [(path, each) for each in log.errors]
            measurement.notes += log.notes
            measurement.damaged += log.damaged
        except CaptureError as error:
            measurement.damaged.append(str(error))
        if progress is not None:
            progress(done, len(paths))
    if not clocks:
        raise CaptureError(
            measurement.damaged[0]
            if measurement.damaged
            else f"{paths[0]} holds no sample that was used; let the client run for a while."
        )
    names = [each.name for _, each in clocks]
    for path, each in clocks:
        name = each.name if names.count(each.name) == 1 else f"{path.stem}: {each.name}"
        measurement.time_errors.append(replace(each, name=name))
    measurement.nodes = tuple(each.name for each in measurement.time_errors)
    return measurement
