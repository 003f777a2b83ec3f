"""Following servers of others: 1451.1.6 text and the 2021 draft.

Payloads are those of the open implementations: westlab/1451DEMO2026 (NCAP.py) and
westlab/IES-TCSTD-Plugfest (TimeSync).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from track_bench import MS, NAME, SECOND, US, TrackBench, is_inside

from mqtick.client.config import Settings
from mqtick.client.foreign import ForeignTrack
from mqtick.client.sample import Kind, SampleVerdict
from mqtick.client.status import frequency_ppb
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.protocol.errors import DecodeError

# `'%.9f' % time.time()` of NCAP.py, line 331.
TEXT_PAYLOAD, TEXT_NS = b"1781234567.123456717", 1_781_234_567_123_456_717
WAY_NS = 300 * US
OFFSET_NS = 8 * MS
SERVER = "PTTEST/ncap0"


class Bench(TrackBench):
    """A foreign track and what its server says."""

    track: ForeignTrack

    def __init__(self, format_: str, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.clock.now_ns = TEXT_NS - OFFSET_NS
        self.track = ForeignTrack(self.context, format_)

    def hear(
        self,
        topic: str,
        payload: bytes,
        user: list[tuple[str, str]] | None = None,
        *,
        retain: bool = False,
    ) -> None:
        self.clock.now_ns += WAY_NS
        stamp = Stamp(self.clock.time_ns(), StampSource.KERNEL)
        properties = encode_properties(user) if user else b""
        self.track.on_publish(Arrival(topic, payload, stamp, retain, properties))

    def refusal(self, topic: str, payload: bytes, user: list[tuple[str, str]] | None = None) -> str:
        with pytest.raises(DecodeError) as caught:
            self.hear(topic, payload, user)
        return caught.value.reason

    def text_reply(self, t1: bytes | None = None, server: str = SERVER) -> bytes:
        """Answer the last request as NCAP.py does: t1 as it came, t2 and t3 with `%.9f`."""
        t1 = self.sent[-1][1].split(b",")[1] if t1 is None else t1
        self.clock.now_ns += WAY_NS
        t2_ns = self.clock.now_ns + OFFSET_NS
        seconds = b"%d.%09d" % divmod(t2_ns, SECOND)
        return b"%s,%s,%s,%s" % (t1, seconds, seconds, server.encode())


SYN = "_1451.1.6/BRSU/SYN"
RES = f"_1451.1.6/RRS/mqtick/{NAME}/RES"


def heard(settings: Settings | None = None) -> Bench:
    """A track that has heard a broadcast of the text format, and has asked."""
    bench = Bench("1451.1.6", settings)
    bench.hear(SYN, TEXT_PAYLOAD)
    return bench


@pytest.fixture
def text() -> Bench:
    return Bench("1451.1.6")


@pytest.fixture
def asked() -> Bench:
    return heard()


@pytest.fixture
def draft() -> Bench:
    return Bench("draft-2021")


def test_text_is_heard_on_the_topics_of_the_open_implementation() -> None:
    track = Bench("1451.1.6").track
    assert track.time_topic == SYN
    assert track.topics() == [SYN, RES]


def test_a_text_broadcast_becomes_a_one_way_sample(asked: Bench) -> None:
    (wall,) = asked.of(Kind.ONE_WAY)
    assert wall.offset_ns == OFFSET_NS - WAY_NS
    assert asked.track.heard_raw_ns == asked.clock.now_ns


def test_a_text_server_is_asked_when_it_is_heard_and_its_reply_bounds_the_offset(
    asked: Bench,
) -> None:
    topic, payload, _ = asked.sent[0]
    assert topic == "_1451.1.6/RRS/REQ"
    assert payload.startswith(f"mqtick/{NAME},17812345".encode())
    asked.hear(RES, asked.text_reply())
    (wall,) = asked.of(Kind.TWO_WAY)
    assert wall.offset_ns == OFFSET_NS
    assert wall.sample.delay_ns == 2 * WAY_NS
    estimate = asked.estimate
    assert not estimate.assumed
    assert estimate.offset_ns == OFFSET_NS


@pytest.mark.parametrize("resolution_ns", [1_000, MS, 10 * MS])
def test_the_offset_is_in_the_interval_though_the_servers_stamps_are_cut(
    asked: Bench, resolution_ns: int
) -> None:
    """A millisecond clock may print nine digits: what the last ones are says how fine it is."""
    asked.clock.now_ns += 987_654_321
    asked.track.ask()
    t1, t2, _, server = asked.text_reply().split(b",")
    seconds, nanoseconds = map(int, t2.split(b"."))
    stated = b"%d.%09d" % (seconds, nanoseconds // resolution_ns * resolution_ns)
    asked.hear(RES, b",".join((t1, stated, stated, server)))
    (wall,) = asked.of(Kind.TWO_WAY)
    assert is_inside(OFFSET_NS, wall.sample)


@pytest.mark.parametrize("slewed_ns", [-2 * MS, 2 * MS])
def test_the_offset_is_in_the_interval_though_the_judged_clock_is_slewed_meanwhile(
    asked: Bench,
    slewed_ns: int,
) -> None:
    asked.clock.slewed_ns += slewed_ns
    asked.hear(RES, asked.text_reply())
    (wall,) = asked.of(Kind.TWO_WAY)
    assert is_inside(OFFSET_NS, wall.sample)


def test_the_limit_of_any_clocks_frequency_is_not_said_to_be_this_ones(text: Bench) -> None:
    """Two exchanges, a second apart and each delayed one way: 600 us a second is no frequency."""
    settings = text.track.estimator.settings
    for late_ns in (0, 1200 * US):
        text.track.ask()
        reply = text.text_reply()
        text.clock.now_ns += late_ns
        text.hear(RES, reply)
        text.clock.now_ns += 3 * SECOND
    estimate = text.estimate
    assert frequency_ppb(estimate, settings) is None
    for _ in range(20):
        text.track.ask()
        text.hear(RES, text.text_reply())
        text.clock.now_ns += 16 * SECOND
    known = frequency_ppb(text.estimate, settings)
    assert known == pytest.approx(0, abs=2000)


def test_a_server_is_not_asked_more_often_than_configured() -> None:
    bench = Bench("1451.1.6", Settings(exchange_interval_s=16.0))
    for _ in range(40):
        seconds = divmod(bench.clock.now_ns + OFFSET_NS, SECOND)
        bench.hear(SYN, b"%d.%09d" % seconds)
        bench.clock.now_ns += SECOND
    assert len(bench.sent) == 4  # at once, a second later, then every 16 s


def test_no_two_requests_state_the_same_t1(text: Bench) -> None:
    for _ in range(20):
        text.track.ask()
    assert len({payload for _, payload, _ in text.sent}) > 15


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b"NaN", "format"), (b"9223372037.0", "range"), (b"", "format"), (b"\xff\xfe", "encoding")],
)
def test_a_text_time_that_is_none_is_refused_and_moves_nothing(
    text: Bench, payload: bytes, reason: str
) -> None:
    assert text.refusal(SYN, payload) == reason
    assert text.samples == []
    assert text.track.heard_raw_ns is None


def test_a_retained_text_time_is_refused(text: Bench) -> None:
    with pytest.raises(DecodeError, match="retained"):
        text.hear(SYN, TEXT_PAYLOAD, retain=True)


def test_the_same_text_time_twice_is_refused(asked: Bench) -> None:
    assert asked.refusal(SYN, TEXT_PAYLOAD) == "replayed"


@pytest.mark.parametrize(
    ("topic", "reply", "reason"),
    [
        (RES, {"t1": b""}, "unasked"),
        (RES, {"t1": b"1781234567.000000001"}, "unasked"),
        (RES, {"server": "PTTEST/rogue"}, "server"),
        ("_1451.1.6/RRS/PTTEST/app/RES", {}, "topic"),
    ],
)
def test_a_text_reply_that_is_not_for_us_is_ignored_and_the_true_one_counts_once(
    topic: str, reply: dict[str, Any], reason: str
) -> None:
    bench = heard(Settings(server_name=SERVER))
    assert bench.refusal(topic, bench.text_reply(**reply)) == reason
    assert bench.of(Kind.TWO_WAY) == []
    true = bench.text_reply()
    bench.hear(RES, true)
    assert bench.refusal(RES, true) == "unasked"
    assert len(bench.of(Kind.TWO_WAY)) == 1


def test_a_text_reply_with_impossible_columns_is_refused(asked: Bench) -> None:
    t1 = asked.sent[-1][1].split(b",")[1]
    assert asked.refusal(RES, b"%s,2.0,1.0,S" % t1) == "order"
    assert asked.of(Kind.TWO_WAY) == []


def test_requests_that_nobody_answers_are_counted(asked: Bench) -> None:
    asked.clock.now_ns += 4 * SECOND
    asked.track.expire()
    assert asked.refused == {"no-reply": 1}


# -- the draft of 2021 -----------------------------------------------------------------------------

# 2026-06-12T03:22:47.123456 UTC is TEXT_NS cut to microseconds.
DRAFT_TIME = "2026-06-12T03:22:47.123456"
DRAFT_SYN, DRAFT_SRS = "location/TIME/SYN", "location/TIME/SRS"


def draft_t1(bench: Bench) -> str:
    properties = decode_properties(bench.sent[-1][2])
    return dict(properties.UserProperty)["T1"]


def draft_reply(bench: Bench, t1: str) -> list[tuple[str, str]]:
    """The properties of a reply, case as in the open implementation."""
    return [("T1", t1), ("t2", "2026-06-12T03:22:47.124000"), ("t3", "2026-06-12T03:22:47.124")]


@pytest.mark.parametrize(("offset_s", "hour"), [(0, "03"), (9 * 3600, "12")])
def test_a_draft_broadcast_in_local_time_becomes_a_one_way_sample(offset_s: int, hour: str) -> None:
    bench = Bench("draft-2021", Settings(draft_utc_offset_s=offset_s))
    bench.hear(DRAFT_SYN, b"SYN", [("timestamp", f"2026-06-12T{hour}:22:47.123456")])
    (wall,) = bench.of(Kind.ONE_WAY)
    assert wall.offset_ns == OFFSET_NS - WAY_NS - TEXT_NS % 1000


def test_a_draft_server_is_asked_in_its_own_way_and_its_reply_bounds_the_offset(
    draft: Bench,
) -> None:
    draft.hear(DRAFT_SYN, b"SYN", [("timestamp", DRAFT_TIME)])
    topic, payload, _ = draft.sent[0]
    assert (topic, payload) == ("location/TIME/SRQ", b"SRQ")
    draft.clock.now_ns += WAY_NS
    draft.hear(DRAFT_SRS, b"SRS", draft_reply(draft, draft_t1(draft)))
    (wall,) = draft.of(Kind.TWO_WAY)
    assert wall.sample.delay_ns == 2 * WAY_NS
    assert wall.sample.verdict is not SampleVerdict.REFUSED


def test_draft_replies_to_others_come_too_and_are_ignored(draft: Bench) -> None:
    draft.hear(DRAFT_SYN, b"SYN", [("timestamp", DRAFT_TIME)])
    others = draft_reply(draft, "2026-06-12T03:22:47.100000")
    assert draft.refusal(DRAFT_SRS, b"SRS", others) == "unasked"
    assert draft.of(Kind.TWO_WAY) == []


@pytest.mark.parametrize(
    ("user", "reason"),
    [([], "properties"), ([("timestamp", "NaN")], "format")],
)
def test_a_draft_time_that_is_none_is_refused(
    draft: Bench, user: list[tuple[str, str]], reason: str
) -> None:
    assert draft.refusal(DRAFT_SYN, b"SYN", user) == reason
    assert draft.samples == []


def test_malformed_properties_are_refused(draft: Bench) -> None:
    stamp = Stamp(draft.clock.now_ns, StampSource.KERNEL)
    with pytest.raises(DecodeError) as caught:
        draft.track.on_publish(Arrival(DRAFT_SYN, b"SYN", stamp, False, b"\x26\x00\xff"))
    assert caught.value.reason == "properties"


def test_the_location_of_the_draft_can_be_configured() -> None:
    bench = Bench("draft-2021", replace(Settings(), draft_location="yagami/26"))
    assert bench.track.topics() == ["yagami/26/TIME/SYN", "yagami/26/TIME/SRS"]


@pytest.mark.parametrize("format_", ["1451.1.6", "draft-2021"])
def test_after_a_lost_connection_nothing_is_waited_for(format_: str) -> None:
    bench = Bench(format_)
    bench.track.ask()
    bench.track.connection_lost()
    bench.clock.now_ns += 10 * SECOND
    bench.track.expire()
    assert not bench.refused
