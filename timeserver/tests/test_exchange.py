"""Answers to two-way requests: what they state, what follows them, and who gets none."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from stage import KEYS, MS, NONCE, TREE, US, Stage, arrival

from mqtick.mqtt.stamps import Stamp, StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Echo, FollowUp, Leap, Loop, Reply, Request, decode
from mqtick.timeserver.exchange import PreciseResponder
from mqtick.timeserver.rate import RateLimit

STATED = (61_250 << 16) + 16_384


def filled(payload: bytes, *, copy: int, correction_ns: int = -(1 << 31), source: int = 1) -> bytes:
    """A message as a broker delivers it that says how long it was there."""
    trailer = struct.pack(">Qi", STATED, correction_ns) + copy.to_bytes(3) + bytes([source])
    return payload[:-16] + trailer


class Server(Stage):
    """A responder, and the echoes that it asks for."""

    def __init__(self, keys: Keyring | None = None, limit: RateLimit | None = None, **how: Any):
        super().__init__(0, keys, **how)
        self.echo_ready = False
        self.heard: list[Callable[[], None]] = []
        """Echoes that have arrived and that nobody has asked for."""
        self.tells_at_once = False
        self.loop_ns: int | None = 187_000
        self.left_after_ns: int | None = 38_500
        """How long after it was stated a message left, as the kernel says."""
        self.echo: Any = SimpleNamespace(
            ready=lambda _client: self.echo_ready, hear=self._hear_echoes, placement=1
        )
        self.order: Any = SimpleNamespace(trusted=True)
        self.pokes = 0
        self.loopback: Any = SimpleNamespace(delay_ns=lambda: self.loop_ns, poke=self._poke)
        self.responder = PreciseResponder(self, self.keys, limit or self.limit)
        self._sequences = itertools.count(41)

    def clock_changed(self) -> bool:
        changed = super().clock_changed()
        if changed:
            self.responder.forget_pending()
        return changed

    def _poke(self) -> None:
        """The broker sends what was asked for, and says that it was 1350 ns off before."""
        self.pokes += 1
        self.copies.note(filled(Loop(0, bytes(8)).payload(), copy=8, correction_ns=1_350))

    def collect_stamps(self) -> None:
        while self.transmits:
            message = decode(self.published[-len(self.transmits)][1])
            transmit = self.transmits.pop(0)
            if isinstance(message, Reply) and self.left_after_ns is not None:
                transmit.kernel_ns = message.transmit_ns + self.left_after_ns

    def ask(
        self, client: str = "kitchen", *, echo: bool = False, **changes: Any
    ) -> tuple[Request, int]:
        """Let a request arrive 150 us ago, and return it with its kernel stamp."""
        sequence = changes.pop("sequence", next(self._sequences))
        nonce = changes.pop("nonce", sequence.to_bytes(8, "big"))
        version = changes.pop("version", 1)
        request = Request(changes.pop("server", 0), sequence, nonce, echo, version)
        topic = TREE.request(0, client)
        payload = self.keys.client(client).sign(request.body(), topic)
        if version == 2:
            payload = filled(payload, copy=7, source=changes.pop("source", StampSource.USER))
        self.copies.note(payload)
        came = arrival(**{"topic": topic, "payload": payload, **changes})
        self.responder.on_request(came)
        return request, came.stamp.realtime_ns

    @property
    def reply(self) -> Reply:
        message = decode(self.published[-1][1])
        assert isinstance(message, Reply)
        return message

    def _hear_echoes(self, at_once: bool) -> None:
        self.tells_at_once = at_once
        while self.heard:
            self.heard.pop(0)()

    def hear(self, *, last: bool, after_ns: int, **changes: Any) -> None:
        """Let the last reply come back, so long after it was stated."""
        topic, payload, _ = self.published[-1]
        stamp = Stamp(self.reply.transmit_ns + after_ns, StampSource.KERNEL)
        came = arrival(**{"topic": topic, "payload": payload, "stamp": stamp, **changes})
        self.heard.append(lambda: self.responder.on_echo(came, last=last))
        if last and self.tells_at_once:
            self._hear_echoes(True)

    def wait(self) -> None:
        """Let the time pass until nothing is planned."""
        while self.later:
            planned, self.later = sorted(self.later, key=lambda one: one[0]), []
            for _, call in planned:
                call()


@pytest.fixture
def server() -> Server:
    return Server()


# -- the reply -------------------------------------------------------------------------------------


def test_a_request_is_answered_on_the_clients_own_topic(server: Server) -> None:
    request, _ = server.ask()
    assert [topic for topic, _, _ in server.published] == ["mqtick/r/0/kitchen"]
    reply = server.reply
    assert (reply.server, reply.sequence, reply.generation) == (0, request.sequence, 3)
    assert (reply.stratum, reply.leap, reply.receive_source) == (2, Leap.NONE, StampSource.KERNEL)
    assert 25_000 <= reply.root_distance_ns <= 25_025


def test_the_residence_is_from_the_kernels_stamp_to_the_stated_transmit_time(
    server: Server,
) -> None:
    before_ns = time.time_ns()
    _, received_ns = server.ask()
    assert server.reply.receive_ns == received_ns
    assert before_ns <= server.reply.transmit_ns <= time.time_ns()


def test_the_served_clock_is_what_is_stated_not_the_hosts() -> None:
    server = Server(ahead_ns=3600 * 10**9)
    _, received_ns = server.ask()
    off = server.reply.receive_ns - received_ns - 3600 * 10**9
    assert abs(off) < 100 * US  # the conversion of a stamp is a bracketed read
    assert 100 * US < server.reply.residence_ns < 50 * MS


def test_replies_are_signed_for_the_client_and_this_request() -> None:
    server = Server(KEYS)
    server.ask(nonce=NONCE)
    topic, payload, _ = server.published[0]
    KEYS.client("kitchen").verify(payload, topic, NONCE)
    with pytest.raises(ValueError, match="tag"):
        KEYS.client("kitchen").verify(payload, topic, bytes(8))


# -- the follow-up ---------------------------------------------------------------------------------


def test_a_follow_up_says_when_the_reply_really_left(server: Server) -> None:
    request, _ = server.ask()
    assert [delay for delay, _ in server.later] == [3 * MS]
    server.wait()
    topic, payload, _ = server.published[-1]
    assert topic == "mqtick/f/0/kitchen"
    assert decode(payload) == FollowUp(0, request.sequence, 38_500, StampSource.KERNEL, 3)


def test_a_follow_up_is_bound_to_its_reply() -> None:
    server = Server(KEYS)
    server.ask()
    server.wait()
    (_, reply, _), (topic, payload, _) = server.published
    KEYS.client("kitchen").verify(payload, topic, reply[-8:])


def test_without_the_kernels_stamp_the_follow_up_says_so(server: Server) -> None:
    server.left_after_ns = None
    server.ask()
    server.wait()
    message = decode(server.published[-1][1])
    assert isinstance(message, FollowUp)
    assert message.correction_source == StampSource.USER
    assert 0 <= (message.correction_ns or 0) < 50 * MS


def test_a_correction_that_does_not_fit_is_unknown(server: Server) -> None:
    server.left_after_ns = 3 * 10**9  # the clock was stepped meanwhile
    server.ask()
    server.wait()
    message = decode(server.published[-1][1])
    assert isinstance(message, FollowUp)
    assert (message.correction_ns, message.correction_source) == (None, StampSource.NONE)


def test_no_certain_end_rests_on_a_stamp_that_the_clocks_slew_has_moved(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stamp stands for is known only to within 12 us; the client must not have it closer."""
    monkeypatch.setattr(server.clock, "span_of_kernel_ns", lambda ns, _: (ns - 7 * US, ns + 5 * US))
    server.echo_ready = True
    _, came_ns = server.ask(echo=True)
    assert server.reply.receive_ns == came_ns + 5 * US
    server.hear(last=False, after_ns=200 * US)
    server.hear(last=True, after_ns=201 * US)
    server.wait()
    echo = decode(server.published[-1][1])
    assert isinstance(echo, Echo)
    assert echo.correction_ns == 38_500 - 7 * US
    assert echo.first_echo_ns == 193 * US
    assert echo.echo_span_ns >= 13 * US


def test_both_completions_promise_what_the_served_clock_keeps(server: Server) -> None:
    for rate_ppb in (None, 20_000.0):
        server.clock._rate_ppb = rate_ppb
        for echo in (False, True):
            server.echo_ready = True
            server.ask(echo=echo)
            server.hear(last=False, after_ns=200 * US)
            server.hear(last=True, after_ns=201 * US)
            server.wait()
            message = decode(server.published[-1][1])
            assert isinstance(message, Echo if echo else FollowUp)
            assert message.rate_change_ppb == (None if rate_ppb is None else 750)


# -- the echo --------------------------------------------------------------------------------------


@pytest.fixture
def echoing(server: Server) -> Server:
    server.echo_ready = True
    server.ask(echo=True)
    return server


def test_both_echoes_make_an_echo_message_instead_of_the_follow_up(echoing: Server) -> None:
    sequence = echoing.reply.sequence
    echoing.hear(last=False, after_ns=231_000)
    echoing.hear(last=True, after_ns=277_000)
    echoing.wait()
    assert len(echoing.published) == 2
    assert decode(echoing.published[1][1]) == Echo(
        0,
        sequence,
        38_500,
        231_000,
        46_016,  # 46 us, as it is stated
        StampSource.KERNEL,
        StampSource.KERNEL,
        StampSource.KERNEL,
        3,
        187_000,
        1,
    )
    assert echoing.counters.done == {"replies": 1, "echoes": 1}


def test_the_echo_message_waits_until_the_client_has_read_the_reply(echoing: Server) -> None:
    echoing.hear(last=False, after_ns=231_000)
    echoing.hear(last=True, after_ns=277_000)
    assert len(echoing.published) == 1
    assert [delay for delay, _ in echoing.later] == [3 * MS]


def test_only_an_echo_that_is_late_has_to_be_told_at_once(echoing: Server) -> None:
    assert not echoing.tells_at_once
    echoing.hear(last=False, after_ns=231_000)
    echoing.later.pop()[1]()
    assert echoing.tells_at_once
    echoing.hear(last=True, after_ns=4 * MS)
    assert [delay for delay, _ in echoing.later] == [497 * MS + 187_000, 3 * MS]
    echoing.wait()
    assert not echoing.tells_at_once
    assert isinstance(decode(echoing.published[-1][1]), Echo)
    assert len(echoing.published) == 2


@pytest.mark.parametrize("missing", ["first", "last", "both"])
def test_where_an_echo_is_missing_a_follow_up_goes_after_half_a_second(
    echoing: Server, missing: str
) -> None:
    if missing == "last":
        echoing.hear(last=False, after_ns=231_000)
    if missing == "first":
        echoing.hear(last=True, after_ns=277_000)
    echoing.later.pop()[1]()
    assert [delay for delay, _ in echoing.later] == [497 * MS + 187_000]
    assert len(echoing.published) == 1
    echoing.wait()
    assert isinstance(decode(echoing.published[-1][1]), FollowUp)
    assert echoing.refused == {"echo-missing": 1}
    assert not echoing.tells_at_once


@pytest.mark.parametrize(("ready", "wanted"), [(False, True), (True, False)])
def test_echoes_that_are_not_in_place_or_not_wanted_are_not_waited_for(
    server: Server, ready: bool, wanted: bool
) -> None:
    server.echo_ready = ready
    server.ask(echo=wanted)
    server.hear(last=False, after_ns=231_000)
    server.hear(last=True, after_ns=277_000)
    server.wait()
    assert isinstance(decode(server.published[-1][1]), FollowUp)


@pytest.mark.parametrize(
    ("first_ns", "source", "held", "reason"),
    [
        (231_000, StampSource.KERNEL, True, "echo-held"),
        (231_000, StampSource.USER, False, "echo-shared-read"),
        (300_000, StampSource.KERNEL, False, "echo-order"),
    ],
)
def test_a_first_echo_that_is_no_lower_bound_is_counted_and_not_told(
    echoing: Server, first_ns: int, source: StampSource, held: bool, reason: str
) -> None:
    stamp = Stamp(echoing.reply.transmit_ns + first_ns, source)
    echoing.hear(last=False, after_ns=0, stamp=stamp, maybe_held=held)
    echoing.hear(last=True, after_ns=277_000)
    echoing.wait()
    assert isinstance(decode(echoing.published[-1][1]), FollowUp)
    assert echoing.refused == {reason: 1}


def test_a_last_echo_that_shared_its_read_is_an_upper_bound_still(echoing: Server) -> None:
    late = Stamp(echoing.reply.transmit_ns + 277_000, StampSource.USER)
    echoing.hear(last=False, after_ns=231_000)
    echoing.hear(last=True, after_ns=0, stamp=late)
    echoing.wait()
    message = decode(echoing.published[-1][1])
    assert isinstance(message, Echo)
    assert message.last_source == StampSource.USER


@pytest.mark.parametrize("last", [False, True])
def test_a_copy_that_somebody_sends_later_moves_nothing(echoing: Server, last: bool) -> None:
    echoing.hear(last=last, after_ns=240_000)
    echoing.hear(last=last, after_ns=900_000)
    echoing.hear(last=not last, after_ns=231_000 if last else 277_000)
    echoing.wait()
    message = decode(echoing.published[-1][1])
    assert isinstance(message, Echo)
    assert message.first_echo_ns == (231_000 if last else 240_000)
    assert message.echo_span_ns == (9_000 if last else 37_024)  # 37 us, as it is stated


def changed(payload: bytes, at: int) -> bytes:
    return payload[:at] + bytes((payload[at] ^ 1,)) + payload[at + 1 :]


@pytest.mark.parametrize("at", [5, 15, 31], ids=["sequence", "time", "tag"])
def test_only_the_reply_itself_is_its_echo(echoing: Server, at: int) -> None:
    forged = changed(echoing.published[0][1], at)
    echoing.hear(last=False, after_ns=100, payload=forged)
    echoing.hear(last=False, after_ns=231_000)
    echoing.hear(last=True, after_ns=277_000)
    echoing.wait()
    message = decode(echoing.published[-1][1])
    assert isinstance(message, Echo)
    assert message.first_echo_ns == 231_000


def test_an_echo_of_another_client_is_not_ours(echoing: Server) -> None:
    echoing.hear(last=False, after_ns=231_000, topic="mqtick/r/0/garage")
    echoing.hear(last=True, after_ns=277_000)
    echoing.wait()
    assert echoing.refused == {"echo-missing": 1}


@pytest.mark.parametrize(
    "strange", [{"payload": b"\xff" * 32}, {"payload": b""}, {"topic": "mqtick/r/0/a/b"}], ids=repr
)
def test_what_is_no_reply_is_counted_on_the_echoes(
    echoing: Server, strange: dict[str, Any]
) -> None:
    echoing.hear(last=True, after_ns=231_000, **strange)
    echoing.wait()
    assert echoing.refused == {"echo": 1, "echo-missing": 1}


@pytest.mark.parametrize("loop_ns", [None, 2**32 - 1, 2**32, 3600 * 10**9])
def test_a_way_that_is_unknown_or_too_long_is_unknown(echoing: Server, loop_ns: int | None) -> None:
    echoing.loop_ns = loop_ns
    echoing.hear(last=False, after_ns=231_000)
    echoing.hear(last=True, after_ns=277_000)
    echoing.wait()
    message = decode(echoing.published[-1][1])
    assert isinstance(message, Echo)
    assert message.loop_ns is None


# -- who is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"payload": b"\x12"}, "length"),
        ({"payload": b""}, "length"),
        ({"payload": b"\x32" + bytes(23)}, "version"),
        ({"payload": b"\x11" + bytes(23)}, "kind"),
        ({"payload": b"\x12" + bytes(13) + b"\x80" + bytes(9)}, "reserved"),
        ({"topic": "mqtick/q/0/kitchen/x"}, "topic"),
        ({"topic": "mqtick/q/0/kit chen"}, "topic"),
        ({"retain": True}, "retained"),
        ({"server": 1}, "server"),
    ],
)
def test_a_request_that_is_none_is_counted_and_not_answered(
    server: Server, changes: dict[str, Any], reason: str
) -> None:
    server.ask(**changes)
    assert server.published == []
    assert server.refused == {reason: 1}


def test_a_request_with_the_wrong_key_is_refused() -> None:
    server = Server(KEYS)
    topic = TREE.request(0, "kitchen")
    body = Request(0, 1, NONCE, False).body()
    server.ask(payload=KEYS.client("garage").sign(body, topic))
    server.ask(payload=KEYS.client("kitchen").sign(body, TREE.request(0, "garage")))
    server.ask(payload=Keyring().client("kitchen").sign(body, topic))
    assert server.published == []
    assert server.refused == {"tag": 2, "unsigned": 1}


def test_a_client_that_asks_too_often_is_counted(server: Server) -> None:
    for _ in range(45):
        server.ask()
    assert server.counters.done["replies"] == 40
    assert server.refused == {"rate": 5}
    server.ask("garage")
    assert server.counters.done["replies"] == 41


def test_what_is_no_request_uses_up_nobodys_share(server: Server) -> None:
    for number in range(2000):
        server.ask(f"client-{number % 100}", payload=b"\x12" + bytes(22))
        server.ask(payload=b"noise")
    server.ask()
    assert server.counters.done["replies"] == 1


def test_strangers_without_the_key_use_up_no_more_than_one_clients_share() -> None:
    server = Server(KEYS, RateLimit(client_rate=4, client_burst=40, total_rate=100))
    forged = Keyring().client("x").sign(Request(0, 1, NONCE, False).body(), "")
    for number in range(2000):
        server.ask(f"client-{number}", payload=forged)
    server.ask("kitchen")
    assert server.counters.done["replies"] == 1
    assert server.refused == {"unsigned": 2000}


def test_all_clients_together_have_a_limit(server: Server) -> None:
    server = Server(limit=RateLimit(client_rate=4, client_burst=40, total_rate=100))
    for number in range(150):
        server.ask(f"client-{number}")
    assert server.counters.done["replies"] in range(100, 120)
    assert server.refused["rate-total"] == 150 - server.counters.done["replies"]


@pytest.mark.parametrize("age_s", [-1, 5])
def test_a_request_that_arrived_in_the_future_or_long_ago_is_not_answered(
    server: Server, age_s: int
) -> None:
    server.ask(stamp=Stamp(time.time_ns() - age_s * 10**9, StampSource.KERNEL))
    assert server.published == []
    assert server.refused == {"residence": 1}


@pytest.mark.parametrize("name", ["clock_is_set", "stamps_are_doubtful"])
def test_a_request_that_may_have_been_stamped_before_the_clock_was_set_is_not_answered(
    server: Server, name: str
) -> None:
    setattr(server, name, True)
    server.ask()
    assert server.published == []
    assert server.refused == {"clock-changed": 1}


@pytest.mark.parametrize("echo", [False, True])
def test_nothing_follows_a_reply_once_the_clock_was_set(server: Server, echo: bool) -> None:
    """When it really left, and when it came back, would be told on another clock."""
    server.echo_ready = echo
    server.ask(echo=echo)
    server.clock_is_set = True
    server.wait()
    assert [type(decode(payload)) for _, payload, _ in server.published] == [Reply]
    assert server.responder.pending == 0


def test_while_the_broker_takes_nothing_nothing_is_promised(server: Server) -> None:
    server.takes_data = False
    server.ask()
    assert (server.refused, server.later, server.responder.pending) == ({"not-sent": 1}, [], 0)


@pytest.mark.slow
def test_exchanges_that_wait_are_bounded_and_the_oldest_goes() -> None:
    server = Server(limit=RateLimit(client_rate=1, client_burst=9000, total_rate=1e6))
    server.echo_ready = True
    for _ in range(8200):
        server.ask(echo=True)
    assert server.responder.pending == 8192
    server.wait()
    assert server.responder.pending == 0
    assert len(server.published) == 8200 + 8192


def test_a_request_that_is_replayed_is_answered_once() -> None:
    """The broker would choose between two replies, and between their follow-ups."""
    server = Server(KEYS)
    server.ask(nonce=NONCE)
    for _ in range(3):
        server.ask(nonce=NONCE)
    assert server.refused == {"replayed": 3}
    server.ask("garage", nonce=NONCE)
    server.wait()
    assert [topic for topic, _, _ in server.published].count(TREE.reply(0, "kitchen")) == 1
    assert server.counters.done["replies"] == 2


def test_a_sequence_that_comes_twice_gets_each_time_a_reply_and_one_follow_up(
    server: Server,
) -> None:
    server.ask(sequence=7)
    server.ask(sequence=7, nonce=NONCE)
    server.wait()
    kinds = [type(decode(payload)) for _, payload, _ in server.published]
    assert kinds == [Reply, Reply, FollowUp]


# -- a broker that says how long messages were in it -----------------------------------------------


@pytest.mark.parametrize("fills", [False, True], ids=["says nothing", "says it"])
@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_are_answered_and_version_2_only_where_both_sides_can(
    version: int, fills: bool
) -> None:
    server = Server(KEYS)
    server.fills = fills
    server.ask(version=version)
    assert server.reply.version == (2 if fills and version == 2 else 1)
    assert server.reply.fills == (server.reply.version == 2)
    spoken = server.reply.version
    server.wait()
    assert decode(server.published[-1][1]).version == spoken


@pytest.mark.parametrize("echo", [False, True], ids=["follow-up", "echo"])
def test_the_requests_residence_is_in_the_reply_and_its_correction_in_what_follows(
    echo: bool,
) -> None:
    server = Server(KEYS)
    server.fills = server.echo_ready = True
    server.ask(echo=echo, version=2)
    assert (server.reply.request_residence, server.reply.request_source) == (STATED, 1)
    if echo:
        server.hear(last=False, after_ns=231_000)
        server.hear(last=True, after_ns=277_000)
    server.wait()
    message = decode(server.published[-1][1])
    assert isinstance(message, Echo if echo else FollowUp)
    assert (message.request_correction_ns, message.request_source) == (1_350, 1)
    assert server.pokes == 1


def test_an_echo_is_known_whatever_the_broker_wrote_into_it() -> None:
    server = Server(KEYS)
    server.fills = server.echo_ready = True
    server.ask(echo=True, version=2)
    topic, payload, _ = server.published[-1]
    for last, after_ns in ((False, 231_000), (True, 277_000)):
        written = filled(payload, copy=3 + last)
        server.hear(last=last, after_ns=after_ns, topic=topic, payload=written)
    server.wait()
    assert isinstance(decode(server.published[-1][1]), Echo)


def test_nobody_is_asked_for_a_correction_that_is_known_or_is_none() -> None:
    server = Server(KEYS)
    server.fills = True
    server.ask(version=2, source=StampSource.HARDWARE)
    server.wait()
    server.ask(version=2)
    server.copies.note(filled(Loop(0, bytes(8)).payload(), copy=8, correction_ns=-40))
    server.wait()
    assert server.pokes == 0
    message = decode(server.published[-1][1])
    assert isinstance(message, FollowUp)
    assert message.request_correction_ns == -40


def test_a_residence_that_nobody_stamped_is_not_passed_on() -> None:
    server = Server(KEYS)
    server.fills = True
    server.ask(version=2, source=StampSource.NONE)
    assert (server.reply.request_residence, server.reply.request_source) == (0, 0)
    server.wait()
    message = decode(server.published[-1][1])
    assert isinstance(message, FollowUp)
    assert (message.request_correction_ns, message.request_source) == (None, 0)
