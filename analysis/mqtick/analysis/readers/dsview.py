"""Captures of DreamSourceLab's DSView (.dsl), of logic channels.

A zip archive, as storesession.cpp of DSView 1.x writes it: `header` (INI: samplerate, total
samples, probeN = name) and the samples of channel N in `L-N/0`, `L-N/1`, ...: one bit a sample, the
lowest one of an octet first. Where the trigger was is in the header, but not whether there was one:
instants count from the first sample.
"""

from __future__ import annotations

import configparser
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from mqtick.analysis.readers.format import Format
from mqtick.recording.bits import changes_of
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.octets import LONGEST_S, naming, read_so_far
from mqtick.recording.sigrok_session import (
    interval_fs_of,
    opened_session,
    part_of,
    pieces_of,
)
from mqtick.recording.waveform import FS_PER_SECOND

_KIND: Final = "DSView capture"
_PART: Final = 1 << 16
"""Octets that become samples at once, eight times as many."""
_INSTEAD: Final = "in DSView, File > Export writes CSV"


def _recognises(head: bytes) -> bool:
    # Its first part is called so: six letters long.
    return head.startswith(b"PK\x03\x04") and head[26:28] + head[30:36] == b"\6\0header"


def _open(path: Path) -> CaptureFile:
    with naming(path), opened_session(path, _KIND) as archive:
        header = _header(archive)

    def read() -> Iterator[Capture]:
        with naming(path), opened_session(path, _KIND) as archive:
            yield Capture(_signals(archive, header), triggered=False)

    return CaptureFile(path, _KIND, header.get("driver", "")[:100], read)


def _header(archive: zipfile.ZipFile) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    lines = part_of(archive, "header", _KIND).splitlines()
    try:
        parser.read_string("\n".join(line.strip() for line in lines))
        return parser["header"]
    except (configparser.Error, KeyError) as error:
        raise CaptureError(f"Its header cannot be read ({error}); {_INSTEAD}.") from error


def _signals(archive: zipfile.ZipFile, header: configparser.SectionProxy) -> dict[str, Signal]:
    interval_fs = interval_fs_of(header.get("samplerate", ""))
    said = header.get("total samples", "")
    if not re.fullmatch(r"\d{1,18}", said) or not int(said):
        raise CaptureError(f"Its header says that it has {said[:40]!r} samples; {_INSTEAD}.")
    samples = int(said)
    if samples * interval_fs > LONGEST_S * FS_PER_SECOND:
        raise CaptureError(f"It is longer than {LONGEST_S:,.0f} s; record a shorter span.")
    found: dict[str, Signal] = {}
    for key, name in header.items():
        if (number := re.fullmatch(r"probe(\d{1,4})", key)) is None:
            continue
        if name in found:
            raise CaptureError(f"Two of its channels are called {name[:40]!r}.")
        bits = _bits(archive, int(number[1]), samples)
        found[name] = changes_of(bits, 1, {name: 0})[name].transitions(name, interval_fs)
    if not found:
        raise CaptureError(f"Its header names no channel; {_INSTEAD}.")
    return found


def _bits(archive: zipfile.ZipFile, number: int, samples: int) -> Iterator[bytes]:
    """Yield the samples of a channel, an octet each; CaptureError where some are missing."""
    left, block = samples, 0
    while left:
        try:
            entry = archive.getinfo(f"L-{number}/{block}")
        except KeyError:
            raise CaptureError(
                f"Its part L-{number}/{block} is missing: logic channels are read, if all of "
                f"their samples are there; {_INSTEAD}."
            ) from None
        if not entry.file_size:
            raise CaptureError(f"Its part L-{number}/{block} is empty; {_INSTEAD}.")
        for piece in pieces_of(archive, entry, 1):
            for at in range(0, len(piece), _PART):
                octets = np.frombuffer(piece[at : at + _PART], np.uint8)
                bits = np.unpackbits(octets, bitorder="little")[:left]
                left -= bits.size
                yield bits.tobytes()
                if not left:
                    return
            read_so_far(samples - left, samples)
        block += 1


FORMATS: Final = (Format(_KIND, "", _recognises, _open),)
