"""docs/adding-an-oscilloscope.md: its code does what it says, and is what it says it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqtick.lab.scope import dialects
from mqtick.lab.scope.dialects import base, rigol_series

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-oscilloscope.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def block_with(words: str) -> str:
    (found,) = (block for block in BLOCKS if words in block)
    return str(found)


def test_the_series_of_the_example_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = dict(vars(rigol_series))
    exec(block_with("class RigolDho4000"), made)
    series = made["RigolDho4000"]
    monkeypatch.setattr(rigol_series, "RigolDho4000", series, raising=False)
    monkeypatch.setitem(dialects.DIALECTS, series.name, series)
    tests: dict[str, Any] = {}
    exec(block_with("def test_a_dho4204"), tests)
    tests["test_a_dho4204_is_recognised"]()


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("def state(", "dialects/keysight.py"),
        ("_set(", "simulator/keysight.py"),
    ],
)
def test_what_is_quoted_stands_in_the_file(words: str, file: str) -> None:
    source = (ROOT / "lab/mqtick/lab/scope" / file).read_text(encoding="utf-8")
    lines = {line.strip() for line in source.splitlines()}
    assert [line for line in block_with(words).splitlines() if line.strip() not in lines] == []


def test_every_method_of_a_dialect_is_told_of() -> None:
    methods = {name for name in vars(base.Dialect) if not name.startswith("_")}
    methods -= {"name", "title", "pattern", "port", "untried"}
    rows = " ".join(re.findall(r"^\| (`.*?`) \|", TEXT, re.MULTILINE))
    assert methods <= set(re.findall(r"`(\w+)`", rows))
