"""Back ends are found by name through the entry point group mqtick.pins."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from mqtick.pins import (
    LatencyClass,
    MemoryLine,
    PinError,
    PinSettings,
    backends,
    discovery,
    open_line,
    open_output,
)


def declare(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    found = EntryPoints(EntryPoint(name, value, discovery.GROUP) for name, value in points.items())
    monkeypatch.setattr(discovery, "entry_points", lambda group: found)


def test_the_four_back_ends_are_declared() -> None:
    assert {"gpiod", "gpiomem", "memory", "pigpio"} <= set(backends())


def test_the_named_back_end_is_opened_with_its_facts() -> None:
    with open_output(PinSettings(backend="memory", line=5)) as output:
        assert isinstance(output.line, MemoryLine)
        assert output.latency_class is LatencyClass.SIMULATED
        assert output.name == "memory line 5 (simulated)"
        assert output.fire().made


def test_a_wrong_name_brings_the_nearest_and_the_list() -> None:
    with pytest.raises(PinError, match=r"'gpoid'; did you mean gpiod\. Known: .*gpiod.*pigpio"):
        open_line(PinSettings(backend="gpoid"))


def test_a_name_like_no_other_brings_the_list() -> None:
    with pytest.raises(PinError, match=r"'zzz'; choose .*gpiomem or memory or pigpio"):
        open_line(PinSettings(backend="zzz"))


def test_somebody_elses_back_end_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_pins")
    module.open_pin = MemoryLine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_pins", module)
    declare(monkeypatch, theirs="their_pins:open_pin")
    assert isinstance(open_line(PinSettings(backend="theirs")), MemoryLine)


def test_a_back_end_that_cannot_be_imported_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, broken="no_such_module_anywhere:open_pin")
    with pytest.raises(PinError, match=r"'broken' \(no_such_module_anywhere.* cannot be loaded"):
        open_line(PinSettings(backend="broken"))


def test_a_program_that_was_never_installed_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch)
    with pytest.raises(PinError, match="no back end at all is installed"):
        open_line(PinSettings(backend="memory"))
