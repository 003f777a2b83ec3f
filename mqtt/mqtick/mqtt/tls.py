"""TLS over a KernelSocket, through memory buffers, so that kernel timestamps stay reachable.

ssl.SSLSocket reads the descriptor itself and throws the receive stamps away; with two MemoryBIO
the cipher never touches the socket.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mqtick.mqtt.stamps import Buffered, KernelSocket

Certificate = Mapping[str, Any]
"""A certificate as `ssl` gives it."""

NO_CHECK_TIME = 0x200000
"""OpenSSL X509_V_FLAG_NO_CHECK_TIME: for a host whose clock is not set yet."""


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


class TlsSocket(Buffered):
    """The client's side of TLS on a KernelSocket; has the methods that paho-mqtt needs."""

    def __init__(self, kernel: KernelSocket, context: ssl.SSLContext, host: str) -> None:
        super().__init__()
        self._kernel = kernel
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._unsent = b""

    @property
    def kernel(self) -> KernelSocket:
        """The socket below the TLS layer."""
        return self._kernel

    def do_handshake(self) -> None:
        """Complete the handshake on a blocking socket; ssl.SSLError says why it was refused."""
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._feed()
            except ssl.SSLError:
                self.flush()  # send the alert, so that the broker's log has the reason
                raise
            else:
                self.flush()
                return

    def peer_certificate(self) -> Certificate:
        """Return the broker's certificate, as `ssl.SSLSocket.getpeercert` does."""
        return dict(self._object.getpeercert() or {})

    def _feed(self) -> None:
        data = self._kernel.read_chunk()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def flush(self) -> None:
        """Send the encrypted octets; BlockingIOError if the socket does not take them."""
        self._unsent += self._outgoing.read()
        while self._unsent:
            count = self._kernel.send(self._unsent)
            self._unsent = self._unsent[count:]

    @property
    def unsent(self) -> int:
        """Encrypted octets that are not yet given to the kernel."""
        return len(self._unsent) + self._outgoing.pending

    @property
    def buffered(self) -> int:
        """Octets that arrived and were not handed on, decrypted or not."""
        return super().buffered + self._incoming.pending + self._object.pending()

    def _read(self, size: int) -> bytes:
        """Read and decrypt; b"" at the end, BlockingIOError if there is nothing yet."""
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

    def send(self, data: bytes | bytearray) -> int:
        """Encrypt and send; octets that the socket does not take now wait for `flush`."""
        self._object.write(data)
        with contextlib.suppress(BlockingIOError):
            self.flush()  # the record is encrypted: the unsent rest must go first next time
        return len(data)

    def pending(self) -> int:
        """Return octets that can be read without asking the kernel."""
        return self.buffered

    def close(self) -> None:
        """Send a close notification, if the socket takes it, then close."""
        with contextlib.suppress(OSError, ValueError):
            self._object.unwrap()
        with contextlib.suppress(OSError):
            self.flush()
        self._kernel.close()


def certificate_dates_error(
    certificate: Certificate, authorities: Sequence[Certificate], now_s: float
) -> str | None:
    """Return a sentence when `now_s` lies outside the dates of the broker's certificate, else None.

    The authority that issued it must be valid, too, if it is among `authorities`. If it is not
    (an intermediate authority issued it), at least one of them must be valid.
    """
    error = _date_error(certificate, now_s, "the broker's certificate")
    if error is not None or not authorities:
        return error
    issuers = [one for one in authorities if one["subject"] == certificate["issuer"]]
    errors = [_date_error(one, now_s, "the broker's authority") for one in issuers or authorities]
    return None if None in errors else errors[0]


def _date_error(certificate: Certificate, now_s: float, what: str) -> str | None:
    before_s = ssl.cert_time_to_seconds(str(certificate["notBefore"]))
    after_s = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    if before_s <= now_s <= after_s:
        return None
    fault = f"is not valid before {_utc(before_s)}"
    if now_s > after_s:
        fault = f"expired at {_utc(after_s)}"
    return (
        f"{what} {fault}, and the time from the server is {_utc(now_s)}: the connection is closed; "
        "renew the certificate, or find out who sent the time."
    )


def _utc(instant_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant_s))
