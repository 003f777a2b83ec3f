"""The way from the broker's boundary to an edge that an oscilloscope would see: a stated model.

```
publisher's edge -> frame -> node's link -> switch -> broker's link -> core | broker's boundary
broker's boundary | core -> broker's link -> switch -> node's link -> receiver -> edge
```
A switch stores a frame before it forwards it. Each node has a link of its own, so that copies wait
for one another only on the broker's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from mqtick.lab.hardware.datagrams import frame_octets
from mqtick.service.settings.schema import key

_GAP_OCTETS: Final = 12
"""Octets of the gap after a frame; they do not delay its arrival."""
_BEFORE_PAYLOAD: Final = 50
"""Octets of preamble and headers."""
_FS_PER_NS: Final = 1_000_000
_SIGMAS: Final = 6


@dataclass(frozen=True, slots=True)
class Way:
    """The delays between the broker's boundary and the edges; all are assumed, not measured."""

    broker_link_gbps: int = key(10, "Rate of the broker's link.", choices=(1, 10))
    node_link_gbps: float = key(1.0, "Rate of a node's link.", minimum=0.01, maximum=100.0)
    switch_ns: float = key(
        1000.0, "Delay of the switch, beside storing the frame.", minimum=0.0, maximum=1e9
    )
    core_ns: float = key(
        100.0, "Delay of the UDP/IP core and MAC, each way.", minimum=0.0, maximum=1e9
    )
    publisher_ns: float = key(
        0.0,
        "From the publisher's edge to its frame; negative: before it.",
        minimum=-1e9,
        maximum=1e9,
    )
    receiver_ns: float = key(
        60_000.0,
        "From a frame's end to its subscriber's edge, mean (median of mqtick-client measured in "
        "bench/results/arrival.md).",
        minimum=0.0,
        maximum=1e9,
    )
    receiver_jitter_ns: float = key(
        10_000.0, "The same, standard deviation; normal, cut at 0.", minimum=0.0, maximum=1e9
    )

    @property
    def longest_ns(self) -> float:
        """Return about the largest delay besides the links, both ways together, ns."""
        around_ns = abs(self.publisher_ns) + 2 * (self.switch_ns + self.core_ns)
        return around_ns + self.receiver_ns + _SIGMAS * self.receiver_jitter_ns

    def from_publisher_fs(self, payload: int) -> int:
        """Return the time from the publisher's edge to the first word at the broker, fs."""
        octets = frame_octets(payload) - _GAP_OCTETS
        return round(
            _FS_PER_NS
            * (
                self.publisher_ns
                + octets * 8 / self.node_link_gbps
                + self.switch_ns
                + _BEFORE_PAYLOAD * 8 / self.broker_link_gbps
                + self.core_ns
            )
        )

    def to_receiver_fs(self, payload: int) -> int:
        """Return the time from a copy's first word at the broker to its frame's end, fs."""
        octets = frame_octets(payload) - _GAP_OCTETS
        on_links = octets * 8 / self.broker_link_gbps + octets * 8 / self.node_link_gbps
        return round(_FS_PER_NS * (self.core_ns + on_links + self.switch_ns))

    def receiver_fs(self, draw: random.Random) -> int:
        """Draw the time from a frame's end to its subscriber's edge, fs."""
        return round(_FS_PER_NS * max(draw.gauss(self.receiver_ns, self.receiver_jitter_ns), 0.0))

    def __str__(self) -> str:
        return (
            f"{self.broker_link_gbps} Gb/s to the broker, {self.node_link_gbps:g} Gb/s to each "
            f"node, switch {self.switch_ns:g} ns, core {self.core_ns:g} ns each way, publisher "
            f"{self.publisher_ns:g} ns, receivers {self.receiver_ns:g} ns with a standard "
            f"deviation of {self.receiver_jitter_ns:g} ns"
        )
