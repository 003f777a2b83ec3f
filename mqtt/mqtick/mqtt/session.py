"""What a connection asks of a session, whatever carries it: a stream or datagrams.

A session is made for one scheme and lives through many attempts; `Connection` decides when to
begin one and when to give it up. Everything but `connect` runs in the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mqtick.mqtt.causes import Cause
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import KernelSocket, Transmit

__all__ = ["Events", "Session", "Will"]


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes, retained, when this connection breaks."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Events:
    """What a session tells its connection.

    Attributes:
        arrived: A QoS 0 PUBLISH, or a retained one.
        up: The broker accepted.
        lost: It did not, or it was lost: the reason and its cause. The connection closes it then.
    """

    arrived: Callable[[Arrival], None]
    up: Callable[[], None]
    lost: Callable[[str, Cause], None]


class Session(Protocol):
    """A way to speak MQTT to one broker."""

    @property
    def kernel(self) -> KernelSocket | None:
        """The socket at the bottom, which has the stamps; None while there is none."""

    @property
    def unanswered(self) -> str:
        """What a broker did that has not accepted in time, as `accepted but did not answer`."""

    def connect(self) -> None:
        """Make the socket. Blocks, in a thread of its own; what fails is raised."""

    def begin(self) -> None:
        """Speak: the socket is there."""

    def close(self, linger_s: float = 0.0) -> None:
        """Say goodbye, if the broker accepted, and close the socket.

        `linger_s`: how long the broker may take to hear it.
        """

    def tick(self) -> None:
        """Do what is due about once a second."""

    def read(self) -> None:
        """Take what has come."""

    def publish(
        self, topic: str, payload: bytes, properties: bytes, *, stamped: bool
    ) -> Transmit | None:
        """Send a QoS 0 message now; None when it cannot go now."""

    def publish_retained(self, topic: str, payload: bytes) -> None:
        """Send a message that the broker keeps."""

    def subscribe(
        self, topics: Sequence[str], done: Callable[[bool], None], *, retained: bool = False
    ) -> None:
        """Subscribe at QoS 0; `retained`: also to what the broker keeps, where that is a choice."""

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Unsubscribe."""

    def certificate_dates_error(self, now_s: float) -> str | None:
        """Return a sentence if the broker's certificate is not valid at `now_s` (Unix time, s)."""

    def check_dates(self) -> None:
        """Check the dates of the certificate too, from the next connection on."""
