"""The estimator's rules, one situation at a time, with samples made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    EPOCH,
    HOUR,
    SECOND,
    US,
    Fed,
    broadcast,
    exchange,
    holds,
    local,
    outcome,
    settled,
)

from mqtick.client.estimate import State
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind, Reason, Sample, SampleVerdict
from mqtick.service.settings.load import load


@pytest.fixture
def fresh() -> Fed:
    return Fed()


@pytest.fixture
def steady() -> Fed:
    return settled()


# first answers


def test_before_the_first_sample_nothing_is_known():
    estimate = Fed().at(5)
    assert estimate.state is State.UNSYNCHRONISED
    assert (estimate.offset_ns, estimate.lower_ns, estimate.upper_ns) == (None, None, None)
    assert estimate.half_width_ns is None
    assert estimate.bound_ns is None
    assert estimate.reference_ns() is None


def test_the_first_exchange_gives_a_usable_offset(fresh):
    assert outcome(fresh.exchange(1, EPOCH)) == (SampleVerdict.USED, Reason.SELECTED)
    estimate = fresh.after(1)
    assert estimate.state is State.SYNCHRONISED
    assert estimate.state.is_known
    assert estimate.offset_ns == EPOCH
    assert estimate.reference_ns() == EPOCH + SECOND
    assert estimate.half_width_ns == 31 * US  # with stamp_error_us
    assert not estimate.assumed


def test_until_the_frequency_is_known_the_interval_grows_by_the_worst_frequency(fresh):
    fresh.exchange(1)
    assert fresh.after(11).half_width_ns == pytest.approx(31 * US + 10 * 100 * US, rel=0.01)


def test_the_frequency_is_learned_and_the_interval_grows_by_less(fresh):
    for at_s in range(0, 400, 8):
        fresh.exchange(at_s, EPOCH + at_s * 40 * US)
    estimate = fresh.after(400)
    assert estimate.frequency_ppb == pytest.approx(40_000, abs=50)
    assert estimate.offset_ns == pytest.approx(EPOCH + 400 * 40 * US, abs=US)
    width = fresh.after(500).half_width_ns - fresh.after(400).half_width_ns
    assert 100 * US < width < 200 * US


# kinds


def test_a_two_way_sample_is_kept_beside_a_fresh_echo(steady):
    kept = steady.exchange(200, kind=Kind.TWO_WAY, error_ns=20 * US)
    assert outcome(kept) == (SampleVerdict.KEPT, Reason.BETTER_KIND)
    assert steady.after(200).offset_ns == EPOCH


EXACT = EstimatorSettings(tolerated_faults=0, trust_broker=True)


def test_a_kept_sample_still_narrows_the_interval():
    estimator = settled(settings=EXACT)
    before = estimator.after(200).half_width_ns
    estimator.exchange(200, kind=Kind.TWO_WAY, half_ns=5 * US)
    assert estimator.after(200).half_width_ns == 6 * US < before


def test_a_single_interval_narrows_the_bound_only_as_far_as_another_agrees(steady):
    steady.exchange(200, half_ns=5 * US)
    assert steady.after(200).half_width_ns > 30 * US
    steady.exchange(201, half_ns=7 * US)
    assert steady.after(201).half_width_ns < 10 * US


def test_the_two_samples_of_one_exchange_have_one_vote(steady):
    steady.exchange(200, half_ns=6 * US, kind=Kind.TWO_WAY)
    steady.exchange(200, half_ns=5 * US)
    assert steady.after(200).half_width_ns > 30 * US


def test_two_way_samples_take_over_when_echoes_stop(steady):
    used = steady.exchange(300, kind=Kind.TWO_WAY)
    assert outcome(used) == (SampleVerdict.USED, Reason.SELECTED)
    assert steady.after(300).kind is Kind.TWO_WAY


def teach_asymmetry(estimator: Fed) -> None:
    """Let echoes tell that two-way samples are off by 40 us."""
    for at_s in range(0, 200, 8):
        estimator.exchange(at_s)
        estimator.exchange(at_s, half_ns=300 * US, kind=Kind.TWO_WAY, error_ns=40 * US)


def test_two_way_samples_are_corrected_by_what_echoes_taught(fresh):
    teach_asymmetry(fresh)
    assert fresh.asymmetry.delay_ns == 40 * US
    for at_s in range(264, 400, 8):
        fresh.exchange(at_s, half_ns=300 * US, kind=Kind.TWO_WAY, error_ns=40 * US)
    assert fresh.after(400).offset_ns == pytest.approx(EPOCH, abs=US)


def test_an_echo_drops_the_two_way_samples_before_it_but_not_their_frequency(fresh):
    for at_s in range(0, 200, 8):
        truth = EPOCH + at_s * 30 * US
        fresh.exchange(at_s, truth, 300 * US, Kind.TWO_WAY, error_ns=40 * US)
    fresh.exchange(200, EPOCH + 200 * 30 * US)
    estimate = fresh.after(200)
    assert (estimate.kind, estimate.samples) == (Kind.ECHO, 1)
    assert estimate.offset_ns == EPOCH + 200 * 30 * US
    assert estimate.frequency_ppb == pytest.approx(30_000, abs=500)


def test_broadcasts_carry_on_with_the_delay_that_exchanges_taught():
    estimator = settled(seconds=1)
    for second in range(1, 200):
        if second % 8 == 0:
            estimator.exchange(second)
        assert estimator.broadcast(second + 0.5).verdict is SampleVerdict.KEPT
    assert estimator.path.delay_ns == 300 * US
    for second in range(300, 400):
        estimator.broadcast(second)
    estimate = estimator.after(400)
    assert estimate.kind is Kind.ONE_WAY
    assert estimate.state is State.SYNCHRONISED
    assert estimate.offset_ns == pytest.approx(EPOCH, abs=US)
    assert not estimate.assumed


def test_broadcasts_are_of_no_use_if_their_delay_was_never_learned(steady):
    assert outcome(steady.broadcast(300)) == (SampleVerdict.KEPT, Reason.PATH_UNKNOWN)
    assert steady.after(300).state is State.HOLDOVER


def test_delays_are_not_learned_from_an_estimate_that_is_not_good_itself(fresh):
    fresh.exchange(0)
    for second in range(1, 60):
        fresh.broadcast(second)
    assert len(fresh.path) == 0


def test_another_generation_may_take_another_path_and_the_delays_are_forgotten(fresh):
    teach_asymmetry(fresh)
    fresh.exchange(200, generation=1)
    assert len(fresh.asymmetry) == 0
    assert fresh.after(200).samples > 20


# lucky selection


def test_of_a_burst_the_least_delayed_exchange_is_used():
    estimator = settled(kind=Kind.TWO_WAY)
    samples = estimator.after(199).samples
    burst = [(200.0, 50, 20), (200.1, 20, 0), (200.2, 40, 9)]  # when, half width, error (us)
    outcomes = [
        outcome(estimator.exchange(at_s, EPOCH, half * US, Kind.TWO_WAY, error * US))
        for at_s, half, error in burst
    ]
    assert outcomes[:2] == [(SampleVerdict.USED, Reason.SELECTED)] * 2
    assert outcomes[2] == (SampleVerdict.KEPT, Reason.NOT_LEAST)
    estimate = estimator.after(201)
    assert estimate.samples == samples + 1
    assert estimate.offset_ns == pytest.approx(EPOCH, abs=10)


def test_the_first_samples_are_doubted_once_others_show_that_less_delay_is_possible(fresh):
    fresh.exchange(1, kind=Kind.TWO_WAY, half_ns=500 * US, error_ns=400 * US)
    for at_s in range(4, 20, 3):
        fresh.exchange(at_s, kind=Kind.TWO_WAY)
    assert abs(fresh.after(40).offset_ns - EPOCH) < 10 * US


def test_of_a_burst_of_echoes_the_mean_is_used_and_the_narrowest_weighs_most(fresh):
    for number, (half, error) in enumerate([(60, 30), (20, 0)]):
        fresh.exchange(number / 10, EPOCH, half * US, error_ns=error * US)
    estimate = fresh.after(0.1)
    assert estimate.samples == 1
    assert estimate.offset_ns == pytest.approx(
        EPOCH + 3 * US, abs=100
    )  # 30 us * 20**2/(20**2+60**2)


def test_without_lucky_selection_every_sample_of_a_burst_is_used():
    estimator = settled(settings=EstimatorSettings(use_lucky=False, trust_broker=True))
    samples = estimator.after(199).samples
    for number in range(3):
        assert estimator.exchange(200 + number / 10).verdict is SampleVerdict.USED
    assert estimator.after(201).samples == samples + 3


# switches


@pytest.mark.parametrize(
    ("kind", "switch"), [(Kind.ECHO, "use_echo"), (Kind.TWO_WAY, "use_two_way")]
)
def test_a_kind_that_is_switched_off_is_refused(kind, switch):
    estimator = Fed(EstimatorSettings(**{switch: False}, trust_broker=True))
    assert outcome(estimator.exchange(1, kind=kind)) == (SampleVerdict.REFUSED, Reason.SWITCHED_OFF)
    assert estimator.after(1).offset_ns is None


def test_without_frequency_the_newest_sample_is_the_estimate():
    estimator = settled(settings=EstimatorSettings(use_frequency=False, trust_broker=True))
    estimator.exchange(200, error_ns=9 * US)
    estimate = estimator.after(210)
    assert (estimate.offset_ns, estimate.frequency_ppb) == (EPOCH + 9 * US, 0.0)
    assert estimate.samples == 1
    grown = estimator.after(210).half_width_ns - estimator.after(200).half_width_ns
    assert grown == pytest.approx(10 * 100 * US, rel=0.01)


# what is refused


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (exchange(201, leap=3), Reason.SERVER_UNSYNCHRONISED),
        (exchange(201, server=7), Reason.OTHER_SERVER),
        (exchange(201, lower_ns=EPOCH + 1, upper_ns=EPOCH - 1), Reason.INVERTED),
        (exchange(201, offset_ns=EPOCH, error_ns=SECOND), Reason.INVERTED),
        (exchange(201, upper_ns=None), Reason.UNBOUNDED),
        (exchange(201, lower_ns=None), Reason.UNBOUNDED),
        (exchange(201, delay_ns=-1), Reason.NEGATIVE_DELAY),
        (exchange(201, delay_ns=2 * SECOND), Reason.DELAY),
        (exchange(201, EPOCH + (1 << 63)), Reason.RANGE),
        (exchange(201, local_ns=1 << 80), Reason.RANGE),
        (exchange(201, lower_ns=-(1 << 90)), Reason.RANGE),
        (exchange(150), Reason.STALE),
        (exchange(192), Reason.DUPLICATE),
        (exchange(201, EPOCH + 10 * US * 1000), Reason.CONTRADICTS),
        (broadcast(201, EPOCH + HOUR), Reason.CONTRADICTS),
        (broadcast(201, EPOCH - HOUR), Reason.DELAY),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else "",
)
def test_a_bad_sample_is_refused_counted_and_changes_nothing(steady, bad, reason):
    before = steady.after(201)
    assert outcome(steady.add(bad)) == (SampleVerdict.REFUSED, reason)
    assert steady.counters.of(reason=reason) == 1
    assert steady.after(201) == before


def test_what_the_arithmetic_refused_is_counted_and_not_used(fresh):
    fresh.add(exchange(1).refused(Reason.ECHO_ORDER))
    assert fresh.counters.of(verdict=SampleVerdict.REFUSED, reason=Reason.ECHO_ORDER) == 1
    assert fresh.after(1).offset_ns is None


def test_an_unsynchronised_server_can_be_followed_if_that_is_wanted():
    estimator = Fed(EstimatorSettings(refuse_unsynchronised_server=False, trust_broker=True))
    assert estimator.exchange(1, leap=3).verdict is SampleVerdict.USED


def test_a_sample_that_arrives_a_little_late_is_used_at_its_place(fresh):
    for at_s in (0, 8, 16, 32, 24):
        assert fresh.exchange(at_s, EPOCH + at_s * 10 * US).verdict is SampleVerdict.USED
    estimate = fresh.after(32)
    assert estimate.samples == 5
    assert estimate.offset_ns == pytest.approx(EPOCH + 320 * US, abs=US)


# state


def test_without_samples_holdover_follows_and_then_unsynchronised():
    estimator = settled()  # the last echo came at 192 s
    assert estimator.after(250).state is State.SYNCHRONISED
    assert estimator.after(253).state is State.HOLDOVER
    assert estimator.after(253).state.is_known
    assert estimator.after(192 + 14_401).state is State.UNSYNCHRONISED
    assert estimator.after(253).age_ns == local(61)


def test_where_exchanges_end_broadcasts_take_over_before_holdover() -> None:
    estimator = Fed(EstimatorSettings())
    states = set()
    for tenth in range(1500):
        at_s = tenth / 10
        if tenth % 160 == 0 and at_s <= 64:
            estimator.exchange(at_s, kind=Kind.TWO_WAY)
        if tenth % 10 == 5:
            estimator.broadcast(at_s)
        states.add(estimator.after(at_s).state)
    assert states == {State.SYNCHRONISED}


def hearing(until_s: int, *, took_residence: bool = False) -> Fed:
    """An estimator with a broadcast each second; exchanges end at 192 s, and the crystal warms."""
    estimator = Fed(EstimatorSettings(trust_broker=True, path_samples=4))
    for at_s in range(until_s):
        truth_ns = EPOCH + max(at_s - 192, 0) * US // 5
        if at_s % 8 == 0 and at_s <= 192:
            estimator.exchange(at_s, truth_ns)
        heard = broadcast(at_s + 0.5, truth_ns)
        estimator.add(replace(heard, took_residence=took_residence))
    return estimator


@pytest.mark.parametrize("took_residence", [False, True])
def test_after_the_last_exchange_no_delay_is_learned(took_residence: bool) -> None:
    estimator = hearing(236, took_residence=took_residence)
    path = estimator.link_path if took_residence else estimator.path
    assert path.delay_ns == pytest.approx(300 * US, abs=50)
    assert path.spread_ns == pytest.approx(0, abs=50)


def test_a_broadcast_without_the_brokers_share_weighs_more() -> None:
    plain, without = (
        hearing(400, took_residence=took).after(400).frequency_uncertainty_ppb
        for took in (False, True)
    )
    assert without < plain / 2


def test_a_bound_that_is_too_wide_is_unsynchronised():
    estimator = settled(settings=EstimatorSettings(unsynchronised_bound_us=500, trust_broker=True))
    assert estimator.after(300).state is State.HOLDOVER
    assert estimator.after(3000).state is State.UNSYNCHRONISED


def test_a_sample_ends_holdover_and_the_frequency_is_remembered(fresh):
    for at_s in range(0, 200, 8):
        fresh.exchange(at_s, EPOCH + at_s * 40 * US)
    fresh.exchange(900, EPOCH + 900 * 40 * US + 20 * US)
    estimate = fresh.after(900)
    assert estimate.state is State.SYNCHRONISED
    assert estimate.samples == 1
    assert estimate.offset_ns == EPOCH + 900 * 40 * US + 20 * US
    assert estimate.frequency_ppb == pytest.approx(40_000, abs=100)
    assert 200 < estimate.frequency_uncertainty_ppb < 2000


def test_the_estimate_is_clipped_into_the_guaranteed_interval():
    estimator = settled(settings=EXACT, error_ns=25 * US)
    estimator.exchange(200, half_ns=10 * US)
    estimate = estimator.after(200)
    assert estimate.offset_ns <= estimate.upper_ns == EPOCH + 11 * US


def test_the_truth_is_within_the_bound_of_an_estimate_that_is_far_from_the_middle(fresh):
    # As measured through Mosquitto with TLS, on a machine with clients of real-time priority: the
    # client woke at its copy, and held the broker up before the last echo.
    lower_ns, offset_ns, upper_ns = (EPOCH + error for error in (-17_463, 118_198, 137_386))
    fresh.exchange(1, offset_ns, lower_ns=lower_ns, upper_ns=upper_ns, delay_ns=261_322)
    estimate = fresh.after(1)
    assert estimate.half_width_ns < abs(estimate.offset_ns - EPOCH) <= estimate.bound_ns
    assert estimate.bound_ns == offset_ns - lower_ns + US  # with stamp_error_us


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0, 1))
def test_the_bound_reaches_from_the_estimate_to_both_ends_of_the_interval(below, above, share):
    estimator = Fed()
    guess_ns = EPOCH - below + round(share * (below + above))
    estimator.exchange(1, guess_ns, lower_ns=EPOCH - below, upper_ns=EPOCH + above)
    estimate = estimator.after(1)
    assert estimate.offset_ns - estimate.bound_ns <= estimate.lower_ns
    assert estimate.offset_ns + estimate.bound_ns >= estimate.upper_ns
    assert estimate.half_width_ns <= estimate.bound_ns <= 2 * estimate.half_width_ns


def test_a_question_about_the_recent_past_is_answered(steady):
    estimate = steady.after(100)
    assert holds(estimate)
    assert estimate.age_ns == 0


def test_the_root_distance_of_the_server_is_reported_not_added():
    estimator = settled(half_ns=30 * US)
    estimator.exchange(200, root_distance_ns=5 * SECOND)
    estimate = estimator.after(200)
    assert estimate.root_distance_ns == 5 * SECOND
    assert estimate.half_width_ns < 50 * US


# jumps


FOUR = [(200, -HOUR), (204, -HOUR), (208, -HOUR), (212, -HOUR)]
JUMPS = {
    "one is wrong": ([(200, HOUR)], "c"),
    "four over ten seconds": (FOUR, "cccJ"),
    "a burst": (
        [(200 + number / 10, HOUR) for number in range(12)] + [(211, HOUR)],
        "c" * 12 + "J",
    ),
    "one agrees": ([*FOUR[:3], (212, 0), (216, -HOUR), (220, -HOUR), (224, -HOUR)], "cccuccc"),
    "each says another": ([(200 + 4 * n, (n + 1) * SECOND) for n in range(20)], "c" * 20),
}
"""Exchanges, by when they come and what they are off by; which contradict, are used, or jump."""
LETTERS = {Reason.CONTRADICTS: "c", Reason.SELECTED: "u", Reason.JUMP_CONFIRMED: "J"}


@pytest.mark.parametrize("name", JUMPS)
def test_a_new_time_is_accepted_only_once_exchanges_over_ten_seconds_agree(name):
    estimator, (heard, expected) = settled(), JUMPS[name]
    seen = "".join(LETTERS[estimator.exchange(at_s, EPOCH + off).reason] for at_s, off in heard)
    assert seen == expected
    last_s, moved_ns = heard[-1][0], heard[-1][1] if expected[-1] == "J" else 0
    estimate = estimator.after(last_s)
    assert estimate.offset_ns == EPOCH + moved_ns
    assert estimator.jumps == expected.count("J")
    if name == "four over ten seconds":
        assert estimate.samples == 4


@pytest.mark.parametrize("policy", ["confirm", "refuse"])
@pytest.mark.parametrize("off", [(HOUR, HOUR), (HOUR, -SECOND)], ids=["alike", "each otherwise"])
def test_two_exchanges_in_a_row_that_contradict_it_end_its_being_known_until_one_agrees(
    policy, off
):
    estimator = settled(settings=EstimatorSettings(jump_policy=policy, trust_broker=True))
    estimator.exchange(200, EPOCH + off[0])
    assert estimator.after(200).state is State.SYNCHRONISED
    estimator.exchange(200.1, EPOCH + off[1])
    assert estimator.after(200.1).state is State.UNSYNCHRONISED
    assert estimator.in_doubt
    estimator.exchange(208)
    assert holds(estimator.after(208))
    assert estimator.after(208).state is State.SYNCHRONISED
    assert not estimator.in_doubt


def test_a_time_that_is_confirmed_is_known_again():
    estimator = settled()
    for at_s, off in FOUR:
        estimator.exchange(at_s, EPOCH + off)
    assert estimator.after(212).state is State.SYNCHRONISED


def test_the_two_samples_of_one_exchange_count_as_one(steady):
    for at_s in (200, 206):
        for kind in (Kind.TWO_WAY, Kind.ECHO):
            steady.exchange(at_s, EPOCH + HOUR, kind=kind)
        assert steady.in_doubt is (at_s == 206)
    assert steady.exchange(212, EPOCH + HOUR).reason is Reason.CONTRADICTS
    assert steady.exchange(218, EPOCH + HOUR).reason is Reason.JUMP_CONFIRMED


def test_a_jump_is_never_accepted_where_the_policy_is_to_refuse():
    estimator = settled(settings=EstimatorSettings(jump_policy="refuse", trust_broker=True))
    for number in range(50):
        refused = estimator.exchange(200 + 4 * number, EPOCH + HOUR)
        assert refused.reason is Reason.CONTRADICTS
    assert holds(estimator.after(400))


def test_one_hour_in_broadcasts_moves_nothing_however_often(steady):
    for hours in (1, -1):
        for number in range(400):
            steady.broadcast(200 + number / 4, EPOCH + hours * HOUR)
    estimate = steady.after(300)
    assert estimate.offset_ns == EPOCH
    assert steady.jumps == 0
    assert steady.counters.of(verdict=SampleVerdict.REFUSED) == 800


def test_a_wrong_first_exchange_is_overruled_by_those_after_it(fresh):
    fresh.exchange(0, EPOCH + HOUR)
    for at_s in (8, 16, 24, 32):
        fresh.exchange(at_s)
    assert fresh.after(32).offset_ns == EPOCH
    assert fresh.jumps == 1


# broadcasts alone


def test_with_broadcasts_alone_the_upper_limit_is_an_assumption_and_says_so(fresh):
    for second in range(20):
        fresh.broadcast(second, delay_ns=300 * US)
    estimate = fresh.after(20)
    assert estimate.assumed
    assert estimate.state is State.SYNCHRONISED
    assert holds(estimate)
    assert estimate.half_width_ns == pytest.approx(5500 * US, rel=0.02)
    # The least delay is taken for none, so all that is assumed lies on one side of the estimate.
    assert estimate.bound_ns == pytest.approx(10_500 * US, rel=0.02)
    assert (estimate.slew_ppb, estimate.slew_is_assumed) == (200_000, True)


def test_the_round_trip_of_the_own_link_adds_to_what_is_assumed(fresh):
    fresh.link_ns = 80_000 * US
    for second in range(20):
        fresh.broadcast(second, delay_ns=60_000 * US)
    assert fresh.after(20).assumed
    assert holds(fresh.after(20))


def test_a_single_broadcast_is_not_enough(fresh):
    for second in range(3):
        fresh.broadcast(second)
        assert fresh.after(second).state is State.UNSYNCHRONISED
    fresh.broadcast(3)
    assert fresh.after(3).state is State.SYNCHRONISED


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
def test_an_old_first_broadcast_is_overruled_by_those_after_it(fresh, wrong):
    fresh.broadcast(0, EPOCH + wrong)
    for second in range(1, 20):
        fresh.broadcast(second)
    estimate = fresh.after(20)
    assert holds(estimate)


def test_once_established_broadcasts_alone_never_make_a_new_time(fresh):
    for second in range(20):
        fresh.broadcast(second)
    for second in range(20, 200):
        assert fresh.broadcast(second, EPOCH + HOUR).reason is Reason.CONTRADICTS
        assert fresh.broadcast(second + 0.1, EPOCH - HOUR).reason is Reason.DELAY
    estimate = fresh.after(200)
    assert holds(estimate)
    assert fresh.jumps == 0


def test_the_first_exchange_replaces_what_was_assumed(fresh):
    for second in range(20):
        fresh.broadcast(second, EPOCH + HOUR)
    assert fresh.exchange(21).verdict is SampleVerdict.USED
    estimate = fresh.after(21)
    assert (estimate.offset_ns, estimate.assumed, estimate.kind) == (EPOCH, False, Kind.ECHO)


# reset


def test_a_reset_forgets_samples_and_delays_and_keeps_the_counters(steady):
    steady.exchange(200, leap=3)
    steady.reset()
    assert steady.after(200).state is State.UNSYNCHRONISED
    assert steady.resets == 1
    assert steady.counters.of(reason=Reason.SERVER_UNSYNCHRONISED) == 1
    assert steady.exchange(201, EPOCH - HOUR, server=5).verdict is SampleVerdict.USED
    assert steady.after(201).offset_ns == EPOCH - HOUR


# settings


def test_settings_can_be_read_from_toml_and_have_a_sentence_each(tmp_path):
    path = tmp_path / "estimator.toml"
    path.write_text("confirm_samples = 6\nfrequency_bound_ppm = 2.5\n")
    read = load(EstimatorSettings, path)
    assert (read.confirm_samples, read.frequency_bound_ppm) == (6, 2.5)


# hostile numbers


numbers = st.integers(-(1 << 70), 1 << 70) | st.integers(EPOCH - 10**6, EPOCH + 10**6)
samples = st.builds(
    Sample,
    kind=st.sampled_from(Kind),
    local_ns=st.integers(0, 10**12) | numbers,
    offset_ns=numbers,
    lower_ns=st.none() | numbers,
    upper_ns=st.none() | numbers,
    delay_ns=st.integers(-1, 10**7) | numbers,
    duration_ns=st.integers(-1, 10**9),
    sequence=st.integers(0, 9),
    generation=st.integers(0, 1),
    leap=st.integers(0, 3),
)
plausible = st.builds(
    exchange,
    at_s=st.floats(0, 1000),
    offset_ns=st.integers(EPOCH - 10**5, EPOCH + 10**5),
    half_ns=st.integers(0, 10**6),
    kind=st.sampled_from([Kind.ECHO, Kind.TWO_WAY]),
)


@settings(max_examples=150)
@given(st.lists(samples | plausible | st.builds(broadcast, st.floats(0, 1000)), max_size=30))
def test_no_samples_raise_and_every_answer_is_an_interval_that_only_grows(given_samples):
    estimator = Fed()
    for sample in given_samples:
        judged = estimator.add(sample)
        assert judged.verdict is not SampleVerdict.PENDING
        assert judged.reason is not Reason.NONE
    newest = 1000 * SECOND
    previous = 0
    for age in (0, 1, 60, 3600):
        estimate = estimator.at(newest + age * SECOND)
        if estimate.offset_ns is None:
            continue
        assert estimate.lower_ns <= estimate.offset_ns <= estimate.upper_ns
        if estimator._bracket.local_ns <= newest:
            assert estimate.upper_ns - estimate.lower_ns >= previous
            previous = estimate.upper_ns - estimate.lower_ns
    assert estimator.counters.of() == len(given_samples)


# -- what a broker or a member of the fleet could lie about


def asked(
    at_s: float, half_ns: int = 200 * US, error_ns: int = 0, echo_ns: int = 0
) -> tuple[Sample, Sample]:
    """A two-way exchange, and its echo 60 us wide whose middle is off by `echo_ns`."""
    two_way = exchange(at_s, half_ns=half_ns, kind=Kind.TWO_WAY, error_ns=error_ns)
    return two_way, exchange(at_s, EPOCH + echo_ns)


def doubting(seconds: int = 200, **fields: int) -> Fed:
    """An estimator of the default settings after an exchange with echo each 8 s."""
    estimator = Fed(EstimatorSettings())
    for at_s in range(0, seconds, 8):
        estimator.add_all(*asked(at_s, **fields))
    return estimator


def test_an_echo_narrows_what_is_assumed_and_never_what_is_certain() -> None:
    estimate = doubting().after(200)
    assert estimate.bound_ns is not None
    assert estimate.narrow_bound_ns is not None
    assert estimate.bound_ns > 200 * US
    assert estimate.narrow_bound_ns < 80 * US


def test_a_trusted_broker_narrows_what_is_certain(fresh) -> None:
    for at_s in range(0, 200, 8):
        fresh.add_all(*asked(at_s))
    estimate = fresh.after(200)
    assert estimate.narrow_bound_ns is None
    assert (estimate.bound_ns or 0) < 80 * US


@pytest.mark.parametrize("lie_ns", [-150 * US, 150 * US])
def test_a_broker_that_delivers_in_another_order_never_moves_the_interval_off_the_truth(
    lie_ns: int,
) -> None:
    estimator = Fed(EstimatorSettings())
    for at_s in range(0, 800, 8):
        # the lie grows slowly: it looks like a frequency
        estimator.add_all(*asked(at_s, echo_ns=round(lie_ns * at_s / 800)))
        for later_s in (1, 4, 600):
            estimate = estimator.after(at_s + later_s)
            assert holds(estimate)


def test_echoes_that_contradict_each_other_begin_anew_and_leave_the_interval_alone() -> None:
    estimator = doubting(200, half_ns=2000 * US)
    for number in range(8):
        estimator.add_all(*asked(200 + number, half_ns=2000 * US, echo_ns=1500 * US))
    assert estimator.counters.of(kind=Kind.ECHO, reason=Reason.CONTRADICTS) == 4
    estimate = estimator.after(208)
    assert estimate.narrow_lower_ns is not None
    assert estimate.narrow_lower_ns > EPOCH
    assert holds(estimate)


def test_an_echo_without_its_exchange_counts_for_nothing() -> None:
    estimator = Fed(EstimatorSettings())
    assert outcome(estimator.exchange(1)) == (SampleVerdict.REFUSED, Reason.CONTRADICTS)
    assert not estimator.is_bounded


def forged(estimator: Fed, at_s: float, early_ns: int = 0, root_distance_ns: int = 0) -> Sample:
    """A broadcast with a right tag, of a member of the fleet that lies."""
    sample = broadcast(at_s, delay_ns=300 * US + early_ns)
    return estimator.add(replace(sample, root_distance_ns=root_distance_ns))


def followed_by_broadcasts(early: list[int]) -> tuple[Fed, Fed]:
    """Two estimators after 200 s of exchanges; then one hears forged broadcasts for 20 minutes."""
    victim, other = doubting(), doubting()
    for at_s in range(120, 200):
        for estimator in (victim, other):
            estimator.broadcast(at_s)
    for number in range(1200):
        forged(victim, 200 + number, early[number % len(early)] * (number + 1))
    return victim, other


@pytest.mark.parametrize("early", [[0], [300], [-200], [800_000], [-200, 300]])
def test_forged_broadcasts_leave_the_interval_as_it_is_and_the_estimate_inside(
    early: list[int],
) -> None:
    victim, other = followed_by_broadcasts(early)
    for at_s in (1400, 1500, 5000):
        mine, its = victim.after(at_s), other.after(at_s)
        assert (mine.lower_ns, mine.upper_ns) == (its.lower_ns, its.upper_ns)
        assert mine.lower_ns is not None
        assert mine.upper_ns is not None
        assert mine.lower_ns <= (mine.offset_ns or 0) <= mine.upper_ns


def test_the_root_distance_is_that_of_the_last_exchange_whatever_broadcasts_say() -> None:
    doubtful = doubting()
    for sample in asked(200):
        doubtful.add(replace(sample, root_distance_ns=5000))
    said = doubtful.after(200).root_distance_ns
    assert said == pytest.approx(5000, abs=100)
    for at_s, root_distance_ns in ((201, 0), (202, 4396 * SECOND)):
        forged(doubtful, at_s, root_distance_ns=root_distance_ns)
        # A disciplined clock errs by at most 1 ppm more.
        assert doubtful.after(210).root_distance_ns == pytest.approx(said + 10_000, abs=2)


def test_an_interval_grows_no_faster_than_any_clock_can_run() -> None:
    estimator = Fed(EstimatorSettings())
    for at_s in (0, 0.06, 16):  # delays that look like 100 ppm, of which nothing is known yet
        error_ns = -round(at_s * 100 * US)
        estimator.exchange(at_s, half_ns=3000 * US, kind=Kind.TWO_WAY, error_ns=error_ns)
    now, later = estimator.after(16), estimator.after(116)
    limit_ns, wander_ns = 100 * 100 * US, 30 * US  # 100 s at 100 ppm; 10 ppb a second, 4 sigma
    assert now.lower_ns - later.lower_ns <= limit_ns + wander_ns
    assert later.upper_ns - now.upper_ns <= limit_ns + wander_ns


# the server's clock is slewed


def test_the_interval_grows_by_what_the_server_promises_of_its_rate() -> None:
    still, slewing = settled(), settled(rate_change_ppb=750)
    more_ns = (slewing.after(300).half_width_ns or 0) - (still.after(300).half_width_ns or 0)
    assert more_ns == pytest.approx(750 * (300 - 192), rel=0.1)
    assert (slewing.after(300).slew_ppb, slewing.after(300).slew_is_assumed) == (750, False)


def test_a_follow_up_that_is_withheld_takes_no_promise_back() -> None:
    kept, withheld = settled(rate_change_ppb=750), settled(rate_change_ppb=750)
    withheld.exchange(200, rate_change_ppb=None)
    kept.exchange(200, rate_change_ppb=750)
    assert withheld.after(300).half_width_ns == kept.after(300).half_width_ns


def test_what_the_clock_did_before_its_first_promise_limits_nothing_since() -> None:
    estimator = settled(rate_change_ppb=None)
    assert estimator.after(200).slew_is_assumed
    estimator.exchange(200, half_ns=500 * US, rate_change_ppb=750)
    estimate = estimator.after(200)
    assert estimate.half_width_ns == pytest.approx(500 * US, rel=0.02)
    assert not estimate.slew_is_assumed
