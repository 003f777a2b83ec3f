"""Durations as text."""

from __future__ import annotations


def duration(value_ns: float) -> str:
    """Return a duration for a sentence: three or four digits, and the unit that fits."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(value_ns) >= factor or unit == "us":
            shown = value_ns / factor
            break
    digits = 3 if abs(shown) < 10 else 2 if abs(shown) < 100 else 1
    plain = f"{shown:.{digits}f}".rstrip("0").rstrip(".")
    return f"{plain} {unit}"


def figure(value_ns: int | None, sign: str = "") -> str:
    """Return a duration for a column, which can be compared down the lines; empty if unknown.

    So `mqtick-client status` shows it too.
    """
    if value_ns is None:
        return ""
    if abs(value_ns) >= 10_000_000:
        return f"{value_ns / 1e6:{sign}.3f} ms"
    return f"{value_ns / 1000:{sign}.1f} us"
