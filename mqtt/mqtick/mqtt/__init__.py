"""mqtick: MQTT connections whose messages have kernel timestamps.

A `Connection` on a `Loop`, to a `Broker`, gives each `Arrival` a `Stamp` and each message that it
sends a `Transmit`. This package knows nothing of the content of the messages.
"""

from mqtick.mqtt.broker import Broker, BrokerError, broker_from, parse_broker_url
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.connection import Connection, Will
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit

__all__ = [
    "Arrival",
    "Broker",
    "BrokerError",
    "Cause",
    "Connection",
    "Loop",
    "Stamp",
    "StampSource",
    "Transmit",
    "Will",
    "broker_from",
    "parse_broker_url",
]
