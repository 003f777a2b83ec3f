"""What docs/threat-model.md names as shown is shown."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
SHOWN = TEXT.partition("\n## What shows it")[2].partition("\n## ")[0]
NAMED = re.compile(r"`(test_\w+)`")
# What a file imports whose tests have real programs, connections or kernels.
IMPORTS = r"below|rig|told|joined|live\w*|demo\.local_\w+|broker\.conformance|socket|subprocess"
REAL = re.compile(rf"^(?:from|import) (?:{IMPORTS})\b", re.MULTILINE)


def names_of(*, live: bool = False) -> set[str]:
    """Return the names of all tests, or of the live ones."""
    files = [*ROOT.glob("*/tests/test_*.py"), *ROOT.glob("tests/**/test_*.py")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    chosen = [text for text in texts if not live or REAL.search(text)]
    return set(re.findall(r"^def (test_\w+)\(", "".join(chosen), re.MULTILINE))


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = set(NAMED.findall(TEXT))
    assert len(named) > 40
    assert named <= names_of()


def test_every_row_names_a_live_test_or_says_that_it_has_none() -> None:
    live = names_of(live=True)
    rows = [row for row in SHOWN.splitlines() if NAMED.search(row)]
    assert len(rows) > 30
    for row in rows:
        is_live = not live.isdisjoint(NAMED.findall(row))
        assert is_live != ("virtual time only" in row), row


def test_every_attacker_has_a_row_that_says_what_shows_it() -> None:
    reach = TEXT.partition("## Who may attack")[2].partition("## Keys")[0]
    attackers = re.findall(r"^\| (\*\*[^|]*?\*\*)", reach, re.MULTILINE)
    assert len(attackers) == 10
    table = SHOWN.partition("| claim |")[0]
    assert [name for name in attackers if name not in table] == []
