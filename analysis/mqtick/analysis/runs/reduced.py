"""What was found in a run's shots, kept beside them: waveforms are looked at once.

`reduced.json` in the run folder has two lines: a digest of the second one, and the shots. A shot is
taken from there only if its file has the same size and time of change, and if it was judged by the
same code for the same layout; a file that is not whole, or whose digest differs, is not used. It
may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import mqtick.recording
from mqtick.recording.edges import Edge
from mqtick.recording.layout import Layout
from mqtick.recording.shot import Shot, replace_file

_NAME: Final = "reduced.json"
_MOST_OCTETS: Final = 1 << 30
_SHOT: Final = tuple(each.name for each in fields(Shot) if each.name != "source")
_EDGE: Final = tuple(each.name for each in fields(Edge))
_NOTHING: Final = type(None)
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("number", "subscribers", "round"), (int,)),
    **dict.fromkeys(("started_ns", "latency_fs", "skew_fs"), (int, _NOTHING)),
    **dict.fromkeys(("edges", "clock_fs", "edges_found", "nodes", "outliers"), (dict,)),
    "reason": (str,),
    "simulated": (bool,),
}
_EDGE_KINDS: Final = ((int,), (bool,), (int,), (str,), (float, int), (bool,), (int,))

Known = tuple[Shot | None, Shot | None]
"""A shot as the bench kept it, and as it was judged again (None: no waveforms)."""


class Reduced:
    """The shots of one run that need not be looked at again."""

    def __init__(self, folder: Path, layout: Layout | None) -> None:
        self._path = folder / _NAME
        self._key = f"{_code()} {layout!r}"
        self._rows: dict[str, list[Any]] = _rows(self._path, self._key)
        self._new = False

    def get(self, path: Path) -> Known | None:
        """Return what is known of a shot's file, None where it has to be looked at."""
        row = self._rows.get(path.name)
        try:
            if row is None or row[0] != _state(path):
                return None
            return _shot(row[1], path), _shot(row[2], path)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            return None  # somebody wrote it who knows how to make a digest

    def put(self, path: Path, known: Known) -> None:
        """Keep what was found."""
        self._rows[path.name] = [_state(path), *map(_row, known)]
        self._new = True

    def save(self) -> None:
        """Write what is new; where nothing may be written, the next time takes longer."""
        if not self._new:
            return
        body = json.dumps([self._key, self._rows], separators=(",", ":")).encode()
        try:
            replace_file(self._path, _digest(body) + b"\n" + body + b"\n")
        except OSError:
            return


def _code() -> str:
    """Return a digest of the code that judges: another version may find other edges."""
    digest = hashlib.sha256()
    for folder in sorted(mqtick.recording.__path__):
        for path in sorted(Path(folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _rows(path: Path, key: str) -> dict[str, list[Any]]:
    try:
        if path.stat().st_size > _MOST_OCTETS:
            return {}
        digest, _, body = path.read_bytes().rstrip(b"\n").partition(b"\n")
        if digest != _digest(body):
            return {}
        known, rows = json.loads(body)
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    return rows if known == key and isinstance(rows, dict) else {}


def _state(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _row(shot: Shot | None) -> list[Any] | None:
    if shot is None:
        return None
    row = {name: getattr(shot, name) for name in _SHOT}
    row["edges"] = {
        node: [getattr(edge, name) for name in _EDGE] for node, edge in shot.edges.items()
    }
    return [
        dict(value) if isinstance(value, Mapping) else value for value in (row[n] for n in _SHOT)
    ]


def _shot(row: list[Any] | None, path: Path) -> Shot | None:
    if row is None:
        return None
    known = dict(zip(_SHOT, row, strict=True))
    for name, kinds in _KINDS.items():
        if type(known[name]) not in kinds:
            raise TypeError(f"{name} is no {kinds[0].__name__}")
    known["edges"] = {node: _edge(values) for node, values in known["edges"].items()}
    known["origins_fs"] = tuple(known["origins_fs"])
    return Shot(**known, source=str(path))


def _edge(values: list[Any]) -> Edge:
    for value, kinds in zip(values, _EDGE_KINDS, strict=True):
        if type(value) not in kinds:
            raise TypeError(f"{value!r:.20} is no {kinds[0].__name__}")
    return Edge(*values)
