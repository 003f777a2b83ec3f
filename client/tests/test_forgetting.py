import random

from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.forgetting import Forgetting
from mqtick.client.regression import Point

SECOND = 1_000_000_000
EPOCH = 1_790_000_000 * SECOND


def fed(wander: float, seed: int = 1, count: int = 300, gap_at: int | None = None) -> Forgetting:
    """Samples each 8 s with 10 us of noise, of a clock whose frequency wanders."""
    draw = random.Random(seed)
    forgetting = Forgetting(32.0, 512.0, 64)
    offset, frequency, local = float(EPOCH), 40e-6, -(10**15)
    for number in range(count):
        elapsed = 3600 if number == gap_at else 8
        if number == gap_at:
            forgetting.start_anew()
        for _ in range(elapsed):
            offset += frequency * SECOND
            frequency += wander * draw.gauss(0, 1)
        local += elapsed * SECOND
        forgetting.add(Point(local, round(offset + draw.gauss(0, 10_000)), 10_000.0))
    return forgetting


def test_without_evidence_the_longest_memory_is_chosen():
    assert Forgetting(32.0, 512.0, 64).time_constant_s == 512.0
    assert fed(0.0, count=2).time_constant_s == 512.0


def test_a_steady_clock_gets_a_long_memory():
    assert all(fed(0.0, seed).time_constant_s >= 256 for seed in range(5))


def test_a_wandering_clock_gets_a_short_memory():
    assert all(fed(1e-8, seed).time_constant_s <= 128 for seed in range(5))


def test_a_clock_that_begins_to_wander_shortens_the_memory():
    draw = random.Random(3)
    forgetting = Forgetting(32.0, 512.0, 64)
    offset, frequency = 0.0, 40e-6
    chosen = []
    for number in range(400):
        for _ in range(8):
            offset += frequency * SECOND
            frequency += (3e-8 if number > 200 else 0.0) * draw.gauss(0, 1)
        point = Point(number * 8 * SECOND, round(offset + draw.gauss(0, 10_000)), 10_000.0)
        forgetting.add(point)
        chosen.append(forgetting.time_constant_s)
    assert chosen[200] >= 256
    assert chosen[399] <= 64


def test_a_line_started_anew_after_a_gap_keeps_what_was_found_out():
    assert fed(1e-9, count=102, gap_at=100).time_constant_s >= 128
    assert fed(3e-8, count=102, gap_at=100).time_constant_s <= 64


def test_a_late_sample_is_not_a_prediction():
    early, late = Forgetting(32.0, 512.0, 64), Forgetting(32.0, 512.0, 64)
    draw = random.Random(0)
    for number in range(60):
        point = Point(number * SECOND, round(draw.gauss(0, 1000)), 1000.0)
        early.add(point)
        late.add(point)
        late.add(Point((number - 1) * SECOND, 10**9, 1.0))
    assert early.time_constant_s == late.time_constant_s


def test_equal_limits_mean_a_fixed_time_constant():
    assert fed(3e-8).time_constant_s < 512
    fixed = Forgetting(128.0, 128.0, 64)
    for number in range(50):
        fixed.add(Point(number * SECOND, (number * number) * 10**6, 1000.0))
    assert fixed.time_constant_s == 128.0


@given(
    st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.floats(1.0, 1e9))
    )
)
def test_no_points_in_the_range_raise(raw):
    forgetting = Forgetting(32.0, 512.0, 64)
    for local_ns, offset_ns, sigma_ns in raw:
        forgetting.add(Point(local_ns, offset_ns, sigma_ns))
    assert forgetting.time_constant_s in {32.0, 64.0, 128.0, 256.0, 512.0}
