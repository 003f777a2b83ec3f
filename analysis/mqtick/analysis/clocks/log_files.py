"""Logs that other programs keep of a clock: chrony's, linuxptp's, and two columns of text."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mqtick.analysis.clocks import chrony_logs, linuxptp_lines, ntp_lines, phase_lines
from mqtick.analysis.clocks.clock_log import ClockLog, LeftOutError, Series, Value
from mqtick.analysis.clocks.offset_text import (
    ColumnUnits,
    delimiter_of,
    reader_below,
    reader_in,
)
from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import unpacked

_LONGEST_LINE: Final = 1 << 12
_MOST_VALUES: Final = 12_000_000
"""Of one log: they take 24 octets each, and some 200 more while they are worked on."""
_MOST_CLOCKS: Final = 200
_MOST: Final = 1e20
"""No clock is three thousand years off, in ns, nor are there that many seconds."""
_HEAD_OCTETS: Final = 1 << 14
_ROTATED: Final = re.compile(r"(?P<log>.+?)(?:[.-]\d{1,8})?(?:\.gz)?$")

Parser = Callable[[str], Value | None]


@dataclass(frozen=True, slots=True)
class LogKind:
    """A kind of log.

    Attributes:
        name: of the kind, as it is said.
        parser: returns, for each file, what says what a line says: None where it is about something
            else, ValueError if it is wrong.
        note: what a reader of the report has to know about its values, "" for nothing.
        said_units: whether the user said what its columns are.
    """

    name: str
    parser: Callable[[], Parser]
    note: str = ""
    said_units: bool = False


_CHRONY: Final = {
    "tracking": LogKind(
        "chrony's tracking.log",
        lambda: chrony_logs.tracking,
        "of the system clock at each update, the remaining correction counted; the interval is "
        "half the root delay and the root dispersion.",
    ),
    "measurements": LogKind(
        "chrony's measurements.log",
        lambda: chrony_logs.measurement,
        "chronyd's own estimate of the time against each source, single measurements; the interval "
        "is half the delay and the dispersion of the path to the source.",
    ),
    "statistics": LogKind(
        "chrony's statistics.log",
        lambda: chrony_logs.statistic,
        "chronyd's own estimate of the time against each source, after its regression; nothing "
        "bounds the error.",
    ),
    "refclocks": LogKind(
        "chrony's refclocks.log",
        lambda: chrony_logs.refclock,
        "of each raw sample of a reference clock; the interval is its dispersion.",
    ),
}
_NTP: Final = (
    LogKind(
        "ntpd's loopstats",
        lambda: ntp_lines.loop,
        "ntpd's own estimate of the error at each update; nothing bounds it.",
    ),
    LogKind(
        "ntpd's peerstats",
        lambda: ntp_lines.peer,
        "ntpd's own estimate of the time against each peer; the interval is half the delay and the "
        "dispersion.",
    ),
    LogKind(
        "what ppstest prints",
        lambda: ntp_lines.pulse,
        "a whole second minus the local time of each pulse; nothing bounds the error.",
    ),
)
_COUNTERS: Final = (
    (
        phase_lines.TICC,
        LogKind(
            "time stamps of a TICC",
            phase_lines.ticc_reader,
            "chB's edges minus those of chA, which is taken as the reference.",
        ),
    ),
    (
        phase_lines.TIMELAB,
        LogKind(
            "phases of TimeLab",
            phase_lines.timelab_reader,
            "phases, taken as reference minus local; nothing bounds the error.",
        ),
    ),
)
_TWO_COLUMNS: Final = "two columns of text"
_OFFSETS: Final = (
    "the offset is taken as reference minus local (positive: the clock is behind), {}; nothing "
    "bounds the error."
)
_LINUXPTP: Final = LogKind(
    "linuxptp's output",
    lambda: linuxptp_lines.offset,
    "the printed offset negated, since linuxptp counts it the other way round; the interval is "
    "ptp4l's path delay, or half of phc2sys's delay; ts2phc's errors have no bound.",
)


def kind_of(path: Path, units: ColumnUnits | None = None) -> LogKind | None:
    """Return which kind of log a file is, None where it is none of them; never raises.

    Two columns of text without a line of names are one if their `units` are said.
    """
    try:
        if not path.is_file():  # a pipe would wait forever
            return None
        with unpacked(path) as stream:
            return _kind(stream.read(_HEAD_OCTETS), units)
    except (OSError, ValueError, EOFError, zlib.error):
        return None  # the readers of captures say why


def _kind(head: bytes, units: ColumnUnits | None) -> LogKind | None:
    for name, banner in chrony_logs.BANNERS.items():
        if banner in head and head.count(b"====") > 1:
            return _CHRONY[name]
    if linuxptp_lines.MARK.search(head):
        return _LINUXPTP
    for mark, counter in _COUNTERS:
        if mark.search(head):
            return counter
    # A head may end, and a rotated file begin, in the middle of a line.
    lines = head.decode("utf-8", "replace").splitlines()[:50]
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        for kind in (*_CHRONY.values(), *_NTP):
            if _is_row(kind.parser(), line):
                return kind
        if (parse := reader_below(line, below)) is not None:
            note = _OFFSETS.format("as the line of names says")
            return LogKind(_TWO_COLUMNS, partial(_same, parse), note)
    return _bare(lines, units) if units else None


def _same(parse: Parser) -> Parser:
    return parse


def _bare(lines: list[str], units: ColumnUnits) -> LogKind | None:
    """Return what reads one or two columns of numbers below one line of words at most."""
    rows = [line for line in lines if line.strip() and not line.startswith(("#", "%"))]
    heading = ""
    if rows and not any(map(str.isdecimal, rows[0])):
        heading = rows.pop(0).strip()
    said = _OFFSETS.format("its sign turned" if units.to_ns < 0 else "as --units says")
    if units.tau_s:
        parser = partial(phase_lines.column_reader, units.tau_s, units.to_ns, heading)
        is_one = bool(rows) and _is_row(parser(), rows[0])
        return LogKind("a column of text", parser, said, said_units=True) if is_one else None
    delimiter = delimiter_of(rows[0]) if rows else None
    if delimiter is None:
        return None
    parse = reader_in(units, delimiter, heading)
    return LogKind(_TWO_COLUMNS, partial(_same, parse), said, said_units=True)


def _is_row(parse: Parser, line: str) -> bool:
    try:
        return parse(line) is not None
    except LeftOutError:
        return True
    except ValueError:
        return False


def log_of(path: Path) -> Path:
    """Return the log that a file is a part of: x.log for x.log.1, x.log-20261125, x.log.2.gz."""
    found = _ROTATED.fullmatch(path.name)
    return path.with_name(found["log"] if found else path.name)


def parts_of(paths: Sequence[Path]) -> list[list[Path]]:
    """Group files into logs: those that logrotate parted belong together."""
    logs: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(paths):
        logs.setdefault(log_of(path), []).append(path)
    return list(logs.values())


def open_log(name: str, paths: Sequence[Path], kind: LogKind) -> ClockLog:
    """Read the parts of one log, the oldest first; CaptureError where they hold no value.

    Its clock is called `name`; where there are several, by what the log calls them too.
    """
    log = ClockLog([])
    clocks: dict[str, Series] = {}
    left_out: Counter[str] = Counter()
    for path in sorted(paths, key=partial(_first_stamp_s, kind)):
        parse = kind.parser()
        lines = faulty = 0
        fault = ""
        for lines, line in enumerate(_lines(path, log), start=1):
            try:
                value = _checked(parse(line))
            except LeftOutError as error:
                left_out[str(error)] += 1
                continue
            except ValueError as error:
                faulty += 1
                fault = fault or f"line {lines}: {_why(error)}"
                continue
            if value is None:
                continue
            if value.clock not in clocks and len(clocks) >= _MOST_CLOCKS:
                raise CaptureError(f"{path}: more than {_MOST_CLOCKS} clocks; this is no such log.")
            series = clocks.setdefault(value.clock, Series())
            if len(series) >= _MOST_VALUES:
                raise CaptureError(
                    f"{path}: more than {_MOST_VALUES:,} values of one clock do not fit into "
                    "memory; give a part of the log (split -l 10000000)."
                )
            series.add(value)
        if faulty:
            log.damaged.append(
                f"{path.name}: {faulty} of {lines} lines could not be read and were left out; the "
                f"first is {fault}."
            )
    reasons = [
        f"{number} line{' was' if number == 1 else 's were'} left out: {why}."
        for why, number in left_out.items()
    ]
    if not clocks:
        said = " ".join([*reasons, *log.damaged])
        raise CaptureError(f"{paths[0]} is {kind.name}, but no line has a time error. {said}")
    log.notes += [f"{paths[0].name}: {reason}" for reason in reasons]
    log.notes.append(f"{paths[0].name} is {kind.name}: {kind.note}")
    for clock, series in clocks.items():
        errors, notes = series.finish(name if len(clocks) == 1 else f"{name}, {clock}", kind.name)
        log.errors.append(errors)
        log.notes += notes
    return log


def _checked(value: Value | None) -> Value | None:
    """Return what a line says; ValueError where no clock has such a value."""
    if value is not None:
        _, stamp_s, error_ns, off_ns = value
        bounds = () if math.isnan(off_ns) else (off_ns,)
        if not all(abs(each) < _MOST for each in (stamp_s, error_ns, *bounds)):
            raise ValueError("it has a value that is not a number, or is too large for a time")
    return value


def _why(error: ValueError) -> str:
    text = str(error)
    return "it has a cell that is not a number" if text.startswith("could not convert") else text


def _first_stamp_s(kind: LogKind, path: Path) -> float:
    parse = kind.parser()
    for line in _lines(path, ClockLog([])):
        try:
            value = parse(line)
        except (ValueError, LeftOutError):
            continue
        if value is not None:
            return value.stamp_s
    return 0.0


def _lines(path: Path, log: ClockLog) -> Iterator[str]:
    """Yield the lines of a file; what ends a compressed one too early is said in the log."""
    try:
        with unpacked(path) as stream:
            while line := stream.readline(_LONGEST_LINE):
                whole = line.endswith(b"\n") or len(line) < _LONGEST_LINE
                while line and not whole and not line.endswith(b"\n"):
                    line = stream.readline(_LONGEST_LINE)
                yield line.decode("utf-8", "replace") if whole else "longer than any line of a log"
    except (EOFError, zlib.error, gzip.BadGzipFile):
        log.damaged.append(f"{path.name}: the compressed file is cut off; what is complete counts.")
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}.") from error
