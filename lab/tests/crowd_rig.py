"""A crowd in a thread of the test, who commands it, and who publishes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho

from mqtick.lab.load.crowd import Crowd
from mqtick.lab.runner.control import Control, NodeError
from mqtick.mqtt.broker import Broker
from mqtick.mqtt.loop import Loop


class Running:
    """A crowd in a thread, somebody who commands it, and somebody who publishes the time."""

    def __init__(self, broker: Broker, control: Broker | None = None) -> None:
        self.loop = Loop()
        self.crowd = Crowd(self.loop, broker, "w1")
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.control = Control(control or broker)

    def _run(self) -> None:
        self.crowd.start()
        self.loop.run()
        self.crowd.close()
        self.loop.close()

    def __enter__(self) -> Running:
        self.thread.start()
        self.control.start()
        while True:
            with contextlib.suppress(NodeError):
                self.ask("info", timeout_s=0.1)
                return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        return self.control.ask("crowd:w1", do, **arguments)

    def counted(self, **expected: int) -> dict[str, Any]:
        """Return the count once it is as expected."""
        end = time.monotonic() + 30
        while True:
            count = self.ask("count")
            if expected.items() <= count.items():
                return count
            assert time.monotonic() < end, count
            time.sleep(0.03)


@contextlib.contextmanager
def clock_on(port: int, user: str | None = None) -> Iterator[paho.Client]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.username_pw_set(user)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
