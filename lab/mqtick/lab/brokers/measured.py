"""What the doctor measured at a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Measured", "Pair", "Probe"]

_APART_NS = 500_000


@dataclass(frozen=True, slots=True)
class Probe:
    """One message to all subscribers: when it left and when it came, ns of CLOCK_REALTIME."""

    sent_ns: int
    arrived_ns: dict[int, int] = field(default_factory=dict)
    """By subscriber, in order of subscription from 0."""
    unsure: set[int] = field(default_factory=set)
    """Subscribers whose stamp is not from the kernel, or that the broker may have kept waiting."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two messages 1 ms apart to a subscriber that acknowledges late; 0: not arrived."""

    sent_ns: tuple[int, int]
    arrived_ns: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the probes found; the parts that were not reached are empty."""

    address: str
    version: str = "5"
    """The version of MQTT that was spoken."""
    error: str = ""
    """Why there was no connection, or why it ended."""
    error_5: str = ""
    """Why MQTT 5 failed, if 3.1.1 was used instead."""
    kernel_stamps: bool = True
    has_tcp: bool = True
    """False for a Unix socket, which has neither Nagle's algorithm nor acknowledgements."""
    topic: str = ""
    """Everything was sent below this topic."""
    filters: tuple[str, ...] = ()
    """What the subscribers asked for, in their order."""
    refused: tuple[str, ...] = ()
    """Filters that the broker refused."""
    probes: tuple[Probe, ...] = ()
    pairs: tuple[Pair, ...] = ()
    sequence: tuple[int, ...] = ()
    """Numbers of a run of messages as they arrived at one subscriber."""
    sequence_sent: int = 0
    retained: bool | None = None
    """Whether a retained message came to a subscriber that came later; None: not tried."""
    dotted: bool | None = None
    """Whether a topic with a dot carries messages, as those of 1451.1.6 have; None: not tried."""
    payload_octets: int = 0
    """The largest payload that came through."""
    payload_tried: int = 0
    """The largest that was tried."""

    def alone(self) -> Iterator[Probe]:
        """Yield the probes that did not come together with another one.

        Of two that were held and let go together, each subscriber may get both before the next
        one gets any.
        """
        came = [probe for probe in self.probes if probe.arrived_ns]
        spans = [(min(one.arrived_ns.values()), max(one.arrived_ns.values())) for one in came]
        for place, (first, last) in enumerate(spans):
            is_after = place == 0 or spans[place - 1][1] + _APART_NS < first
            is_before = place + 1 == len(spans) or last + _APART_NS < spans[place + 1][0]
            if is_after and is_before:
                yield came[place]
