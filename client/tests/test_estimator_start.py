"""The first seconds: a burst of exchanges lies too close together to tell the frequency.

Whatever the errors inside the guaranteed intervals are, and however they follow one another, the
answer must hold the truth from the first sample on.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import EPOCH, SECOND, US, exchange, holds

from mqtick.client.estimate import Estimate
from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind, Sample, SampleVerdict

START_BURST = [0.06 * number for number in range(8)]
BURSTS = [at + 0.06 * number for at in range(16, 160, 16) for number in range(4)]


def truth(at_s: float, ppm: float) -> int:
    return EPOCH + round(at_s * ppm * US)


def sample(
    at_s: float, ppm: float, share: float, half_us: float = 30.0, kind: Kind = Kind.ECHO
) -> Sample:
    """A sample off by `share` (-1 to 1) of half its interval; the truth lies inside."""
    half_ns = round(half_us * US)
    error_ns = round(share * half_ns)
    centre_ns = truth(at_s, ppm) + error_ns
    return exchange(at_s, centre_ns, half_ns, kind)


def is_right(estimate: Estimate, ppm: float) -> bool:
    return holds(estimate, truth(estimate.local_ns / SECOND, ppm))


def follow(
    estimator: Estimator, samples: list[Sample], ppm: float, until_s: int
) -> tuple[list[Sample], list[int]]:
    """Return the judged samples, and the seconds in which the truth was outside."""
    judged, outside, waiting = [], [], sorted(samples, key=lambda one: one.local_ns)
    for second in range(1, until_s):
        while waiting and waiting[0].local_ns <= second * SECOND:
            judged.append(estimator.add(waiting.pop(0)))
        if judged and not is_right(estimator.at(second * SECOND), ppm):
            outside.append(second)
    return judged, outside


@pytest.mark.parametrize("lucky", [True, False])
@pytest.mark.parametrize("ppm", [-50, 0, 50])
def test_errors_that_drift_within_the_first_burst_are_not_taken_for_frequency(ppm, lucky):
    # The two ways are measured better with each exchange, so the errors of the first go one way.
    estimator = Estimator(EstimatorSettings(use_lucky=lucky, trust_broker=True))
    drifting = [sample(at, ppm, 0.9 - 1.8 * at / 0.42) for at in START_BURST]
    judged, outside = follow(
        estimator, [*drifting, *(sample(at, ppm, 0.0) for at in BURSTS)], ppm, 160
    )
    assert outside == []
    assert all(one.verdict is not SampleVerdict.REFUSED for one in judged)
    estimate = estimator.at(160 * SECOND)
    assert estimate.offset_ns == pytest.approx(truth(160, ppm), abs=10 * US)
    assert estimate.half_width_ns is not None
    assert estimate.half_width_ns < 100 * US


shares = st.floats(-1, 1)
ppms = st.floats(-99, 99)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    ppms,
    st.lists(shares, min_size=8, max_size=8),
    st.lists(shares, min_size=36, max_size=36),
    st.sampled_from([Kind.ECHO, Kind.TWO_WAY]),
    st.booleans(),
)
@example(50.0, [1 - number / 3.5 for number in range(8)], [1.0] * 36, Kind.ECHO, False)
@example(-50.0, [-1 + number / 3.5 for number in range(8)], [-1.0] * 36, Kind.TWO_WAY, False)
def test_no_errors_inside_the_intervals_put_the_truth_outside(ppm, first, later, kind, lucky):
    estimator = Estimator(EstimatorSettings(use_lucky=lucky, trust_broker=True))
    errors = zip([*START_BURST, *BURSTS], [*first, *later], strict=True)
    samples = [sample(at, ppm, share, kind=kind) for at, share in errors]
    judged, outside = follow(estimator, samples, ppm, 160)
    assert outside == []
    assert all(one.verdict is not SampleVerdict.REFUSED for one in judged)


@given(ppms, st.floats(-99, 99), st.floats(0.01, 60.0), st.booleans())
@example(0.0, 2.0, 30.0, False)  # old and new agree by a hair, and no line goes through all
@example(90.96875, 92.125, 1.0, False)
def test_a_frequency_that_was_wrong_does_not_keep_the_new_time_from_being_confirmed(
    ppm, wrong_ppm, apart_s, lucky
):
    # As after a wrong generation or a lie: what was believed of the frequency must not decide.
    estimator = Estimator(EstimatorSettings(use_lucky=lucky, trust_broker=True))
    for number in range(12):
        estimator.add(sample(number * 8.0, wrong_ppm, 0.0))
    begin = 100.0
    for number in range(12):
        at_s = begin + number * max(apart_s, 4.0)
        estimator.add(sample(at_s, ppm, 0.0))
    assert is_right(estimator.at(round((at_s + 1) * SECOND)), ppm)


def test_without_a_second_burst_the_bound_grows_by_the_worst_frequency():
    estimator = Estimator(EstimatorSettings(use_lucky=False, trust_broker=True))
    for at in START_BURST:
        estimator.add(sample(at, 40.0, 0.0, half_us=60.0))
    for second in (1, 10, 100, 1000):  # every interval holds the second line, too
        assert is_right(estimator.at(second * SECOND), 40.0)
        assert is_right(estimator.at(second * SECOND), -60.0)
