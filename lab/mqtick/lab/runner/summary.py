"""The result of a run in numbers, next to the published ones."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from mqtick.recording.published import PUBLISHED, Published
from mqtick.recording.reasons import counted
from mqtick.recording.run_folder import Run
from mqtick.recording.shot import CAPTURED, MISSED, REFUSED, Shot
from mqtick.recording.units import FS_PER_US

_REASONS_SHOWN: Final = 5
ENOUGH_FOR_P99: Final = math.ceil(math.log(0.05) / math.log(0.99))
"""With fewer values, not even the largest one bounds p99 (with 95 % confidence)."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of `n` values, us; `deviation_us`: sample standard deviation (None for n < 2)."""

    n: int
    mean_us: float
    deviation_us: float | None
    median_us: float
    p99_us: float
    least_us: float
    most_us: float

    @classmethod
    def of(cls, values_fs: Sequence[int]) -> Statistics | None:
        """Compute the statistics; None without values."""
        if not values_fs:
            return None
        values = np.array(values_fs, np.float64) / FS_PER_US
        return cls(
            n=len(values),
            mean_us=float(values.mean()),
            deviation_us=float(values.std(ddof=1)) if len(values) > 1 else None,
            median_us=float(np.median(values)),
            p99_us=float(np.percentile(values, 99)),
            least_us=float(values.min()),
            most_us=float(values.max()),
        )


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One quantity at one N (0 without subscribers), and how many of its shots failed."""

    quantity: str
    subscribers: int
    missed: int
    refused: int
    statistics: Statistics | None
    published: Published | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in numbers; `reasons` counts why shots were missed or refused."""

    title: str
    kind: str
    simulated: bool
    rows: tuple[SummaryRow, ...]
    reasons: dict[str, int]
    damaged: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it for programs; durations in us."""
        return asdict(self)

    def as_text(self) -> str:
        """Return it as a table for people."""
        return "\n".join(_text(self))


def summarise(run: Run) -> Summary:
    """Compute the statistics of a run, reading each shot's summary once."""
    return summarise_shots(
        run.shots(),
        title=str(run.record.get("title", "")),
        kind=run.kind,
        simulated=run.simulated,
        damaged=run.damaged,
    )


def summarise_shots(
    shots: Iterable[Shot],
    *,
    title: str,
    kind: str,
    simulated: bool,
    damaged: Sequence[str] = (),
) -> Summary:
    """Compute the statistics of shots; `damaged` is read after the shots, which fill it."""
    values: dict[tuple[str, int], list[int]] = defaultdict(list)
    missed: Counter[int] = Counter()
    refused: Counter[int] = Counter()
    reasons: list[str] = []
    for shot in shots:
        simulated = simulated or shot.simulated
        if shot.outcome == CAPTURED:
            for quantity, value_fs in quantities(shot):
                values[quantity, shot.subscribers].append(value_fs)
            continue
        missed[shot.subscribers] += shot.outcome == MISSED
        refused[shot.subscribers] += shot.outcome == REFUSED
        reasons.append(shot.reason)
    seen = {quantity for quantity, _ in values}
    wanted = sorted(seen, key=lambda name: (name.partition(" ")[0] != kind, name)) or [kind]
    numbers = {number for _, number in values} | set(missed) | set(refused)
    rows = tuple(
        SummaryRow(
            quantity,
            number,
            missed[number],
            refused[number],
            Statistics.of(values[quantity, number]),
            PUBLISHED.get((quantity, number)),
        )
        for quantity in wanted
        for number in sorted(numbers)
    )
    return Summary(title, kind, simulated, rows, counted(reasons), tuple(damaged))


def quantities(shot: Shot) -> list[tuple[str, int]]:
    """Return what a shot measured, by name, in fs: skew, latency, or `clock CHANNEL`."""
    found = [("latency", shot.latency_fs), ("skew", shot.skew_fs)]
    found += [(f"clock {channel}", value) for channel, value in shot.clock_fs.items()]
    return [(name, value) for name, value in found if value is not None]


_MEANING: Final = {
    "latency": "latency: the first subscriber's edge minus the publisher's",
    "skew": "skew: the last subscriber's edge minus the first one's",
    "clock": "clock: a pps edge minus the reference's; positive is late",
}
HEAD: Final = "      N     n  missed      mean        sd    median       p99       max"
_PUBLISHED: Final = "   published (sw | hw)"


def _text(summary: Summary) -> list[str]:
    label = "SIMULATED: " if summary.simulated else ""
    lines = [f"{label}{summary.title or summary.kind}"]
    for quantity in dict.fromkeys(row.quantity for row in summary.rows):
        name, _, channel = quantity.partition(" ")
        of = f" ({channel})" if channel else ""
        rows = [row for row in summary.rows if row.quantity == quantity]
        head = HEAD + (_PUBLISHED if any(row.published for row in rows) else "")
        lines += ["", f"{_MEANING.get(name, name)}{of}, in us", head, *map(row_text, rows)]
    counts = [row.statistics.n for row in summary.rows if row.statistics]
    if counts and min(counts) < ENOUGH_FOR_P99:
        lines += [
            "",
            f"p99 of {min(counts)} shots is little more than their largest value: it takes "
            f"{ENOUGH_FOR_P99} or more to bound it.",
        ]
    if any(row.published for row in summary.rows):
        lines.append(
            "published: Yamamoto, Fukuhara, Nishi 2022, software | hardware broker, mean and "
            "standard deviation of 20."
        )
    common = Counter(summary.reasons).most_common(_REASONS_SHOWN)
    lines += [f"{count} x {reason}" for reason, count in common]
    if len(summary.reasons) > len(common):
        lines.append(f"and {len(summary.reasons) - len(common)} other reasons: see --json")
    return lines + [f"damaged: {sentence}" for sentence in summary.damaged]


def row_text(row: SummaryRow) -> str:
    """Return a line of the table below `HEAD`."""
    failed = row.missed + row.refused
    start = f"{row.subscribers or '-':>7}"
    found = row.statistics
    if found is None:
        line = f"{start}{0:>6}{failed:>8}" + f"{'-':>10}" * 5
    else:
        deviation = "-" if found.deviation_us is None else f"{found.deviation_us:.2f}"
        line = (
            f"{start}{found.n:>6}{failed:>8}{found.mean_us:>10.2f}{deviation:>10}"
            f"{found.median_us:>10.2f}{found.p99_us:>10.2f}{found.most_us:>10.2f}"
        )
    if row.published:
        known = row.published
        line += (
            f"   {known.software_mean_us:g} +- {known.software_deviation_us:g} | "
            f"{known.hardware_mean_us:g} +- {known.hardware_deviation_us:g}"
        )
    return line
