"""A load of paho-mqtt: `python -m bench.paho_load PORT SECONDS OCTETS WINDOW`.

Prints how many messages came back, and in how many seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

_TOPIC = "load/paho"


def main() -> None:
    """Publish as fast as copies come back, with a window."""
    port, seconds, octets, window = map(int, sys.argv[1:5])
    came = 0
    ready = threading.Event()

    def count(_client: mqtt.Client, _data: Any, _message: mqtt.MQTTMessage) -> None:
        nonlocal came
        came += 1

    def subscribed(*_: Any) -> None:
        ready.set()

    subscriber, publisher = (mqtt.Client(CallbackAPIVersion.VERSION2) for _ in range(2))
    subscriber.on_message, subscriber.on_subscribe = count, subscribed
    for client in (subscriber, publisher):
        client.connect("127.0.0.1", port)
        client.loop_start()
    subscriber.subscribe(_TOPIC)
    ready.wait(10)
    payload = b"." * octets
    began, sent = time.monotonic(), 0
    while (passed_s := time.monotonic() - began) < seconds:
        if sent >= came + window:
            time.sleep(0.0001)
            continue
        publisher.publish(_TOPIC, payload)
        sent += 1
    print(came, passed_s)


if __name__ == "__main__":
    main()
