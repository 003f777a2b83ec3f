"""Outputs in an event loop, with a simulated loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from mqtick.pins import (
    Edge,
    MemoryLine,
    Output,
    PinSettings,
    monotonic_raw_ns,
    open_output,
    pps,
)
from mqtick.pins.drive import PpsDriver, about_outputs, firing


class SimulatedLoop:
    """Collects what it is to call, and calls it when told, in the order it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, Callable[[], None]]] = []

    def call_later(self, delay_ns: int, callback: Callable[[], None]) -> None:
        self.calls.append(("later", delay_ns, callback))

    def call_at(self, due_ns: int, callback: Callable[[], None], *, precise: bool) -> None:
        assert precise
        self.calls.append(("at", due_ns, callback))

    def next(self) -> tuple[str, int]:
        kind, when_ns, callback = self.calls.pop(0)
        callback()
        return kind, when_ns


def output_of(**settings: object) -> Output:
    return open_output(PinSettings(backend="memory", **settings))  # type: ignore[arg-type]


def levels(output: Output) -> list[bool]:
    assert isinstance(output.line, MemoryLine)
    return [record.level for record in output.line.records()]


def test_a_toggle_needs_nothing_of_the_loop() -> None:
    loop, output = SimulatedLoop(), output_of()
    fire = firing(loop, output)
    fire()
    fire()
    assert levels(output) == [True, False]
    assert loop.calls == []


@pytest.mark.parametrize("settings", [{}, {"mode": "pulse", "width_us": 500}])
def test_each_edge_is_kept_where_somebody_asks_for_them(settings: dict[str, object]) -> None:
    edges: deque[Edge] = deque(maxlen=2)
    output = output_of(**settings)
    fire = firing(SimulatedLoop(), output, edges)
    for _ in range(3):
        fire()
        output.release()
    assert len(edges) == 2
    assert all(edge.made for edge in edges)
    assert isinstance(output.line, MemoryLine)
    assert edges[-1].before_ns <= monotonic_raw_ns()


def test_outputs_are_described_for_the_record_of_a_run() -> None:
    about = about_outputs({"arrival": output_of(line=5)})
    assert about["simulated"] is True
    assert set(about["pins"]) == {"arrival"}
    assert about["pins"]["arrival"]["backend"] == "memory"
    assert about_outputs({}) == {"pins": {}, "simulated": False}


def test_a_long_pulse_is_ended_by_the_loop() -> None:
    loop, output = SimulatedLoop(), output_of(mode="pulse", width_us=200)
    firing(loop, output)()
    assert levels(output) == [True]
    assert loop.next() == ("later", 200_000)
    assert levels(output) == [True, False]


def test_while_the_clock_is_not_known_it_is_asked_again_and_again() -> None:
    loop, output = SimulatedLoop(), output_of()
    PpsDriver(loop, output, lambda _: None).start()
    for _ in range(3):
        kind, delay_ns = loop.next()
        assert kind == "later"
        assert delay_ns <= 1_000_000_000
    assert levels(output) == []


def test_an_edge_is_kept_its_pulse_ended_and_the_next_one_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pps, "SECOND_NS", 20_000_000)
    monkeypatch.setattr(pps, "LATE_LIMIT_NS", 5_000_000)
    loop, output = SimulatedLoop(), output_of(mode="pulse", width_us=200)
    driver = PpsDriver(loop, output, lambda time_ns: time_ns)
    driver.start()
    while not driver.edges:
        due_ns = driver.pps.next_due_ns()
        assert due_ns is not None
        while monotonic_raw_ns() < due_ns:
            pass
        loop.next()
    assert [kind for kind, _, _ in loop.calls] == ["later", "at"]
    assert loop.next() == ("later", 200_000)
    assert levels(output) == [True, False]
    assert driver.edges[0].before_ns >= driver.edges[0].target_raw_ns
