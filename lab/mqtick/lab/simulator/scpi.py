"""Commands of SCPI-99: short and long forms, numeric suffixes, chains, an error queue."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Scpi", "UndefinedHeaderError"]

_MAXIMUM_ERRORS: Final = 32

Handler = Callable[..., str | bytes | None]


class UndefinedHeaderError(Exception):
    """The command is none of this instrument's; the text is it."""


class Scpi:
    """A table of commands. A handler is given the numeric suffixes as int, then the argument text.

    Raising ValueError (a number that is none, a choice that does not exist) puts -224 into the
    error queue, as an instrument would.
    """

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=_MAXIMUM_ERRORS)
        self._table: list[tuple[re.Pattern[str], Handler]] = []

    def on(self, pattern: str, handler: Handler) -> None:
        """Add a command: `:CHANnel<n>:SCALe`, with a `?` at the end for a query.

        `[:PART]` may be left out; `<n>` is a number.
        """
        expression = ""
        at = 0
        for match in re.finditer(r"\[(:?[^\]]*)\]|<n>|\*?[A-Za-z]+|.", pattern):
            assert match.start() == at
            at = match.end()
            token = match[0]
            if token == "<n>":
                expression += r"(\d+)"
            elif token.startswith("["):
                expression += f"(?:{_word(token[1:-1])})?"
            else:
                expression += _word(token)
        expression = expression.removeprefix(":")
        self._table.append((re.compile(f":?{expression}", re.IGNORECASE), handler))

    def execute(self, line: str) -> list[str | bytes]:
        """Do one line of commands (`;` between them) and return the answers, in order."""
        answers: list[str | bytes] = []
        for command in line.split(";"):
            text = command.strip()
            if not text:
                continue
            answer = self._one(text)
            if answer is not None:
                answers.append(answer)
        return answers

    def _one(self, text: str) -> str | bytes | None:
        header, _, argument = text.partition(" ")
        for pattern, handler in self._table:
            match = pattern.fullmatch(header)
            if match is None:
                continue
            try:
                suffixes = [int(group) for group in match.groups() if group is not None]
                return handler(*suffixes, argument.strip())
            except (ValueError, KeyError, IndexError):
                self.errors.append(f'-224,"Illegal parameter value;{text[:60]}"')
                return None
        self.errors.append(f'-113,"Undefined header;{header[:60]}"')
        return None

    def next_error(self, none: str = '0,"No error"') -> str:
        """Take the oldest error out of the queue."""
        return self.errors.popleft() if self.errors else none


def _word(token: str) -> str:
    """Return the expression for a mnemonic: its capitals, or all of it (SCPI-99, 6.2.1)."""
    parts = []
    for piece in re.findall(r"[A-Za-z]+|[^A-Za-z]", token):
        short = "".join(character for character in piece if character.isupper())
        if not piece.isalpha():
            parts.append(re.escape(piece))
        elif short in ("", piece):
            parts.append(piece)
        else:
            parts.append(f"(?:{short}|{piece})")
    return "".join(parts)
