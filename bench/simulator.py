"""simulator: edges found in the waveforms of the simulated oscilloscopes, against the truth.

Each family answers in its own language and each dialect reads it; only the socket between them is
left out, and the clock is set by hand, so that a shot takes no time. Two pins rise, the second
one at a random time after the first; rise time 5 ns, noise, bits and trigger as in each family.

    python -m bench.simulator            200 shots each
    python -m bench.simulator --short    30 shots each
"""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from bench.harness import Report, Row, progress
from mqtick.lab.scope.block import read_block
from mqtick.lab.scope.conversation import Block, Pause, Query, Reply, Step
from mqtick.lab.scope.dialects import Dialect, Identity, dialect_for
from mqtick.lab.scope.oscilloscope import play
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, State, Trigger
from mqtick.lab.scope.simulator import FRONTS, EdgeFeed, Front, Model
from mqtick.recording.edges import find_edges

_RATES_HZ = (10e6, 100e6, 1e9)
_POINTS = 5000


class Direct:
    """A transport without a connection, to an instrument whose clock stands still."""

    name = "simulated"

    def __init__(self, front: type[Front], rate_hz: float) -> None:
        self.now_ns = 10**12
        physics = replace(front.physics, max_rate_hz=rate_hz)
        self.model = Model(EdgeFeed(), {1: 1, 2: 2}, physics, lambda: self.now_ns)
        self.front = front(self.model)
        vars(self.front)["lag_s"] = 0.0  # the lag of the simulated Rigols, on the wall clock

    def play(self, step: Step) -> Reply:
        """Do one step; a pause advances the clock."""
        if isinstance(step, Pause):
            self.now_ns += round(step.seconds * 1e9)
            return None
        answer = self.front.answer(step.command)
        match step:
            case Query():
                return answer.decode().strip()
            case Block():
                return read_block(io.BytesIO(answer).read, step.prefix)
        return None

    def reopen(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def errors_ns(family: str, rate_hz: float, shots: int) -> tuple[list[float], list[float], int]:
    """Return errors between channels and from the trigger; how many exceed the stated bound."""
    direct = Direct(FRONTS[family], rate_hz)
    identity = Identity.parse(direct.front.identity)
    dialect = dialect_for(identity)
    span_s = _POINTS / rate_hz
    channels = (ChannelSettings(1), ChannelSettings(2))
    play(direct, dialect.set_up(ScopeSettings(channels, Trigger(1), span_s, points=_POINTS)))
    chance = random.Random(1)
    between: list[float] = []
    from_trigger: list[float] = []
    outside = 0
    for _ in range(shots):
        play(direct, dialect.arm())
        _wait(direct, dialect, State.ARMED)
        # Pins have whole ns; a cable delay puts the edge anywhere between two samples.
        whole_ns, cable_ns = chance.randint(0, int(0.4 * span_s * 1e9)), chance.random()
        direct.model.physics = replace(direct.model.physics, skew_s={2: cable_ns * 1e-9})
        for line, delay_ns in ((1, 1000), (2, 1000 + whole_ns)):
            direct.model.feed.add(line, direct.now_ns + delay_ns, True)
        direct.now_ns += 10**9
        _wait(direct, dialect, State.STOPPED)
        first, second = (find_edges(play(direct, dialect.read(channel)))[0] for channel in (1, 2))
        error_fs = second.instant_fs - first.instant_fs - (whole_ns + cable_ns) * 1e6
        outside += abs(error_fs) > first.uncertainty_fs + second.uncertainty_fs
        between.append(error_fs / 1e6)
        (frame,) = direct.model.frames[:1]
        from_trigger.append(first.instant_fs / 1e6 - direct.model.truth_s(1, frame)[0] * 1e9)
        for line in (1, 2):
            direct.model.feed.add(line, direct.now_ns, False)
        direct.now_ns += 10**9
    return between, from_trigger, outside


def _wait(direct: Direct, dialect: Dialect, wanted: State) -> None:
    for _ in range(100):
        if play(direct, dialect.state()) is wanted:
            return
        direct.now_ns += 10**7
    raise RuntimeError(f"The simulated instrument was never {wanted.name.lower()}.")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    shots = 30 if parser.parse_args().short else 200
    report = Report("simulator")

    def add(what: str, unit: str, who: str, values: Sequence[float]) -> None:
        report.rows.append(Row.of(what, unit, who, values, simulated=True, digits=3))

    for rate_hz in _RATES_HZ:
        rate = f"{rate_hz / 1e6:g} MSa/s"
        beyond = 0
        for family in FRONTS:
            progress(f"{rate}: {family}")
            between, from_trigger, outside = errors_ns(family, rate_hz, shots)
            beyond += outside
            constant = fmean(between)
            errors = [abs(error - constant) for error in between]
            add(f"{rate}, between channels: |error - constant|", "ns", family, errors)
            add(f"{rate}, between channels: constant", "ns", family, [constant])
            add(f"{rate}, from the trigger: error", "ns", family, from_trigger)
        share = 100 * beyond / (shots * len(FRONTS))
        add(f"{rate}, between channels: beyond the stated uncertainty", "%", "all", [share])
    report.finish()


if __name__ == "__main__":
    main()
