"""Files that were saved by hand, combined into captures: one channel per file, or all in one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from mqtick.analysis.readers.registry import open_capture
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal

_CHANNEL: Final = re.compile(
    r"(?:(?<![A-Za-z])(?i:channel|chan|ch|c|d|digital|analog)|(?<=[a-z])(?:CH|Ch))"
    r"[ _.-]?(\d{1,2})(?!\d)"
)
_NUMBERS: Final = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Group:
    """Files that hold one and the same captures, by the number of the channel in their names.

    A single file has the number None.
    """

    files: tuple[tuple[int | None, Path], ...]

    @property
    def path(self) -> Path:
        """The first of the files."""
        return self.files[0][1]


def in_order(paths: Sequence[Path]) -> list[Path]:
    """Sort by name as people count: capture2 before capture10."""

    def key(path: Path) -> list[tuple[int, str]]:
        parts = _NUMBERS.split(str(path))
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    return sorted(dict.fromkeys(paths), key=key)


def group_files(paths: Sequence[Path]) -> list[Group]:
    """Combine files whose names differ only in the number of a channel (T0001CH2.ISF)."""
    groups: dict[tuple[str, str], list[tuple[int | None, Path]]] = {}
    for path in in_order(paths):
        found = _CHANNEL.search(path.stem)
        name, number = path.name, None
        if found is not None:
            name, number = path.stem[: found.start(1)] + "#" + path.stem[found.end(1) :], found[1]
            name += path.suffix
        key = (str(path.parent), name.casefold())
        groups.setdefault(key, []).append((None if number is None else int(number), path))
    together = []
    for files in groups.values():
        numbers = {number for number, _ in files}
        if len(files) > 1 and len(numbers) == len(files):
            together.append(Group(tuple(files)))
        else:
            together += [Group(((None, path),)) for _, path in files]
    return together


def shown(group: Group) -> str:
    """Name a group for a reader."""
    more = len(group.files) - 1
    return str(group.path) + (f" and {more} more" if more else "")


def read_group(group: Group, opened: list[CaptureFile]) -> Iterator[tuple[str, Capture]]:
    """Yield the captures of a group, each with what it was read from; CaptureError.

    `opened` gets the files, for what they say of themselves. Files that each hold several channels
    are captures of their own, whatever their names are.
    """
    try:
        files = [(number, open_capture(path)) for number, path in group.files]
    except CaptureError as error:
        if len(group.files) == 1:
            raise
        raise CaptureError(
            f"{error} The other channels of that capture are left out with it ({shown(group)})."
        ) from error
    opened += [file for _, file in files]
    if len(files) == 1:
        yield from _alone(files[0][1])
        return
    rows = zip_longest(*(file.read() for _, file in files))
    for count, row in enumerate(rows, start=1):
        captures = [capture for capture in row if capture is not None]
        if count == 1 and any(len(capture.signals) != 1 for capture in captures):
            for _, file in files:
                yield from _alone(file)
            return
        if len(captures) < len(row):
            raise CaptureError(
                f"{shown(group)}: these one-channel files do not hold the same number of "
                f"captures; those after number {count - 1} are left out. Save all channels again."
            )
        if len({capture.triggered for capture in captures}) > 1:
            raise CaptureError(
                f"{shown(group)}: some of these files count from the trigger and others do not, "
                "so they cannot be compared. Save all channels in one format."
            )
        signals: dict[str, Signal] = {}
        numbers = (number for number, _ in files)
        for number, capture in zip(numbers, captures, strict=True):
            name, signal = next(iter(capture.signals.items()))
            names = [next(iter(each.signals)) for each in captures]
            signals[f"CH{number}" if names.count(name) > 1 else name] = signal
        started = [each.started_ns for each in captures if each.started_ns is not None]
        suffix = f" #{count}" if count > 1 else ""
        yield (
            f"{group.path}{suffix}",
            Capture(
                signals,
                captures[0].triggered,
                started[0] if started else None,
                max(each.timebase_ppm for each in captures),
            ),
        )


def _alone(file: CaptureFile) -> Iterator[tuple[str, Capture]]:
    for count, capture in enumerate(file.read(), start=1):
        yield f"{file.path}{f' #{count}' if count > 1 else ''}", capture
