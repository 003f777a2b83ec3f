"""The shots of a run's plan that have no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

__all__ = ["missing_note"]

_SHOWN: Final = 5
_MOST_SHOTS: Final = 1 << 31


def missing_note(record: Mapping[str, Any], paths: Sequence[Path]) -> str:
    """Say how many shots of the plan have no file, which, and why; "" where none is missing.

    Shots are numbered from 1 over the whole plan. Where run.json has none, the numbers up to the
    largest one are what was planned.
    """
    there = {int(path.stem) for path in paths if path.stem.isdecimal()}
    total = _planned(record.get("plan")) or max(there, default=0)
    missing = total - sum(0 < number <= total for number in there)
    if not missing:
        return ""
    # Not a list of all of them: a plan may say any number.
    first = list(islice((each for each in range(1, total + 1) if each not in there), _SHOWN))
    more = f" and {missing - len(first):,} more" if missing > len(first) else ""
    return (
        f"{missing:,} of the {total:,} shots of the plan have no file "
        f"({', '.join(map(str, first))}{more}): {_why(record.get('ended'))}"
    )


def _planned(plan: object) -> int:
    """Return how many shots a plan has, 0 if it is not a plan."""
    blocks = plan if isinstance(plan, list) else []
    shots = [block.get("shots") if isinstance(block, dict) else None for block in blocks]
    if not all(type(each) is int and 0 <= each < _MOST_SHOTS for each in shots):
        return 0
    return sum(each for each in shots if each is not None)


def _why(ended: object) -> str:
    if not isinstance(ended, dict) or not ended:
        return "no end of the run is recorded: it still runs, or its runner was killed."
    because = ended.get("early_because")
    if isinstance(because, str) and because:
        return f"the run ended early. {because[:500]}"
    return "the run was carried out to its end, so they have been deleted or lost since."
