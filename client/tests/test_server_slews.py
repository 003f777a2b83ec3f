"""An honest server whose clock is slewed: the interval holds its clock at every moment.

However fast that is, within what the server promises, or what is assumed of one that promises
nothing. Bursts of exchanges, each with delays of its own, through the real estimator.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.client.estimate import Estimate
from mqtick.client.estimator import Estimator
from mqtick.client.exchange import two_way
from mqtick.client.sample import Origin, Reading
from mqtick.mqtt.stamps import StampSource

S = 1_000_000_000
ASSUMED_PPB = round(Estimator().settings.assumed_slew_ppm * 1e3)


@dataclass(frozen=True)
class World:
    """A server's clock that changes its rate within a band, and a client's crystal, ppb."""

    band_ppb: int
    """The rate of the server's clock is within half of this of its usual rate."""
    promise_ppb: int | None
    client_ppb: int
    changes: list[tuple[float, float]]
    """When the rate changes, s, and to which share of the band, -1 to 1."""
    seed: int = 0

    def server_ns(self, at_s: float) -> float:
        read_ns, since_s, rate_ppb = 0.0, 0.0, 0.0
        for change_s, share in [*sorted(self.changes), (at_s, 0.0)]:
            until_s = min(change_s, at_s)
            read_ns += (until_s - since_s) * (1e9 + rate_ppb)
            since_s, rate_ppb = until_s, share * self.band_ppb / 2
        return read_ns

    def client_ns(self, at_s: float) -> int:
        return round(at_s * (1e9 + self.client_ppb))

    def looks(self, until_s: float = 200.0) -> Iterator[tuple[float, Estimate]]:
        """Ask in bursts of 4 every 16 s; look twice a second."""
        chance, estimator = random.Random(self.seed), Estimator()
        next_s, sequence = 0.0, 0
        for step in range(round(until_s * 2)):
            at_s = step / 2
            if at_s >= next_s:
                for burst in range(4):
                    sequence += 1
                    self._ask(estimator, at_s + 0.06 * burst, sequence, chance)
                next_s = at_s + 16 * chance.uniform(0.8, 1.2)
            at_s += 0.5
            yield at_s, estimator.at(self.client_ns(at_s))

    def _ask(self, to: Estimator, at_s: float, sequence: int, chance: random.Random) -> None:
        there_s, held_s, back_s = (chance.uniform(100e-6, 400e-6) for _ in range(3))
        t2_s = at_s + there_s
        t3_s = t2_s + held_s
        kernel = StampSource.KERNEL
        origin = Origin(
            sequence=sequence, generation=1, authenticated=True, rate_change_ppb=self.promise_ppb
        )
        stamps = (
            Reading(self.client_ns(at_s), kernel),
            Reading(round(self.server_ns(t2_s)), kernel),
            Reading(round(self.server_ns(t3_s)), kernel),
            Reading(self.client_ns(t3_s + back_s), kernel),
        )
        to.add(two_way(origin, *stamps, to.settings))

    def outside(self) -> list[float]:
        """When the interval does not hold the server's clock although the state is known."""
        found = []
        for at_s, told in self.looks():
            truth_ns = self.server_ns(at_s) - self.client_ns(at_s)
            if not told.state.is_known:
                continue
            assert told.lower_ns is not None
            assert told.upper_ns is not None
            if not told.lower_ns <= truth_ns <= told.upper_ns:
                found.append(at_s)
        return found


def worlds(promise_ppb: int | None, band_ppb: int) -> st.SearchStrategy[World]:
    return st.builds(
        World,
        band_ppb=st.just(band_ppb),
        promise_ppb=st.just(promise_ppb),
        client_ppb=st.integers(-40_000, 40_000),
        changes=st.lists(
            st.tuples(st.floats(0.0, 200.0), st.sampled_from([-1.0, 1.0]) | st.floats(-1.0, 1.0)),
            max_size=6,
        ),
        seed=st.integers(0, 1000),
    )


@settings(max_examples=10)
@given(st.sampled_from([0, 750, 5_000, 60_000]).flatmap(lambda ppb: worlds(ppb, ppb)))
def test_the_interval_holds_the_clock_of_a_server_that_keeps_its_promise(world: World) -> None:
    assert world.outside() == []


@settings(max_examples=10)
@given(worlds(None, ASSUMED_PPB))
def test_the_interval_holds_the_clock_of_a_server_that_is_slewed_as_is_assumed(
    world: World,
) -> None:
    assert world.outside() == []


@pytest.mark.parametrize("promise_ppb", [750, None])
def test_what_is_faster_than_promised_or_assumed_is_outside(promise_ppb: int | None) -> None:
    """The test itself: a slew of 5 ms at 1000 ppm."""
    world = World(2_000_000, promise_ppb, 20_000, [(100.0, 1.0), (105.0, 0.0)])
    assert world.outside() != []
