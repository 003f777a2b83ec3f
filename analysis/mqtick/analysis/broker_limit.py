"""What `mqtick-load limit --json` found out about a broker."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mqtick.recording.capture import CaptureError


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of the search: messages a second, copies that came over copies due."""

    ingress: float
    ratio: float
    held: bool


@dataclass(frozen=True, slots=True)
class Level:
    """Percentiles at a share of the limit: of `count` values, by percent, in us."""

    name: str
    count: int
    percents: tuple[float, ...]
    values_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BrokerLimit:
    """How many messages a second a broker carries, and its latency there and below.

    Attributes:
        broker: its address.
        ended: when the search ended, UTC.
        version: of mqtick-load.
        ingress: the limit, in messages a second to the broker.
        low: the least that it may be.
        high: the most that it may be.
        egress: copies a second at the limit.
        trials: the search, in its order.
        latency: from leaving to each copy.
        skew: from a message's first copy to its last.
        rows: every figure: quantity, unit, who, and its least, median and greatest value.
        notes: sentences on how it was measured.
    """

    broker: str
    ended: datetime
    version: str
    ingress: float
    low: float
    high: float
    egress: float
    trials: tuple[Trial, ...]
    latency: tuple[Level, ...]
    skew: tuple[Level, ...]
    rows: tuple[tuple[str, str, str, float, float, float], ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, printed: Mapping[str, Any]) -> BrokerLimit:
        """Take what the program printed; KeyError, TypeError or ValueError if it is no such."""
        medians = {row["key"]: row["median"] for row in printed["rows"]}
        lists = printed["lists"]
        each = (lists[f"trial_{name}"] for name in ("ingress", "ratio", "held"))
        return cls(
            broker=str(printed["parameters"]["broker"]),
            ended=datetime.fromtimestamp(printed["ended_unix_s"], UTC),
            version=str(printed["version"]),
            ingress=_positive(medians["limit_ingress"]),
            low=_positive(medians["limit_ingress_low"]),
            high=_positive(medians["limit_ingress_high"]),
            egress=_positive(medians["limit_egress"]),
            trials=tuple(
                Trial(_positive(ingress), _positive(ratio, least=0.0), bool(held))
                for ingress, ratio, held in zip(*each, strict=True)
            ),
            latency=_levels(lists, "wire"),
            skew=_levels(lists, "skew"),
            rows=tuple(
                (
                    str(row["quantity"]),
                    str(row["unit"]),
                    str(row["who"]),
                    _known(row["min"]),
                    _known(row["median"]),
                    _known(row["max"]),
                )
                for row in printed["rows"]
            ),
            notes=tuple(map(str, printed["notes"])),
        )


def _levels(lists: Mapping[str, Any], what: str) -> tuple[Level, ...]:
    levels = []
    for key, values in lists.items():
        if key.startswith(f"{what}_us "):
            name = key.partition(" ")[2]
            (count,) = lists[f"{what}_count {name}"]
            percents = tuple(map(float, lists["percentiles"][: len(values)]))
            if not all(0 <= percent < 100 for percent in percents):
                raise ValueError(f"{key}: a percentile is not from 0 to below 100")
            levels.append(Level(name, int(count), percents, tuple(map(_positive, values))))
    return tuple(levels)


def _known(value: float | None) -> float:
    """Return a figure, NaN for one that JSON has no number for."""
    return math.nan if value is None else float(value)


def _positive(value: Any, least: float = 1e-9) -> float:
    """Return a number that can be drawn."""
    if not least <= float(value) < math.inf:
        raise ValueError(f"{value} is not above 0")
    return float(value)


def load_limit(path: Path) -> BrokerLimit:
    """Read a file; CaptureError says why it cannot be read."""
    try:
        printed = json.loads(path.read_bytes())
        if printed["command"] != "limit":
            raise ValueError(f"it is of `mqtick-load {printed['command']}`")
        if not printed["complete"]:
            raise CaptureError(f"{path}: the search ended before it found a limit; repeat it.")
        return BrokerLimit.of(printed)
    except OSError as error:
        raise CaptureError(f"{path} cannot be read ({error.strerror or error}).") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CaptureError(
            f"{path} is not what `mqtick-load limit --json` printed ({error!r})."
        ) from error
