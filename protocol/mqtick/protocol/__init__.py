"""mqtick: the protocol: messages, topics, tags, clocks.

Messages: `precise`, `text1451`, `draft2021` (modules; each decodes and encodes its own), `topics`,
`auth`. Clocks: `SystemClock`, `VirtualClock`. The package `mqtick.mqtt` carries the messages.
"""

from mqtick.protocol.auth import KeyFileError, Keyring, load_key_file
from mqtick.protocol.clocks import (
    Clock,
    SystemClock,
    VirtualClock,
    VirtualClockSettings,
    read_kernel_time,
)
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.steps import Change, StepDetector
from mqtick.protocol.topics import TopicTree

__all__ = [
    "Change",
    "Clock",
    "DecodeError",
    "KeyFileError",
    "Keyring",
    "StepDetector",
    "SystemClock",
    "TopicTree",
    "VirtualClock",
    "VirtualClockSettings",
    "load_key_file",
    "read_kernel_time",
]
