"""Following servers of others: 1451.1.6 text and the 2021 draft.

Payloads are those of the open implementations: westlab/1451DEMO2026 (NCAP.py) and
westlab/IES-TCSTD-Plugfest (TimeSync).
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mqtick.client.config import Settings
from mqtick.client.foreign import ForeignTrack
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Verdict
from mqtick.client.status import frequency_ppb
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.mqtt.stamps import Source, Stamp, Transmit
from mqtick.protocol.errors import DecodeError

sys.path.insert(0, str(Path(__file__).parent))
from track_bench import MS, NAME, SECOND, US, StillClock

# `'%.9f' % time.time()` of NCAP.py, line 331.
TEXT_PAYLOAD, TEXT_NS = b"1781234567.123456717", 1_781_234_567_123_456_717
WAY_NS = 300 * US
OFFSET_NS = 8 * MS
SERVER = "PTTEST/ncap0"


class Bench:
    """A foreign track, its clock, and what it sent."""

    def __init__(self, format_: str, settings: Settings | None = None) -> None:
        self.clock = StillClock()
        self.clock.now_ns = TEXT_NS - OFFSET_NS
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.samples: list[WallSample] = []
        self.refused: Counter[str] = Counter()
        self.track = ForeignTrack(
            format_,
            settings or Settings(),
            NAME,
            self.clock,
            publish=self._publish,
            collect_stamps=lambda: None,
            on_sample=lambda _track, wall: self.samples.append(wall),
            refuse=lambda reason: self.refused.update([reason]),
        )

    def _publish(self, topic: str, payload: bytes, properties: bytes) -> Transmit:
        self.sent.append((topic, payload, properties))
        transmit = Transmit(self.clock.time_ns())
        transmit.kernel_ns = self.clock.time_ns()
        return transmit

    def hear(
        self,
        topic: str,
        payload: bytes,
        user: list[tuple[str, str]] | None = None,
        *,
        retain: bool = False,
    ) -> None:
        self.clock.now_ns += WAY_NS
        stamp = Stamp(self.clock.time_ns(), Source.KERNEL)
        properties = encode_properties(user) if user else b""
        self.track.on_publish(Arrival(topic, payload, stamp, retain, properties))

    def refusal(self, topic: str, payload: bytes, user: list[tuple[str, str]] | None = None) -> str:
        with pytest.raises(DecodeError) as caught:
            self.hear(topic, payload, user)
        return caught.value.reason

    def of(self, kind: Kind) -> list[WallSample]:
        return [wall for wall in self.samples if wall.sample.kind is kind]

    def text_reply(self, t1: bytes | None = None, server: str = SERVER) -> bytes:
        """Answer the last request as NCAP.py does: t1 as it came, t2 and t3 with `%.9f`."""
        t1 = self.sent[-1][1].split(b",")[1] if t1 is None else t1
        self.clock.now_ns += WAY_NS
        t2_ns = self.clock.now_ns + OFFSET_NS
        seconds = b"%d.%09d" % divmod(t2_ns, SECOND)
        return b"%s,%s,%s,%s" % (t1, seconds, seconds, server.encode())


SYN = "_1451.1.6/BRSU/SYN"
RES = f"_1451.1.6/RRS/mqtick/{NAME}/RES"


def test_text_is_heard_on_the_topics_of_the_open_implementation() -> None:
    track = Bench("1451.1.6").track
    assert track.time_topic == SYN
    assert track.topics() == [SYN, RES]


def test_a_text_broadcast_becomes_a_one_way_sample() -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    (wall,) = bench.of(Kind.ONE_WAY)
    assert wall.offset_ns == OFFSET_NS - WAY_NS
    assert bench.track.heard_raw_ns == bench.clock.now_ns


def test_a_text_server_is_asked_when_it_is_heard_and_its_reply_bounds_the_offset() -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    topic, payload, _ = bench.sent[0]
    assert topic == "_1451.1.6/RRS/REQ"
    assert payload.startswith(f"mqtick/{NAME},17812345".encode())
    bench.hear(RES, bench.text_reply())
    (wall,) = bench.of(Kind.TWO_WAY)
    assert wall.offset_ns == OFFSET_NS
    assert wall.sample.delay_ns == 2 * WAY_NS
    estimate = bench.track.estimator.at(bench.clock.now_ns)
    assert not estimate.assumed
    assert estimate.offset_ns == OFFSET_NS


@pytest.mark.parametrize("slewed_ns", [-2 * MS, 2 * MS])
def test_the_offset_is_in_the_interval_though_the_judged_clock_is_slewed_meanwhile(
    slewed_ns: int,
) -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    bench.clock.slewed_ns += slewed_ns
    bench.hear(RES, bench.text_reply())
    (wall,) = bench.of(Kind.TWO_WAY)
    assert wall.sample.lower_ns is not None
    assert wall.sample.upper_ns is not None
    assert wall.sample.lower_ns <= OFFSET_NS <= wall.sample.upper_ns


def test_the_limit_of_any_clocks_frequency_is_not_said_to_be_this_ones() -> None:
    """Two exchanges, a second apart and each delayed one way: 600 us a second is no frequency."""
    bench = Bench("1451.1.6")
    settings = bench.track.estimator.settings
    for late_ns in (0, 1200 * US):
        bench.track.ask()
        reply = bench.text_reply()
        bench.clock.now_ns += late_ns
        bench.hear(RES, reply)
        bench.clock.now_ns += 3 * SECOND
    estimate = bench.track.estimator.at(bench.clock.now_ns)
    assert frequency_ppb(estimate, settings) is None
    for _ in range(20):
        bench.track.ask()
        bench.hear(RES, bench.text_reply())
        bench.clock.now_ns += 16 * SECOND
    known = frequency_ppb(bench.track.estimator.at(bench.clock.now_ns), settings)
    assert known == pytest.approx(0, abs=2000)


def test_a_server_is_not_asked_more_often_than_configured() -> None:
    bench = Bench("1451.1.6", Settings(exchange_interval_s=16.0))
    for _ in range(40):
        seconds = divmod(bench.clock.now_ns + OFFSET_NS, SECOND)
        bench.hear(SYN, b"%d.%09d" % seconds)
        bench.clock.now_ns += SECOND
    assert len(bench.sent) == 4  # at once, a second later, then every 16 s


def test_no_two_requests_state_the_same_t1() -> None:
    bench = Bench("1451.1.6")
    for _ in range(20):
        bench.track.ask()
    assert len({payload for _, payload, _ in bench.sent}) > 15


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"NaN", "format"),
        (b"nan", "format"),
        (b"inf", "format"),
        (b"-inf", "format"),
        (b"-1.0", "format"),  # 1969
        (b"-0.000000001", "format"),
        (b"4323283200.0", "range"),  # 2107
        (b"99999999999.0", "format"),
        (b"1e9", "format"),
        (b"1781234567,5", "format"),
        (b" 1781234567.5", "format"),
        ("١٧٨١٢٣٤٥٦٧".encode(), "format"),
        (b"", "format"),
        (b"1781234567.5\0", "format"),
        (b"\xff\xfe", "encoding"),
        (b"1" * 300, "length"),
    ],
)
def test_a_text_time_that_is_none_is_refused_and_moves_nothing(payload: bytes, reason: str) -> None:
    bench = Bench("1451.1.6")
    assert bench.refusal(SYN, payload) == reason
    assert bench.samples == []
    assert bench.track.heard_raw_ns is None


def test_a_retained_text_time_is_refused() -> None:
    bench = Bench("1451.1.6")
    with pytest.raises(DecodeError, match="retained"):
        bench.hear(SYN, TEXT_PAYLOAD, retain=True)


def test_the_same_text_time_twice_is_refused() -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    assert bench.refusal(SYN, TEXT_PAYLOAD) == "replayed"


@pytest.mark.parametrize(
    "t1",
    [b"", b"1781234567.000000001", b"NaN", b"x" * 32],
)
def test_a_text_reply_to_another_request_is_ignored(t1: bytes) -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    assert bench.refusal(RES, bench.text_reply(t1)) == "unasked"
    assert bench.of(Kind.TWO_WAY) == []


def test_a_text_reply_counts_once() -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    reply = bench.text_reply()
    bench.hear(RES, reply)
    assert bench.refusal(RES, reply) == "unasked"
    assert len(bench.of(Kind.TWO_WAY)) == 1


def test_the_reply_of_another_server_than_the_configured_one_is_ignored() -> None:
    bench = Bench("1451.1.6", Settings(server_name=SERVER))
    bench.hear(SYN, TEXT_PAYLOAD)
    assert bench.refusal(RES, bench.text_reply(server="PTTEST/rogue")) == "server"
    bench.hear(RES, bench.text_reply())
    assert len(bench.of(Kind.TWO_WAY)) == 1


@pytest.mark.parametrize(
    "columns",
    [b"%s,NaN,inf,S", b"%s,1,2", b"%s,2.0,1.0,S", b"%s,-1,2,S", b"%s,1.0,4323283200.0,S"],
)
def test_a_text_reply_with_impossible_columns_is_refused(columns: bytes) -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    t1 = bench.sent[-1][1].split(b",")[1]
    assert bench.refusal(RES, columns % t1) in ("format", "order", "range")
    assert bench.of(Kind.TWO_WAY) == []


def test_a_reply_on_somebody_elses_topic_is_refused() -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    assert bench.refusal("_1451.1.6/RRS/PTTEST/app/RES", bench.text_reply()) == "topic"


def test_requests_that_nobody_answers_are_counted() -> None:
    bench = Bench("1451.1.6")
    bench.hear(SYN, TEXT_PAYLOAD)
    bench.clock.now_ns += 4 * SECOND
    bench.track.expire()
    assert bench.refused == {"no-reply": 1}


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


def test_a_draft_broadcast_becomes_a_one_way_sample() -> None:
    bench = Bench("draft-2021")
    bench.hear(DRAFT_SYN, b"SYN", [("timestamp", DRAFT_TIME)])
    (wall,) = bench.of(Kind.ONE_WAY)
    assert wall.offset_ns == OFFSET_NS - WAY_NS - TEXT_NS % 1000


def test_a_draft_time_without_a_fraction_is_a_whole_second() -> None:
    bench = Bench("draft-2021")
    bench.hear(DRAFT_SYN, b"SYN", [("timestamp", "2026-06-12T03:22:47")])
    sent = dict(bench.samples[0].sample.readings)["transmit"]
    assert sent.instant_ns == 1_781_234_567 * SECOND


def test_the_draft_servers_local_time_is_converted_by_the_configured_offset() -> None:
    bench = Bench("draft-2021", Settings(draft_utc_offset_s=9 * 3600))
    bench.hear(DRAFT_SYN, b"SYN", [("timestamp", "2026-06-12T12:22:47.123456")])
    assert bench.samples[0].offset_ns == OFFSET_NS - WAY_NS - TEXT_NS % 1000


def test_a_draft_server_is_asked_in_its_own_way_and_its_reply_bounds_the_offset() -> None:
    bench = Bench("draft-2021")
    bench.hear(DRAFT_SYN, b"SYN", [("timestamp", DRAFT_TIME)])
    topic, payload, _ = bench.sent[0]
    assert (topic, payload) == ("location/TIME/SRQ", b"SRQ")
    bench.clock.now_ns += WAY_NS
    bench.hear(DRAFT_SRS, b"SRS", draft_reply(bench, draft_t1(bench)))
    (wall,) = bench.of(Kind.TWO_WAY)
    assert wall.sample.delay_ns == 2 * WAY_NS
    assert wall.sample.verdict is not Verdict.REFUSED


def test_draft_replies_to_others_come_too_and_are_ignored() -> None:
    bench = Bench("draft-2021")
    bench.hear(DRAFT_SYN, b"SYN", [("timestamp", DRAFT_TIME)])
    others = draft_reply(bench, "2026-06-12T03:22:47.100000")
    assert bench.refusal(DRAFT_SRS, b"SRS", others) == "unasked"
    assert bench.of(Kind.TWO_WAY) == []


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ([], "properties"),
        ([("time", DRAFT_TIME)], "properties"),
        ([("timestamp", DRAFT_TIME), ("timestamp", DRAFT_TIME)], "properties"),
        ([("timestamp", "NaN")], "format"),
        ([("timestamp", "1969-12-31T23:59:59")], "range"),
        ([("timestamp", "2107-01-01T00:00:00")], "range"),
        ([("timestamp", "2026-02-30T00:00:00")], "format"),
        ([("timestamp", "2026-06-12 03:22:47")], "format"),
    ],
)
def test_a_draft_time_that_is_none_is_refused(user: list[tuple[str, str]], reason: str) -> None:
    bench = Bench("draft-2021")
    assert bench.refusal(DRAFT_SYN, b"SYN", user) == reason
    assert bench.samples == []


def test_malformed_properties_are_refused() -> None:
    bench = Bench("draft-2021")
    stamp = Stamp(bench.clock.now_ns, Source.KERNEL)
    with pytest.raises(DecodeError) as caught:
        bench.track.on_publish(Arrival(DRAFT_SYN, b"SYN", stamp, False, b"\x26\x00\xff"))
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
