"""A UDP socket connected to the broker: the common part of both dialects of MQTT over UDP.

The kernel drops datagrams from other addresses, and reports an error if the broker's host answers
that the port is closed (ICMP). A read returns one datagram, with its own receive stamp.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable
from functools import partial

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.causes import Cause, cause_of
from mqtick.mqtt.datagrams import Message
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.session import Events, Will
from mqtick.mqtt.stamps import KernelSocket, Transmit

_log = logging.getLogger(__name__)
_READS_PER_TURN = 16
_LARGEST = 65_536
_RECEIVE_BUFFER = 1 << 20
# The socket's buffer, or the network card's queue, is full: as on a stream, the message is dropped.
_FULL = (errno.EAGAIN, errno.ENOBUFS)


def _forget_strangers(sock: socket.socket) -> None:
    """Drop datagrams that came while the socket was bound, but not connected: from any sender."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(_LARGEST):
            sock.recv(1)


class UdpSocket:
    """The half of a `Session` that sends and receives; `hooks` as in `FrameSocket`."""

    _take: Callable[[bytes], None]
    """Processes one datagram, which may be empty; each dialect has its own method."""
    unanswered = "did not answer"

    def __init__(
        self,
        loop: Loop,
        broker: Broker,
        client_id: str,
        will: Will | None,
        events: Events,
        hooks: dict[bytes, Callable[[], None]],
    ) -> None:
        self.kernel: KernelSocket | None = None
        self._loop, self._broker, self._name = loop, broker, client_id
        self._will, self._events, self._hooks = will, events, hooks
        self._accepted = False
        self._prepare()

    def _prepare(self) -> None:
        """Begin with what a dialect knows besides."""

    def abort(self) -> None:
        """See `Session`: the resolver has limits of its own."""

    def connect(self) -> None:
        """See `Session`: name look-up."""
        broker = self._broker
        try:
            found = socket.getaddrinfo(broker.host, broker.port, socket.AF_INET, socket.SOCK_DGRAM)
        except socket.gaierror as error:
            said = f"{error.strerror}; MQTT over UDP needs an IPv4 address"
            raise socket.gaierror(error.errno, said) from error
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # A large buffer, for the messages of a crowd; the kernel grants as much as it may.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            self._bind(sock)
            sock.connect(found[0][4])
            sock.setblocking(False)
            _forget_strangers(sock)
        except BaseException:
            sock.close()
            raise
        self.kernel = KernelSocket(sock, broker.kernel_stamps)

    def _bind(self, sock: socket.socket) -> None:
        """Choose our own port; without this, the kernel chooses one."""

    def begin(self) -> None:
        """See `Session`."""
        assert self.kernel is not None
        self._loop.add(self.kernel.fileno(), Loop.READ, self._ready)

    def close(self, linger_s: float = 0.0) -> None:
        """See `Session`; a datagram that was sent needs no lingering."""
        self._accepted = False
        if self.kernel is not None:
            kernel, self.kernel = self.kernel, None
            self._loop.remove(kernel.fileno())
            kernel.close()

    def tick(self) -> None:
        """See `Session`; nothing to do, because timers do the work."""

    def certificate_dates_error(self, now_s: float) -> None:
        """See `Session`; there is no certificate without TLS."""

    def check_dates(self) -> None:
        """See `Session`; there is no certificate without TLS."""

    # -- receiving -------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        self.read()  # for all events: only a read reports an ICMP error
        if events & Loop.ERROR and self.kernel is not None:
            self.kernel.drain_error_queue()

    def read(self) -> None:
        """See `Session`."""
        kernel = self.kernel
        if kernel is None:
            return
        for _ in range(_READS_PER_TURN):
            try:
                datagram = kernel.read_chunk(_LARGEST)
            except BlockingIOError:
                return
            except OSError as error:
                self._broken(error)
                return
            self._take(datagram)
            if self.kernel is not kernel:
                return

    def _deliver(self, message: Message) -> None:
        hook = self._hooks.get(message.topic)
        if hook is not None and not message.retain:
            hook()
        try:
            topic = message.topic.decode()
        except UnicodeDecodeError:
            self._events.unread["malformed"] += 1
            return
        assert self.kernel is not None
        stamp = self.kernel.received
        self._events.arrived(Arrival(topic, message.payload, stamp, message.retain, b""))

    # -- sending ---------------------------------------------------------------------------

    def _send(self, datagram: bytes, transmit: Transmit | None = None) -> bool:
        """Send; False if the datagram cannot be sent now."""
        kernel = self.kernel
        if kernel is None:
            return False
        kernel.transmit = transmit
        try:
            kernel.send(datagram)
        except OSError as error:
            if error.errno not in _FULL:  # report it later: the caller has not finished yet
                self._loop.call_later(0, partial(self._broken_still, kernel, error))
            return False
        finally:
            kernel.transmit = None
        return True

    def _send_stamped(self, datagram: bytes, *, stamped: bool) -> Transmit | None:
        transmit = Transmit(time.time_ns())
        return transmit if self._send(datagram, transmit if stamped else None) else None

    # -- errors ----------------------------------------------------------------------------

    def _broken_still(self, kernel: KernelSocket, error: OSError) -> None:
        if self.kernel is kernel:
            self._broken(error)

    def _broken(self, error: OSError) -> None:
        self._events.lost(self._why_broken(error), cause_of(error))

    def _why_broken(self, error: OSError) -> str:
        address = self._broker.address
        why = str(error)
        if cause_of(error) is Cause.NOBODY_LISTENS:
            why = f"nobody listens on that UDP port ({error})"
        if self._accepted:
            return f"the connection to {address} was lost: {why}"
        return f"cannot connect to {address}: {why}"

    def _say_what_is_missing(self) -> None:
        """Log once that there is no will."""
        if self._will is not None:
            _log.info(
                "%s: there are no wills over UDP, so if this program is killed or cut off, %s stays"
                " as it is",
                self._name,
                self._will.topic,
            )
            self._will = None
