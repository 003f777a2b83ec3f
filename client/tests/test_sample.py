from mqtick.client.sample import Counters, Kind, Reading, Reason, Sample, SampleVerdict
from mqtick.mqtt.stamps import StampSource


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
    assert (fresh.verdict, fresh.reason) == (SampleVerdict.PENDING, Reason.NONE)


def test_judging_a_sample_leaves_the_record_as_it_was():
    fresh = sample(readings=(("t1", Reading(7, StampSource.KERNEL)),))
    judged = fresh.refused(Reason.RANGE)
    assert (judged.verdict, judged.reason) == (SampleVerdict.REFUSED, Reason.RANGE)
    assert judged.readings == fresh.readings
    assert fresh.verdict is SampleVerdict.PENDING


def test_kinds_are_ranked_by_trust():
    ranked = [Kind.ONE_WAY, Kind.TWO_WAY, Kind.ECHO, Kind.RESIDENCE]
    assert sorted(Kind, key=lambda kind: kind.rank) == ranked
    assert [kind.is_exchange for kind in Kind] == [False, True, True, True]


def test_the_first_of_a_burst_is_the_echo_with_the_narrowest_bracket():
    wide, narrow = sample(delay_ns=90), sample(delay_ns=30)
    quick = sample(Kind.TWO_WAY, delay_ns=1)
    burst = sorted([wide, quick, narrow], key=lambda one: one.order_in_burst)
    assert burst == [narrow, wide, quick]


def test_counters_tell_kind_verdict_and_reason_apart():
    counters = Counters()
    for reason in (Reason.STALE, Reason.STALE, Reason.RANGE):
        refused = sample().refused(reason)
        assert counters.count(refused) is refused
    counters.count(sample(Kind.TWO_WAY).judged(SampleVerdict.USED, Reason.SELECTED))
    assert counters.of(reason=Reason.STALE) == 2
    assert counters.of(verdict=SampleVerdict.REFUSED) == 3
    assert counters.of(kind=Kind.TWO_WAY, verdict=SampleVerdict.USED) == 1
    assert counters.of() == 4
    assert ("echo", "refused", "stale", 2) in counters.rows()


def test_every_reason_is_a_slug():
    assert all(reason.value.replace("-", "").isalpha() for reason in Reason)
    assert all(reason.value == reason.value.lower() for reason in Reason)
