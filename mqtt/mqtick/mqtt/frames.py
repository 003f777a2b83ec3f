"""MQTT frames on a timestamped stream: QoS 0 PUBLISH bypasses the MQTT library.

Only QoS 0 PUBLISH frames carry time. They are cut out here, right after the kernel's receive
stamp, and are written here, so that each has its own transmit stamp (MQTT 3.1.1 and 5.0, section
3.3). paho-mqtt handles all other packets: connecting, subscribing, keeping alive.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from mqtick.mqtt.packets import (
    PUBLISH,
    QOS_MASK,
    RETAIN,
    TYPE_MASK,
    encode_publish,
    is_wanted,
    read_variable_length,
)
from mqtick.mqtt.stamps import KernelSocket, Stamp, StampSource, Transmit
from mqtick.mqtt.tls import Certificate

_MAXIMUM_FRAME = 256 * 1024
_PUBLISH_MASK = TYPE_MASK | QOS_MASK  # QoS 0 only
_READS_PER_TURN = 16
# paho-mqtt keeps a partial WebSocket frame until it is complete, whatever length its head states.
_MAXIMUM_WEBSOCKET = 1 << 20
# A message that waited for our acknowledgement arrives within two round trips and this time.
_BROKER_NS = 2_000_000
# How long there may always be more to read: nothing else is done then, and in the end the unit's
# LimitRTTIME would end the program.
_LONGEST_FLOOD_S = 2.0
# Octets for paho-mqtt without a pause: it takes half a second for a MiB of properties, and for each
# packet as long as for 100 octets. A time server with 4096 clients gets 8192 answers at once.
_MOST_FOR_PAHO = 1 << 20
_PACKET = 100


class Arrival(NamedTuple):
    """A received QoS 0 PUBLISH.

    `stamp` is the kernel's receive time if that is known for this frame. The kernel's stamp belongs
    to the last segment of a read, so it is `StampSource.KERNEL` only for the last frame of a read.
    For earlier frames it is no earlier than the true arrival, and `StampSource.USER`.
    """

    topic: str
    payload: bytes
    stamp: Stamp
    retain: bool
    properties: bytes
    """The MQTT 5 properties, still encoded, without their length; empty for MQTT 3.1.1."""
    maybe_held: bool = False
    """Whether it may be late: it came before, or right after, the previous frame was acknowledged,
    and a broker with Nagle's algorithm on holds a message back until then."""


class Stream(Protocol):
    """The stream below the frames: a transport, or WebSocket on a transport."""

    def recv(self, size: int) -> bytes:
        """Read at most `size` octets; b"" at the end, BlockingIOError if there are none now."""

    def send(self, data: bytes | bytearray) -> int:
        """Send; returns the number of octets taken."""

    def close(self) -> None:
        """Close."""


class Transport(Stream, Protocol):
    """A stream of octets with transmit and receive stamps: plain or TLS.

    Frames and session use only these methods.
    """

    @property
    def kernel(self) -> KernelSocket:
        """The socket at the bottom, which has the stamps."""

    @property
    def buffered(self) -> int:
        """Octets read from the kernel and not yet handed on; epoll does not report them."""

    @property
    def unsent(self) -> int:
        """Octets accepted, but not yet given to the kernel."""

    def flush(self) -> None:
        """Send the unsent octets; BlockingIOError if the socket does not take them."""

    def peer_certificate(self) -> Certificate | None:
        """Return the broker's certificate; None without TLS."""


class FrameSocket:
    """Sits between paho-mqtt and the stream.

    `on_publish` gets every QoS 0 PUBLISH. `hooks` maps a topic to a function that is called once a
    frame of that topic was read, before it is decoded or logged: it toggles a pin on arrival.
    """

    def __init__(
        self,
        stream: Stream,
        below: Transport,
        on_publish: Callable[[Arrival], None],
        hooks: dict[bytes, Callable[[], None]],
        *,
        version_5: bool,
        unread: Counter[str] | None = None,
    ) -> None:
        self.kernel = below.kernel
        self.below = below
        self._stream = stream
        self._on_publish = on_publish
        self._hooks = hooks
        self._version_5 = version_5
        self._rest = b""
        self._skip = 0
        self._for_paho = bytearray()
        self._unsent = b""
        self._ended = False
        self._flooded_since_s, self._load = math.inf, 0
        self.fault = ""
        """What the broker did that it must not, for "The broker ..."; empty: nothing."""
        self.is_silent = True
        """Whether nothing was read yet, not even an answer to our first packet."""
        self._unacknowledged = False
        self._acknowledged_ns = 0
        self.unread = Counter[str]() if unread is None else unread
        """Messages that were skipped: `oversized`, or `malformed` (parts exceed the length)."""

    # -- reading ---------------------------------------------------------------------------

    def pump(self) -> None:
        """Read and hand on what the kernel has, up to the limit for one turn.

        Afterwards `below.buffered` octets may be left, which epoll does not report: then the caller
        must call again.
        """
        self._read()
        self.kernel.acknowledge()  # after the frames were handed on, because it takes microseconds
        if self._unacknowledged:
            self._unacknowledged = False
            self._acknowledged_ns = time.time_ns()

    def _read(self) -> None:
        for _ in range(_READS_PER_TURN):
            if self._ended:
                return
            try:
                data = self._stream.recv(65536)
            except BlockingIOError:
                if self.below.buffered:
                    continue  # it was a WebSocket control frame, and more follows
                self._flooded_since_s, self._load = math.inf, 0
                return
            except OSError:
                self._ended = True
                return
            if not data:
                self._ended = True
                return
            self.is_silent = False
            self._feed(data)
            if len(getattr(self._stream, "_readbuffer", b"")) > _MAXIMUM_WEBSOCKET:
                self.give_up("sends a WebSocket frame of more than 1 MiB")
            self._unacknowledged = True  # also after a part of a frame
        self._flooded_since_s = min(self._flooded_since_s, time.monotonic())
        if time.monotonic() - self._flooded_since_s > _LONGEST_FLOOD_S:
            self.give_up("sends more than this program can read")

    def _feed(self, data: bytes) -> None:
        if self._skip:
            self._skip, data = max(0, self._skip - len(data)), data[self._skip :]
        if self._rest:
            data = self._rest + data
        received = self.kernel.received
        late = Stamp(received.realtime_ns, StampSource.USER)
        at, size = 0, len(data)
        while size - at >= 2:
            try:
                length, body = read_variable_length(data, at + 1, size)
            except ValueError:
                self.give_up("sends lengths of more than four octets")
                return
            if length < 0:
                break
            end = body + length
            publish = data[at] & _PUBLISH_MASK == PUBLISH
            if end > size:
                if length > _MAXIMUM_FRAME:
                    if not publish:
                        self.give_up("sends a packet of more than 256 KiB")
                        return
                    self.unread["oversized"] += 1
                    self._skip = end - size
                    at = size
                break
            if publish:
                last = end == size and not self.below.buffered
                self._deliver(data, body, end, received if last else late, data[at] & RETAIN != 0)
            elif not is_wanted(data[at]):
                self.give_up(f"sends a packet that nobody asked for (first octet {data[at]:#04x})")
                return
            else:
                self._for_paho += data[at:end]
                self._load += end - at + _PACKET
                if self._load > _MOST_FOR_PAHO:
                    self.give_up("sends more than this program can read")
                    return
            self._unacknowledged = True
            at = end
        self._rest = data[at:]

    def _deliver(self, data: bytes, at: int, end: int, stamp: Stamp, retain: bool) -> None:
        payload = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > end or payload > end:
            self.unread["malformed"] += 1
            return
        topic = data[at + 2 : payload]
        hook = self._hooks.get(topic)
        if hook is not None and not retain:
            hook()
        properties = b""
        if self._version_5:
            try:
                length, start = read_variable_length(data, payload, end)
            except ValueError:
                length, start = -1, payload
            if length < 0 or start + length > end:
                self.unread["malformed"] += 1
                return
            payload = start + length
            properties = data[start:payload]
        try:
            text = topic.decode()
        except UnicodeDecodeError:
            self.unread["malformed"] += 1
            return
        # The difference may be negative, which also counts: the kernel may have acknowledged
        # earlier by itself, after 40 ms; and on the same host, a message that has waited for the
        # acknowledgement arrives before `acknowledge` returns.
        within_ns = _BROKER_NS + 2 * self.kernel.round_trip_ns
        held = self._unacknowledged or stamp.realtime_ns - self._acknowledged_ns < within_ns
        self._on_publish(Arrival(text, data[payload:end], stamp, retain, properties, held))

    def give_up(self, fault: str) -> None:
        """Take no more from this connection, because of what the broker did."""
        self.fault, self._ended = self.fault or fault, True

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended, or its frame boundaries are lost."""
        return self._ended

    @property
    def has_packets(self) -> bool:
        """Whether paho-mqtt has something to read (an end of stream counts)."""
        return bool(self._for_paho) or self._ended

    def recv(self, size: int) -> bytes:
        """Give paho-mqtt its packets."""
        if self._for_paho:
            data = bytes(self._for_paho[:size])
            del self._for_paho[:size]
            return data
        if self._ended:
            return b""
        raise BlockingIOError

    # -- writing ---------------------------------------------------------------------------

    def send(self, data: bytes | bytearray) -> int:
        """Take a packet from paho-mqtt; whole packets only, so that frames never interleave."""
        self.flush()
        if self.wants_write:
            raise BlockingIOError
        self._write(bytes(data))
        return len(data)

    def send_publish(
        self,
        topic: bytes,
        payload: bytes,
        properties: bytes,
        now_ns: int,
        *,
        stamped: bool = True,
    ) -> Transmit | None:
        """Send a QoS 0 PUBLISH; None, and it is dropped, if the socket does not take data.

        `stamped`: ask the kernel for its transmit time.
        """
        self.flush()
        if self.wants_write:
            return None
        transmit = Transmit(now_ns)
        self.kernel.transmit = transmit if stamped else None
        self._write(encode_publish(topic, payload, properties if self._version_5 else None))
        self.kernel.transmit = None
        return transmit

    def _write(self, data: bytes) -> None:
        try:
            count = self._stream.send(data)
        except BlockingIOError:
            count = 0
        except OSError:
            self._ended = True
            count = len(data)
        self._unsent = data[count:]

    def flush(self) -> None:
        """Send the rest of the last packet."""
        if self.below.unsent:
            with contextlib.suppress(BlockingIOError):
                self.below.flush()
        if self._unsent:
            self._write(self._unsent)

    @property
    def wants_write(self) -> bool:
        """Whether octets are waiting for the socket."""
        return bool(self._unsent) or self.below.unsent > 0

    # -- socket methods that paho-mqtt needs -------------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.kernel.fileno()

    def setblocking(self, flag: bool) -> None:
        """Set or clear blocking mode."""
        self.kernel.setblocking(flag)

    def pending(self) -> int:
        """Return the octets that wait for paho-mqtt."""
        return len(self._for_paho)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
