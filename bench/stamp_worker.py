"""A program that sends itself messages through the broker and notes both stamps of each.

python -m bench.stamp_worker URL SECONDS RESULT
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import time
from pathlib import Path

from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import StampSource, Transmit
from mqtick.service import realtime

_TOPIC = "bench/stamps"
_SPACING_MS = (10, 50)


class Worker:
    """Sends at random times, one message at a time."""

    def __init__(self, url: str, seconds: float) -> None:
        self.loop = Loop()
        self.connection = Connection(
            self.loop,
            parse_broker_url(url),
            "bench-stamps",
            on_publish=self._on_publish,
            on_up=lambda: self.connection.subscribe([_TOPIC], lambda _granted: self._send()),
        )
        self.found: dict[str, list[float]] = {
            name: [] for name in ("receive", "transmit", "kernel round trip", "user round trip")
        }
        self.without_kernel = 0
        self._pending: tuple[bytes, Transmit] | None = None
        self._end_ns = time.monotonic_ns() + int(seconds * 1e9)

    def _send(self) -> None:
        if time.monotonic_ns() > self._end_ns:
            self.loop.stop()
            return
        nonce = secrets.token_bytes(32)
        transmit = self.connection.publish(_TOPIC, nonce)
        self._pending = (nonce, transmit) if transmit is not None else None
        self.loop.call_later(int(random.uniform(*_SPACING_MS) * 1e6), self._send)

    def _on_publish(self, arrival: Arrival) -> None:
        read_ns = time.time_ns()
        if self._pending is None or arrival.payload != self._pending[0]:
            return
        self.connection.collect_stamps()
        transmit, self._pending = self._pending[1], None
        if transmit.kernel_ns is None or arrival.stamp.source is not StampSource.KERNEL:
            self.without_kernel += 1
            return
        came_ns = arrival.stamp.realtime_ns
        for name, later_ns, earlier_ns in (
            ("receive", read_ns, came_ns),
            ("transmit", transmit.kernel_ns, transmit.user_ns),
            ("kernel round trip", came_ns, transmit.kernel_ns),
            ("user round trip", read_ns, transmit.user_ns),
        ):
            self.found[name].append((later_ns - earlier_ns) / 1e3)


def main() -> None:
    """Run for a while, then write what was found."""
    url, seconds, result = sys.argv[1:]
    realtime.lock_memory()
    worker = Worker(url, float(seconds))
    worker.connection.start()
    realtime.quiet_garbage_collector()
    worker.loop.run()
    content = {"us": worker.found, "without_kernel": worker.without_kernel}
    Path(result).write_text(json.dumps(content))


if __name__ == "__main__":
    main()
