"""What a run tells whoever watches it."""

from __future__ import annotations

from typing import Protocol

from mqtick.analysis.shot import ShotMeta

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    """Is told what happens; must not raise."""

    def note(self, sentence: str) -> None:
        """Something that a person wants to know: a retry, a refusal, what is being waited for."""

    def begin(self, total: int) -> None:
        """The run begins, with so many shots in its plan."""

    def shot(self, meta: ShotMeta) -> None:
        """A shot was recorded, now or before a resume."""

    def end(self) -> None:
        """The run is over."""


class Quiet:
    """Says nothing, and remembers nothing."""

    def note(self, sentence: str) -> None:
        """Ignore."""

    def begin(self, total: int) -> None:
        """Ignore."""

    def shot(self, meta: ShotMeta) -> None:
        """Ignore."""

    def end(self) -> None:
        """Ignore."""
