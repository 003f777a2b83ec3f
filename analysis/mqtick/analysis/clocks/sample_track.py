"""From the samples of one server to a time error: bursts, and a time axis that survives steps."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from mqtick.analysis.measurement import TimeErrors
from mqtick.recording.units import NS_PER_S

_BURST_PAUSE_NS: Final = 500_000_000
_BURST_NS: Final = 2_000_000_000
_APART_NS: Final = 2_000_000_000
"""A local clock that goes back by more, or that far away from the reference, was restarted."""
_STEP_NS: Final = 100_000_000
"""A smaller step of the clock cannot be told from its being slewed."""
_LARGEST_NS: Final = 1 << 62
_RANKS: Final = {"one-way": 0, "two-way": 1, "echo": 2, "residence": 3}


class Sample(NamedTuple):
    """What is taken of a sample, in ns; offsets and bounds are reference minus the judged clock.

    Bounds are None where nothing guarantees one.
    """

    server: int
    kind: str
    verdict: str
    reason: str
    realtime_ns: int
    local_ns: int
    offset_ns: int
    lower_ns: int | None = None
    upper_ns: int | None = None
    delay_ns: int = 0


class Track:
    """The used samples of one server, in the order of the file.

    The time axis is the client's local timeline, which nobody steps. It restarts where the
    machine was restarted or suspended; there the reference (the judged clock plus its offset)
    says how much time passed.
    """

    def __init__(self) -> None:
        self._axis_ns = array("q")
        self._offset_ns = array("q")
        self._lower_ns = array("d")
        self._upper_ns = array("d")
        self._kinds: Counter[str] = Counter()
        self._used = self._beyond = self._restarts = self._steps = 0
        self._largest_step_ns = 0
        self._last: Sample | None = None
        self._best: Sample | None = None
        self._burst_from_ns = 0
        self._axis_minus_local_ns = 0

    def add(self, sample: Sample) -> None:
        """Take a sample."""
        self._used += 1
        last, self._last = self._last, sample
        if last is None:
            self._begin(sample)
            return
        passed_ns = sample.local_ns - last.local_ns
        reference_ns = _reference_ns(sample) - _reference_ns(last)
        if passed_ns < -_APART_NS or abs(reference_ns - passed_ns) > _APART_NS + passed_ns // 100:
            self._restarts += 1
            self._keep()
            self._begin(sample)
            return
        step_ns = sample.realtime_ns - last.realtime_ns - passed_ns
        if abs(step_ns) > _STEP_NS + abs(passed_ns) // 10:
            self._steps += 1
            self._largest_step_ns = max(self._largest_step_ns, abs(step_ns))
        begun_ns = sample.local_ns - self._burst_from_ns
        if abs(passed_ns) < _BURST_PAUSE_NS and begun_ns < _BURST_NS and self._best is not None:
            if _merit(sample) > _merit(self._best):
                self._best = sample
            return
        self._keep()
        self._best, self._burst_from_ns = sample, sample.local_ns

    def _begin(self, sample: Sample) -> None:
        self._axis_minus_local_ns = _reference_ns(sample) - sample.local_ns
        self._best, self._burst_from_ns = sample, sample.local_ns

    def _keep(self) -> None:
        best, self._best = self._best, None
        if best is None:
            return
        axis_ns = best.local_ns + self._axis_minus_local_ns
        if abs(axis_ns) >= _LARGEST_NS:
            self._beyond += 1
            return
        self._kinds[best.kind if best.kind in _RANKS else "other"] += 1
        self._axis_ns.append(axis_ns)
        self._offset_ns.append(best.offset_ns)
        self._lower_ns.append(np.nan if best.lower_ns is None else float(best.lower_ns))
        self._upper_ns.append(np.nan if best.upper_ns is None else float(best.upper_ns))

    def finish(self, name: str) -> tuple[TimeErrors | None, list[str]]:
        """Return the time errors, and sentences on what was done to get them.

        A bound that a sample does not have is NaN. None where no sample can be placed in time.
        """
        self._keep()
        axis_ns = np.array(self._axis_ns, np.int64)
        if not axis_ns.size:
            return None, self._notes(name, 0, 0)
        order = np.argsort(axis_ns, kind="stable")
        moved = int(np.count_nonzero(np.diff(axis_ns) <= 0))
        axis_ns = axis_ns[order]
        # In whole ns first: two large numbers as floats have no common digits left.
        started_ns = int(axis_ns[0])
        after_ns = axis_ns.astype(np.uint64) - np.uint64(started_ns % (1 << 64))
        seconds = after_ns.astype(np.float64) / NS_PER_S
        # Of what is years apart, instants of different ns can be one float.
        is_new = np.concatenate(([True], np.diff(seconds) > 0))
        chosen = order[is_new]
        lower_ns = np.array(self._lower_ns)[chosen]
        upper_ns = np.array(self._upper_ns)[chosen]
        errors = TimeErrors(
            name=name,
            seconds=seconds[is_new],
            error_ns=np.array(self._offset_ns, np.int64)[chosen].astype(np.float64),
            lower_ns=None if np.isnan(lower_ns).all() else lower_ns,
            upper_ns=None if np.isnan(upper_ns).all() else upper_ns,
            started_ns=started_ns,
            source="samples of the client",
        )
        notes = self._notes(name, int(np.count_nonzero(~is_new)), moved)
        return errors, notes

    def _notes(self, name: str, doubled: int, moved: int) -> list[str]:
        notes = []
        bursts = self._kinds.total()
        if self._used > bursts:
            notes.append(
                f"{name}: {self._used} used samples in {bursts} bursts. Of each burst the best one "
                "is shown, as chronyd is given it: residence before echo before two-way before "
                "one-way, then the least delay."
            )
        if len(self._kinds) > 1:
            kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self._kinds.items()))
            notes.append(f"{name}: samples of several kinds, which differ in accuracy: {kinds}.")
        if self._beyond:
            notes.append(
                f"{name}: {self._beyond} samples were left out: clock and offset together are "
                f"beyond {_LARGEST_NS} ns."
            )
        if self._restarts:
            notes.append(
                f"{name}: the local timeline restarted {_times(self._restarts)} (a reboot, or a "
                "suspend); the reference says how much time went by."
            )
        if self._steps:
            notes.append(
                f"{name}: the system clock was stepped {_times(self._steps)}, by up to "
                f"{self._largest_step_ns / NS_PER_S:.3g} s."
            )
        if moved:
            notes.append(
                f"{name}: time runs backwards in the log {_times(moved)}; the samples were put in "
                f"order, and {doubled} of them that share an instant with another were left out."
            )
        return notes


def _reference_ns(sample: Sample) -> int:
    return sample.realtime_ns + sample.offset_ns


def _merit(sample: Sample) -> tuple[int, int]:
    return _RANKS.get(sample.kind, -1), -sample.delay_ns


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
