"""Counters of what was done and of what was refused, by reason."""

from __future__ import annotations

from collections import Counter

__all__ = ["Counters"]


class Counters:
    """Two sets of named counters; names are chosen by the program, never by a message."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def count(self, name: str) -> None:
        """Count something done."""
        self.done[name] += 1

    def refuse(self, reason: str) -> None:
        """Count something refused."""
        self.refused[reason] += 1
