"""The interface between a connection and its session, which uses a stream or datagrams.

A session is made for one scheme and serves many attempts; `Connection` decides when to begin an
attempt and when to give it up. Everything but `connect` runs in the loop's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mqtick.mqtt.causes import Cause
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import KernelSocket, Transmit


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes, retained, when this connection breaks."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Events:
    """The callbacks from a session to its connection.

    Attributes:
        arrived: A QoS 0 PUBLISH, or a retained one, has come.
        up: The broker has accepted us.
        lost: The broker has refused us, or the session was lost: the reason and its cause. Then the
            connection closes the session.
        unread: What the broker sent and could not be read, counted: `malformed`, `oversized`.
    """

    arrived: Callable[[Arrival], None]
    up: Callable[[], None]
    lost: Callable[[str, Cause], None]
    unread: Counter[str] = field(default_factory=Counter)


class Session(Protocol):
    """A way to speak MQTT to one broker."""

    @property
    def kernel(self) -> KernelSocket | None:
        """The kernel's socket, which has the stamps; None while there is none."""

    @property
    def unanswered(self) -> str:
        """What happened if the broker has not accepted in time: `accepted but did not answer`."""

    def connect(self) -> None:
        """Make the socket. Blocks, and is called in its own thread; raises on failure."""

    def abort(self) -> None:
        """Make `connect`, which takes too long, fail."""

    def begin(self) -> None:
        """Begin to use the socket, after `connect` has made it."""

    def close(self, linger_s: float = 0.0) -> None:
        """Send DISCONNECT, if the broker has accepted us, and close the socket.

        `linger_s`: how long the broker may take to read the DISCONNECT.
        """

    def tick(self) -> None:
        """Do what is due about once a second."""

    def read(self) -> None:
        """Read and process what has come."""

    def publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        """Send a QoS 0 message now; None if it cannot be sent now."""

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """Send a retained message."""

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None], *, retained: bool = False
    ) -> None:
        """Subscribe at QoS 0; `retained`: have retained messages sent, if there is a choice."""

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribe."""

    def certificate_dates_error(self, now_s: float) -> str | None:
        """Return a sentence if the broker's certificate is not valid at `now_s` (Unix time, s)."""

    def check_dates(self) -> None:
        """Also check the dates of the certificate, from the next connection on."""
