"""As much of WebSocket (RFC 6455) as it takes to carry MQTT, and to do it wrongly."""

from __future__ import annotations

import base64
import hashlib
import os
import socket

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocket:
    """A connection after its handshake, used like a socket.

    `split` is how many octets go into one frame at most.
    """

    def __init__(self, address: tuple[str, int], patience_s: float) -> None:
        self.split = 1 << 20
        self.opcode = BINARY
        self._socket = socket.create_connection(address, patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._octets = b""
        key = base64.b64encode(os.urandom(16))
        self._socket.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
        )
        while b"\r\n\r\n" not in self._octets:
            self._more()
        head, _, self._octets = self._octets.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        self.headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(b":") for line in lines)
        }
        assert status.split()[1] == b"101", status
        accept = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())
        assert self.headers[b"sec-websocket-accept"] == accept

    def _more(self) -> None:
        chunk = self._socket.recv(65536)
        if not chunk:
            raise ConnectionResetError
        self._octets += chunk

    def _take(self, count: int) -> bytes:
        while len(self._octets) < count:
            self._more()
        taken, self._octets = self._octets[:count], self._octets[count:]
        return taken

    def recv(self, _: int) -> bytes:
        """What the next frame carries; nothing once the server has closed."""
        while True:
            first, second = self._take(2)
            opcode, length = first & 0x0F, second & 0x7F
            assert not second & 0x80, "a server does not mask"
            if length > 125:
                length = int.from_bytes(self._take(2 if length == 126 else 8), "big")
            payload = self._take(length)
            if opcode == CLOSE:
                return b""
            if opcode == PING:
                self.frame(PONG, payload)
                continue
            assert opcode in (BINARY, CONTINUATION), f"a frame of type {opcode} from a server"
            if payload:
                return payload

    def frame(self, opcode: int, payload: bytes) -> None:
        """Send a frame; a client masks, with zeros if it likes."""
        size = len(payload)
        length = (
            bytes([0x80 | size])
            if size < 126
            else b"\xfe" + size.to_bytes(2, "big")
            if size < 65536
            else b"\xff" + size.to_bytes(8, "big")
        )
        self._socket.sendall(bytes([0x80 | opcode]) + length + bytes(4) + payload)

    def sendall(self, octets: bytes) -> None:
        """Send octets in frames."""
        for begin in range(0, len(octets), self.split):
            self.frame(self.opcode, octets[begin : begin + self.split])

    def settimeout(self, seconds: float) -> None:
        """As a socket has it."""
        self._socket.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """As a socket has it."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """As a socket has it."""
        self._socket.close()
