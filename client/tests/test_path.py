import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.path import PathDelay

SECOND = 1_000_000_000


def learned(*delays: int, samples: int = 16) -> PathDelay:
    path = PathDelay(samples)
    for delay in delays:
        path.add(delay)
    return path


def test_nothing_is_known_before_four_delays():
    path = learned(1, 2, 3)
    assert (path.delay_ns, path.spread_ns) == (None, None)
    path.add(4)
    assert path.delay_ns is not None


def test_one_late_message_moves_neither_delay_nor_spread():
    path = learned(300, 302, 301, 299, 300, 9_000_000)
    assert path.delay_ns == pytest.approx(300, abs=2)
    assert path.spread_ns < 5


def test_the_window_forgets_the_oldest():
    path = learned(*[1000] * 8, *[50] * 8, samples=8)
    assert (path.delay_ns, len(path)) == (50, 8)


def test_the_least_is_told_from_the_first_delay_on():
    assert learned().least_ns == 0
    assert learned(30, 20).least_ns == 20


def test_spread_is_the_standard_deviation_of_normal_delays():
    # Quantiles of a normal distribution with deviation 100: the middle half lies within 67.4.
    path = learned(-115, -67, -32, 0, 32, 67, 115)
    assert path.spread_ns == pytest.approx(100, rel=0.05)


def test_of_a_group_only_the_least_delay_is_learned_once_the_group_is_over():
    path = PathDelay(16, group_ns=8 * SECOND)
    for second in range(9):
        path.add(500 - second, second * SECOND)
    assert len(path) == 0
    path.add(900, 9 * SECOND)
    assert (len(path), path.least_ns) == (1, 492)
    path.add(800, 30 * SECOND)
    assert (len(path), path.least_ns) == (2, 492)


def test_clearing_forgets_all():
    path = learned(1, 2, 3, 4, 5)
    path.clear()
    assert len(path) == 0
    assert path.delay_ns is None


@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=40), st.integers(-(2**40), 2**40)
)
def test_delays_shift_with_their_samples_and_the_spread_stays(delays, shift):
    here = learned(*delays, samples=64)
    there = learned(*(delay + shift for delay in delays), samples=64)
    assert there.delay_ns == here.delay_ns + shift
    assert there.spread_ns == pytest.approx(here.spread_ns, rel=1e-9, abs=1e-6)
    assert min(delays) <= here.delay_ns <= max(delays)
