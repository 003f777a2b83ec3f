"""Kernel timestamps on real sockets of the loopback."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from mqtick.mqtt.frames import Arrival, FrameSocket
from mqtick.mqtt.stamps import KernelSocket, Stamp, StampSource, Transmit

Pair = tuple[KernelSocket, KernelSocket]
# asm-generic/socket.h and linux/filter.h
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
BPF_RETURN = 0x06


def pair_of(mode: str, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> Pair:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    if kind == socket.SOCK_STREAM:
        with socket.create_server((host, 0), family=family) as server:
            one = socket.create_connection(server.getsockname()[:2])
            other, _ = server.accept()
        for sock in (one, other):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        one, other = socket.socket(family, kind), socket.socket(family, kind)
        one.bind((host, 0))
        other.bind((host, 0))
        one.connect(other.getsockname())
        other.connect(one.getsockname())
    return KernelSocket(one, mode), KernelSocket(other, mode)


@contextlib.contextmanager
def closing(pair: Pair) -> Iterator[Pair]:
    try:
        yield pair
    finally:
        for sock in pair:
            sock.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A stream, whose octets the kernel counts."""
    with closing(pair_of("auto")) as made:
        yield made


@pytest.fixture(
    params=[
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET6, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_INET6, socket.SOCK_DGRAM),
    ],
    ids=["TCP", "TCP over IPv6", "UDP", "UDP over IPv6"],
)
def either(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A stream, or datagrams, which the kernel counts by the packet."""
    try:
        made = pair_of("auto", *request.param)
    except OSError as error:
        pytest.skip(f"this machine has no such loopback: {error}")
    with closing(made):
        yield made


def stamped(sock: KernelSocket, data: bytes) -> Transmit:
    sent = sock.transmit = Transmit(time.time_ns())
    assert sock.send(data) == len(data)
    return sent


def collect(sock: KernelSocket, *waiting: Transmit) -> int:
    """Drain until every message has its stamp; return how many were matched."""
    matched, end = 0, time.monotonic() + 30
    while any(one.kernel_ns is None for one in waiting) and time.monotonic() < end:
        matched += sock.drain_error_queue()
    return matched


def test_the_kernel_stamps_what_is_received(either: Pair) -> None:
    one, other = either
    before = time.time_ns()
    one.send(b"tick")
    time.sleep(0.02)  # the program comes late
    assert other.read_chunk() == b"tick"
    stamp = other.received
    assert stamp.source is StampSource.KERNEL
    assert before <= stamp.realtime_ns < time.time_ns() - 10_000_000


def test_the_kernel_stamps_what_is_sent_and_when_it_was_asked(either: Pair) -> None:
    one, other = either
    sent = stamped(one, b"tick")
    assert sent.stamp == Stamp(sent.user_ns, StampSource.USER)
    assert collect(one, sent) == 1
    other.read_chunk()
    assert sent.stamp.source is StampSource.KERNEL
    assert sent.user_ns <= sent.stamp.realtime_ns <= other.received.realtime_ns


def test_nobody_stamps_what_nobody_asked_about(either: Pair) -> None:
    one, other = either
    one.send(b"tick")
    other.read_chunk()
    assert one.drain_error_queue() == 0


def test_several_messages_have_each_their_own_stamp(either: Pair) -> None:
    one, other = either
    sent = []
    for number in range(8):
        sent.append(stamped(one, b"x" * (number + 1)))
        one.send(b"not asked about")
        time.sleep(0.002)
    assert collect(one, *sent) == 8
    stamps = [message.stamp.realtime_ns for message in sent]
    assert stamps == sorted(stamps)
    for message in sent:
        assert 0 <= message.stamp.realtime_ns - message.user_ns < 2_000_000_000
    assert all(later - earlier > 1_000_000 for earlier, later in pairwise(stamps))
    assert other.read_chunk().startswith(b"x")


def test_a_stamp_is_matched_by_its_number_though_another_was_lost(either: Pair) -> None:
    one, _ = either
    lost = stamped(one, b"lost")
    one.send(b"not asked about")
    kept = stamped(one, b"kept")
    one._pending.pop(next(iter(one._pending)))
    assert collect(one, kept) == 1
    assert kept.stamp.source is StampSource.KERNEL
    assert lost.stamp.source is StampSource.USER


def test_octets_are_counted_on_a_stream_and_stamped_packets_among_datagrams() -> None:
    numbers = {}
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with closing(pair_of("auto", kind=kind)) as (one, _):
            stamped(one, b"1234567")
            one.send(b"abc")
            stamped(one, b"89")
            numbers[kind] = list(one._pending)
    assert numbers == {socket.SOCK_STREAM: [6, 11], socket.SOCK_DGRAM: [0, 1]}


class Kernel2023:
    """A datagram socket of a kernel before 2024, which counts what it could not send."""

    family, type = socket.AF_INET, socket.SOCK_DGRAM

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_full = False

    def sendmsg(self, buffers: list[bytes], ancillary: list[tuple[int, int, bytes]]) -> int:
        if self.is_full:
            self._sock.sendmsg([b"counted all the same"], ancillary)
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return self._sock.sendmsg(buffers, ancillary)

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


def test_a_datagram_that_could_not_be_sent_shifts_no_later_stamp() -> None:
    with closing(pair_of("auto", kind=socket.SOCK_DGRAM)) as (one, _):
        old = Kernel2023(one.sock)
        kernel = KernelSocket(old)  # type: ignore[arg-type]
        assert collect(kernel, stamped(kernel, b"before")) == 1
        old.is_full = True
        with pytest.raises(BlockingIOError):
            stamped(kernel, b"too much")
        old.is_full = False
        kernel.transmit = None
        later = [stamped(kernel, b"later") for _ in range(3)]
        assert collect(kernel, *later) == 3
        for message in later:
            assert message.stamp.realtime_ns >= message.user_ns


def test_each_datagram_is_read_by_itself_with_its_own_stamp() -> None:
    with closing(pair_of("auto", kind=socket.SOCK_DGRAM)) as (one, other):
        stamps = []
        for payload in (b"first", b"second"):
            one.send(payload)
            time.sleep(0.005)
        for payload in (b"first", b"second"):
            assert other.recv(65536) == payload
            stamps.append(other.received)
        assert all(stamp.source is StampSource.KERNEL for stamp in stamps)
        assert stamps[1].realtime_ns - stamps[0].realtime_ns > 4_000_000


def test_frames_go_over_datagrams_as_they_do_over_a_stream() -> None:
    with closing(pair_of("auto", kind=socket.SOCK_DGRAM)) as (one, other):
        for sock in (one, other):
            sock.setblocking(False)
        arrivals: list[Arrival] = []
        sender = FrameSocket(one, one, print, {}, version_5=True)
        receiver = FrameSocket(other, other, arrivals.append, {}, version_5=True)
        sent = [sender.send_publish(b"t", b"%d" % n, b"", time.time_ns()) for n in range(3)]
        assert collect(one, *filter(None, sent)) == 3
        receiver.pump()
        assert [one.payload for one in arrivals] == [b"0", b"1", b"2"]
        for arrival, left in zip(arrivals, sent, strict=True):
            assert left is not None
            assert arrival.stamp.source is left.stamp.source is StampSource.KERNEL
            assert left.stamp.realtime_ns <= arrival.stamp.realtime_ns


def unsent(sock: KernelSocket) -> int:
    """Octets that wait to be sent: linux/tcp.h, tcpi_notsent_bytes."""
    return int.from_bytes(
        sock.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 148)[-4:], "little"
    )


def test_what_waits_for_the_other_sides_window_has_the_stamp_of_the_program(pair: Pair) -> None:
    """Else whoever closes the window chooses how late we believe that it left."""
    one, other = pair
    other.setblocking(False)
    while not unsent(one):
        one.sock.send(b"x" * 10_000)
    sent = stamped(one, b"late")
    end = time.monotonic() + 30
    while unsent(one):
        with contextlib.suppress(BlockingIOError):
            other.sock.recv(65536)
        assert time.monotonic() < end
    one.drain_error_queue()
    assert sent.stamp == Stamp(sent.user_ns, StampSource.USER)


def test_what_goes_out_in_several_segments_has_the_stamp_of_the_program() -> None:
    """The kernel stamps the last octet, and the other side may take the others long before.

    The room for options counts: whoever sends us segments out of order makes ours shorter.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 100)
        one = KernelSocket(socket.create_connection(server.getsockname()))
        other = KernelSocket(server.accept()[0])
    with closing((one, other)):
        most = one.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) - 40
        whole, cut = stamped(one, b"x" * most), stamped(one, b"x" * (most + 1))
        assert collect(one, whole) == 1
        assert whole.stamp.source is StampSource.KERNEL
        assert cut.stamp == Stamp(cut.user_ns, StampSource.USER)


@pytest.mark.parametrize("outside_ns", [999, 2_001])
def test_a_transmit_stamp_outside_the_call_that_sent_it_does_not_count(outside_ns: int) -> None:
    sent = Transmit(1_000)
    sent.returned_ns = 2_000
    sent.note(outside_ns)
    assert sent.stamp == Stamp(1_000, StampSource.USER)
    sent.note(2_000)
    assert sent.stamp == Stamp(2_000, StampSource.KERNEL)


def test_the_stamp_of_a_retransmission_is_not_taken_for_the_first_ones(pair: Pair) -> None:
    """It is 200 ms late; whoever floods and does not acknowledge would choose what we believe."""
    one, other = pair
    one.send(b"x" * 60_000)
    assert select.select([other.sock], [], [], 5)[0]
    other.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # it is full
    drop_all = ctypes.create_string_buffer(struct.pack("=HBBI", BPF_RETURN, 0, 0, 0))
    program = struct.pack("@HP", 1, ctypes.addressof(drop_all))
    try:
        one.sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except PermissionError:  # as in a container
        pytest.skip("this user may not let a socket drop what arrives")
    sent = stamped(other, b"late")
    left = 60_000
    while left:
        left -= len(other.sock.recv(left))
    one.sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    assert select.select([one.sock], [], [], 5)[0], "it comes with the next transmission"
    other.drain_error_queue()
    assert sent.stamp.source is StampSource.USER
    sent = stamped(other, b"next")
    assert collect(other, sent) == 1, "what is transmitted once has its stamp"


def test_the_error_queue_is_empty_afterwards_and_no_poll_returns_for_it(either: Pair) -> None:
    one, _ = either
    poll = select.poll()
    poll.register(one.fileno(), 0)
    sent = [stamped(one, b"tick") for _ in range(5)]
    assert poll.poll(1000) == [(one.fileno(), select.POLLERR)]
    collect(one, *sent)
    assert poll.poll(0) == []
    assert one._pending == {}


def test_stamps_that_never_come_take_no_memory_without_end(pair: Pair) -> None:
    one, other = pair
    for _ in range(6000):
        stamped(one, b"t")
        other.sock.recv(1)
    assert len(one._pending) == 4096


def test_a_stamp_belongs_to_the_last_of_what_was_read_at_once(pair: Pair) -> None:
    one, other = pair
    one.send(b"first")
    time.sleep(0.03)
    between = time.time_ns()
    one.send(b"second")
    time.sleep(0.01)
    assert other.read_chunk() == b"firstsecond"
    assert other.received.realtime_ns > between


def test_small_reads_cost_one_system_call_and_keep_the_stamp(pair: Pair) -> None:
    one, other = pair
    one.send(b"abcdef")
    assert [other.recv(1), other.recv(2)] == [b"a", b"bc"]
    assert other.buffered == 3
    assert other.received.source is StampSource.KERNEL
    assert other.read_chunk() == b"def"
    assert other.buffered == 0
    one.send(b"gh")
    assert other.recv(5) == b"gh"


def test_the_end_of_the_stream_is_empty(pair: Pair) -> None:
    one, other = pair
    one.close()
    assert other.recv(5) == b""


@pytest.mark.parametrize("unix", [False, True])
def test_who_asks_for_user_stamps_or_has_a_unix_socket_gets_them_and_they_say_so(
    unix: bool,
) -> None:
    made = pair_of("user")
    if unix:
        left, right = socket.socketpair(socket.AF_UNIX)
        made = KernelSocket(left), KernelSocket(right)
    with closing(made) as (one, other):
        assert not one.kernel_stamps
        sent = stamped(one, b"tick")
        assert one.drain_error_queue() == 0
        before = time.time_ns()
        other.read_chunk()
        assert sent.stamp.source is StampSource.USER
        assert other.received.source is StampSource.USER
        assert before <= other.received.realtime_ns <= time.time_ns()


class Kernel5:
    """A socket of Linux 5.1 to 6.7, which knows the new option everywhere but in sendmsg()."""

    family = socket.AF_INET

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def sendmsg(self, buffers: list[bytes], ancillary: list[tuple[int, int, bytes]]) -> int:
        if any(kind == 65 for _, kind, _ in ancillary):
            raise OSError(errno.EINVAL, "Invalid argument")
        return self._sock.sendmsg(buffers, ancillary)

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


def test_kernels_that_refuse_the_new_option_in_a_message_stamp_transmissions_too(
    pair: Pair,
) -> None:
    old = KernelSocket(Kernel5(pair[0].sock))  # type: ignore[arg-type]
    sent = stamped(old, b"tick")
    assert collect(old, sent) == 1


class Kernel4(Kernel5):
    """A socket of a kernel before 5.1, which knows the old option only."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.SOL_SOCKET, 65):
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        self._sock.setsockopt(level, option, value)


def test_kernels_without_the_new_option_are_asked_with_the_old_one() -> None:
    with closing(pair_of("user")) as (one, other):
        old = KernelSocket(Kernel4(one.sock))  # type: ignore[arg-type]
        reader = KernelSocket(Kernel4(other.sock))  # type: ignore[arg-type]
        assert old.kernel_stamps
        sent = stamped(old, b"tick")
        assert collect(old, sent) == 1
        reader.read_chunk()
        assert reader.received.source is StampSource.KERNEL


def test_a_goodbye_is_read_by_who_was_still_writing(pair: Pair) -> None:
    one, other = pair
    one.linger_s = 2.0
    said: list[bytes] = []

    def read_late() -> None:
        other.sock.sendall(b"still writing")
        time.sleep(0.1)
        other.sock.sendall(b"and again")  # a closed socket would answer this with a reset
        said.append(other.sock.recv(100))
        other.close()

    thread = threading.Thread(target=read_late)
    one.send(b"goodbye")
    thread.start()
    began = time.monotonic()
    one.close()
    thread.join()
    assert said == [b"goodbye"]
    assert time.monotonic() - began < 1.5


def test_who_does_not_read_a_goodbye_is_not_waited_for_long(pair: Pair) -> None:
    one, _ = pair
    one.linger_s = 0.05
    began = time.monotonic()
    one.close()
    assert 0.04 < time.monotonic() - began < 1


def test_the_kernel_knows_the_round_trip_of_a_stream(either: Pair) -> None:
    one, _ = either
    is_stream = one.sock.type == socket.SOCK_STREAM
    assert (0 < one.round_trip_ns < 10**9) is is_stream
