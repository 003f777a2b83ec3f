"""What a client makes of a broker that says how long each message was in it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from track_bench import KEYS, MS, NAME, OFFSET_NS, SECOND, TREE, US, Bench, arrival

from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.exchange import two_way, without_broker
from mqtick.client.sample import Kind, Origin, Reading, Reason, Sample, SampleVerdict
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.precise import FollowUp, Leap, Reply, Request, Time, tag_of

LINK_NS = 20 * US
"""From a node to the broker, and back."""
UNKNOWN = -(1 << 31)
NO_ECHO = EstimatorSettings(use_echo=False)


class Filling(Bench):
    """A server and a broker between it and the client; both say how long messages were there."""

    def __init__(self, settings: EstimatorSettings = NO_ECHO) -> None:
        super().__init__(KEYS, settings)
        self.connection.filled = True
        self.fills = True
        self.copy = 0

    def deliver(
        self,
        topic: str,
        payload: bytes,
        take: Callable[[Arrival], Any],
        *,
        stated_ns: int,
        correction_ns: int = UNKNOWN,
        source: int = 2,
    ) -> None:
        """Let a copy arrive, with its trailer."""
        self.copy += 1
        tail = self.copy << 8 | source
        payload = payload[:-16] + struct.pack(">QiI", stated_ns << 16, correction_ns, tail)
        self.context.copies.note(payload)
        take(arrival(topic, payload, self.clock.time_ns()))

    def broadcast(
        self, sequence: int, *, in_broker_ns: int, stated_ns: int | None = None, source: int = 2
    ) -> None:
        """Let a time message arrive."""
        message = Time(
            *(0, sequence, self.server_ns(), 0, 0, 1, Leap.NONE, StampSource.KERNEL),
            generation=self.generation,
            fills=self.fills,
            version=2,
        )
        self.clock.now_ns += 2 * LINK_NS + in_broker_ns
        topic = TREE.time(0)
        stated_ns = in_broker_ns if stated_ns is None else stated_ns
        payload = self.keys.broadcast().sign(message.body(), topic)
        self.deliver(topic, payload, self.track.on_time, stated_ns=stated_ns, source=source)

    def meet(self) -> None:
        """Let the client know that this server's broker fills trailers, and the time."""
        self.broadcast(1, in_broker_ns=50 * US)
        self.exchange()
        self.clock.now_ns += SECOND

    def exchange(  # type: ignore[override]
        self,
        *,
        request_ns: int = 50 * US,
        reply_ns: int = 50 * US,
        stated: tuple[int, int] | None = None,
        corrections: tuple[int | None, int] = (None, UNKNOWN),
        sources: tuple[int, int] = (2, 2),
    ) -> Request:
        """Make one exchange; the messages are `request_ns` and `reply_ns` in the broker.

        `stated`: what it says instead; `corrections`: what it says of that later.
        """
        request = self.ask()
        said_request_ns, said_reply_ns = stated or (request_ns, reply_ns)
        self.clock.now_ns += 2 * LINK_NS + request_ns
        both = request.version == 2
        reply = Reply(
            *(0, request.sequence, self.server_ns(), 0, 0, 1, Leap.NONE, StampSource.KERNEL),
            generation=self.generation,
            fills=both and self.fills,
            request_residence=said_request_ns << 16 if both and sources[0] else 0,
            request_source=sources[0] if both else 0,
            version=request.version,
        )
        topic = TREE.reply(0, NAME)
        signed = self.keys.client(NAME).sign(reply.body(), topic, request.nonce)
        self.clock.now_ns += 2 * LINK_NS + reply_ns
        if both:
            self.deliver(
                topic, signed, self.track.on_reply, stated_ns=said_reply_ns, source=sources[1]
            )
        else:
            self.track.on_reply(arrival(topic, signed, self.clock.time_ns()))
        self.clock.now_ns += 3 * MS
        follow_up = FollowUp(
            *(0, request.sequence, 0, StampSource.KERNEL, self.generation),
            request_correction_ns=corrections[0],
            request_source=sources[0] if corrections[0] is not None else 0,
            version=request.version,
        )
        topic = TREE.follow_up(0, NAME)
        signed = self.keys.client(NAME).sign(follow_up.body(), topic, tag_of(signed))
        take = self.track.on_follow_up
        if both:
            self.deliver(topic, signed, take, stated_ns=50 * US, correction_ns=corrections[1])
        else:
            take(arrival(topic, signed, self.clock.time_ns()))
        return request

    def last(self, kind: Kind) -> Sample:
        return self.of(kind)[-1].sample

    def width_ns(self) -> int:
        told = self.estimate
        assert told.lower_ns is not None
        assert told.upper_ns is not None
        return told.upper_ns - told.lower_ns


ways = st.integers(0, 10**7)


@given(ways, ways, ways, ways, st.integers(-(10**18), 10**18))
def test_whatever_the_links_and_the_broker_take_the_interval_holds_the_truth(
    link_ns: int, back_ns: int, request_ns: int, reply_ns: int, offset_ns: int
) -> None:
    """And it is no wider than the links, but for what the broker's clock may be wrong by."""
    settings, kernel = EstimatorSettings(), StampSource.KERNEL
    t2 = link_ns + request_ns + offset_ns
    t4 = link_ns + request_ns + back_ns + reply_ns
    times = (Reading(instant_ns, kernel) for instant_ns in (0, t2, t2, t4))
    exchange = two_way(Origin(), *times, settings)
    durations = (Reading(duration_ns, kernel) for duration_ns in (request_ns, reply_ns))
    sample = without_broker(exchange, *durations, settings)
    assert sample.verdict is SampleVerdict.PENDING
    assert sample.lower_ns is not None
    assert sample.upper_ns is not None
    assert sample.lower_ns <= offset_ns <= sample.upper_ns
    assert sample.lower_ns <= sample.offset_ns <= sample.upper_ns
    assert sample.delay_ns == link_ns + back_ns
    most_ns = link_ns + back_ns + (request_ns + reply_ns) * 1e-4 + 2
    assert sample.upper_ns - sample.lower_ns <= most_ns


@pytest.fixture
def bench() -> Filling:
    made = Filling()
    made.meet()
    return made


# -- exchanges -------------------------------------------------------------------------------------


def test_an_exchange_is_as_good_as_its_links_however_long_the_broker_took(bench: Filling) -> None:
    bench.exchange(request_ns=900 * US, reply_ns=100 * US)
    assert bench.last(Kind.TWO_WAY).offset_ns == OFFSET_NS + 400 * US
    sample = bench.last(Kind.RESIDENCE)
    assert sample.offset_ns == OFFSET_NS
    assert sample.delay_ns == 4 * LINK_NS
    assert bench.offset_ns == OFFSET_NS
    assert bench.estimate.kind is Kind.RESIDENCE


def test_the_guaranteed_interval_is_that_of_the_exchange_and_the_other_one_is_assumed(
    bench: Filling,
) -> None:
    bench.exchange(request_ns=900 * US, reply_ns=100 * US)
    exchange, sample = bench.last(Kind.TWO_WAY), bench.last(Kind.RESIDENCE)
    assert (sample.lower_ns, sample.upper_ns) == (exchange.lower_ns, exchange.upper_ns)
    assert exchange.delay_ns == 4 * LINK_NS + MS
    assert (bench.estimate.narrow_bound_ns or 0) < 200 * US < bench.width_ns()


def test_who_trusts_the_broker_has_an_interval_of_the_links() -> None:
    trusting = EstimatorSettings(use_echo=False, trust_broker_residence=True)
    bench, doubting = Filling(trusting), Filling()
    for each in (bench, doubting):
        each.meet()
        each.exchange(request_ns=900 * US, reply_ns=700 * US)
    sample = bench.last(Kind.RESIDENCE)
    assert sample.lower_ns is not None
    assert sample.upper_ns is not None
    assert 4 * LINK_NS <= sample.upper_ns - sample.lower_ns < 4 * LINK_NS + US
    assert sample.lower_ns <= OFFSET_NS <= sample.upper_ns
    assert bench.width_ns() < doubting.width_ns()


@pytest.mark.parametrize(
    "stated",
    [(900 * US + 4 * LINK_NS, 101 * US), (1 << 47, 0), (0, 1 << 47), (600 * US, 600 * US)],
)
@pytest.mark.parametrize("trust", [False, True])
def test_a_residence_longer_than_the_round_trip_is_refused_and_the_exchange_counts(
    stated: tuple[int, int], trust: bool
) -> None:
    bench = Filling(EstimatorSettings(use_echo=False, trust_broker_residence=trust))
    bench.broadcast(1, in_broker_ns=50 * US)
    bench.exchange(request_ns=900 * US, reply_ns=100 * US, stated=stated)
    assert bench.last(Kind.RESIDENCE).reason is Reason.RESIDENCE
    assert bench.used(Kind.TWO_WAY)
    counted = bench.track.estimator.counters
    assert counted.of(kind=Kind.RESIDENCE, reason=Reason.RESIDENCE) == 1


@pytest.mark.parametrize("trust", [False, True])
def test_a_residence_that_contradicts_the_interval_is_refused(trust: bool) -> None:
    bench = Filling(EstimatorSettings(use_echo=False, trust_broker_residence=trust))
    bench.meet()
    bench.exchange(request_ns=20 * US, reply_ns=20 * US)
    bench.clock.now_ns += SECOND
    # All of a wide exchange was the reply's: then the offset would be far above the interval.
    bench.exchange(request_ns=40 * MS, reply_ns=40 * MS, stated=(0, 80 * MS))
    assert bench.last(Kind.RESIDENCE).reason is Reason.RESIDENCE
    assert bench.last(Kind.TWO_WAY).reason is not Reason.CONTRADICTS


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda bench: setattr(bench.connection, "filled", False), {}),
        (lambda bench: setattr(bench, "fills", False), {}),
        (lambda _bench: None, {"sources": (0, 2)}),
        (lambda _bench: None, {"sources": (2, 0)}),
    ],
    ids=["our broker", "the server's broker", "nobody stamped the request", "nor the reply"],
)
def test_without_a_word_of_both_sides_no_residence_is_used(
    bench: Filling, change: Callable[[Filling], None], how: dict[str, Any]
) -> None:
    before = len(bench.of(Kind.RESIDENCE))
    change(bench)
    bench.exchange(**how)
    assert len(bench.of(Kind.RESIDENCE)) == before
    assert bench.refused == {"before-exchange": 1}


def test_who_does_not_want_it_speaks_version_1() -> None:
    bench = Filling(EstimatorSettings(use_echo=False, use_residence=False))
    bench.meet()
    assert bench.request.version == 1
    assert bench.of(Kind.RESIDENCE) == []


def test_requests_follow_what_the_server_says_of_its_broker(bench: Filling) -> None:
    assert bench.exchange().version == 2
    bench.fills = False
    bench.exchange()
    assert bench.exchange().version == 1, "the server does not know any more"
    bench.fills = True
    bench.clock.now_ns += SECOND
    bench.broadcast(2, in_broker_ns=50 * US)
    assert bench.exchange().version == 2
    bench.connection.filled = False
    assert bench.exchange().version == 1


def test_a_message_to_itself_goes_right_before_a_request_whose_residence_counts(
    bench: Filling,
) -> None:
    """So that both ways find caches alike: only differences of the links are left."""
    bench.ask()
    warming, asking = TREE.client_loop(NAME), TREE.request(0, NAME)
    assert [topic for topic, *_ in bench.connection.sent[-2:]] == [warming, asking]
    bench.connection.filled = False
    bench.ask()
    assert [topic for topic, *_ in bench.connection.sent[-2:]] == [asking, asking]


def test_where_residence_is_stated_no_echo_is_asked_for() -> None:
    """A node of mqtick-join states it, and keeps no order among the server and its clients."""
    bench = Filling(EstimatorSettings(use_echo=True))
    bench.meet()
    asked = bench.exchange()
    assert (asked.version, asked.wants_echo) == (2, False)
    bench.connection.filled = False
    asked = bench.exchange()
    assert (asked.version, asked.wants_echo) == (1, True)


def test_of_a_burst_the_exchange_with_the_shortest_links_counts(bench: Filling) -> None:
    bench.exchange()
    bench.exchange(reply_ns=150 * US, stated=(50 * US, 50 * US))  # its link took 100 us more
    bench.exchange(request_ns=250 * US, stated=(50 * US, 50 * US))
    assert bench.offset_ns == OFFSET_NS


# -- corrections -----------------------------------------------------------------------------------


def test_the_next_copies_here_and_at_the_server_correct_what_was_stated(bench: Filling) -> None:
    bench.exchange(
        request_ns=90 * US,
        reply_ns=70 * US,
        stated=(80 * US, 75 * US),
        corrections=(10 * US, -5 * US),
    )
    sample = bench.last(Kind.RESIDENCE)
    assert sample.offset_ns == OFFSET_NS
    assert sample.delay_ns == 4 * LINK_NS


def test_a_copy_that_was_lost_in_between_corrects_nothing(bench: Filling) -> None:
    reply = bench.track.on_reply

    def lose_one(arrival: Arrival) -> None:
        reply(arrival)
        bench.copy += 1

    bench.track.on_reply = lose_one  # type: ignore[method-assign]
    bench.exchange(reply_ns=70 * US, stated=(50 * US, 60 * US), corrections=(None, 10 * US))
    assert bench.last(Kind.RESIDENCE).delay_ns == 4 * LINK_NS + 10 * US


def test_a_sample_names_the_lesser_source_of_each(bench: Filling) -> None:
    bench.exchange(sources=(1, 3))
    readings = dict(bench.last(Kind.RESIDENCE).readings)
    assert readings["request_in_broker"].source is StampSource.USER
    assert readings["reply_in_broker"].source is StampSource.HARDWARE


# -- broadcasts ------------------------------------------------------------------------------------


def listening() -> Filling:
    """A client that learned the links' delay, and gets no answers any more.

    Of two in three broadcasts nobody knew how long they were in the broker.
    """
    bench = Filling(EstimatorSettings(use_echo=False, prefer_better_s=2.0, lucky_broadcasts_s=0.0))
    bench.meet()
    for sequence in range(2, 62):
        in_broker_ns = (1 + sequence % 5) * 200 * US
        bench.broadcast(sequence, in_broker_ns=in_broker_ns, source=0 if sequence % 3 else 2)
        bench.exchange()
        bench.clock.now_ns += SECOND // 2
    bench.clock.now_ns += 3 * SECOND
    return bench


def test_broadcasts_carry_the_time_on_however_long_the_broker_took() -> None:
    bench = listening()
    for sequence, in_broker_ns in enumerate((0, MS, 100 * US, 3 * MS, 7 * US), 62):
        bench.broadcast(sequence, in_broker_ns=in_broker_ns)
        bench.clock.now_ns += SECOND
    assert bench.estimate.kind is Kind.ONE_WAY
    assert abs((bench.offset_ns or 0) - OFFSET_NS) < 2 * US


def test_a_broadcast_whose_residence_contradicts_the_interval_is_refused() -> None:
    bench = listening()
    for sequence in (62, 63):
        bench.broadcast(sequence, in_broker_ns=50 * US, stated_ns=SECOND)
        bench.clock.now_ns += SECOND
    assert bench.last(Kind.ONE_WAY).reason is Reason.RESIDENCE
