"""The published experiment as datagrams, and which copy reached whom when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.lab.hardware.datagrams import Datagram, frame_octets, publish, subscribe
from mqtick.lab.hardware.program import ModelError, run_batch
from mqtick.protocol import precise
from mqtick.protocol.precise import Leap
from mqtick.protocol.topics import TopicTree

__all__ = ["PAYLOAD_OCTETS", "Copies", "measure"]

_PUBLISHER: Final = "10.0.0.1:50000"
_BETWEEN_SUBSCRIBERS: Final = 400
_AFTER_SUBSCRIBING: Final = 20_000
_BETWEEN_SHOTS: Final = 5_000
"""Cycles from the last copy of a message to the next message."""
_PHASE: Final = 1_000
"""Cycles by which messages are early or late, so that no two meet the same phase of anything."""
_SUBSCRIPTION: Final = 1
PAYLOAD_OCTETS: Final = 32
"""A time message of the precise format, version 1."""
_TAG_OCTETS: Final = 8
_OCTETS_A_CYCLE: Final = {1: 0.8, 10: 8.0}


@dataclass(frozen=True, slots=True)
class Copies:
    """One message, and the copies of it.

    Attributes:
        message: as it came to the broker's boundary.
        copies: in the order in which the subscribers subscribed.
    """

    message: Datagram
    copies: tuple[Datagram, ...]

    @property
    def spread(self) -> int:
        """Return the cycles from the first subscriber's copy to the last one's."""
        return self.copies[-1].cycle - self.copies[0].cycle


def _subscriber(number: int) -> str:
    return f"10.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}:50001"


def _message(topic: str, sequence: int) -> bytes:
    time = precise.Time(
        server=0,
        sequence=sequence,
        transmit_ns=sequence * 10**9,
        previous_correction_ns=None,
        root_distance_ns=0,
        stratum=1,
        leap=Leap.NONE,
        correction_source=0,
        generation=0,
    )
    return publish(topic, time.body() + bytes(_TAG_OCTETS))  # a broker has no keys


def measure(
    model: Path, subscribers: int, shots: int, *, link_gbps: int, prefix: str, seed: int
) -> list[Copies]:
    """Let that many subscribe, publish, and return what each message became.

    ModelError where somebody did not get exactly one copy of each message.
    """
    topic = TopicTree(prefix).time(0)
    peers = [_subscriber(number + 1) for number in range(subscribers)]
    come: list[Datagram] = []
    at = 0
    # The first one brings the challenge; the address is proven when the second one comes.
    for _ in range(2):
        for peer in peers:
            come.append(Datagram(at, peer, subscribe(_SUBSCRIPTION, topic)))
            at += _BETWEEN_SUBSCRIBERS
        at += _AFTER_SUBSCRIBING
    draw = random.Random(f"{seed} {subscribers}")
    messages = []
    for shot in range(shots):
        octets = _message(topic, shot + 1)
        on_wire = frame_octets(len(octets)) / _OCTETS_A_CYCLE[link_gbps]
        messages.append(Datagram(at + draw.randrange(_PHASE), _PUBLISHER, octets))
        at += round(subscribers * on_wire) + _BETWEEN_SHOTS + _PHASE
    sent = run_batch(model, [*come, *messages], link_gbps=link_gbps)
    return _sorted(messages, peers, sent)


def _sorted(
    messages: Sequence[Datagram], peers: Sequence[str], sent: Sequence[Datagram]
) -> list[Copies]:
    """Find each subscriber's copy of each message by its octets; they differ in their sequence."""
    by_octets: dict[bytes, list[Datagram]] = {each.octets: [] for each in messages}
    for one in sent:
        if one.octets in by_octets:
            by_octets[one.octets].append(one)
    found = []
    for message in messages:
        copies = by_octets[message.octets]
        who = [copy.peer for copy in copies]
        if sorted(who) != sorted(peers):
            raise ModelError(
                f"A message to {len(peers)} subscribers became {len(who)} copies to {len(set(who))}"
                " of them: the broker is wrong, or its tables are too small."
            )
        place = {copy.peer: copy for copy in copies}
        found.append(Copies(message, tuple(place[peer] for peer in peers)))
        if any(
            later.cycle <= earlier.cycle for earlier, later in itertools.pairwise(found[-1].copies)
        ):
            raise ModelError("Copies did not leave in the order of the subscriptions.")
    return found
