"""Scenarios made by chance: the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from attacks import KINDS, Move, attacked
from play import Conditions, Play
from virtual_time import MS, SECOND, US, Slew

_TOPICS = ("q", "r", "f", "rf", "qrf", "c", "l", "cl", "t", "o", "tqrfclo")
_ROLES = (
    ("client",),
    ("server",),
    ("first",),
    ("last",),
    ("first", "last"),
    ("client", "server", "first", "last"),
)
_AMOUNTS_NS = (0, 10 * US, 100 * US, MS, 10 * MS, 100 * MS, 300 * MS, 900 * MS, 3 * SECOND)


@dataclass(frozen=True)
class Scenario:
    """Conditions, and what whoever runs the broker does."""

    conditions: Conditions
    moves: tuple[Move, ...]
    broadcast_key: bool
    """Whether he has the broadcast key of a client that was broken into."""

    def play(self) -> Play:
        """Play it to its end."""
        return attacked(self.conditions, self.moves, broadcast_key=self.broadcast_key)


def of_seed(seed: int) -> Scenario:
    """Make a scenario by chance."""
    chance = random.Random(f"scenario {seed}")
    conditions = _conditions(chance, seed)
    key = chance.random() < 0.5
    moves = tuple(
        _move(chance, conditions.duration_s) for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 6)))
    )
    return Scenario(conditions, moves, key)


_SLEWED_NS = (US, 20 * US, 500 * US, 5 * MS, 50 * MS)
_LEAST_PPM, _MOST_PPM = 10.0, 83_333.0
"""The slowest slew that matters, and the fastest of chronyd (`maxslewrate`)."""


def _slews(chance: random.Random, duration_s: float, offset_ns: int) -> tuple[Slew, ...]:
    """Corrections one after the other, each to another error; that is 0, or made by chance."""
    slews: list[Slew] = []
    start_s, off_ns = chance.uniform(0.0, duration_s), offset_ns
    for _ in range(chance.choice((1, 1, 2, 3))):
        to_ns = chance.choice((0, 0, chance.randint(-1, 1) * chance.choice(_SLEWED_NS)))
        by_chance = _LEAST_PPM * (_MOST_PPM / _LEAST_PPM) ** chance.random()
        slew = Slew(start_s, to_ns - off_ns, chance.choice((_LEAST_PPM, _MOST_PPM, by_chance)))
        slews.append(slew)
        start_s += slew.took_ns / SECOND + chance.choice((0.0, 0.01, chance.uniform(0.0, 5.0)))
        off_ns = to_ns
    return tuple(slews)


def _corrected(seed: int, duration_s: float) -> dict[str, Any]:
    """What the chronyds of client and server do to clocks that err."""
    chance = random.Random(f"clocks of {seed}")
    offset_ns = chance.choice((-1, 1)) * chance.choice(_SLEWED_NS)
    return {
        "client_slews": _slews(chance, duration_s, 0),
        "server_offset_ns": offset_ns,
        "server_ppm": chance.choice((0.0, chance.uniform(-98.0, 98.0))),
        "server_wander_ppb": chance.choice((0.0, 1.0, 5.0)),
        "server_slews": _slews(chance, duration_s, offset_ns),
        "server_early_s": chance.choice((0.0, 6.0)),
        "server_residual_ppm": chance.choice((0.0, chance.uniform(-0.5, 0.5))),
    }


def _conditions(chance: random.Random, seed: int) -> Conditions:
    estimator: dict[str, Any] = {}
    if chance.random() < 0.5:  # so that lesser kinds of samples come to be used in a short time
        estimator["prefer_better_s"] = chance.choice((0.0, 3.0, 10.0))
    if chance.random() < 0.3:
        estimator["holdover_after_s"] = chance.choice((2.0, 10.0))
    if chance.random() < 0.2:
        estimator["tolerated_faults"] = 0
    for switch in ("use_echo", "use_lucky", "use_frequency", "use_follow_up", "use_residence"):
        if chance.random() < 0.08:
            estimator[switch] = False
    client = {
        "exchange_interval_s": chance.choice((1.0, 4.0, 8.0)),
        "exchange_burst": chance.choice((1, 4)),
        "start_burst": chance.choice((1, 4, 12)),
        "format": chance.choice(("auto", "auto", "precise")),
    }
    duration_s = chance.choices((8.0, 12.0, 20.0, 40.0, 90.0), (8, 8, 4, 2, 1))[0]
    return Conditions(
        seed=seed,
        duration_s=duration_s,
        client_offset_ns=chance.choice(
            (0, -3 * MS, 500 * MS, -86_400 * SECOND, -1_700_000_000 * SECOND)
        ),
        ppm=chance.choice((0.0, 20.0, chance.uniform(-98.0, 98.0), 98.0, -98.0)),
        wander_ppb=chance.choice((0.0, 1.0, 5.0)),
        slew_ppm=chance.choice((0.0, 0.0, 500.0, -500.0)),
        **_corrected(seed, duration_s),
        least_link_ns=chance.choice((5 * US, 40 * US, 300 * US, 5 * MS)),
        kernel_stamps=chance.random() < 0.9,
        shared_reads=chance.choice((0.0, 0.0, 0.1)),
        busy_ns=chance.choice((0, 0, MS, 20 * MS)),
        fills=chance.random() < 0.6,
        client=client,
        estimator=estimator,
    )


def _move(chance: random.Random, duration_s: float) -> Move:
    kind = chance.choice(KINDS)
    start_s = chance.choice((0.0, 2.5, chance.uniform(0.0, duration_s)))
    amount_ns = chance.choice(_AMOUNTS_NS)
    if chance.random() < 0.5:
        amount_ns = chance.randrange(amount_ns + 1)
    return Move(
        kind,
        start_s,
        chance.choice((3.0, 10.0, 1e6)),
        chance.choice(_TOPICS),
        chance.choice(_ROLES),
        chance.choice((1.0, 1.0, 0.5, 0.1)),
        chance.choice((1, -1)) * amount_ns if kind == "ramp" else amount_ns,
    )


def without(scenario: Scenario, index: int) -> Scenario:
    """Return the scenario without one of its moves."""
    return replace(scenario, moves=scenario.moves[:index] + scenario.moves[index + 1 :])
