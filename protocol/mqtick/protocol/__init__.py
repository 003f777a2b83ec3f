"""mqtick: the protocol room: messages on the wire, MQTT transports with timestamps, clocks.

Messages: `precise`, `text1451`, `draft2021` (modules; each decodes and encodes its own), `topics`,
`auth`. Transports: `Connection` on a `Loop`, to a `Broker`. Clocks: `SystemClock`, `VirtualClock`.
"""

from mqtick.protocol.auth import KeyFileError, Keyring, load_key_file
from mqtick.protocol.broker import Broker, BrokerError, broker_from, parse_broker_url
from mqtick.protocol.clocks import (
    Clock,
    StepDetector,
    SystemClock,
    VirtualClock,
    VirtualClockSettings,
    read_kernel_time,
)
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.frames import Arrival
from mqtick.protocol.loop import Loop
from mqtick.protocol.mqtt import Connection, Will
from mqtick.protocol.stamps import Source, Stamp, Transmit
from mqtick.protocol.topics import TopicTree

__all__ = [
    "Arrival",
    "Broker",
    "BrokerError",
    "Clock",
    "Connection",
    "DecodeError",
    "KeyFileError",
    "Keyring",
    "Loop",
    "Source",
    "Stamp",
    "StepDetector",
    "SystemClock",
    "TopicTree",
    "Transmit",
    "VirtualClock",
    "VirtualClockSettings",
    "Will",
    "broker_from",
    "load_key_file",
    "parse_broker_url",
    "read_kernel_time",
]
