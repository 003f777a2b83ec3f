"""Each test builds a situation from its truth, and asks the arithmetic for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.exchange import echo, link_difference, one_way, two_way
from mqtick.client.sample import Kind, Origin, Reading, Reason, Sample, SampleVerdict
from mqtick.mqtt.stamps import StampSource

SETTINGS = EstimatorSettings()
ORIGIN = Origin(
    server=3,
    sequence=17,
    generation=9,
    root_distance_ns=1234,
    stratum=2,
    leap=1,
    authenticated=True,
)
LOCAL = 5_000_000_000
FLOOR = 5_000  # link_asymmetry_us

instants = st.integers(-(2**62), 2**62)
offsets = st.integers(-(2**61), 2**61)
delays = st.integers(0, 10**9)


def kernel(instant_ns: int) -> Reading:
    return Reading(instant_ns, StampSource.KERNEL)


def make_exchange(
    offset: int, up: int = 100_000, down: int = 100_000, local: int = LOCAL, hold: int = 20_000
) -> Sample:
    received = local + offset + up
    arrival = local + up + hold + down
    return two_way(
        ORIGIN,
        kernel(local),
        kernel(received),
        kernel(received + hold),
        kernel(arrival),
        SETTINGS,
    )


def make_echo(
    first: int, last: int, settings: EstimatorSettings = SETTINGS, **more: object
) -> Sample:
    """Arrival at LOCAL; the echoes relative to it."""
    loops = {"loop_client_ns": 400_000, "loop_server_ns": 400_000}
    return echo(
        ORIGIN,
        kernel(LOCAL + first),
        kernel(LOCAL + last),
        kernel(LOCAL),
        settings,
        **{**loops, **more},  # type: ignore[arg-type]
    )


# one-way


@given(instants, offsets, delays)
def test_a_broadcast_bounds_the_offset_from_below_by_its_delay(local, offset, delay):
    sample = one_way(ORIGIN, kernel(local + offset), kernel(local + delay), SETTINGS)
    assert sample.lower_ns == offset - delay
    assert sample.upper_ns is None


@pytest.mark.parametrize("correction_ns", [250, -250])
def test_the_follow_up_moves_the_transmit_time_of_a_broadcast(correction_ns):
    broadcast = ORIGIN, kernel(LOCAL), kernel(LOCAL)
    moved = one_way(*broadcast, SETTINGS, correction_ns=correction_ns)
    assert moved.lower_ns == correction_ns
    assert dict(moved.readings)["transmit"].instant_ns == LOCAL + correction_ns
    without = replace(SETTINGS, use_follow_up=False)
    assert one_way(*broadcast, without, correction_ns=correction_ns).lower_ns == 0


# two-way


@given(instants, offsets, delays, delays, st.integers(0, 4 * 10**9))
def test_an_exchange_always_holds_the_truth_and_is_off_by_half_the_asymmetry(
    local, offset, up, down, hold
):
    sample = make_exchange(offset, up, down, local, hold)
    assert sample.verdict is SampleVerdict.PENDING
    assert sample.lower_ns is not None
    assert sample.upper_ns is not None
    assert sample.lower_ns <= offset <= sample.upper_ns
    assert (sample.lower_ns, sample.upper_ns) == (offset - down, offset + up)
    assert sample.delay_ns == up + down == sample.upper_ns - sample.lower_ns
    assert abs(2 * (sample.offset_ns - offset) - (up - down)) <= 1
    assert sample.duration_ns == up + hold + down


def test_the_exchange_of_rfc_5905_figure_15_works_out():
    # RFC 5905, section 8: offset = ((T2-T1)+(T3-T4))/2, delay = (T4-T1)-(T3-T2).
    sample = two_way(ORIGIN, kernel(10), kernel(35), kernel(36), kernel(31), SETTINGS)
    assert (sample.offset_ns, sample.delay_ns) == (15, 20)
    assert (sample.lower_ns, sample.upper_ns) == (5, 25)


def test_an_exchange_belongs_to_the_middle_of_request_and_reply():
    assert make_exchange(0, up=100, down=300, hold=200).local_ns == LOCAL + 300


@pytest.mark.parametrize(
    ("t2", "t3", "t4", "reason"),
    [
        (10, 100, 50, Reason.NEGATIVE_DELAY),
        (10, 20, -5, Reason.INVERTED),
        (30, 20, 200, Reason.INVERTED),
    ],
)
def test_an_exchange_that_cannot_be_is_refused(t2, t3, t4, reason):
    sample = two_way(ORIGIN, kernel(0), kernel(t2), kernel(t3), kernel(t4), SETTINGS)
    assert (sample.verdict, sample.reason) == (SampleVerdict.REFUSED, reason)


def test_the_follow_up_moves_the_transmit_time_of_a_reply():
    stamps = kernel(0), kernel(1000), kernel(1000), kernel(1500)
    assert two_way(ORIGIN, *stamps, SETTINGS).lower_ns == -500
    assert two_way(ORIGIN, *stamps, SETTINGS, correction_ns=200).lower_ns == -300
    without = replace(SETTINGS, use_follow_up=False)
    assert two_way(ORIGIN, *stamps, without, correction_ns=200).lower_ns == -500


def test_late_receive_and_early_transmit_stamps_only_widen_the_interval():
    exact = make_exchange(700)
    late = two_way(
        ORIGIN,
        kernel(LOCAL - 900),
        kernel(LOCAL + 700 + 100_000 + 2_000_000),
        kernel(LOCAL + 700 + 120_000 + 1_999_000),
        kernel(LOCAL + 220_000 + 3_000_000),
        SETTINGS,
    )
    assert late.lower_ns < exact.lower_ns <= 700 <= exact.upper_ns < late.upper_ns


# echo


def test_an_echo_is_the_middle_of_the_brackets_minus_the_arrival():
    sample = make_echo(1000, 41_000)
    assert sample.offset_ns == 21_000
    assert (sample.lower_ns, sample.upper_ns) == (1000 - FLOOR, 41_000 + FLOOR)
    assert sample.delay_ns == 40_000
    assert sample.local_ns == LOCAL


@given(
    offset=offsets,
    first=st.integers(0, 100_000),
    last=st.integers(0, 100_000),
    extra_up=st.integers(-200_000, 10**6),
    extra_down=st.integers(-200_000, 10**6),
)
def test_an_echo_holds_the_truth_however_the_extra_link_delay_is_split(
    offset, first, last, extra_up, extra_down
):
    # One sign only: a longer link is not longer up and shorter down by any amount.
    if extra_up * extra_down < 0:
        extra_up = -extra_up
    # The server's way down is 200 us, the client's 200 us + extra_down; the broker delivers to
    # the first echo, `first` later to the client, `last` after that to the last echo.
    delivered = LOCAL - 200_000 - extra_down - first
    sample = echo(
        ORIGIN,
        kernel(delivered + 200_000 + offset),
        kernel(delivered + first + last + 200_000 + offset),
        kernel(LOCAL),
        SETTINGS,
        loop_client_ns=600_000 + extra_up + extra_down,
        loop_server_ns=600_000,
    )
    assert sample.verdict is SampleVerdict.PENDING
    assert sample.lower_ns <= offset <= sample.upper_ns
    if extra_up == extra_down:
        assert abs(sample.offset_ns - offset) <= (first + last) / 2 + FLOOR + 1


def test_without_the_link_difference_the_echo_is_uncorrected_and_its_interval_wider():
    settings = replace(SETTINGS, use_link_difference=False)
    loops = {"loop_client_ns": 500_000, "loop_server_ns": 400_000}
    corrected, plain = make_echo(0, 20_000, **loops), make_echo(0, 20_000, settings, **loops)
    assert corrected.offset_ns == plain.offset_ns + 50_000
    assert plain.lower_ns <= corrected.lower_ns
    assert plain.upper_ns >= corrected.upper_ns


@pytest.mark.parametrize("extra_ns", [2 * FLOOR, -2 * FLOOR, 3000, 0])
def test_loops_that_hardly_differ_move_the_interval_but_not_the_offset(extra_ns):
    loops = {"loop_client_ns": 400_000 + extra_ns, "loop_server_ns": 400_000}
    sample = make_echo(0, 40_000, **loops)
    assert sample.offset_ns == 20_000
    assert sample.lower_ns == extra_ns // 2 - abs(extra_ns) // 2 - FLOOR


def test_what_loops_differ_by_chance_is_not_taken_for_a_difference_of_links():
    def guess(extra_ns: int) -> int:
        return link_difference(400_000 + extra_ns, 400_000, 40_000, SETTINGS)[0]

    assert [guess(extra) for extra in (0, 30_000, 40_000, -40_000)] == [0, 0, 0, 0]
    assert guess(60_000) == 15_000  # half believed
    assert [guess(80_000), guess(-80_000)] == [40_000, -40_000]
    assert guess(200_000) == 100_000


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**5))
def test_the_way_down_is_never_outside_what_the_loops_allow(extra_ns, loop_spread_ns):
    guess, least, most = link_difference(10**6 + extra_ns, 10**6, loop_spread_ns, SETTINGS)
    assert least <= min(0, extra_ns) <= max(0, extra_ns) <= most
    assert least <= guess <= most


def test_a_smaller_asymmetry_share_narrows_the_interval():
    loops = {"loop_client_ns": 500_000, "loop_server_ns": 400_000}
    sample = make_echo(0, 20_000, replace(SETTINGS, asymmetry_share=0.2), **loops)
    assert sample.lower_ns == 50_000 - 10_000 - FLOOR


def test_the_offset_of_an_echo_never_leaves_its_interval():
    exchange = make_exchange(21_000, up=3000, down=100_000)
    sample = make_echo(21_000, 61_000, exchange=exchange)
    assert sample.offset_ns == sample.upper_ns == 24_000


def test_the_exchange_narrows_the_interval_of_its_echo():
    exchange = make_exchange(21_000, up=3000, down=100_000)
    sample = make_echo(1000, 41_000, exchange=exchange)
    assert (sample.lower_ns, sample.upper_ns) == (1000 - FLOOR, 24_000)
    assert sample.duration_ns == exchange.duration_ns


def test_an_echo_that_its_own_exchange_excludes_is_refused_and_the_exchange_is_not():
    exchange = make_exchange(900_000)
    sample = make_echo(1000, 41_000, exchange=exchange)
    assert (sample.verdict, sample.reason) == (SampleVerdict.REFUSED, Reason.ECHO_ORDER)
    assert exchange.verdict is SampleVerdict.PENDING


def test_an_echo_whose_last_came_before_its_first_is_refused():
    assert make_echo(41_000, 1000).reason is Reason.ECHO_ORDER


def test_without_loops_only_the_exchange_guarantees_anything():
    exchange = make_exchange(21_000)
    sample = make_echo(1000, 41_000, loop_server_ns=None, exchange=exchange)
    assert (sample.lower_ns, sample.upper_ns) == (exchange.lower_ns, exchange.upper_ns)
    assert sample.offset_ns == 21_000
    alone = make_echo(1000, 41_000, loop_client_ns=None)
    assert (alone.lower_ns, alone.upper_ns) == (None, None)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_echo_read_by_a_program_is_refused_unless_that_is_allowed(which):
    stamps = [kernel(LOCAL), kernel(LOCAL + 40_000), kernel(LOCAL)]
    stamps[which] = stamps[which]._replace(source=StampSource.USER)
    loops = {"loop_client_ns": 1, "loop_server_ns": 1}
    assert echo(ORIGIN, *stamps, SETTINGS, **loops).reason is Reason.USER_STAMP
    lenient = replace(SETTINGS, echo_needs_kernel_stamps=False)
    assert echo(ORIGIN, *stamps, lenient, **loops).verdict is SampleVerdict.PENDING


# all


def test_every_sample_carries_what_the_message_said():
    samples = [
        one_way(ORIGIN, kernel(1), kernel(2), SETTINGS),
        make_exchange(0),
        make_echo(0, 1),
    ]
    assert [sample.kind for sample in samples] == [Kind.ONE_WAY, Kind.TWO_WAY, Kind.ECHO]
    for sample in samples:
        assert (sample.server, sample.sequence, sample.generation) == (3, 17, 9)
        assert (sample.root_distance_ns, sample.stratum, sample.leap) == (1234, 2, 1)
        assert sample.authenticated
        assert all(reading.source is StampSource.KERNEL for _, reading in sample.readings)


@given(st.lists(instants, min_size=4, max_size=4))
def test_no_timestamps_raise(stamps):
    sample = two_way(ORIGIN, *(kernel(stamp) for stamp in stamps), SETTINGS)
    echo(
        ORIGIN,
        *(kernel(stamp) for stamp in stamps[:3]),
        SETTINGS,
        loop_client_ns=stamps[3],
        loop_server_ns=0,
        exchange=sample,
    )
