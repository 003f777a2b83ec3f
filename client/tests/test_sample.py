from dataclasses import FrozenInstanceError

import pytest

from mqtick.client.sample import Counters, Kind, Reading, Reason, Sample, Verdict, best
from mqtick.mqtt.stamps import Source


def sample(kind: Kind = Kind.ECHO, delay_ns: int = 100, **fields: object) -> Sample:
    values: dict[str, object] = {
        "kind": kind,
        "local_ns": 0,
        "offset_ns": 0,
        "lower_ns": -50,
        "upper_ns": 50,
        "delay_ns": delay_ns,
    }
    return Sample(**{**values, **fields})  # type: ignore[arg-type]


def test_a_sample_is_pending_until_it_is_judged():
    fresh = sample()
    assert (fresh.verdict, fresh.reason) == (Verdict.PENDING, Reason.NONE)


def test_judging_a_sample_leaves_the_record_as_it_was():
    fresh = sample(readings=(("t1", Reading(7, Source.KERNEL)),))
    judged = fresh.refused(Reason.RANGE)
    assert (judged.verdict, judged.reason) == (Verdict.REFUSED, Reason.RANGE)
    assert judged.readings == fresh.readings
    assert fresh.verdict is Verdict.PENDING


def test_a_sample_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        sample().offset_ns = 1  # type: ignore[misc]


def test_kinds_are_ranked_by_trust():
    assert sorted(Kind, key=lambda kind: kind.rank) == [Kind.ONE_WAY, Kind.TWO_WAY, Kind.ECHO]
    assert [kind.is_exchange for kind in Kind] == [False, True, True]


def test_the_best_of_a_burst_is_the_echo_with_the_narrowest_bracket():
    wide, narrow = sample(delay_ns=90), sample(delay_ns=30)
    quick = sample(Kind.TWO_WAY, delay_ns=1)
    assert best([wide, quick, narrow]) is narrow


def test_the_best_of_a_burst_is_never_a_refused_sample():
    refused = sample(delay_ns=1).refused(Reason.CONTRADICTS)
    slow = sample(Kind.TWO_WAY, delay_ns=900)
    assert best([refused, slow]) is slow
    assert best([refused]) is None
    assert best([]) is None


def test_counters_tell_kind_verdict_and_reason_apart():
    counters = Counters()
    for reason in (Reason.STALE, Reason.STALE, Reason.RANGE):
        counters.count(sample().refused(reason))
    counters.count(sample(Kind.TWO_WAY).judged(Verdict.USED, Reason.SELECTED))
    assert counters.of(reason=Reason.STALE) == 2
    assert counters.of(verdict=Verdict.REFUSED) == 3
    assert counters.of(kind=Kind.TWO_WAY, verdict=Verdict.USED) == 1
    assert counters.of() == 4
    assert ("echo", "refused", "stale", 2) in counters.rows()


def test_counters_return_what_they_count():
    refused = sample().refused(Reason.DELAY)
    assert Counters().count(refused) is refused


def test_every_reason_is_a_slug():
    assert all(reason.value.replace("-", "").isalpha() for reason in Reason)
    assert all(reason.value == reason.value.lower() for reason in Reason)
