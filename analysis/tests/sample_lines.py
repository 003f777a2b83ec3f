"""Lines of a client's sample log, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mqtick.analysis.clocks.sample_log import open_sample_log
from mqtick.analysis.measurement import TimeErrors

SECOND = 1_000_000_000
EPOCH = 1_795_208_084 * SECOND

# A line of client/README.md: what a real client wrote.
REAL = (
    '{"server": 0, "kind": "echo", "sequence": 572030733, "generation": 42, '
    '"realtime_ns": 1795208084297411627, "local_ns": 7361283990747, "offset_ns": 1005, '
    '"lower_ns": -17393, "upper_ns": 14725, "delay_ns": 17440, "verdict": "used", '
    '"reason": "selected", "authenticated": true, "stamps": {"first_echo": '
    '{"ns": 1795208084297403858, "source": "kernel"}, "arrival": {"ns": 7361283990747, '
    '"source": "kernel"}, "last_echo": {"ns": 1795208084297421298, "source": "kernel"}}}'
)


def sample(at_s: float, offset_ns: int = 0, **changed: Any) -> dict[str, Any]:
    at_ns = round(at_s * SECOND)
    return {
        "server": 0,
        "kind": "echo",
        "realtime_ns": EPOCH + at_ns - offset_ns,
        "local_ns": 77 * SECOND + at_ns,
        "offset_ns": offset_ns,
        "lower_ns": offset_ns - 20_000,
        "upper_ns": offset_ns + 20_000,
        "delay_ns": 17_000,
        "verdict": "used",
        "reason": "selected",
        **changed,
    }


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "node 1.jsonl"
    path.write_bytes(
        b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
    )
    return path


def only(path: Path) -> TimeErrors:
    (found,) = open_sample_log(path).errors
    return found
