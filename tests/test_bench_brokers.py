"""What bench.brokers makes of what mqtick-load prints."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.brokers import (
    FLOOR,
    OURS,
    PEER,
    Figures,
    Mosquitto,
    Scenario,
    load,
    scenarios,
    tell,
)
from demo.local_broker import running

PLAN = scenarios(1.0, 100, 2000, 1000)
PAIRS = PLAN[1]
FAN_OUT = next(one for one in PLAN if "1:100" in one.name)


def printed(key: str, **by_who: list[float]) -> dict[str, Any]:
    rows = [{"key": key, "who": who, "repeats": values} for who, values in by_who.items()]
    return {"rows": rows}


def figures() -> Figures:
    found = Figures()
    for who, cost in ((PEER, 10_000.0), (OURS, 250.0)):
        found.take(PAIRS, who, printed("cost_ns", broker=[cost, cost], floor=[100.0, 100.0]))
    return found


def test_costs_are_compared_with_the_peers_and_the_goals() -> None:
    report = tell(figures(), PLAN, 2000)
    ratios = {one.quantity.removeprefix(PAIRS.name): one for one in report.ratios}
    assert ratios[": cost / Mosquitto's"].ratio == 0.025
    assert ratios[": cost / Mosquitto's"].met
    assert ratios[": cost, ns / that of 3 million a second"].met
    assert ratios[": cost / the best peer's"].met


def test_the_ratio_to_the_floor_is_that_of_blocks_that_took_turns() -> None:
    found = Figures()
    result = printed("cost_ns", broker=[900.0], floor=[600.0], ratio=[1.5])
    found.take(FAN_OUT, OURS, result)
    assert found.values[FAN_OUT.name, "cost_ns", FLOOR] == [600.0]
    (ratio,) = (one for one in tell(found, PLAN, 2000).ratios if "floor" in one.quantity)
    assert (ratio.ratio, ratio.goal, ratio.met) == (1.5, 1.2, False)


def test_what_was_not_measured_is_neither_a_row_nor_a_ratio() -> None:
    found = Figures()
    found.take(PAIRS, PEER, printed("cost_ns", broker=[1.0]))
    report = tell(found, PLAN, 2000)
    assert [row.who for row in report.rows] == [PEER]
    assert report.ratios == []


def test_a_run_that_fails_is_told_in_the_words_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "mqtick-load"
    program.write_text("#!/bin/sh\necho 'mqtick-load: no luck.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("bench.harness.PROGRAMS", tmp_path)
    broker = Mosquitto(tmp_path)
    broker.process = type("Process", (), {"pid": 1})()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match=r"^no luck\.$"):
        load(Scenario("x", ("pairs",), ()), broker)


class Deaf(Mosquitto):
    """A broker that does not end when it is asked to."""

    def start(self) -> None:
        """Start, and wait until it is deaf."""
        script = "trap '' TERM; echo; while :; do sleep 1; done"
        self.process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()


def test_a_broker_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("demo.local_broker._END_S", 0.1)
    with running(Deaf(tmp_path)) as broker:
        process = broker.process
    assert process is not None
    assert process.returncode == -9
