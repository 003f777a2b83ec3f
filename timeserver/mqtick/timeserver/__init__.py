"""mqtick: the time server room: publishes the time of this host, and says how good it is."""

from mqtick.timeserver.config import Settings
from mqtick.timeserver.server import Server

__all__ = ["Server", "Settings"]
