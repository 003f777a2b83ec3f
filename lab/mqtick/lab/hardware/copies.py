"""The published experiment as datagrams, and the times at which copies reach subscribers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqtick.lab.hardware.datagrams import Datagram, frame_octets, publish, subscribe
from mqtick.lab.hardware.program import ModelError, run_batch
from mqtick.protocol import precise
from mqtick.protocol.precise import TAG_OCTETS, TRAILER_OCTETS, Leap
from mqtick.protocol.topics import TopicTree

PUBLISHER: Final = "10.0.0.1:50000"
_BETWEEN_FILTERS: Final = 400
_AFTER_SUBSCRIBING: Final = 20_000
_BETWEEN_SHOTS: Final = 5_000
"""Cycles from the last copy of a message to the next message."""
_PHASE: Final = 1_000
"""Messages are shifted by up to this many cycles, so that they meet all phases of the design."""
_SUBSCRIPTION: Final = 1
_OCTETS_A_CYCLE: Final = {0: 8.0, 1: 0.8, 10: 8.0}


@dataclass(frozen=True, slots=True)
class Fanout:
    """One message, and the copies of it.

    Attributes:
        message: the datagram at the broker's boundary.
        copies: in the order in which the subscribers subscribed.
    """

    message: Datagram
    copies: tuple[Datagram, ...]

    @property
    def spread(self) -> int:
        """Return the cycles from the first subscriber's copy to the last one's."""
        return self.copies[-1].cycle - self.copies[0].cycle


def subscriptions(
    filters: Mapping[str, str | Sequence[str]],
) -> tuple[list[Datagram], int]:
    """Return the datagrams with which peers subscribe, and the cycle when all have subscribed."""
    come: list[Datagram] = []
    at = 0
    # The first one brings the challenge; the address is proven when the second one comes.
    for _ in range(2):
        for peer, wanted in filters.items():
            each = [wanted] if isinstance(wanted, str) else wanted
            come.append(Datagram(at, peer, subscribe(_SUBSCRIPTION, *each)))
            at += _BETWEEN_FILTERS * len(each)
        at += _AFTER_SUBSCRIBING
    return come, at


def subscriber(number: int) -> str:
    """Return the address of a subscriber; numbers count from 1."""
    return f"10.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}:50001"


def _message(topic: str, sequence: int, version: int) -> bytes:
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
        fills=version == 2,
        version=version,
    )
    trailer = bytes(TRAILER_OCTETS if version == 2 else 0)
    return publish(topic, time.body() + bytes(TAG_OCTETS) + trailer)  # a broker has no keys


def measure(
    model: Path,
    subscribers: int,
    shots: int,
    *,
    link_gbps: int,
    prefix: str,
    seed: int,
    version: int = 1,
) -> list[Fanout]:
    """Let that many subscribe, publish time messages, and return the copies of each.

    In messages of version 2 the broker fills the trailer. ModelError if a subscriber did not get
    exactly one copy of each message.
    """
    topic = TopicTree(prefix).time(0)
    peers = [subscriber(number + 1) for number in range(subscribers)]
    come, at = subscriptions(dict.fromkeys(peers, topic))
    draw = random.Random(f"{seed} {subscribers}")
    messages = []
    for shot in range(shots):
        octets = _message(topic, shot + 1, version)
        on_wire = frame_octets(len(octets)) / _OCTETS_A_CYCLE[link_gbps]
        messages.append(Datagram(at + draw.randrange(_PHASE), PUBLISHER, octets))
        at += round(subscribers * on_wire) + _BETWEEN_SHOTS + _PHASE
    sent = run_batch(model, [*come, *messages], link_gbps=link_gbps)
    return _sorted(messages, peers, sent, TRAILER_OCTETS if version == 2 else 0)


def _sorted(
    messages: Sequence[Datagram], peers: Sequence[str], sent: Sequence[Datagram], trailer: int
) -> list[Fanout]:
    """Find each subscriber's copy of each message by its octets; they differ in their sequence."""

    def known_by(one: Datagram) -> bytes:
        return one.octets[: len(one.octets) - trailer]

    by_octets: dict[bytes, list[Datagram]] = {known_by(each): [] for each in messages}
    for one in sent:
        by_octets.get(known_by(one), []).append(one)
    found = []
    for message in messages:
        copies = by_octets[known_by(message)]
        who = [copy.peer for copy in copies]
        if sorted(who) != sorted(peers):
            raise ModelError(
                f"A message to {len(peers)} subscribers became {len(who)} copies to {len(set(who))}"
                " of them: the broker is wrong, or its tables are too small."
            )
        place = {copy.peer: copy for copy in copies}
        found.append(Fanout(message, tuple(place[peer] for peer in peers)))
        if any(
            later.cycle <= earlier.cycle for earlier, later in itertools.pairwise(found[-1].copies)
        ):
            raise ModelError("Fanout did not leave in the order of the subscriptions.")
    return found
