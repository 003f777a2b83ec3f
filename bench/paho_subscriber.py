"""The peer: a typical subscriber written with paho-mqtt, which toggles a pin in `on_message`.

    python -m bench.paho_subscriber HOST PORT TOPIC [SINK]

SINK is the sink of a `memory` pin; without one the message is only counted.
"""

from __future__ import annotations

import sys
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from mqtick.pins import PinSettings, open_output


def main() -> None:
    """Subscribe until a signal ends the process."""
    host, port, topic, *sink = sys.argv[1:]
    pin = open_output(PinSettings(backend="memory", sink=sink[0])) if sink else None
    count = 0

    def on_message(_client: Any, _userdata: Any, _message: paho.MQTTMessage) -> None:
        nonlocal count
        if pin is not None:
            pin.fire()
        count += 1

    def on_connect(connected: paho.Client, *_: Any) -> None:
        connected.subscribe(topic)

    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = on_connect
    client.on_message = on_message
    client.connect(host, int(port))
    client.loop_forever()


if __name__ == "__main__":
    main()
