"""A `Context` for one part of a time server at a time: keeps what is published and planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Timer
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import SystemClock, VirtualClock, VirtualClockSettings
from mqtick.protocol.precise import Leap
from mqtick.protocol.residence import Copies
from mqtick.protocol.topics import TopicTree
from mqtick.timeserver.context import Counters
from mqtick.timeserver.rate import RateLimit
from mqtick.timeserver.reference import Reference
from mqtick.timeserver.served import Reading, ServedClock

US, MS, S = 1_000, 1_000_000, 1_000_000_000
TREE = TopicTree()
KEYS = Keyring(fleet=(bytes(range(32)),))
NONCE = b"\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8"


def raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class _Steady(Reference):
    def distance_ns(self, _now: Reading) -> int:
        """Return the same however long the machine takes to read its clocks."""
        return self.root_distance_ns


class Stage:
    """Server `number`, whose clock is `ahead_ns` of the host's; the broker may take no data."""

    def __init__(self, number: int = 0, keys: Keyring | None = None, *, ahead_ns: int = 0) -> None:
        self.number, self.tree, self.keys = number, TREE, keys or Keyring()
        ahead = VirtualClock(VirtualClockSettings.starting_now(offset_ns=ahead_ns))
        self.clock = ServedClock(ahead if ahead_ns else SystemClock(), raw_ns)
        self.counters = Counters()
        self.generation = 3
        self.copies, self.fills = Copies(), False
        self.reference = _Steady(True, 2, 25_000, Leap.NONE, "")
        self.root_distance_ns = 25_000
        self.published: list[tuple[str, bytes, bytes]] = []
        self.transmits: list[Transmit] = []
        self.takes_data = True
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.clock_is_set = self.stamps_are_doubtful = False
        self.loop: Any = SimpleNamespace(call_later=self._call_later)
        self.connection: Any = SimpleNamespace(
            version_5=True,
            publish=self.publish,
            publish_unstamped=self.publish,
            collect_stamps=self.collect_stamps,
        )
        self.limit = RateLimit(client_rate=4, client_burst=40, total_rate=1000)

    def _call_later(self, delay_ns: int, call: Callable[[], None]) -> Timer:
        self.later.append((delay_ns, call))
        return Timer(delay_ns, call, precise=False)

    def clock_changed(self) -> bool:
        """Whether a test has set the clock since it was asked."""
        was_set, self.clock_is_set = self.clock_is_set, False
        self.generation += was_set
        return was_set

    def publish(self, topic: str, payload: bytes, properties: bytes = b"") -> Transmit | None:
        if not self.takes_data:
            return None
        self.published.append((topic, payload, properties))
        self.transmits.append(Transmit(time.time_ns()))
        return self.transmits[-1]

    def collect_stamps(self) -> None:
        """Let the kernel say when messages left; nothing unless a test knows better."""

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.counters.refused)


def arrival(topic: str, payload: bytes, **changes: Any) -> Arrival:
    """Return what arrived 150 us ago, with a stamp of the kernel."""
    stamp = Stamp(time.time_ns() - 150 * US, StampSource.KERNEL)
    fields = {"topic": topic, "payload": payload, "stamp": stamp, "retain": False, **changes}
    return Arrival(**{"properties": b"", **fields})
