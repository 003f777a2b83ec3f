"""For tests with a real broker: a time server in this process or as a program, and a plain node.

The plain node uses paho-mqtt and nothing of ours: what it sends and reads is written by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import Clock, SystemClock
from mqtick.timeserver.config import Settings
from mqtick.timeserver.server import Server

ALL_FORMATS = ("precise", "1451.1.6", "draft-2021")
SETTLED_S = 2.0
"""How long a server listens before it uses the topics without a number, at short intervals."""


@dataclass(frozen=True)
class Message:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    user: list[tuple[str, str]]
    arrived_s: float


class PlainNode:
    """Somebody else's node: subscribes, publishes, keeps what it hears."""

    def __init__(self, port: int, *topics: str, version_5: bool = False) -> None:
        self.messages: list[Message] = []
        self.on_message: Callable[[Message], None] = lambda _message: None
        protocol = paho.MQTTv5 if version_5 else paho.MQTTv311
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol)
        self.client.max_inflight_messages_set(1000)
        self.client.on_message = self._heard
        subscribed = threading.Event()
        self.client.on_connect = lambda *_: (
            self.client.subscribe([(topic, 0) for topic in topics]) if topics else subscribed.set()
        )
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert subscribed.wait(5), "the broker did not answer"

    def __enter__(self) -> PlainNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _heard(self, _client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
        user = getattr(message.properties, "UserProperty", []) if message.properties else []
        heard = Message(
            message.topic, message.payload, message.qos, message.retain, user, time.time()
        )
        self.messages.append(heard)
        self.on_message(heard)

    def say(self, topic: str, payload: bytes | str, user: list[tuple[str, str]] = []) -> None:  # noqa: B006
        properties = None
        if user:
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = user
        self.client.publish(topic, payload, properties=properties)

    def on(self, topic: str) -> list[Message]:
        """Return what was heard on a topic."""
        return [message for message in list(self.messages) if message.topic == topic]

    def last(self, topic: str) -> Message | None:
        heard = self.on(topic)
        return heard[-1] if heard else None

    def until(self, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Wait for something that happens elsewhere."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not within {timeout_s} s"
            time.sleep(0.01)


class Served:
    """A time server in this process; `until` turns its loop, with a tick each second."""

    def __init__(
        self, url: str, *, keys: Keyring | None = None, clock: Clock | None = None, **settings: Any
    ) -> None:
        values = {"interval_s": 0.1, "trust_system_clock": True, "name": "hall/clock", **settings}
        self.loop = Loop()
        self.server = Server(
            Settings(broker=url, **values),
            self.loop,
            parse_broker_url(url),
            clock or SystemClock(),
            keys or Keyring(),
        )

    def __enter__(self) -> Served:
        self.server.start()
        self._tick()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.server.close()
        self.loop.close()

    def _tick(self) -> None:
        self.server.tick()
        self.loop.call_later(1_000_000_000, self._tick)

    def until(self, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Run until something is true."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not within {timeout_s} s: {self.refused}"
            self.loop.turn(0.02)

    def run(self, seconds: float) -> None:
        """Run for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.loop.turn(0.02)

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.server.counters.refused)

    @property
    def done(self) -> dict[str, int]:
        return dict(self.server.counters.done)


class Program:
    """`mqtick-timeserver` as a process of its own."""

    def __init__(
        self, url: str, folder: Path, *flags: str, environ: dict[str, str] | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mqtick.timeserver.cli", "--broker", url),
                    *("--state-folder", str(folder), "--trust-system-clock", *flags),
                ],
                stderr=log,
                env={**os.environ, **(environ or {})},
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def terminate(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.terminate()
        return self.process.wait(10)
