"""What is in files without known channel names, and the command to run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.analysis.captures.groups import group_files, in_order, read_group
from mqtick.analysis.captures.naming import FIRST, LAST, PUBLISHER
from mqtick.analysis.captures.options import MINIMUM_V
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, find_signal
from mqtick.recording.edges import Edge
from mqtick.recording.look import Seen, look

__all__ = ["listing", "propose"]

_MOST_NAMES: Final = 8
_FS_PER_NS: Final = 1e6
_FS_PER_US: Final = 1e9


def propose(
    paths: Sequence[Path],
    minimum_v: float = MINIMUM_V,
    cable_delay_fs: Mapping[str, int] | None = None,
) -> str:
    """Say what the first readable file holds, and the complete command for all of them.

    The proposal goes by the order of the first edges: the publisher comes first. The least
    amplitude and the cable delays that were given are given again in the command.
    """
    reasons: list[str] = []
    for group in group_files([Path(path) for path in paths]):
        opened: list[CaptureFile] = []
        try:
            _, capture = next(read_group(group, opened))
        except CaptureError as error:
            reasons.append(str(error))
            continue
        except StopIteration:
            reasons.append(f"{group.path} holds no capture; save it again.")
            continue
        return listing(paths, opened, capture, reasons, minimum_v, cable_delay_fs)
    return "\n".join(reasons) or "No file was named."


def listing(
    paths: Sequence[Path],
    opened: Sequence[CaptureFile],
    capture: Capture,
    reasons: Sequence[str],
    minimum_v: float,
    cable_delay_fs: Mapping[str, int] | None,
) -> str:
    """Say what a capture holds that was read from the `opened` files.

    `reasons` are those why earlier ones of the `paths` could not be read.
    """
    given = "" if minimum_v == MINIMUM_V else f" --minimum-v {minimum_v:g}"
    if cable_delay_fs:
        delays = (f"{name}={fs / _FS_PER_NS:g}" for name, fs in cable_delay_fs.items())
        given += f" --cable-delay {shlex.quote(','.join(delays))}"
    seen = {name: _brief(look(each, minimum_v)) for name, each in capture.signals.items()}
    lines = [f"{opened[0].path} is a file of {_what(opened[0])}. Its channels:", *_table(seen)]
    lines += [f"note: {note}" for note in _notes(opened, seen, reasons)]
    return "\n".join([*lines, "", *_advice(paths, capture, seen, minimum_v, given)])


@dataclass(frozen=True, slots=True)
class _Brief:
    """What is said about a channel: with sixteen of many edges each, there is no room for all."""

    edges: int
    first: Edge | None
    first_rising: Edge | None
    why_not: str
    outliers: str


def _brief(seen: Seen) -> _Brief:
    edges = seen.edges
    return _Brief(
        len(edges),
        edges[0] if edges else None,
        next((edge for edge in edges if edge.rising), None),
        seen.why_not,
        seen.outliers,
    )


def _what(file: CaptureFile) -> str:
    return file.format + (f" ({file.instrument})" if file.instrument else "")


def _notes(
    opened: Sequence[CaptureFile], seen: Mapping[str, _Brief], reasons: Sequence[str]
) -> list[str]:
    """Return what is damaged or was left out: in files, channels, samples."""
    said = [note if len(opened) == 1 else f"{f.path}: {note}" for f in opened for note in f.notes]
    far = [f"{name}: {each.outliers}" for name, each in seen.items() if each.outliers]
    return [*reasons, *said, *far]


def _table(seen: Mapping[str, _Brief]) -> list[str]:
    width = max(map(len, seen), default=0)
    lines = []
    for name, each in seen.items():
        if first := each.first:
            count = f"{each.edges} edge{'s' if each.edges > 1 else ''}"
            text = (
                f"{count}, the first one {'rising' if first.rising else 'falling'} at "
                f"{first.instant_fs / _FS_PER_US:,.3f} us"
            )
        else:
            text = f"no edge. {each.why_not}".strip()
        lines.append(f"  {name:<{width}}  {text}")
    return lines


def _advice(
    paths: Sequence[Path],
    capture: Capture,
    seen: Mapping[str, _Brief],
    minimum_v: float,
    given: str,
) -> list[str]:
    with_edges = [name for name, each in seen.items() if each.edges]
    if len(seen) < 2:
        return [
            "A measurement compares the edges of two channels or more, but this file holds one. "
            "If the instrument saves each channel in its own file, name all of them: files whose "
            "names differ only in the channel's number (T0001CH1, T0001CH2) are one capture."
        ]
    if len(with_edges) < 2:
        return [
            "A measurement compares the edges of two channels or more, but there is "
            + ("only one with edges." if with_edges else "none with edges.")
            + " Check whether the pins are driven, the probes connected, and the record "
            f"long enough. Amplitudes below {minimum_v:g} V count with a smaller --minimum-v."
        ]
    rising = [name for name in with_edges if seen[name].first_rising]
    slope = "" if len(rising) == len(with_edges) else " --edge both"

    def first_fs(name: str) -> int:
        edge = seen[name].first_rising or seen[name].first
        assert edge is not None
        return edge.instant_fs

    ordered = sorted(with_edges, key=first_fs)
    # One of a bus of sixteen lines is hardly a node: only the first few are proposed.
    roles = dict(zip((PUBLISHER, FIRST, LAST), ordered, strict=False))
    words = ",".join(f"{role}={_short(capture, name)}" for role, name in roles.items())
    files = _files(paths)
    return [
        "Say which channel is whose. If the edges come in their usual order (the publisher's "
        "first), the command is:",
        "",
        f"  mqtick-report {files} --channels {shlex.quote(words)}{slope}{given}",
        "",
        "For pps pins, compared with a reference's: --kind clock --channels "
        + shlex.quote(f"reference={_short(capture, ordered[0])},NAME={_short(capture, ordered[1])}")
        + given,
    ]


def _short(capture: Capture, name: str) -> str:
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
