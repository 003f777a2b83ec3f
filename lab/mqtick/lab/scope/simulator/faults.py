"""Simulated faults, as real instruments have them now and then."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

KINDS = {
    "short-block": "a block ends before the octets that it announced",
    "empty-block": "a block comes without data, as when asked too soon after the trigger",
    "double-newline": "a block is followed by two line ends",
    "plus-zero": "the preamble is answered by +0",
    "late": "an answer comes late, by 300 ms",
    "drop": "the connection is cut in the middle of an answer",
    "no-trigger": "the trigger never comes",
}


_BLOCK: Final = re.compile(rb"[^#]{0,30}#(?P<digits>[1-9])(?=\d)")


@dataclass(frozen=True, slots=True)
class FaultyAnswer:
    """The effect of faults on one answer."""

    data: bytes
    delay_s: float = 0.0
    drop: bool = False


@dataclass(slots=True)
class Faults:
    """The faults: each has a probability for each answer to which it applies.

    `once` holds faults that happen at the next opportunity, and then never again.
    """

    chances: dict[str, float] = field(default_factory=dict)
    once: set[str] = field(default_factory=set)
    seed: int = 1
    late_s: float = 0.3
    done: Counter[str] = field(default_factory=Counter)
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._random.seed(self.seed)
        unknown = (set(self.chances) | self.once) - set(KINDS)
        if unknown:
            raise ValueError(
                f"There is no fault {sorted(unknown)[0]!r}; known are: {', '.join(KINDS)}."
            )

    def happens(self, kind: str) -> bool:
        """Decide whether a fault happens now, and count it."""
        happens = kind in self.once or self._random.random() < self.chances.get(kind, 0.0)
        if happens:
            self.once.discard(kind)
            self.done[kind] += 1
        return happens

    def apply(self, command: str, answer: bytes) -> FaultyAnswer:
        """Decide what happens to an answer."""
        if not answer:
            return FaultyAnswer(answer)
        block = _BLOCK.match(answer)
        if block is not None:
            answer = self._spoil_block(answer, block)
        elif "PRE" in command.upper() and self.happens("plus-zero"):
            answer = b"+0\n"
        if self.happens("drop"):
            return FaultyAnswer(answer[: len(answer) // 2], drop=True)
        return FaultyAnswer(answer, self.late_s if self.happens("late") else 0.0)

    def _spoil_block(self, answer: bytes, block: re.Match[bytes]) -> bytes:
        digits = int(block["digits"])
        head = answer[: block.end() + digits]
        if self.happens("empty-block"):
            return answer[: block.end()] + b"0" * digits + b"\n"
        if self.happens("short-block"):
            return head + answer[len(head) : len(head) + (len(answer) - len(head)) // 2]
        if self.happens("double-newline"):
            return answer + b"\n"
        return answer
