"""Metrics as Prometheus' text exposition format 0.0.4, from a flat snapshot.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format).
A program hands over a list of :class:`Metric`, one for each time series; what has no value at the
moment (None) is left out, because a made-up zero would be read as a measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Metric:
    """One time series at this moment.

    ``name`` says the unit in SI base units (``mqtick_offset_seconds``); a counter's name ends in
    ``_total``.  All series of one name have the same help and kind.
    """

    name: str
    value: int | float | None
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    labels: Mapping[str, str] = field(default_factory=dict)


def render(metrics: Iterable[Metric]) -> str:
    """Return the exposition of a snapshot; series of one name are kept together.

    Raises ValueError, with a sentence, for what no reader would accept: a bad name, a counter
    below zero or without ``_total``, two kinds or helps of one name, a series given twice.
    """
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        _check(metric)
        family = families.setdefault(metric.name, [])
        if family and (family[0].kind, family[0].help) != (metric.kind, metric.help):
            raise ValueError(f"metric {metric.name} is given with two kinds or two helps")
        family.append(metric)
    lines: list[str] = []
    for name, family in families.items():
        series = {_series(metric): metric.value for metric in family}
        if len(series) < len(family):
            raise ValueError(f"metric {name} is given twice with the same labels")
        known = {text: value for text, value in series.items() if value is not None}
        if known:
            lines.append(f"# HELP {name} {_escaped(family[0].help, quote=False)}")
            lines.append(f"# TYPE {name} {family[0].kind}")
            lines += [f"{text} {_number(value)}" for text, value in known.items()]
    return "".join(line + "\n" for line in lines)


def _check(metric: Metric) -> None:
    if not _NAME.match(metric.name):
        raise ValueError(f"{metric.name!r} cannot be the name of a metric")
    for label in metric.labels:
        if not _LABEL.match(label):
            raise ValueError(f"{label!r} cannot be a label of metric {metric.name}")
    if metric.kind == "counter":
        if not metric.name.endswith("_total"):
            raise ValueError(f"counter {metric.name} must be named {metric.name}_total")
        if metric.value is not None and not metric.value >= 0:
            raise ValueError(f"counter {metric.name} is {metric.value}, but counters only grow")


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
        return str(int(value))  # int() makes 0 or 1 of a boolean
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
