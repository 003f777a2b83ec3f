"""What docs/threat-model.md names as shown is shown."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_\w+)`")


def test_every_test_that_the_threat_model_names_is_there() -> None:
    tests = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("*/tests/test_*.py"))
    tests += "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/**/test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", tests, re.MULTILINE))
    named = set(NAMED.findall(TEXT))
    assert len(named) > 40
    assert named <= there


def test_every_attacker_has_a_row_that_says_what_shows_it() -> None:
    reach = TEXT.partition("## Who may attack")[2].partition("## Keys")[0]
    attackers = re.findall(r"^\| (\*\*[^|]*?\*\*)", reach, re.MULTILINE)
    assert len(attackers) == 10
    table = TEXT.partition("## What shows it")[2].partition("| claim |")[0]
    assert [name for name in attackers if name not in table] == []
