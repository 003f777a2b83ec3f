"""The dates of the broker's certificate, of which a host without the time cannot judge at once."""

from __future__ import annotations

from mqtick.client.track import Track
from mqtick.mqtt.connection import Connection
from mqtick.protocol.time_types import NS_PER_S

__all__ = ["CertificateDates"]


class CertificateDates:
    """Checks the dates once per connection, and drops it if they are wrong.

    `later`: not while connecting, but by the first time that is authenticated.
    """

    def __init__(self, connection: Connection, *, later: bool) -> None:
        self.error: str | None = None
        self._connection, self._later = connection, later
        self._checked = not later

    def check_new_connection(self, time_ns: int | None) -> bool:
        """Check those of a new connection, if the time (Unix, ns) is known already."""
        self._checked = not self._later
        return time_ns is None or self._is_valid(time_ns)

    def vouch(self, track: Track, time_ns: int) -> bool:
        """Check them by a time that is authenticated."""
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
