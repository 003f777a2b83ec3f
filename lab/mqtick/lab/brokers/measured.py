"""The doctor's measurements of a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mqtick.mqtt.link import Link

_APART_NS = 500_000


@dataclass(frozen=True, slots=True)
class Probe:
    """One message to all subscribers: transmit time and arrivals, ns of CLOCK_REALTIME."""

    sent_ns: int
    arrived_ns: dict[int, int] = field(default_factory=dict)
    """By subscriber, numbered from 0 in the order of subscriptions."""
    unsure: set[int] = field(default_factory=set)
    """Subscribers without a kernel stamp, or whose copy the broker may have held back."""


@dataclass(slots=True)
class Measured:
    """The results of the probes; parts that were not reached are empty.

    Attributes:
        link: The publisher's connection; not connected if any connection failed.
        error: Why a connection ended later.
        has_tcp: False for a Unix socket, with neither Nagle's algorithm nor acknowledgements.
        topic: The topic of the probes.
        filters: The subscribers' filters, in their order.
        refused: Filters that the broker refused.
        probes: The messages to all subscribers.
        pairs_ns: Delays of both messages of pairs to a subscriber that acknowledges late.
        sequence: Numbers of a run of messages as they arrived at one subscriber.
        sequence_sent: How many of these messages were sent.
        retained: Whether a retained message came to a later subscriber; None: not tried.
        dotted: Whether a topic with a dot carries messages; None: not tried.
        payload_octets: The largest payload that arrived.
        payload_tried: The largest payload that was tried.
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

        If the broker holds two and then sends both, one subscriber may get both before the next
        gets the first.
        """
        came = [probe for probe in self.probes if probe.arrived_ns]
        spans = [(min(one.arrived_ns.values()), max(one.arrived_ns.values())) for one in came]
        for place, (first, last) in enumerate(spans):
            is_after = place == 0 or spans[place - 1][1] + _APART_NS < first
            is_before = place + 1 == len(spans) or last + _APART_NS < spans[place + 1][0]
            if is_after and is_before:
                yield came[place]
