"""The first time that a server states is compared with this host's clock before it is believed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from test_foreign_track import DRAFT_SYN, OFFSET_NS, SYN, Bench
from track_bench import KEYS, MS, SECOND, TrackBench
from track_bench import Bench as PreciseBench

from mqtick.client.config import Settings
from mqtick.client.doctor import broker as doctor_broker
from mqtick.client.estimate import State
from mqtick.client.estimator import Estimator
from mqtick.client.first_time import FirstTime, Trouble
from mqtick.client.sample import Kind, Reason, Sample, SampleVerdict

HOUR = 3600
SETTINGS = Settings()


def hear(bench: Bench, ahead_s: float, count: int = 1) -> None:
    """Let the server state a time that is so far ahead of the truth, once a second."""
    for _ in range(count):
        bench.clock.now_ns += SECOND
        stated_ns = bench.clock.now_ns + OFFSET_NS + int(ahead_s * SECOND)
        if bench.track.format == "1451.1.6":
            bench.hear(SYN, b"%d.%09d" % divmod(stated_ns, SECOND))
            continue
        instant = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=stated_ns // 1000)
        bench.hear(DRAFT_SYN, b"SYN", [("timestamp", instant.replace(tzinfo=None).isoformat())])


def state(bench: TrackBench) -> State:
    return bench.estimate.state


def trouble_of(bench: TrackBench) -> Trouble:
    assert bench.track.first.trouble is not None
    return bench.track.first.trouble


@pytest.mark.parametrize("hours", [9, -5, 5.75, 0.25, 14, -12])
def test_a_peer_in_another_timezone_is_refused_however_often_it_says_so(hours: float) -> None:
    bench = Bench("draft-2021")
    hear(bench, hours * HOUR, 60)
    assert state(bench) is State.UNSYNCHRONISED
    counters = bench.track.estimator.counters
    assert counters.of(verdict=SampleVerdict.REFUSED, reason=Reason.TIMEZONE) == 60
    assert {wall.sample.reason for wall in bench.samples} == {Reason.TIMEZONE}


def test_a_timezone_is_said_to_be_one_with_the_remedy() -> None:
    bench = Bench("draft-2021")
    hear(bench, 9 * HOUR)
    trouble = trouble_of(bench)
    assert "9 h ahead of this host's clock (+32400.0" in trouble.says
    assert "this looks like a timezone" in trouble.says
    assert "set draft_utc_offset_s to 32400" in trouble.remedy
    assert "kept in local time" in trouble.remedy
    (check,) = doctor_broker.check_belief({"draft-2021": trouble})
    assert check.result == "FAIL"
    assert "this looks like a timezone" in check.line()


def test_with_the_offset_that_was_advised_the_peer_is_believed() -> None:
    bench = Bench("draft-2021", replace(SETTINGS, draft_utc_offset_s=9 * HOUR))
    hear(bench, 9 * HOUR, 12)
    assert state(bench) is State.SYNCHRONISED
    assert bench.track.first.trouble is None


def test_a_peer_that_changes_to_summer_time_is_refused_and_what_was_known_stays() -> None:
    bench = Bench("draft-2021")
    hear(bench, 0, 12)
    hear(bench, HOUR, 30)
    known = bench.estimate
    assert known.state is State.SYNCHRONISED
    assert known.offset_ns is not None
    assert abs(known.offset_ns - OFFSET_NS) < 10 * MS
    trouble = trouble_of(bench)
    assert "1 h ahead of the time as it was" in trouble.says


def test_a_clock_that_is_set_by_an_hour_here_makes_no_timezone_of_a_peer_that_is_known() -> None:
    bench = Bench("draft-2021")
    hear(bench, 0, 12)
    bench.clock.slewed_ns -= HOUR * SECOND
    hear(bench, 0, 5)
    assert bench.track.first.trouble is None


def test_an_hour_is_no_timezone_where_the_format_says_utc() -> None:
    bench = Bench("1451.1.6", replace(SETTINGS, time_tolerance_s=7200.0))
    hear(bench, HOUR, 12)
    assert state(bench) is State.SYNCHRONISED


@pytest.mark.parametrize("format_", ["1451.1.6", "draft-2021"])
def test_a_first_time_far_from_the_hosts_clock_is_believed_only_when_it_stays(
    format_: str,
) -> None:
    bench = Bench(format_)
    hear(bench, 400_007, 10)  # nine seconds from the first to the last
    assert state(bench) is State.UNSYNCHRONISED
    assert {wall.sample.reason for wall in bench.samples} == {Reason.UNCONFIRMED}
    trouble = trouble_of(bench)
    assert "+400007.0" in trouble.says
    assert "time_tolerance_s (3600 s)" in trouble.says
    (check,) = doctor_broker.check_belief({format_: trouble})
    assert check.result == "WARN"
    hear(bench, 400_007, 6)
    assert state(bench) is State.SYNCHRONISED
    assert bench.track.first.trouble is None


def test_far_times_that_contradict_each_other_are_never_believed() -> None:
    bench = Bench("1451.1.6")
    for number in range(60):
        hear(bench, 86_400 * (1 + number % 2))
    assert state(bench) is State.UNSYNCHRONISED


def test_a_first_time_near_the_hosts_clock_is_believed_at_once() -> None:
    bench = Bench("1451.1.6")
    hear(bench, 3599)
    assert bench.samples[0].sample.verdict is SampleVerdict.USED


def test_after_a_reset_the_next_time_is_a_first_one_again() -> None:
    bench = Bench("1451.1.6")
    hear(bench, 0, 8)
    bench.track.reset()
    hear(bench, 86_400)
    assert bench.samples[-1].sample.reason is Reason.UNCONFIRMED


def test_what_was_believed_is_the_estimators_to_judge() -> None:
    """It confirms what contradicts its interval by itself, whatever this host's clock says."""
    bench = Bench("1451.1.6")
    hear(bench, 0, 8)
    hear(bench, 86_400)
    assert bench.samples[-1].sample.reason is Reason.CONTRADICTS


def test_an_authenticated_time_needs_no_clock_that_agrees() -> None:
    estimator = Estimator(SETTINGS.estimator)
    first = FirstTime(estimator, HOUR * SECOND)
    far_ns = 86_400 * SECOND
    sample = Sample(Kind.TWO_WAY, 0, far_ns, far_ns - MS, far_ns + MS, authenticated=True)
    assert first.add(sample, 0).verdict is SampleVerdict.USED


def test_a_precise_server_without_keys_is_confirmed_too_where_this_hosts_clock_is_far_off() -> None:
    bench = PreciseBench()
    bench.clock.slewed_ns = -86_400 * SECOND
    bench.hear_times(1, 4)
    bench.exchange()
    assert bench.offset_ns is None
    assert {wall.sample.reason for wall in bench.samples} == {Reason.UNCONFIRMED}
    bench.hear_times(5, 8)
    bench.exchange()
    assert bench.offset_ns is not None
    assert bench.track.first.trouble is None


def test_a_precise_server_with_keys_is_believed_whatever_this_hosts_clock_says() -> None:
    bench = PreciseBench(KEYS)
    bench.clock.slewed_ns = -86_400 * SECOND
    bench.exchange()
    assert bench.offset_ns is not None
