"""Commands of SCPI-99: short and long forms, numeric suffixes, chains, an error queue."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Final

_MAXIMUM_ERRORS: Final = 32
_COMMANDS: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^;])+""")

Handler = Callable[..., str | bytes | None]


class Scpi:
    """A table of commands. A handler is given the numeric suffixes as int, then the argument text.

    If a handler raises ValueError (an invalid number, an unknown choice), -224 goes into the error
    queue, as in an instrument. A command that is added later overrides earlier ones, so that a
    family may replace common commands.
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
                expression += r"([0-9]{1,9})"
            elif token.startswith("["):
                expression += f"(?:{_word(token[1:-1])})?"
            else:
                expression += _word(token)
        expression = expression.removeprefix(":")
        self._table.insert(0, (re.compile(f":?{expression}", re.IGNORECASE), handler))

    def execute(self, line: str) -> list[str | bytes]:
        """Execute a line of commands (separated by `;`) and return the answers, in order.

        A command that begins neither with `:` nor with `*` is relative to the one before it:
        `:CHANnel1:SCALe 1;OFFSet 0` (SCPI-99, 6.2.4). If it is unknown there, it is tried as a
        complete command: several makers do not follow the rule.
        """
        answers: list[str | bytes] = []
        path = ""
        for command in _COMMANDS.findall(line):
            header, _, argument = command.strip().replace("\t", " ").partition(" ")
            if not header:
                continue
            found = None
            if path and header[0] not in ":*":
                found = self._find(path + header)
                header = path + header if found else header
            found = found or self._find(header)
            if header[0] != "*":
                path = header[: header.rfind(":") + 1]
            answer = self._do(found, argument.strip(), command.strip())
            if answer is not None:
                answers.append(answer)
        return answers

    def _find(self, header: str) -> tuple[Handler, list[int]] | None:
        for pattern, handler in self._table:
            match = pattern.fullmatch(header)
            if match is not None:
                return handler, [int(group) for group in match.groups() if group is not None]
        return None

    def _do(
        self, found: tuple[Handler, list[int]] | None, argument: str, text: str
    ) -> str | bytes | None:
        if found is None:
            self.errors.append(f'-113,"Undefined header;{_quotable(text)}"')
            return None
        handler, suffixes = found
        try:
            return handler(*suffixes, argument)
        except (ValueError, LookupError, ArithmeticError, TypeError, StopIteration):
            self.errors.append(f'-224,"Illegal parameter value;{_quotable(text)}"')
            return None

    def next_error(self, none: str = '0,"No error"') -> str:
        """Take the oldest error out of the queue."""
        return self.errors.popleft() if self.errors else none


def _quotable(text: str) -> str:
    """Return the part of a command that may be quoted in a one-line answer."""
    return "".join(c for c in text[:60] if " " <= c <= "~" and c != '"')


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
