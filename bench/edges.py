"""edges: instants of edges in simulated waveforms, against the truth.

Edges of Gaussian (as the simulated oscilloscopes have), exponential and ringing shape, at random
places between samples, with noise and a converter that the signal fills to three quarters. Peers
on the same samples: a straight line between the two around 50 %, and the first one above it.

    python -m bench.edges            1,000 edges of each kind, 200,000 with each noise
    python -m bench.edges --short    100 and 10,000
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bench.harness import Report, options, progress
from mqtick.recording.edges import Edge, find_edges
from mqtick.recording.units import Floats
from mqtick.recording.waveform import Waveform
from recording.tests.edge_parts import digitised, exponential, gaussian, ringing

_RISES = (0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
_BITS = (6, 8, 10, 12)
_NOISE = 0.005
"""Standard deviation of noise, as a share of the amplitude: 15 mV on 3.3 V."""
_INTERVAL_FS = 10**9
_SIZE = 1000
_OURS, _LINE, _NEAREST = "mqtick", "line between two samples", "first sample above 50 %"
_NOISES = (0.01, 0.02, 0.05, 0.08)
_APART = 100
_AGAINST_LINE = {2.0: 1.0, 3.0: 1.0, 5.0: 1.0, 10.0: 0.9, 20.0: 0.65}
"""Rise times, and the goal for our spread relative to that of the straight line, at 8 bits."""


_SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "Gaussian": gaussian,
    "exponential": exponential,
    "ringing": ringing,
}


def recorded(shares: Floats, bits: int, random: np.random.Generator) -> Waveform:
    """Return 0 to 1 as codes, at a random place between two codes."""
    full = 2**bits
    zero = 0.125 * full + random.uniform(-0.5, 0.5)
    dtype = "u1" if bits <= 8 else "u2"
    return digitised(shares, dtype, 0.75 * full, zero, bits=bits, interval_fs=_INTERVAL_FS)


def peers(waveform: Waveform) -> tuple[float, float]:
    """Return a rising edge's place, in samples: by a straight line, and the first above 50 %."""
    codes = waveform.codes.astype(np.float64)
    tenth = codes.size // 10
    middle = (codes[:tenth].mean() + codes[-tenth:].mean()) / 2
    after = int(np.argmax(codes >= middle))
    before = codes[after - 1]
    return float(after - 1 + (middle - before) / (codes[after] - before)), float(after)


def place(edge: Edge) -> float:
    """Return an edge's instant in samples."""
    return edge.instant_fs / _INTERVAL_FS


class Errors:
    """Errors of all contestants for one kind of edge, in samples."""

    def __init__(self, shape: str, rise: float, bits: int, count: int) -> None:
        random = np.random.default_rng((int(rise * 10), bits))
        places = np.arange(_SIZE, dtype=np.float64)
        self.by: dict[str, list[float]] = {_OURS: [], _LINE: [], _NEAREST: []}
        self.beyond = 0
        self.stated: list[float] = []
        for at in random.uniform(400, 401, count).tolist():
            shares = _SHAPES[shape]((places - at) / rise) + random.normal(0, _NOISE, _SIZE)
            waveform = recorded(shares, bits, random)
            found = find_edges(waveform)
            if len(found) != 1:
                raise RuntimeError(f"{len(found)} edges were found in a waveform of one.")
            line, nearest = peers(waveform)
            self.by[_OURS].append(place(found[0]) - at)
            self.by[_LINE].append(line - at)
            self.by[_NEAREST].append(nearest - at)
            stated = found[0].uncertainty_fs / _INTERVAL_FS
            self.stated.append(stated)
            self.beyond += bool(abs(place(found[0]) - at) > stated)

    def constant(self, who: str) -> float:
        """Return the mean error."""
        return float(np.mean(self.by[who]))

    def spread(self, who: str) -> list[float]:
        """Return the errors without their mean."""
        constant = self.constant(who)
        return [error - constant for error in self.by[who]]

    def rms(self, who: str) -> float:
        """Return the root mean square of the errors, mean included."""
        return float(np.sqrt(np.mean(np.square(self.by[who]))))


def counted(noise: float, rise: float, edges: int) -> tuple[int, int]:
    """Return the numbers of false and missed edges among that many."""
    random = np.random.default_rng(int(noise * 1000))
    each = 1000
    false = missed = 0
    for _ in range(edges // each):
        at = np.arange(1, each + 1) * _APART + random.uniform(-0.5, 0.5, each)
        x = np.arange((each + 1) * _APART, dtype=np.float64)
        nearest = np.clip(np.rint(x / _APART), 1, each).astype(np.intp) - 1
        shares = gaussian((x - at[nearest]) / rise)
        shares = np.where(nearest % 2, 1 - shares, shares)
        shares += random.normal(0, noise, shares.size)
        found = np.array([place(edge) for edge in find_edges(recorded(shares, 8, random))])
        near = np.rint(found / _APART).astype(int)
        right = np.unique(near[np.abs(found - near * _APART) < _APART / 4])
        missed += each - right.size
        false += found.size - right.size
    return false, missed


def mean_skew_errors(rise: float, groups: int, shots: int = 20) -> dict[str, list[float]]:
    """Return errors of the mean of `shots` skews, in samples, of each contestant."""
    random = np.random.default_rng(3)
    errors: dict[str, list[float]] = {_OURS: [], _LINE: [], _NEAREST: []}
    places = np.arange(_SIZE, dtype=np.float64)
    for _ in range(groups):
        sums = dict.fromkeys(errors, 0.0)
        for _ in range(shots):
            truth = random.uniform(400, 401), random.uniform(500, 600)
            found = []
            for at in truth:
                shares = gaussian((places - at) / rise) + random.normal(0, _NOISE, _SIZE)
                waveform = recorded(shares, 8, random)
                found.append((place(find_edges(waveform)[0]), *peers(waveform)))
            for who, first, last in zip(errors, *found, strict=True):
                sums[who] += last - first - (truth[1] - truth[0])
        for who, total in sums.items():
            errors[who].append(abs(float(total) / shots))
    return errors


def times_ms(bits: int, repeats: int) -> list[float]:
    """Return how long a channel of 100,000 samples with two edges takes."""
    random = np.random.default_rng(1)
    x = np.arange(100_000)
    shares = gaussian((x - 30_000.3) / 2) - gaussian((x - 40_000.7) / 2)
    waveform = recorded(shares + random.normal(0, _NOISE, x.size), bits, random)
    found = []
    for _ in range(repeats):
        began_s = time.perf_counter()
        find_edges(waveform)
        found.append((time.perf_counter() - began_s) * 1e3)
    return found


def main() -> None:
    """Run it."""
    args = options(__doc__, {"count": 100, "edges": 10_000}, count=1000, edges=200_000)
    report = Report("edges", simulated=True)
    _accuracy(report, args.count)
    for rise in (0.2, 1.0, 5.0):
        progress(f"mean skew, rise {rise:g}")
        what = f"rise {rise:g} samples: |error| of the mean skew of 20 shots"
        for who, errors in mean_skew_errors(rise, args.count // 10).items():
            report.add(what, "samples", who, errors, digits=4)
    for noise in _NOISES:
        for rise in (1.0, 20.0):
            progress(f"noise {noise:.0%}, rise {rise:g}")
            what = f"noise {noise:.0%}, rise {rise:g} samples"
            for kind, number in zip(
                ("false", "missed"), counted(noise, rise, args.edges), strict=True
            ):
                share = [number * 1e6 / args.edges]
                report.add(f"{what}: {kind} edges", "a million", _OURS, share, digits=4)
    for bits in (8, 12):
        what = f"100,000 samples of {bits} bits: time"
        times = times_ms(bits, args.count)
        report.add(what, "ms", _OURS, times, simulated=False, digits=4)
    report.finish()


def _accuracy(report: Report, count: int) -> None:
    """Add the results for single edges."""
    found: dict[tuple[str, float, int], Errors] = {}
    for shape in _SHAPES:
        for rise in _RISES:
            for bits in _BITS:
                progress(f"{shape}, rise {rise:g}, {bits} bits")
                found[shape, rise, bits] = Errors(shape, rise, bits, count)
    for (shape, rise, bits), errors in found.items():
        for who in (_OURS, _LINE, _NEAREST):
            if shape == "Gaussian" and (who == _OURS or bits == 8):
                what = f"rise {rise:g} samples, {bits} bits: |error - constant|"
                spread = [abs(error) for error in errors.spread(who)]
                report.add(what, "samples", who, spread, digits=4)
    for shape in _SHAPES:
        kinds = [errors for (name, _, _), errors in found.items() if name == shape]
        for who in (_OURS, _LINE, _NEAREST):
            constants = [abs(errors.constant(who)) for errors in kinds]
            what = f"{shape} edges: |constant part| by kind"
            report.add(what, "samples", who, constants, digits=4)
        stated = [value for errors in kinds for value in errors.stated]
        report.add(f"{shape} edges: stated uncertainty", "samples", _OURS, stated, digits=4)
        beyond = 100 * sum(errors.beyond for errors in kinds) / (count * len(kinds))
        what = f"{shape} edges: beyond the stated uncertainty"
        report.add(what, "%", _OURS, [beyond], digits=4)
        what = f"{shape} edges: share beyond the stated uncertainty, in %"
        report.compare(what, beyond, 0.1, 1.0)
    for shape in _SHAPES:
        for rise, goal in _AGAINST_LINE.items():
            errors = found[shape, rise, 8]
            ours, line = (round(errors.rms(who), 5) for who in (_OURS, _LINE))
            what = f"{shape} edges, rise {rise:g} samples, 8 bits: rms error against {_LINE}"
            report.compare(what, ours, line, goal)
    errors = found["Gaussian", 2.0, 8]
    ours, nearest = (round(errors.rms(who), 5) for who in (_OURS, _NEAREST))
    what = f"Gaussian edges, rise 2 samples, 8 bits: rms error against {_NEAREST}"
    report.compare(what, ours, nearest, 0.1)


if __name__ == "__main__":
    main()
