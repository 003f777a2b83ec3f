"""Limits by name or in a user's own words, and whether a measurement shows that they are met."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Final

from mqtick.analysis.statistics.limit import Limit

QUANTITIES: Final = ("latency", "skew", "clock")
STATISTICS: Final = ("mean", "median", "sd", "p5", "p95", "p99", "max")
_UNITS: Final = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_LONGEST: Final = 100
_SHOWN: Final = 40
_LEAST_US: Final = 1e-6
_MOST_US: Final = 1e12
_GRAMMAR: Final = re.compile(
    r"(?P<quantity>\w+)\.(?P<statistic>\w+)\s*(?P<sign><=|≤|<)\s*"
    r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>\w*)"
)


class LimitError(ValueError):
    """A text that is not a limit; says why, and what is nearest to it."""


_TARGET: Final = "Yamamoto, Fukuhara, Nishi, IEEJ Transactions 17(2), 2022: target of the "
_SKEW: Final = _TARGET + "mean skew, twice the 26 us of IEEE C37.118.1"
_LATENCY: Final = _TARGET + "mean latency"
_C37: Final = (
    "IEEE C37.118.1-2011: total vector error of 1 %, by phase alone 0.01 rad at {} Hz (the number "
    "of the clause, 4.3, is from memory); that 99 % meet it is mqtick's choice"
)
_G8271: Final = (
    "ITU-T G.8271 (03/2020), table 1, class {}; as summarised by Calnex Solutions; the "
    "Recommendation itself was not available"
)
_CLASSES_US: Final = (500_000.0, 100.0, 5.0, 1.5, 1.0, 0.5)

PRESETS: Final[dict[str, tuple[Limit, ...]]] = {
    limit.name: (limit,)
    for limit in (
        Limit("published-skew", "skew", "mean", 52.0, _SKEW),
        Limit("published-latency", "latency", "mean", 300.0, _LATENCY),
        Limit("c37.118-60", "clock", "p99", 26.53, _C37.format(60), inclusive=True),
        Limit("c37.118-50", "clock", "p99", 31.83, _C37.format(50), inclusive=True),
        *(
            # Class 6 is written as "below 500 ns".
            Limit(f"g8271-{each}", "clock", "max", most_us, _G8271.format(each), each < 6)
            for each, most_us in enumerate(_CLASSES_US, 1)
        ),
    )
}
_DEFAULTS: Final = {
    "skew": ("published-skew", "published-latency"),
    "latency": ("published-latency",),
    "clock": ("c37.118-60",),
}


def default_limits(kind: str) -> tuple[Limit, ...]:
    """Return what a measurement of this kind is held against where the user says nothing."""
    return tuple(limit for name in _DEFAULTS.get(kind, ()) for limit in PRESETS[name])


def parse_limit(text: str) -> tuple[Limit, ...]:
    """Read a limit; LimitError names what is nearest.

    Either the name of a preset (`c37.118-60`), a preset for another quantity (`skew.c37.118-60`),
    or QUANTITY.STATISTIC<NUMBER UNIT (`skew.p99<100us`, `clock.max<=1.5us`), units ns, us, ms, s.
    """
    said = text.strip()
    if said in PRESETS:
        return PRESETS[said]
    quantity, _, name = said.partition(".")
    if quantity in QUANTITIES and name in PRESETS:
        return tuple(
            dataclasses.replace(limit, name=said, quantity=quantity) for limit in PRESETS[name]
        )
    matched = _GRAMMAR.fullmatch(said) if len(said) <= _LONGEST else None
    if not matched:
        raise LimitError(_unknown(said))
    quantity, statistic, sign, number, unit = matched.groups()
    _known(said, "quantity", quantity, QUANTITIES)
    _known(said, "statistic", statistic, STATISTICS)
    if unit == "x":
        raise LimitError(
            f"The limit {_short(said)} is of a ratio to another measurement; give it to "
            "`mqtick-report compare`, of latency or skew, and of mean, median, p95 or growth."
        )
    if unit not in _UNITS:
        raise LimitError(
            f"The limit {_short(said)} has {'the unit ' + repr(unit) if unit else 'no unit'}; "
            f"write one of ns, us, ms, s, as in {quantity}.{statistic}{sign}{number[:12]}us."
        )
    bound_us = float(number) * _UNITS[unit]
    if not _LEAST_US <= bound_us <= _MOST_US:
        raise LimitError(
            f"The limit {_short(said)} is {bound_us:g} us; it has to be between 0.001 ns and "
            "a million seconds."
        )
    return (Limit(said, quantity, statistic, bound_us, inclusive=sign != "<"),)


def _known(said: str, what: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise LimitError(
            f"The limit {_short(said)} names the {what} {_short(word)}, which is not one "
            f"of {', '.join(words)}{_nearest(word, words) or '.'}"
        )


def _unknown(said: str) -> str:
    return (
        f"{_short(said)} is not a limit{_nearest(said, tuple(PRESETS)) or '.'} Write one like "
        f"skew.p99<100us, or one of {', '.join(PRESETS)}."
    )


def _nearest(word: str, words: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(word[:_SHOWN].lower(), words, 1, 0.5)
    return f"; did you mean {found[0]}?" if found else "."


def _short(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
