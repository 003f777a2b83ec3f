"""The changes of a digital signal, as logic analysers and simulators record them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mqtick.recording.edges import Edge

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Transitions:
    """The changes of one signal.

    Attributes:
        name: as the file calls it, without its scopes.
        initial: its first level, 0, 1 or -1 (unknown: x, z, or not in the file).
        ticks: when it changed after that, increasing, in `tick_fs` from `origin_fs` on. In fs, 64
            bits would end after 2.5 hours; samples or a file's own unit last longer, and are exact.
        levels: the level from each of these instants on, 0, 1 or -1; never twice the same.
        uncertainty_fs: how far a change may be from the instant that stands for it, either way.
        missing: how many later changes were counted and not kept, as there are too many.
        tick_fs, origin_fs: the unit of the ticks and the instant of tick 0, in fs on the file's own
            time scale.
    """

    name: str
    initial: int
    ticks: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int8]
    uncertainty_fs: int = 0
    missing: int = 0
    tick_fs: int = 1
    origin_fs: int = 0

    def instant_fs(self, tick: int) -> int:
        """Return the instant of a tick in fs."""
        return self.origin_fs + int(tick) * self.tick_fs

    def instants_fs(self) -> list[int]:
        """Return the instants of all changes in fs."""
        return [self.instant_fs(tick) for tick in self.ticks.tolist()]

    def ends_fs(self) -> tuple[int, int]:
        """Return the instants of the first and the last change, 0 where there is none."""
        if not self.ticks.size:
            return 0, 0
        return self.instant_fs(int(self.ticks[0])), self.instant_fs(int(self.ticks[-1]))

    def edges(self, trigger_fs: int = 0) -> list[Edge]:
        """Return changes between 0 and 1, their instants counted from `trigger_fs`.

        A change from or to unknown does not count: nobody knows when the level was really passed.
        """
        before = np.concatenate((np.array([self.initial], np.int8), self.levels[:-1]))
        known = (before != UNKNOWN) & (self.levels != UNKNOWN)
        return [
            Edge(self.instant_fs(tick) - trigger_fs, level == 1, self.uncertainty_fs)
            for tick, level in zip(
                self.ticks[known].tolist(), self.levels[known].tolist(), strict=True
            )
        ]
