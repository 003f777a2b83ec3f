"""Value change dumps (VCD, IEEE 1364-2005 clause 18), as logic analysers and simulators write them.

Times are whole multiples of the timescale, so instants come out exact. Read as a stream: only
the changes are held in memory. Scalars only: vectors, reals and strings have no edges and are
passed over.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from mqtick.recording.capture import CaptureError
from mqtick.recording.octets import MAX_CHANGES, naming, opened, read_so_far
from mqtick.recording.transitions import UNKNOWN, Transitions

_LEVELS: Final = {
    **dict.fromkeys("0lL", 0),
    **dict.fromkeys("1hH", 1),
    **dict.fromkeys("xXzZuUwW-", UNKNOWN),
}
"""Four values, and the nine of IEEE 1164, as simulators of VHDL write them: L and H are weak."""
_UNITS_FS: Final = {"s": 10**15, "ms": 10**12, "us": 10**9, "ns": 10**6, "ps": 10**3, "fs": 1}
_PIECE: Final = 1 << 16
_TOKEN: Final = 1 << 16
_LATEST: Final = 2**63 - 1
_SIMULATION: Final = frozenset(("$dumpvars", "$dumpall", "$dumpon", "$dumpoff", "$end"))
_NO_LEVELS: Final = frozenset(("real", "realtime", "shortreal", "string"))


class VcdError(CaptureError):
    """The file is not a value change dump that can be read; the text says why."""


@dataclass(slots=True)
class _Signal:
    name: str
    path: str
    initial: int | None = None
    ticks: array[int] = field(default_factory=lambda: array("q"))
    levels: array[int] = field(default_factory=lambda: array("b"))

    def change(self, now: int, level: int) -> None:
        if self.initial is None:
            # What it was before its first value is not in the file, except at the very beginning.
            self.initial = level if now == 0 else UNKNOWN
        if self.ticks and self.ticks[-1] == now:  # of several at one time the last holds
            self.ticks.pop()
            self.levels.pop()
        if level != (self.levels[-1] if self.levels else self.initial):
            if now == 0:
                self.initial = level
                return
            self.ticks.append(now)
            self.levels.append(level)

    def is_like(self, other: _Signal) -> bool:
        """Whether it changes as another one does."""
        return (self.initial, self.ticks, self.levels) == (
            other.initial,
            other.ticks,
            other.levels,
        )

    def transitions(self, timescale_fs: int) -> Transitions:
        return Transitions(
            self.name,
            UNKNOWN if self.initial is None else self.initial,
            # Not copied: with many changes there is no memory for two.
            np.frombuffer(self.ticks, np.int64),
            np.frombuffer(self.levels, np.int8),
            tick_fs=timescale_fs,
        )


@dataclass(slots=True)
class VcdHeader:
    """What a dump declares before its first value.

    Attributes:
        version: of the program that wrote it, "" where it does not say.
        comments: all of them, in one line.
        timescale_fs: what its times count, in fs.
        signals: the scalars by their code; several may share one.
        others: the codes of what is not a scalar.
    """

    version: str = ""
    comments: str = ""
    timescale_fs: int = 0
    signals: dict[str, list[_Signal]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)


def read_vcd(source: Path | BinaryIO) -> dict[str, Transitions]:
    """Read all scalar signals, each under its path ("scope.name").

    A net that is declared twice (a port and its register) is one signal; where two nets have one
    path and do not change alike, the second one is called "scope.name (2)".

    VcdError where it is no VCD, time goes backwards, a value belongs to no signal, or there are
    too many changes; CaptureError where the file cannot be read.
    """
    if isinstance(source, Path):
        with naming(source), opened(source) as stream:
            return read_vcd(stream)
    tokens = _tokens(source)
    header = _header(tokens)
    _changes(tokens, header)
    found: dict[str, _Signal] = {}
    for signal in (signal for of in header.signals.values() for signal in of):
        path, number = signal.path, 1
        while path in found and not found[path].is_like(signal):
            number += 1
            path = f"{signal.path} ({number})"
        signal.name += path.removeprefix(signal.path)
        found.setdefault(path, signal)
    return {path: signal.transitions(header.timescale_fs) for path, signal in found.items()}


def read_vcd_header(path: Path) -> VcdHeader:
    """Read no more than the declarations of a dump; VcdError or CaptureError."""
    with naming(path), opened(path) as stream:
        return _header(_tokens(stream))


def _tokens(stream: BinaryIO) -> Iterator[str]:
    """Split at white space, piece by piece. Octets that are not ASCII stay what they are."""
    rest = ""
    size = stream.seek(0, SEEK_END)
    stream.seek(0)
    while piece := stream.read(_PIECE):
        read_so_far(stream.tell(), size)
        text = rest + piece.decode("latin-1")
        words = text.split()
        rest = words.pop() if words and not text[-1].isspace() else ""
        yield from words
        if len(rest) > _TOKEN:
            raise VcdError(
                f"There are {len(rest)} characters without a space, so this is not a value change "
                "dump."
            )
    if rest:
        yield rest


def _until_end(tokens: Iterator[str], command: str) -> list[str]:
    words: list[str] = []
    for token in tokens:
        if token == "$end":
            return words
        if len(words) < 64:  # comments may be long; nothing else is
            words.append(token)
    raise VcdError(f"The file ends within {command}: it is cut short, or not a value change dump.")


def _header(tokens: Iterator[str]) -> VcdHeader:
    header = VcdHeader()
    scopes: list[str] = []
    for token in tokens:
        if not token.startswith("$"):
            raise VcdError(
                f"The file has {token[:40]!r} where a declaration ($...) should be, so it is "
                "not a value change dump."
            )
        words = _until_end(tokens, token[:40])
        match token:
            case "$enddefinitions":
                if not header.timescale_fs:
                    raise VcdError(
                        "The file declares no $timescale, so its times have no unit; add one, "
                        "for example: $timescale 1 ns $end."
                    )
                return header
            case "$timescale":
                header.timescale_fs = _timescale_fs("".join(words))
            case "$version":
                header.version = " ".join(words)
            case "$comment":
                header.comments = f"{header.comments} {' '.join(words)}".strip()
            case "$scope":
                scopes.append(words[-1] if words else "")
            case "$upscope":
                if not scopes:
                    raise VcdError("The file leaves a scope that it did not enter.")
                scopes.pop()
            case "$var":
                _declare(words, scopes, header)
            case _:
                pass  # $date, and what tools add of their own
    raise VcdError("The file ends before $enddefinitions: it is cut short, or not a VCD.")


def _timescale_fs(text: str) -> int:
    match = re.fullmatch(r"(1|10|100)(s|ms|us|ns|ps|fs)", text)
    if match is None:
        raise VcdError(
            f"The timescale is {text[:40]!r}; it must be 1, 10 or 100 of s, ms, us, ns, ps or fs."
        )
    return int(match.group(1)) * _UNITS_FS[match.group(2)]


def _declare(words: list[str], scopes: list[str], header: VcdHeader) -> None:
    if len(words) < 4:
        raise VcdError(f"The declaration of a signal is incomplete: $var {' '.join(words)[:60]}.")
    kind, size, code = words[:3]
    if kind in _NO_LEVELS or size != "1":
        header.others.add(code)
        return
    # "D0 [3]" is a bit of a vector; its range is part of the name.
    name = "".join(words[3:])
    header.signals.setdefault(code, []).append(_Signal(name, ".".join([*scopes, name])))


def _changes(tokens: Iterator[str], header: VcdHeader) -> None:
    reads, others = header.signals, header.others
    now = count = 0
    for token in tokens:
        first = token[0]
        if first == "#":
            now = _instant(token, now)
        elif first in _LEVELS:
            of = reads.get(token[1:])
            if of is None:
                raise _stranger(token[1:])
            for signal in of:
                signal.change(now, _LEVELS[first])
                count += 1
        elif first in "bBrRsS":
            code = next(tokens, "")
            if code in reads:
                # A scalar may be written as a vector of one bit: b1 !
                level = _LEVELS.get(token[-1]) if first in "bB" else None
                if level is None:
                    raise VcdError(f"The value {token[:40]!r} is not one that a scalar can have.")
                for signal in reads[code]:
                    signal.change(now, level)
                    count += 1
            elif code not in others:
                raise _stranger(code)
        elif token == "$comment":
            _until_end(tokens, token)
        elif token not in _SIMULATION:
            raise VcdError(
                f"The file has {token[:40]!r} among its values, which is not part of a value "
                "change dump; it is damaged."
            )
        if count > MAX_CHANGES:
            raise VcdError(
                f"The file has more than {MAX_CHANGES:,} changes, which is more than can be "
                "read; record fewer signals, or a shorter span."
            )


def _stranger(code: str) -> VcdError:
    return VcdError(f"A value belongs to {code[:40]!r}, which the file does not declare.")


def _instant(token: str, now: int) -> int:
    digits = token[1:]
    if not digits.isdecimal() or len(digits) > 20:
        raise VcdError(f"The time {token[:40]!r} is not a whole number.")
    instant = int(digits)
    if instant < now:
        raise VcdError(
            f"The time goes back from #{now} to #{instant}; the file is damaged, or two were "
            "joined."
        )
    if instant > _LATEST:
        raise VcdError(f"The time {token} is beyond 64 bits: the file is damaged.")
    return instant
