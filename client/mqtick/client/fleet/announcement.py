"""A client's retained status: for people and dashboards, signed by nobody. No clock follows it."""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections.abc import Mapping
from typing import Any

from mqtick.client.config import Settings
from mqtick.mqtt.connection import Connection
from mqtick.protocol.time_types import NS_PER_S

GONE = b'{"state":"gone"}'
"""What the broker, or the client itself, leaves behind when the client ends."""
_INTERVAL_S = {"normal": 10, "low": 60}
_LONGEST_TEXT = 200
_NEWS = ("state", "server", "steered_by", "troubles")
"""What is published at once when it changes."""


def announcement(values: Mapping[str, Any], interval_s: int, version: str) -> dict[str, Any]:
    """Return what is published of a status; docs/protocol.md, section 2.1, tells the members."""
    row = values["servers"][values["chosen"]] if values["chosen"] is not None else {}
    number = row.get("server")
    chrony = values.get("chrony")
    feed = chrony.get(str(number), {}) if chrony is not None else {}
    return {
        "state": values["state"],
        "name": values["name"],
        "version": version,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "interval_s": interval_s,
        "clock_error_ns": values["clock_error_ns"],
        "offset_ns": row.get("offset_ns"),
        "bound_ns": row.get("bound_ns"),
        "bound_is_assumed": row.get("bound_is_assumed", False),
        "root_distance_ns": row.get("root_distance_ns"),
        "server": row.get("format") if number is None else str(number),
        "authenticated": row.get("authenticated", False),
        "steered_by": None if chrony is None else "chronyd",
        "chrony_says": feed.get("says"),
        "troubles": {part: why[:_LONGEST_TEXT] for part, why in values.get("troubles", {}).items()},
    }


class Announcer:
    """Publishes the status at a fixed interval, and when what matters in it has changed."""

    def __init__(self, settings: Settings, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self._interval_s = _INTERVAL_S[settings.traffic]
        # That of this process: another may be installed meanwhile.
        self._version = importlib.metadata.version("mqtick")
        self._said: tuple[object, ...] = ()
        self._due_ns = 0

    def tick(self, values: Mapping[str, Any], now_ns: int) -> None:
        """Publish if it is time; `now_ns`: CLOCK_MONOTONIC. Called about once a second."""
        if not self._connection.connected:
            return
        found = announcement(values, self._interval_s, self._version)
        said = tuple(found[each] for each in _NEWS), self._connection.connects
        if said == self._said and now_ns < self._due_ns:
            return
        self._said, self._due_ns = said, now_ns + self._interval_s * NS_PER_S
        payload = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        self._connection.publish_retained(self._topic, payload.encode())

    def close(self) -> None:
        """Say that the client has ended: the broker publishes no will for one that disconnects."""
        self._connection.publish_retained(self._topic, GONE)
