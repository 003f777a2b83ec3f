"""docs/adding-an-oscilloscope.md: its code does what it says, and is what it says it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from package_rig import provide

from mqtick.lab.scope.dialects import Identity, base, dialect_for

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-oscilloscope.md").read_text(encoding="utf-8")


def example(language: str, words: str) -> str:
    """Return the only piece of code with these words."""
    pieces = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    (found,) = (piece for piece in pieces if words in piece)
    return str(found)


def test_the_package_of_the_example_provides_its_series(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, _, entries = example("toml", "mqtick.oscilloscopes").partition("oscilloscopes")
    entry = re.search(r'^([\w-]+) = "(.*)"$', entries, re.MULTILINE)
    assert entry is not None
    source = example("python", "class RigolDho4000")
    provide(monkeypatch, tmp_path, source, " = ".join(entry.groups()), module="mybench")
    found = dialect_for(Identity.parse("RIGOL TECHNOLOGIES,DHO4204,DHO4A1,00.02.02"))
    assert found.name == "rigol-dho4000"


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("def state(", "dialects/keysight.py"),
        ("_segment(", "simulator/keysight.py"),
    ],
)
def test_what_is_quoted_stands_in_the_file(words: str, file: str) -> None:
    source = (ROOT / "lab/mqtick/lab/scope" / file).read_text(encoding="utf-8")
    lines = {line.strip() for line in source.splitlines()}
    quoted = example("python", words).splitlines()
    assert [line for line in quoted if line.strip() not in lines] == []


def test_every_method_of_a_dialect_is_told_of() -> None:
    methods = {name for name in vars(base.Dialect) if not name.startswith("_")}
    methods -= {"name", "title", "pattern", "port", "untried"}
    rows = " ".join(re.findall(r"^\| (`.*?`) \|", TEXT, re.MULTILINE))
    assert methods <= set(re.findall(r"`(\w+)`", rows))
