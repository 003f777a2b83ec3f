"""Tektronix' internal save format (.isf): a preamble in words, then the codes of one channel.

The preamble is what `WFMOutpre?` answers (older: `WFMPre?`), with long or short words and with or
without their path: Tektronix programmer manuals, "Waveform Transfer". Several records may follow
one another in one file. Volts are YZERO + YMULT * (code - YOFF), instants XZERO + XINCR *
(sample - PT_OFF).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.readers.format import Format
from mqtick.analysis.readers.octets import (
    Octets,
    add_waveform,
    channel_of,
    interval_fs,
    opened,
    start_fs,
    text,
)
from mqtick.analysis.signals.capture import Capture, CaptureError, CaptureFile, Signal

__all__ = ["FORMATS"]

_PREAMBLE: Final = 1 << 14
_CURVE: Final = re.compile(rb":?CURVE?[ \t\r\n]*(?=[#\d+-])", re.IGNORECASE)
_ITEM: Final = re.compile(r'(?:[^;"]|"[^"]*"?)+')
_WORDS: Final = {
    # A word's shortest form, and what it is called here; longer forms begin with it.
    "BYT_N": "octets",
    "ENC": "encoding",
    "BN_F": "numbers",
    "BYT_O": "order",
    "WFI": "label",
    "PT_F": "points",
    "XIN": "XINCR",
    "XZE": "XZERO",
    "PT_O": "PT_OFF",
    "YMU": "YMULT",
    "YOF": "YOFF",
    "YZE": "YZERO",
}
_KINDS: Final = {
    ("RI", 1): "i1",
    ("RP", 1): "u1",
    ("RI", 2): "i2",
    ("RP", 2): "u2",
    ("FP", 4): "f4",
}
_ASCII_OCTETS: Final = 64 << 20


def _is_isf(head: bytes) -> bool:
    curve = _CURVE.search(head)
    if curve is None:
        return False
    preamble = head[: curve.start()].upper()
    return all(word in preamble for word in (b"BYT_N", b"YMU", b"XIN"))


def _open(path: Path) -> CaptureFile:
    notes: list[str] = []
    return CaptureFile(path, "Tektronix ISF", "Tektronix", lambda: _captures(path, notes), notes)


def _captures(path: Path, notes: list[str]) -> Iterator[Capture]:
    """Yield the records of a file: a channel that comes again begins the next capture."""
    signals: dict[str, Signal] = {}
    complete = 0
    with opened(path) as stream:
        for name, found in _records(Octets.of(path, stream), notes):
            if name in signals:
                yield Capture(signals)
                signals = {}
            signals.update(found)
            complete += len(found)
    if not complete:
        raise CaptureError(" ".join([f"{path} has no complete record.", *notes]))
    yield Capture(signals)


def _records(file: Octets, notes: list[str]) -> Iterator[tuple[str, dict[str, Signal]]]:
    at = 0
    while file.size - at > 2:
        head = file.take(at, min(_PREAMBLE, file.size - at), "its preamble")
        curve = _CURVE.search(head)
        if curve is None:
            notes.append(f"What follows octet {at} is not a record and was left out.")
            return
        found: dict[str, Signal] = {}
        try:
            name, at = _record(file, at, head, curve, found, notes)
        except CaptureError as error:
            if not at:
                raise
            notes.append(f"Records from octet {at} on were left out. {error}")
            return
        yield name, found


def _preamble(octets: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in _ITEM.findall(octets.decode("latin-1")):
        word, _, value = item.strip().partition(" ")
        word = word.upper().rpartition(":")[2]
        for short, called in _WORDS.items():
            if word.startswith(short):
                found[called] = value.strip().strip('"')
    return found


def _name(preamble: dict[str, str], path: Path) -> str:
    """Return the channel that the label begins with ("Ch1, DC coupling, ..."), else the file's."""
    label = text(preamble.get("label", "").split(",")[0].encode("latin-1"))
    return label.upper() if re.fullmatch(r"(?i)ch\d", label) else label or channel_of(path)


def _record(
    file: Octets,
    at: int,
    head: bytes,
    curve: re.Match[bytes],
    signals: dict[str, Signal],
    notes: list[str],
) -> tuple[str, int]:
    """Add the record at an octet; return its channel and where the next one may begin."""
    preamble = _preamble(head[: curve.start()])
    name = _name(preamble, file.path)
    what = f"record {name!r}"
    increment, zero, offset = (_number(preamble, w, file) for w in ("XINCR", "XZERO", "PT_OFF"))
    samples, end = _samples(file, at + curve.end(), preamble, what, notes)
    per_point = 1
    if preamble.get("points", "Y").upper().startswith("ENV"):
        # Envelopes come as pairs of the least and the greatest code of two intervals.
        per_point, whole = 2, samples.size // 2 * 2
        pairs = samples[:whole].reshape(-1, 2)
        middle = pairs.astype(np.int32).sum(axis=1) // 2 if samples.dtype.kind != "f" else None
        samples = pairs.mean(axis=1) if middle is None else middle.astype(samples.dtype)
        notes.append(f"Channel {name} is an envelope: its points are taken as the middle of each.")
    timing = (
        interval_fs(increment * per_point, file.path, what),
        start_fs(zero - offset * increment, file.path, what),
    )
    step, code_at, volts_at = (_number(preamble, w, file) for w in ("YMULT", "YOFF", "YZERO"))
    if not step:
        raise CaptureError(
            f"{file.path}: {what} has a YMULT of 0, so its codes cannot be converted to volts."
        )
    if samples.dtype.kind == "f":
        add_waveform(signals, notes, name, volts_at + step * (samples - code_at), timing)
        return name, end
    code_at_zero = code_at - volts_at / step
    if step < 0:  # shown upside down
        samples, step, code_at_zero = ~samples, -step, -1 - code_at_zero
        if samples.dtype.kind == "u":
            code_at_zero += float(np.iinfo(samples.dtype).max) + 1
    scale = {"volts_per_code": step, "code_at_zero": code_at_zero}
    add_waveform(signals, notes, name, samples, timing, scale)
    return name, end


def _number(preamble: dict[str, str], word: str, file: Octets) -> float:
    told = preamble.get(word, "" if word in ("XINCR", "YMULT") else "0")
    try:
        number = float(told)
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e30:
        raise CaptureError(
            f"{file.path}: the preamble has the {word} {told[:40]!r}, which is not a number. "
            "The file is damaged; save it again."
        )
    return number


def _samples(
    file: Octets, at: int, preamble: dict[str, str], what: str, notes: list[str]
) -> tuple[npt.NDArray[Any], int]:
    """Return the codes, of what is there, and where they end."""
    if preamble.get("encoding", "BIN").upper().startswith("ASC"):
        return _words(file, at, what)
    width = preamble.get("octets", "")
    numbers = preamble.get("numbers", "RI").upper()
    kind = _KINDS.get((numbers, int(width) if re.fullmatch(r"\d", width) else 0))
    if kind is None:
        raise CaptureError(
            f"{file.path}: {what} has numbers of the kind {numbers[:20]!r} in {width[:20]!r} "
            "octets; RI and RP in 1 or 2 and FP in 4 are read. Save it as CSV."
        )
    digits = file.take(at, 2, f"the samples of {what}")
    if not re.fullmatch(rb"#[0-9A-Fa-f]", digits):
        raise CaptureError(f"{file.path}: {what} has no block of samples after CURVE.")
    count = int(digits[1:], 16)
    length = file.take(at + 2, count, f"the length of {what}")
    if count and not length.isdigit():
        raise CaptureError(f"{file.path}: {what} has a block of {length!r} octets of samples.")
    at += 2 + count
    there = file.size - at
    octets = int(length) if count else there
    if octets > there:
        notes.append(
            f"Channel {what[7:]} is cut short: {there} octets of {octets} are there, and are read."
        )
        octets = there
    dtype = np.dtype(kind).newbyteorder("<" if preamble.get("order", "MSB") == "LSB" else ">")
    samples = file.array(at, dtype, octets // dtype.itemsize, what)
    return samples.astype(dtype.newbyteorder("=")), at + octets


def _words(file: Octets, at: int, what: str) -> tuple[npt.NDArray[Any], int]:
    words = file.take(at, min(file.size - at, _ASCII_OCTETS), what).split(b":")[0]
    try:
        codes = np.array([int(float(word)) for word in words.split(b",")], np.int64)
    except (ValueError, OverflowError) as error:
        raise CaptureError(f"{file.path}: {what} has samples that are not numbers.") from error
    if codes.size and not -(1 << 15) <= codes.min() <= codes.max() < 1 << 15:
        raise CaptureError(f"{file.path}: {what} has codes beyond 16 bits.")
    return codes.astype(np.int16), at + len(words)


FORMATS: Final = (Format("Tektronix ISF", "an oscilloscope (model not noted)", _is_isf, _open),)
