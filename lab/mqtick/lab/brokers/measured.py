"""What the doctor measured at a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mqtick.mqtt.checks import Link

__all__ = ["Measured", "Probe"]

_APART_NS = 500_000


@dataclass(frozen=True, slots=True)
class Probe:
    """One message to all subscribers: when it left and when it came, ns of CLOCK_REALTIME."""

    sent_ns: int
    arrived_ns: dict[int, int] = field(default_factory=dict)
    """By subscriber, in order of subscription from 0."""
    unsure: set[int] = field(default_factory=set)
    """Subscribers whose stamp is not from the kernel, or that the broker may have kept waiting."""


@dataclass(slots=True)
class Measured:
    """What the probes found; the parts that were not reached are empty.

    Attributes:
        link: The publisher's connection; not connected if any one was missing.
        error: Why a connection ended later.
        has_tcp: False for a Unix socket, with neither Nagle's algorithm nor acknowledgements.
        topic: What the probes were sent on.
        filters: What the subscribers asked for, in their order.
        refused: Filters that the broker refused.
        probes: The messages to all subscribers.
        pairs_ns: Delays of both messages of pairs to a subscriber that acknowledges late.
        sequence: Numbers of a run of messages as they arrived at one subscriber.
        sequence_sent: How many those were.
        retained: Whether a retained message came to a later subscriber; None: not tried.
        dotted: Whether a topic with a dot carries messages; None: not tried.
        payload_octets: The largest payload that came through.
        payload_tried: The largest that was tried.
    """

    link: Link
    error: str = ""
    has_tcp: bool = True
    topic: str = ""
    filters: Sequence[str] = ()
    refused: Sequence[str] = ()
    probes: Sequence[Probe] = ()
    pairs_ns: Sequence[tuple[int, int]] = ()
    sequence: Sequence[int] = ()
    sequence_sent: int = 0
    retained: bool | None = None
    dotted: bool | None = None
    payload_octets: int = 0
    payload_tried: int = 0

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
