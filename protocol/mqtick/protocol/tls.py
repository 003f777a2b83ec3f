"""TLS over a KernelSocket, through memory buffers, so that kernel timestamps stay reachable.

ssl.SSLSocket reads the descriptor itself and throws the receive stamps away; with two MemoryBIO
the cipher never touches the socket.
"""

from __future__ import annotations

import contextlib
import ssl
import time

from mqtick.protocol.stamps import KernelSocket

__all__ = ["NO_CHECK_TIME", "TlsSocket", "certificate_date_error", "client_context"]

NO_CHECK_TIME = 0x200000
"""OpenSSL X509_V_FLAG_NO_CHECK_TIME: for a host whose clock is not right yet."""


def client_context(
    *,
    ca_file: str | None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    check_dates: bool = True,
) -> ssl.SSLContext:
    """Return a context that verifies the broker's chain and host name (TLS 1.2 or newer)."""
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate_file:
        context.load_cert_chain(certificate_file, key_file)
    if not check_dates:
        context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
    return context


class TlsSocket:
    """The client's side of TLS on a KernelSocket; offers what paho-mqtt asks of a socket."""

    def __init__(self, inner: KernelSocket, context: ssl.SSLContext, host: str) -> None:
        self.inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._unsent = b""
        self._buffer = b""

    def do_handshake(self) -> None:
        """Complete the handshake on a blocking socket; ssl.SSLError says why it was refused."""
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._feed()
            except ssl.SSLError:
                self.flush()  # the alert tells the broker's log why
                raise
            else:
                self.flush()
                return

    def peer_dates(self) -> tuple[int, int]:
        """Return notBefore and notAfter of the broker's certificate, Unix seconds."""
        certificate = self._object.getpeercert() or {}
        return tuple(  # type: ignore[return-value]
            int(ssl.cert_time_to_seconds(str(certificate[name])))
            for name in ("notBefore", "notAfter")
        )

    def _feed(self) -> None:
        data = self.inner.read_chunk()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def flush(self) -> None:
        """Send what is enciphered; BlockingIOError when the socket does not take it."""
        self._unsent += self._outgoing.read()
        while self._unsent:
            count = self.inner.send(self._unsent)
            self._unsent = self._unsent[count:]

    @property
    def unsent(self) -> int:
        """Octets enciphered and not yet given to the kernel."""
        return len(self._unsent) + self._outgoing.pending

    @property
    def buffered(self) -> int:
        """Octets that arrived and were not handed on: deciphered or not."""
        return len(self._buffer) + self._incoming.pending + self._object.pending()

    def read_chunk(self, size: int = 65536) -> bytes:
        """Read and decipher what is there; b"" at the end, BlockingIOError if nothing yet."""
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        fed = False
        while True:
            try:
                data = self._object.read(size)
            except ssl.SSLWantReadError:
                if self._outgoing.pending:
                    self.flush()
                self._feed()  # raises BlockingIOError when there is nothing more
                fed = True
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            if fed and self._outgoing.pending:
                self.flush()  # answers to key updates
            return data

    def recv(self, size: int) -> bytes:
        """Read at most `size` octets of plain text."""
        data = self.read_chunk()
        self._buffer = data[size:]
        return data[:size]

    def send(self, data: bytes | bytearray) -> int:
        """Encipher and send; what the socket does not take now waits for `flush`."""
        self._object.write(data)
        with contextlib.suppress(BlockingIOError):
            self.flush()  # enciphered already: it cannot be taken back, it goes first next time
        return len(data)

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self.inner.fileno()

    def setblocking(self, flag: bool) -> None:
        """Set or clear blocking mode of the socket below."""
        self.inner.setblocking(flag)

    def settimeout(self, timeout_s: float | None) -> None:
        """Set the time-out of blocking calls, in seconds."""
        self.inner.settimeout(timeout_s)

    def pending(self) -> int:
        """Return octets that can be read without asking the kernel."""
        return self.buffered

    def close(self) -> None:
        """Say goodbye if the socket takes it, then close."""
        with contextlib.suppress(OSError, ValueError):
            self._object.unwrap()
        with contextlib.suppress(OSError):
            self.flush()
        self.inner.close()


def certificate_date_error(
    not_before_s: int, not_after_s: int, now_s: float, what: str
) -> str | None:
    """Return a sentence when `now_s` lies outside the certificate's dates, else None."""
    if not_before_s <= now_s <= not_after_s:
        return None
    fault = "is not valid before" if now_s < not_before_s else "expired at"
    limit = not_before_s if now_s < not_before_s else not_after_s
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(limit))
    return (
        f"{what} {fault} {text}, and the time from the server is "
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now_s))}: the connection is closed; "
        "renew the certificate, or find out who sent the time."
    )
