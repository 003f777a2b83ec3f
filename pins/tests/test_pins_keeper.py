"""A line that cannot be opened, hangs or breaks is opened again; the caller goes on meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from mqtick.pins import Keeper, LatencyClass, Line, MemoryLine, PinError, PinSettings

SETTINGS = PinSettings("memory", mode="pulse", width_us=1)


class Breaking(MemoryLine):
    """Works until it is told that its wire is cut."""

    cut = False

    def set(self, level: bool) -> None:
        if self.cut:
            raise OSError("the wire is cut")
        super().set(level)


class Opener:
    """Opens a line, or raises what it was told to, and counts."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles, self.lines = [*troubles], list[Breaking]()

    def __call__(self, settings: PinSettings) -> Line:
        if self.troubles:
            raise self.troubles.pop(0)
        self.lines.append(Breaking(settings))
        return self.lines[-1]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqtick.pins.keeper._RETRY_S", 0.0)


def tended(keeper: Keeper, until: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 10
    while not until():
        assert time.monotonic() < deadline_s, keeper.trouble
        keeper.tend()
        time.sleep(0.001)


def test_a_line_that_opens_at_once_is_used_at_once() -> None:
    keeper = Keeper(SETTINGS, Opener())
    assert keeper.trouble == ""
    assert keeper.output.fire().made
    assert keeper.output.latency_class is LatencyClass.SIMULATED


@pytest.mark.parametrize("trouble", [PinError("no chip"), KeyError("no chip")])
def test_what_cannot_be_opened_says_why_and_is_tried_again(trouble: Exception) -> None:
    keeper = Keeper(SETTINGS, Opener(trouble))
    assert "no chip" in keeper.trouble
    assert not keeper.output.fire().made
    assert "no chip" in keeper.output.last_error
    assert keeper.output.latency_class is LatencyClass.CLOSED
    tended(keeper, lambda: not keeper.trouble)
    assert keeper.output.fire().made


def test_a_line_that_breaks_is_closed_and_opened_again() -> None:
    opener = Opener()
    keeper = Keeper(SETTINGS, opener)
    opener.lines[0].cut = True
    assert not keeper.output.fire().made
    keeper.tend()
    assert "wire is cut" in keeper.trouble
    tended(keeper, lambda: not keeper.trouble)
    assert keeper.output.fire().made
    assert len(opener.lines) == 2


def test_an_opener_that_hangs_holds_nobody_up_and_is_not_started_twice() -> None:
    let_go, calls = threading.Event(), list[PinSettings]()

    def hanging(settings: PinSettings) -> Line:
        calls.append(settings)
        let_go.wait(20)
        return Breaking(settings)

    keeper = Keeper(SETTINGS, hanging)
    for _ in range(3):
        keeper.tend()
        assert not keeper.output.fire().made
    assert "has not answered yet" in keeper.trouble
    let_go.set()
    tended(keeper, lambda: not keeper.trouble)
    assert len(calls) == 1


def test_settings_that_no_line_can_have_are_refused_at_once() -> None:
    with pytest.raises(PinError, match="width_us"):
        Keeper(PinSettings("memory", width_us=0))
