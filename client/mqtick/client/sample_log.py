"""Logs each sample as a line of JSON for later analysis; a full disk loses lines, nothing else."""

from __future__ import annotations

import json
import logging
from typing import IO, Any

from mqtick.client.pending import WallSample
from mqtick.client.track import Track

_log = logging.getLogger(__name__)


def record(track: Track, wall: WallSample) -> dict[str, Any]:
    """Return a sample as a JSON object; offsets are reference minus the judged clock, ns."""
    sample = wall.sample

    def against_wall(value_ns: int | None) -> int | None:
        return None if value_ns is None else value_ns - wall.time_minus_raw_ns

    return {
        "server": -1 if track.number is None else track.number,
        "kind": str(sample.kind),
        "sequence": sample.sequence,
        "generation": sample.generation,
        "realtime_ns": wall.realtime_ns,
        "local_ns": sample.local_ns,
        "offset_ns": wall.offset_ns,
        "lower_ns": against_wall(sample.lower_ns),
        "upper_ns": against_wall(sample.upper_ns),
        "delay_ns": sample.delay_ns,
        "verdict": str(sample.verdict),
        "reason": str(sample.reason),
        "authenticated": sample.authenticated,
        "stamps": {
            name: {"ns": reading.instant_ns, "source": reading.source.name.lower()}
            for name, reading in sample.readings
        },
    }


class SampleLog:
    """Appends records to a file; lost records are counted, and the first is reported."""

    def __init__(self, path: str) -> None:
        self.lost = 0
        self.trouble = ""
        """Why nothing is logged; empty if it is."""
        self._path = path
        self._file: IO[str] | None = None
        self.tend()

    def tend(self) -> None:
        """Open the file if it is not open."""
        if self._file is None:
            try:
                self._file = open(self._path, "a", encoding="ascii", buffering=1)  # noqa: SIM115
            except OSError as error:
                self._say(error)

    def write(self, track: Track, wall: WallSample) -> None:
        """Append one record."""
        try:
            if self._file is None:
                self.lost += 1
                return
            self._file.write(json.dumps(record(track, wall)) + "\n")
            self.trouble = ""
        except OSError as error:
            self.lost += 1
            self._say(error)

    def _say(self, error: OSError) -> None:
        if not self.trouble:
            _log.warning("samples are not logged to %s: %s", self._path, error.strerror)
        self.trouble = f"samples are not logged to {self._path}: {error.strerror}"

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                self.lost += 1
            self._file = None
