"""mqtick: the time server: publishes the time of this host, and states how good it is."""

from mqtick.timeserver.config import Settings
from mqtick.timeserver.server import Server

__all__ = ["Server", "Settings"]
