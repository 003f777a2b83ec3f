"""Metrics as Prometheus' text exposition format 0.0.4, from a flat snapshot.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format).
A program hands over a list of `Metric`, one for each time series. A series without a value at the
moment (None) is left out, because a made-up zero would look like a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One time series at this moment.

    `name` contains the SI base unit (`mqtick_offset_seconds`); a counter's name ends in `_total`.
    All series of one name have the same help and kind, and different labels.
    """

    name: str
    value: int | float | None
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    labels: Mapping[str, str] = field(default_factory=dict)


def render(metrics: Iterable[Metric]) -> str:
    """Return the exposition of a snapshot; series of one name are kept together."""
    families: dict[str, list[str]] = {}
    for metric in metrics:
        if metric.value is None:
            continue
        lines = families.setdefault(metric.name, [])
        if not lines:
            lines.append(f"# HELP {metric.name} {_escaped(metric.help, quote=False)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines.append(f"{_series(metric)} {_number(metric.value)}")
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _series(metric: Metric) -> str:
    if not metric.labels:
        return metric.name
    pairs = (f'{label}="{_escaped(text)}"' for label, text in sorted(metric.labels.items()))
    return f"{metric.name}{{{','.join(pairs)}}}"


def _escaped(text: str, *, quote: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: int | float) -> str:
    if isinstance(value, int):
        return str(int(value))  # int() turns a boolean into 0 or 1
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
