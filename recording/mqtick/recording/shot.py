"""One shot: what was recorded of one event, in one file (see docs/run-folder.md)."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from mqtick.recording.edges import Edge
from mqtick.recording.waveform import Codes, Waveform

CAPTURED: Final = "captured"
MISSED: Final = "missed"
"""The event was not recorded, or what was recorded cannot be used."""
REFUSED: Final = "refused"
"""The shot was never tried, because the subscribers that it needs were not available."""

_LEVEL: Final = 1
"""Of compression: two levels have a seventh of the size after 5 ms a megabyte; 6 takes 30 ms."""
_LARGEST: Final = 1 << 30
"""A larger file, expanded, is refused; octets: 4 channels of 128 million codes of 16 bits."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of compression: other methods may expand to any size at once."""
_META: Final = "meta"
_NOTHING: Final[dict[str, Any]] = {}
_CODES: Final = "codes/"


class DamagedShotError(ValueError):
    """A shot's file cannot be read; the text says which and why."""


def _nothing() -> Mapping[str, Any]:
    """Return one and the same empty table: there may be a quarter of a million shots."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Shot:
    """One event: what every node did.

    Attributes:
        number: place in the run's plan, or the order in which they were taken; from 1.
        subscribers: N, 0 where it is not known or nobody subscribes.
        outcome: CAPTURED, MISSED or REFUSED.
        reason: a sentence that says why it was missed or refused, else "".
        started_ns: when the instruments were armed, in ns of the Unix epoch on their host; None
            where it is not known.
        edges: the edge of each channel that was used; instants count from the trigger edge of its
            instrument, cable delays subtracted.
        latency_fs: first subscriber's edge minus the publisher's; None where one is missing.
        skew_fs: last subscriber's edge minus the first one's; positive: the last is later.
        clock_fs: each channel's pps edge minus the reference's; positive: it is later, its clock
            is behind.
        source: the file (and segment) it was read from.
        round: round of the plan, from 1.
        edges_found: how many edges each channel's record holds.
        nodes: what nodes said about this shot's edges, or about their messages.
        simulated: whether an instrument or a measured node was simulated.
        origins_fs: the trigger edge of each instrument, in the layout's order, on the time scale of
            its record. Not in a file.
        outliers: what lies far outside the levels of each channel. Not in a file.
    """

    number: int = 1
    subscribers: int = 0
    outcome: str = CAPTURED
    reason: str = ""
    started_ns: int | None = None
    edges: Mapping[str, Edge] = field(default_factory=_nothing)
    latency_fs: int | None = None
    skew_fs: int | None = None
    clock_fs: Mapping[str, int] = field(default_factory=_nothing)
    source: str = ""
    round: int = 1
    edges_found: Mapping[str, int] = field(default_factory=_nothing)
    nodes: Mapping[str, Any] = field(default_factory=_nothing)
    simulated: bool = False
    origins_fs: tuple[int, ...] = ()
    outliers: Mapping[str, str] = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        if self.outcome not in (CAPTURED, MISSED, REFUSED):
            raise ValueError(f"A shot's outcome is {self.outcome!r}, which is not valid.")


_FIELDS: Final[tuple[str, ...]] = (
    "number", "round", "subscribers", "outcome", "reason", "started_ns", "latency_fs", "skew_fs",
    "clock_fs", "edges_found", "nodes", "simulated",
)  # fmt: skip
"""What is in a file under the name that it has in `Shot`."""
_MOST: Final = 1 << 63
"""No edge is that many fs (two and a half hours) away, and no instant that many ns after 1970."""
_MOST_SHOTS: Final = 1 << 31
_WHOLE: Final = (
    ("number", 1, _MOST_SHOTS),
    ("round", 0, _MOST_SHOTS),
    ("subscribers", 0, _MOST_SHOTS),
    ("started_ns", 0, _MOST),
)
"""Required numbers, the least that each may be, and what each has to be below."""
_TABLES: Final = ("clock_fs", "edges_fs", "edges_found", "nodes")


def write_shot(path: Path, shot: Shot, waveforms: Mapping[str, Waveform]) -> None:
    """Write a shot's file, whole or not at all; OSError where the disk is full."""
    scales = {
        name: {
            "volts_per_code": waveform.volts_per_code,
            "code_at_zero": waveform.code_at_zero,
            "interval_fs": waveform.interval_fs,
            "start_fs": waveform.start_fs,
        }
        for name, waveform in waveforms.items()
    }
    said = json.dumps(
        {
            **{name: getattr(shot, name) for name in _FIELDS},
            "started_ns": shot.started_ns or 0,
            "edges_fs": {name: edge.instant_fs for name, edge in shot.edges.items()},
            "scales": scales,
        },
        allow_nan=False,
    )
    arrays = {_CODES + name: waveform.codes for name, waveform in waveforms.items()}
    arrays[_META] = np.frombuffer(said.encode(), np.uint8)
    octets = io.BytesIO()
    with zipfile.ZipFile(octets, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    replace_file(path, octets.getbuffer())


def replace_file(path: Path, octets: bytes | memoryview) -> None:
    """Write a file under a temporary name, flush it to the disk, then rename it."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_shot(path: Path) -> Shot:
    """Read what is known of a shot, and none of its waveforms; DamagedShotError.

    A file keeps of each edge when it was, and how many the record holds; the rest is found again
    by the judge.
    """
    return _shot(path, _read(path, [])[0])


def read_waveforms(path: Path, names: list[str] | None = None) -> dict[str, Waveform]:
    """Read the waveforms of a shot, all or some, by channel; DamagedShotError."""
    return _waveforms(path, *_read(path, names))


def read_whole_shot(path: Path) -> tuple[Shot, dict[str, Waveform]]:
    """Read all of a shot at once; DamagedShotError."""
    said, codes = _read(path, None)
    return _shot(path, said), _waveforms(path, said, codes)


def expanded_octets(path: Path) -> int:
    """Return how large a shot's file says it is when expanded, 0 where it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _expanded(archive)
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile):
        return 0  # the reader says why


def _shot(path: Path, said: dict[str, Any]) -> Shot:
    known: dict[str, Any] = {n: said[n] for n in (*_FIELDS, "edges_fs") if n in said}
    try:
        for name, least, most in _WHOLE:
            _check(name, known[name], least, most)
        for name in _TABLES:
            if not isinstance(known.get(name, {}), dict):
                raise ValueError(f"{name} is not a table")
        for name in ("latency_fs", "skew_fs"):
            if known.get(name) is not None:
                _check(name, known[name], 1 - _MOST, _MOST)
        for name, least, most in (
            ("clock_fs", 1 - _MOST, _MOST),
            ("edges_fs", 1 - _MOST, _MOST),
            ("edges_found", 0, _MOST_SHOTS),
        ):
            for channel, value in known.get(name, {}).items():
                _check(f"{name} of {channel[:40]!r}", value, least, most)
        if not isinstance(known.get("reason", ""), str):
            raise ValueError("its reason is not text")
        if not isinstance(known.get("simulated", False), bool):
            raise ValueError("simulated is neither true nor false")
        found = known.get("edges_found", {})
        edges = {
            name: Edge(instant_fs, True, quality="", found=max(found.get(name, 1), 1))
            for name, instant_fs in known.pop("edges_fs", {}).items()
        }
        known |= {"outcome": said["outcome"], "started_ns": said["started_ns"] or None}
        return Shot(**known, edges=edges, source=str(path))
    except (TypeError, ValueError, KeyError) as error:
        raise DamagedShotError(_sentence(path, error)) from error


def _check(name: str, value: object, least: int, most: int) -> int:
    """Return a whole number from `least` to below `most`; ValueError."""
    if type(value) is not int:
        raise ValueError(f"{name} is not a whole number")
    if not least <= value < most:
        raise ValueError(f"{name} is not from {least} to {most - 1}")
    return value


def _waveforms(path: Path, said: dict[str, Any], codes: dict[str, Codes]) -> dict[str, Waveform]:
    try:
        return {name: _waveform(said["scales"][name], array) for name, array in codes.items()}
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise DamagedShotError(_sentence(path, error)) from error


def _waveform(scale: Mapping[str, Any], codes: Codes) -> Waveform:
    return Waveform(
        codes=codes,
        volts_per_code=float(scale["volts_per_code"]),
        code_at_zero=float(scale["code_at_zero"]),
        interval_fs=_check("interval_fs", scale["interval_fs"], 1, _MOST),
        start_fs=_check("start_fs", scale["start_fs"], 1 - _MOST, _MOST),
    )


def _read(path: Path, names: list[str] | None) -> tuple[dict[str, Any], dict[str, Codes]]:
    try:
        with zipfile.ZipFile(path) as archive:
            if (octets := _expanded(archive)) > _LARGEST:
                raise ValueError(f"{octets} octets when expanded, more than {_LARGEST}")
            meta = json.loads(_array(archive, _META).tobytes())
            if names is None:
                names = [
                    name.removeprefix(_CODES).removesuffix(".npy")
                    for name in archive.namelist()
                    if name.startswith(_CODES)
                ]
            codes = {name: _array(archive, _CODES + name) for name in names}
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        RuntimeError,  # encrypted, or compressed in a way that is not known
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DamagedShotError(_sentence(path, error)) from error
    if not isinstance(meta, dict):
        raise DamagedShotError(_sentence(path, ValueError("its meta is not an object")))
    return meta, codes


def _expanded(archive: zipfile.ZipFile) -> int:
    return sum(entry.file_size for entry in archive.infolist())


def _array(archive: zipfile.ZipFile, name: str) -> Codes:
    """Read one array. numpy's own way through an archive copies every octet twice more."""
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type not in _METHODS:
        raise ValueError(f"{name} is compressed by method {entry.compress_type}")
    with archive.open(entry) as member:
        octets = member.read(entry.file_size)  # and no more, whatever it expands to
    stream = io.BytesIO(octets)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"{name} is an array of version {version}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "iu" or len(shape) != 1:
        raise ValueError(f"{name} does not hold a row of integers")
    return np.frombuffer(octets, dtype, count=shape[0], offset=stream.tell())


def _sentence(path: Path, error: Exception) -> str:
    return f"{path} is not a shot that can be read ({error}); it is left out."
