"""What a user says of a record where finding its edges fails: thresholds, directions, a window."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from mqtick.recording.shot import replace_file

EVERY: Final = ""
"""In the place of a channel's name: all channels without a rule of their own."""
_FILE: Final = "edges.json"
_FORMAT: Final = "mqtick-edges"
_VERSION: Final = 1
_LARGEST: Final = 1 << 20
_MOST_FS: Final = 10**21


class EdgeOverridesError(ValueError):
    """An override is impossible, or its file cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How the edges of one channel are found, as far as overridden by the user.

    Attributes:
        threshold_v: the voltage whose crossing is an edge; None: halfway between its levels.
        hysteresis_v: width in volts of the band around it, half above and half below, which the
            signal has to leave before the next edge counts; None: as its noise demands.
        invert: whether a falling edge counts as a rising one, and the other way round.
        skip: how many edges at the beginning of each record do not count.
    """

    threshold_v: float | None = None
    hysteresis_v: float | None = None
    invert: bool = False
    skip: int = 0

    def describe(self) -> str:
        """Return the rule in words."""
        parts = [] if self.threshold_v is None else [f"threshold {self.threshold_v:g} V"]
        if self.hysteresis_v is not None:
            parts.append(f"hysteresis {self.hysteresis_v:g} V")
        if self.invert:
            parts.append("inverted")
        if self.skip:
            parts.append(f"the first {self.skip} edges of each record left out")
        return ", ".join(parts)


AUTOMATIC: Final = Rule()


@dataclass(frozen=True, slots=True)
class EdgeOverrides:
    """Rules by the channel's name (`EVERY`: all others), and the window of each record.

    `begin_fs` and `end_fs` are in fs after the trigger (or the start of a record without one);
    None: from its beginning, or to its end.
    """

    rules: Mapping[str, Rule] = field(default_factory=dict)
    begin_fs: int | None = None
    end_fs: int | None = None

    def __bool__(self) -> bool:
        return bool(self.rules) or self.begin_fs is not None or self.end_fs is not None

    def of(self, name: str) -> Rule:
        """Return the rule of a channel."""
        return self.rules.get(name) or self.rules.get(EVERY, AUTOMATIC)

    def check(self, names: Iterable[str]) -> None:
        """EdgeOverridesError where there is a rule for a channel that is not among these."""
        there = list(names)
        if unknown := sorted(set(self.rules) - {EVERY, *there}):
            raise EdgeOverridesError(
                f"Something is said of the edges of {unknown[0]!r}, which is not a channel; there "
                f"are: {', '.join(there) or 'none that are described'}."
            )

    def describe(self, digital: Sequence[str] = ()) -> list[str]:
        """Return it in words, one sentence a rule.

        `digital` are channels without voltages, to which no threshold applies.
        """
        others = "every other channel" if len(self.rules) > 1 else "every channel"
        lines = [f"{name or others}: {rule.describe()}." for name, rule in self.rules.items()]
        rule = self.rules.get(EVERY, AUTOMATIC)
        if digital and (rule.threshold_v, rule.hysteresis_v) != (None, None):
            lines.append(f"No voltages, so no threshold: {', '.join(digital)}.")
        if self.begin_fs is not None or self.end_fs is not None:
            ends = [
                "" if fs is None else f"{word} {fs / 1e9:,.10g} us"
                for word, fs in (("from", self.begin_fs), ("to", self.end_fs))
            ]
            lines.append(f"Only the part of each record {' '.join(end for end in ends if end)}.")
        return lines


NO_OVERRIDES: Final = EdgeOverrides()


# -- kept in a run folder --------------------------------------------------------------------


def keep(folder: Path, edge_overrides: EdgeOverrides) -> None:
    """Write it into a run folder, so that whoever reads the run again finds the same edges.

    OSError where that cannot be.
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "channels": {name: asdict(rule) for name, rule in edge_overrides.rules.items()},
        "from_fs": edge_overrides.begin_fs,
        "to_fs": edge_overrides.end_fs,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(folder / _FILE, text.encode() + b"\n")


def forget(folder: Path) -> None:
    """Take it out of a run folder; OSError where that cannot be."""
    (folder / _FILE).unlink(missing_ok=True)


def kept(folder: Path) -> EdgeOverrides:
    """Return what a run folder keeps; EdgeOverridesError where that cannot be read."""
    path = folder / _FILE
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_LARGEST))
    except FileNotFoundError:
        return NO_OVERRIDES
    except (OSError, ValueError, RecursionError) as error:
        raise EdgeOverridesError(_damaged(path, str(error))) from error
    try:
        if (found["format"], found["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"format {found['format']!r}, version {found['version']!r}")
        rules = {str(name): _rule(each) for name, each in found["channels"].items()}
        return EdgeOverrides(rules, _instant(found["from_fs"]), _instant(found["to_fs"]))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise EdgeOverridesError(_damaged(path, f"{type(error).__name__} {error}")) from error


def _damaged(path: Path, why: str) -> str:
    return (
        f"{path}, which says how the edges of this run are found, cannot be read ({why}). Say it "
        "again (--threshold and others), or give --automatic, which removes the file."
    )


def _rule(said: dict[str, Any]) -> Rule:
    if unknown := set(said) - {each.name for each in fields(Rule)}:
        raise ValueError(f"there is no {sorted(unknown)[0]!r}")
    rule = Rule(**said)
    for value in (rule.threshold_v, rule.hysteresis_v):
        if value is not None and not (type(value) in (int, float) and math.isfinite(value)):
            raise ValueError(f"{value!r} is not a voltage")
    if (rule.hysteresis_v or 0) < 0 or type(rule.invert) is not bool:
        raise ValueError("a hysteresis below 0, or an inversion that is neither true nor false")
    if type(rule.skip) is not int or rule.skip < 0:
        raise ValueError(f"{rule.skip!r} is not a number of edges")
    return rule


def _instant(value: object) -> int | None:
    if value is None or (type(value) is int and abs(value) < _MOST_FS):
        return value
    raise ValueError(f"{value!r} is not an instant in fs")
