"""Checks the dates of the broker's certificate, if need be only once the host knows the time."""

from __future__ import annotations

from mqtick.client.track import Track
from mqtick.mqtt.connection import Connection
from mqtick.protocol.time_types import NS_PER_S


class CertificateDates:
    """Checks the dates once per connection, and drops the connection if they are wrong.

    `later`: the check waits for the first authenticated time; else TLS makes it when connecting.
    """

    def __init__(self, connection: Connection, *, later: bool) -> None:
        self.error: str | None = None
        self._connection, self._later = connection, later
        self._checked = not later

    def check_new_connection(self, time_ns: int | None) -> bool:
        """Check the dates for a new connection, if the time (Unix, ns) is known already."""
        self._checked = not self._later
        return time_ns is None or self._is_valid(time_ns)

    def vouch(self, track: Track, time_ns: int) -> bool:
        """Check the dates against an authenticated time; if they are wrong, reset the track."""
        if self._is_valid(time_ns):
            return True
        track.reset()
        return False

    def _is_valid(self, time_ns: int) -> bool:
        if not self._checked:
            self.error = self._connection.certificate_dates_error(time_ns / NS_PER_S)
            self._checked = self.error is None
            if self.error is not None:
                self._connection.drop(self.error)
        return self._checked
