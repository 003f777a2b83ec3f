"""The changes of a digital signal, as logic analysers and simulators record them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.edges import Edge

__all__ = ["UNKNOWN", "Transitions"]

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Transitions:
    """The changes of one signal.

    Attributes:
        name: as the file calls it, without its scopes.
        initial: its first level, 0, 1 or -1 (unknown: x, z, or not in the file).
        instants_fs: when it changed after that, in fs on the file's own time scale, increasing.
        levels: the level from each of these instants on, 0, 1 or -1; never twice the same.
        uncertainty_fs: how far a change may be from the instant that stands for it, either way.
        missing: how many later changes were counted and not kept, as there are too many.
    """

    name: str
    initial: int
    instants_fs: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int8]
    uncertainty_fs: int = 0
    missing: int = 0

    def edges(self, trigger_fs: int = 0) -> list[Edge]:
        """Return changes between 0 and 1, their instants counted from `trigger_fs`.

        A change from or to unknown does not count: nobody knows when the level was really passed.
        """
        before = np.concatenate((np.array([self.initial], np.int8), self.levels[:-1]))
        known = (before != UNKNOWN) & (self.levels != UNKNOWN)
        return [
            Edge(int(instant) - trigger_fs, level == 1, self.uncertainty_fs)
            for instant, level in zip(self.instants_fs[known], self.levels[known], strict=True)
        ]
