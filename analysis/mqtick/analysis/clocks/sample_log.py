"""Reads the sample log of a client: a line of JSON for each sample (`sample_log` in client.toml).

Offsets in it are reference minus the judged clock, in ns, as `TimeErrors` has them: positive, the
clock is behind. Of each burst of exchanges the best used sample is taken, as chronyd is given it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mqtick.analysis.clocks.clock_log import ClockLog
from mqtick.analysis.clocks.sample_track import Sample, Track
from mqtick.recording.capture import CaptureError

_LONGEST_LINE: Final = 1 << 16
_LARGEST_NS: Final = 1 << 62
"""The year 2116, as ns of the epoch."""
_MOST_REASONS: Final = 50
_MOST_SERVERS: Final = 1000
_MARKS: Final = (b'"offset_ns"', b'"local_ns"', b'"verdict"')
_USED: Final = "used"
_CUT_OFF: Final = ", and is cut off"


def recognises(head: bytes) -> bool:
    """Return whether these first octets of a file are of a sample log; never raises."""
    for line in head.splitlines()[:10]:
        if line.lstrip().startswith(b"{") and all(mark in line for mark in _MARKS):
            return True
    return False


def open_sample_log(path: Path) -> ClockLog:
    """Read a sample log, line by line; CaptureError where it has no sample that was used."""
    tracks: dict[int, Track] = {}
    counts: Counter[tuple[str, str]] = Counter()
    lines = faulty = used = 0
    first_fault = ""
    for lines, sample in enumerate(_samples(path), start=1):
        if sample is None:
            continue
        if isinstance(sample, str):
            faulty += 1
            first_fault = first_fault or f"line {lines}: {sample}"
            continue
        key = sample.verdict, sample.reason
        counts[key if key in counts or len(counts) < _MOST_REASONS else ("other", "")] += 1
        if sample.verdict != _USED:
            continue
        used += 1
        if sample.server not in tracks and len(tracks) >= _MOST_SERVERS:
            raise CaptureError(
                f"{path}: samples of more than {_MOST_SERVERS} servers; this is not a client's log."
            )
        tracks.setdefault(sample.server, Track()).add(sample)
    if not counts:
        raise CaptureError(
            f"{path}: none of its {lines} lines is a sample "
            f"({first_fault or 'it is empty'}). Expected is the file that `sample_log` of "
            "a client's client.toml names: a line of JSON for each sample."
        )
    if not tracks:
        raise CaptureError(
            f"{path}: none of its {counts.total()} samples was used ({_in_words(counts)}), so it "
            "holds no time error. `mqtick-client doctor` says why a client uses none of them."
        )
    log = ClockLog([])
    if used < counts.total():
        log.notes.append(
            f"{used} of {counts.total()} samples of {path.name} were used; the others are left "
            f"out: {_in_words(counts)}."
        )
    for server, track in sorted(tracks.items()):
        name = path.stem if len(tracks) == 1 else f"{path.stem}, server {server}"
        errors, notes = track.finish(name)
        if errors is not None:
            log.errors.append(errors)
        log.notes += notes
    if not log.errors:
        raise CaptureError(f"{path}: no sample can be placed in time. {' '.join(log.notes)}")
    if faulty == 1 and first_fault.endswith(_CUT_OFF):
        log.damaged = [f"{path.name}: the last line, {lines}, is cut off and was left out."]
    elif faulty:
        log.damaged = [
            f"{path.name}: {faulty} of {lines} lines are not samples and were left out; the first "
            f"is {first_fault}."
        ]
    return log


def _in_words(counts: Counter[tuple[str, str]]) -> str:
    return ", ".join(
        f"{number} {verdict}" + (f" ({reason})" if reason not in ("", "none") else "")
        for (verdict, reason), number in counts.most_common()
        if verdict != _USED
    )


def _samples(path: Path) -> Iterator[Sample | str | None]:
    """Yield for each line its sample, what is wrong with it, or None where it is empty."""
    try:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                    while line and not line.endswith(b"\n"):
                        line = file.readline(_LONGEST_LINE)
                    yield f"longer than {_LONGEST_LINE} octets"
                    continue
                try:
                    yield _sample(line) if line.strip() else None
                except ValueError as error:
                    yield str(error) if line.endswith(b"\n") else f"{error}{_CUT_OFF}"
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}.") from error


def _sample(line: bytes) -> Sample:
    """Return what a line says; ValueError says what is wrong with it."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    return Sample(
        server=_whole(record, "server"),
        kind=_word(record, "kind"),
        verdict=_word(record, "verdict"),
        reason=_word(record, "reason") if "reason" in record else "",
        realtime_ns=_whole(record, "realtime_ns"),
        local_ns=_whole(record, "local_ns"),
        offset_ns=_whole(record, "offset_ns"),
        lower_ns=_bound(record, "lower_ns"),
        upper_ns=_bound(record, "upper_ns"),
        delay_ns=_whole(record, "delay_ns") if "delay_ns" in record else 0,
    )


def _whole(record: dict[str, Any], key: str) -> int:
    value = record.get(key)
    if type(value) is not int:
        raise ValueError(f"{key} is {'not a whole number' if key in record else 'missing'}")
    if abs(value) >= _LARGEST_NS:
        raise ValueError(f"{key} is beyond {_LARGEST_NS}")
    return value


def _bound(record: dict[str, Any], key: str) -> int | None:
    return None if record.get(key) is None else _whole(record, key)


def _word(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= 40 or not value.isprintable():
        raise ValueError(f"{key} is {'not a string' if key in record else 'missing'}")
    return value
