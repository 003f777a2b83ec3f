"""systemd's notification protocol: READY, STATUS, WATCHDOG and STOPPING as datagrams.

Source: sd_notify(3) of systemd 252. Outside systemd, where NOTIFY_SOCKET is not set, everything
here does nothing. Nothing here ever raises or blocks: a program must not fail because its
notifications are not received.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

# systemd ignores messages longer than PIPE_BUF, 4096 octets; a status line needs far less.
_MAXIMUM_STATUS = 1000


class Notifier:
    """Tells systemd the state of the program."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read NOTIFY_SOCKET once; later changes have no effect."""
        environ = os.environ if environ is None else environ
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._socket: socket.socket | None = None

    def ready(self, status: str = "") -> bool:
        """Say that start-up is finished: units ordered after this one may start."""
        return self._send("READY=1", status)

    def status(self, text: str) -> bool:
        """Give `systemctl status` one line for people."""
        return self._send("", text)

    def watchdog(self) -> bool:
        """Say that the program is still working; call it from the loop that does the work."""
        return self._send("WATCHDOG=1", "")

    def stopping(self, status: str = "") -> bool:
        """Say that the program is shutting down."""
        return self._send("STOPPING=1", status)

    def close(self) -> None:
        """Release the socket; a later message opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str, status: str) -> bool:
        """Send one datagram; False if systemd did not ask for it, or if it could not be sent."""
        if self._address is None:
            return False
        lines = [state] if state else []
        if status:
            # One line is one assignment: a line break in the text would begin another.
            lines.append("STATUS=" + " ".join(status.split())[:_MAXIMUM_STATUS])
        try:
            if self._socket is None:
                self._socket = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
                )
            message = "\n".join(lines).encode("utf-8", "replace")
            self._socket.sendto(message, socket.MSG_DONTWAIT, self._address)
        except (OSError, ValueError):
            return False
        return True


def _address(text: str) -> str | None:
    """Return an address for sendto(): a path, or an abstract name, which begins with a null."""
    if text.startswith("/"):
        return text
    if text.startswith("@") and len(text) > 1:
        return "\0" + text[1:]
    return None  # not set, or a kind of address (vsock:) that only virtual machines use
