"""The time message: what it states, and what it says of the one before."""

from __future__ import annotations

import time

import pytest
from stage import KEYS, US, Stage

from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Leap, Time
from mqtick.timeserver.broadcast import Broadcast
from mqtick.timeserver.reference import unsynchronised


class Server(Stage):
    def __init__(self, keys: Keyring | None = None, *, ahead_ns: int = 0) -> None:
        super().__init__(7, keys, ahead_ns=ahead_ns)
        self.broadcast = Broadcast(self, self.keys)

    def send(self) -> Time:
        self.broadcast.send()
        return Time.decode(self.published[-1][1])

    def left(self, after_ns: int) -> None:
        """Let the kernel say when the last message left, after its stated time."""
        stated_ns = Time.decode(self.published[-1][1]).transmit_ns
        self.transmits[-1].kernel_ns = stated_ns + after_ns


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_message_states_the_clock_and_how_good_it_is(server: Server) -> None:
    before_ns = time.time_ns()
    message = server.send()
    assert before_ns <= message.transmit_ns <= time.time_ns()
    assert (message.server, message.sequence, message.generation) == (7, 1, 3)
    assert (message.stratum, message.leap) == (2, Leap.NONE)
    assert 25_000 <= message.root_distance_ns <= 25_025
    assert server.published[0][0] == "mqtick/t/7"


def test_version_2_is_spoken_while_the_broker_fills_trailers() -> None:
    server = Server(KEYS)
    for fills in (False, True, False):
        server.fills = fills
        message = server.send()
        assert (message.version, message.fills) == (2 if fills else 1, fills)
        assert len(server.published[-1][1]) == (49 if fills else 32)


def test_a_clock_that_nobody_vouches_for_says_so(server: Server) -> None:
    server.reference = unsynchronised("because")
    message = server.send()
    assert (message.stratum, message.leap) == (15, Leap.UNSYNCHRONISED)


def test_the_first_message_knows_of_none_before_it(server: Server) -> None:
    message = server.send()
    assert (message.previous_correction_ns, message.correction_source) == (None, StampSource.NONE)


def test_each_message_says_when_the_one_before_really_left(server: Server) -> None:
    server.send()
    for late_us in (43, 51, 38):
        server.left(late_us * US)
        message = server.send()
        assert message.previous_correction_ns == late_us * US
        assert message.correction_source == StampSource.KERNEL
    assert [Time.decode(payload).sequence for _, payload, _ in server.published] == [1, 2, 3, 4]


def test_without_the_kernels_stamp_it_says_when_it_was_handed_over(server: Server) -> None:
    server.send()
    message = server.send()
    assert message.correction_source == StampSource.USER
    assert 0 <= (message.previous_correction_ns or 0) < 50_000 * US


@pytest.mark.parametrize("after_ns", [2**31, -(2**31), 3600 * 10**9])
def test_a_correction_out_of_range_is_unknown(server: Server, after_ns: int) -> None:
    server.send()
    server.left(after_ns)
    message = server.send()
    assert (message.previous_correction_ns, message.correction_source) == (None, StampSource.NONE)


def test_a_correction_is_unknown_if_the_clock_was_slewed_since(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.send()
    monkeypatch.setattr(server.clock, "span_of_kernel_ns", lambda ns: (ns - 2 * US, ns))
    message = server.send()
    assert (message.previous_correction_ns, message.correction_source) == (None, StampSource.NONE)


@pytest.mark.parametrize("after_ns", [2**31 - 1, 1 - 2**31])
def test_the_largest_correction_still_fits(server: Server, after_ns: int) -> None:
    server.send()
    server.left(after_ns)
    assert server.send().previous_correction_ns == after_ns


def test_after_a_step_the_one_before_is_forgotten(server: Server) -> None:
    server.send()
    server.left(43 * US)
    server.broadcast.forget_previous()
    assert server.send().previous_correction_ns is None


def test_a_time_that_was_read_when_the_clock_was_set_is_not_published(server: Server) -> None:
    """Its generation would be the one of before."""
    server.clock_is_set = True
    assert not server.broadcast.send()
    assert server.published == []
    assert server.send().generation == 4


def test_of_a_message_that_could_not_be_sent_nothing_is_said(server: Server) -> None:
    server.takes_data = False
    assert not server.broadcast.send()
    server.takes_data = True
    message = server.send()
    assert (message.sequence, message.previous_correction_ns) == (2, None)
    assert server.broadcast.sent == 1


def test_another_clock_than_the_hosts_is_stated_and_corrected_on_its_own_timeline() -> None:
    server = Server(ahead_ns=3600 * 10**9)
    message = server.send()
    assert abs(message.transmit_ns - time.time_ns() - 3600 * 10**9) < 1_000_000 * US
    server.transmits[-1].kernel_ns = time.time_ns()
    correction_ns = server.send().previous_correction_ns
    assert correction_ns is not None
    assert -100 * US < correction_ns < 50_000 * US


def test_messages_are_signed_with_the_broadcast_key() -> None:
    server = Server(KEYS)
    server.send()
    topic, payload, _ = server.published[0]
    KEYS.broadcast().verify(payload, topic)
    assert payload == server.broadcast.payload
    with pytest.raises(ValueError, match="tag"):
        KEYS.broadcast().verify(payload, "mqtick/t/8")


def test_the_sequence_wraps_at_32_bits(server: Server) -> None:
    server.broadcast.sequence = 2**32 - 2
    assert [server.send().sequence for _ in range(3)] == [2**32 - 1, 0, 1]
