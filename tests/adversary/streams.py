"""What lies between MQTT and TCP at the hostile broker: nothing, WebSocket frames, TLS 1.3 records.

Each stream hands on octets as soon as they can be read, whether or not their frame or record is
whole: a TLS record is encrypted by AES in counter mode, and whoever has the key needs no tag to
read it. And each can make octets that belong to a later place of the stream.
"""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import hashlib
import hmac
import ssl
import struct
from pathlib import Path

_SMALLEST_FILLER = 9


def filler(size: int) -> bytes:
    """Return a PUBLISH of this many octets, at least 9, that means nothing to anybody."""
    for octets in (1, 2, 3):
        length = size - 1 - octets
        if length < 128**octets:
            digits = [length >> 7 * turn & 127 for turn in range(octets)]
            coded = bytes(digit | 128 for digit in digits[:-1]) + bytes(digits[-1:])
            return b"\x30" + coded + b"\0\1x\0" + bytes(length - 4)
    raise ValueError(size)


class Plain:
    """MQTT on TCP."""

    piece_overhead = 0
    """Octets that a piece of the stream needs besides its own."""
    is_encrypted = False

    def __init__(self) -> None:
        self.missing = False
        """Whether what was handed on last has not come as a whole."""
        self.to_send = b""
        """What has to be answered before anything else."""
        self.pieces = 0
        """How many records were made so far, where they are numbered."""

    def read(self, octets: bytes) -> bytes:
        """Return what can be read now."""
        return octets

    def piece(self, octets: bytes, number: int | None = None) -> bytes:
        """Return these octets as they are on the wire, in the next piece or in a later one."""
        return octets

    def pad(self, size: int, pieces: int) -> bytes:
        """Return `size` octets in so many pieces, which mean nothing; b"" if there is no such way.

        Those of a plain stream have no pieces.
        """
        return filler(size) if size >= _SMALLEST_FILLER else b""


class WebSocket(Plain):
    """MQTT in WebSocket frames (RFC 6455); those of the host are masked."""

    piece_overhead = 2

    def __init__(self) -> None:
        super().__init__()
        self._raw = b""
        self._open = False
        self._given = 0

    def read(self, octets: bytes) -> bytes:
        """Answer the handshake; then unmask frames, also the beginning of one."""
        self._raw += octets
        if not self._open:
            head, end, rest = self._raw.partition(b"\r\n\r\n")
            if not end:
                return b""
            self._open, self._raw = True, rest
            lines = [line.partition(b": ") for line in head.split(b"\r\n")]
            key = next(value for name, _, value in lines if name.lower() == b"sec-websocket-key")
            digest = hashlib.sha1(key.strip() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            self.to_send = (
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: "
                + base64.b64encode(digest)
                + b"\r\n\r\n"
            )
        found = b""
        while len(self._raw) >= 2:
            length, start = self._raw[1] & 127, 2
            if length == 126:
                length, start = int.from_bytes(self._raw[2:4], "big"), 4
            start += 4
            body = self._raw[start : start + length]
            mask = self._raw[start - 4 : start]
            clear = bytes(octet ^ mask[place % 4] for place, octet in enumerate(body))
            found += clear[self._given :]
            self._given = len(clear)
            self.missing = len(self._raw) < start + length
            if self.missing:
                break
            self._raw, self._given = self._raw[start + length :], 0
        return found

    def piece(self, octets: bytes, number: int | None = None) -> bytes:
        """Return a binary frame; what belongs to a later one is its end, and stays as it is."""
        if number is not None:
            return octets
        size = len(octets)
        head = (
            struct.pack("!BB", 0x82, size) if size < 126 else struct.pack("!BBH", 0x82, 126, size)
        )
        return head + octets

    def pad(self, size: int, pieces: int) -> bytes:
        """See `Plain.pad`."""
        head = 2 if size < 2 + 126 else 4
        return self.piece(filler(size - head)) if size >= head + _SMALLEST_FILLER else b""


class Tls(Plain):
    """MQTT in TLS 1.3 records (RFC 8446). OpenSSL shakes hands; the records are our own."""

    piece_overhead = 5 + 1 + 16
    is_encrypted = True

    def __init__(self, certificate: Path, key: Path, log: Path) -> None:
        super().__init__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(certificate, key)
        context.keylog_filename = str(log)
        context.num_tickets = 0
        self._log = log
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._handshake = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._keys: tuple[_Aead, _Aead] | None = None
        self._raw = b""
        self._read = self._given = 0

    def read(self, octets: bytes) -> bytes:
        """Shake hands; then decrypt records, also the beginning of one, and check no tag."""
        self._raw += octets
        found = b""
        while len(self._raw) > 5:
            size = int.from_bytes(self._raw[3:5], "big")
            body = self._raw[5 : 5 + size]
            if self._keys is None:
                if len(body) < size:
                    break
                self._incoming.write(self._raw[: 5 + size])
                try:
                    self._handshake.do_handshake()
                    self._keys = self._derive()
                except ssl.SSLWantReadError:
                    pass
                self.to_send += self._outgoing.read()
            else:
                clear = self._keys[0].peek(self._read, body[: size - 16])
                text = clear[: size - 17]
                if self._raw[0] == 23 and clear[size - 17 :] in (b"", b"\x17"):
                    found += text[self._given :]
                    self._given = len(text)
                self.missing = len(body) < size
                if self.missing:
                    break
                self._read, self._given = self._read + 1, 0
            self._raw = self._raw[5 + size :]
        return found

    def _derive(self) -> tuple[_Aead, _Aead]:
        """Return the keys of the host's records and of ours (RFC 8446, 7.3)."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        secrets = {words[0]: bytes.fromhex(words[2]) for words in lines if len(words) == 3}
        own = (secrets[f"{side}_TRAFFIC_SECRET_0"] for side in ("CLIENT", "SERVER"))
        host, ours = (_Aead(secret) for secret in own)
        return host, ours

    def piece(self, octets: bytes, number: int | None = None) -> bytes:
        """Return a record."""
        assert self._keys is not None
        record = self._keys[1].seal(self.pieces if number is None else number, octets)
        self.pieces += number is None
        return record

    def pad(self, size: int, pieces: int) -> bytes:
        """See `Plain.pad`."""
        smallest = filler(_SMALLEST_FILLER)
        small = [smallest] * (pieces - 1)
        rest = size - sum(map(len, small)) - pieces * self.piece_overhead
        if pieces < 1 or rest < _SMALLEST_FILLER:
            return b""
        return b"".join(self.piece(octets) for octets in [*small, filler(rest)])


class _Aead:
    """The records of one direction: AES-GCM by OpenSSL, whose tag is not needed for reading."""

    def __init__(self, secret: bytes) -> None:
        self._digest = "sha384" if len(secret) == 48 else "sha256"
        strong = len(secret) == 48
        self._key = self._expand(secret, b"key", 32 if strong else 16)
        self._iv = self._expand(secret, b"iv", 12)
        found = ctypes.util.find_library("crypto")
        self._library = library = ctypes.CDLL(found)
        for name in ("EVP_CIPHER_CTX_new", "EVP_aes_256_gcm", "EVP_aes_128_gcm"):
            getattr(library, name).restype = ctypes.c_void_p
        self._cipher = library.EVP_aes_256_gcm() if strong else library.EVP_aes_128_gcm()

    def _expand(self, secret: bytes, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label (RFC 8446, 7.1), for one block."""
        info = struct.pack("!HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
        return hmac.new(secret, info + b"\1", self._digest).digest()[:size]

    def _run(self, number: int, head: bytes, data: bytes, *, seals: bool) -> tuple[bytes, bytes]:
        nonce = bytes(
            one ^ other for one, other in zip(self._iv, struct.pack("!IQ", 0, number), strict=True)
        )
        library = self._library
        context = ctypes.c_void_p(library.EVP_CIPHER_CTX_new())
        out, size, tag = ctypes.create_string_buffer(len(data) + 16), ctypes.c_int(0), b""
        cipher = ctypes.c_void_p(self._cipher)
        library.EVP_CipherInit_ex(context, cipher, None, self._key, nonce, int(seals))
        library.EVP_CipherUpdate(context, None, ctypes.byref(size), head, len(head))
        library.EVP_CipherUpdate(context, out, ctypes.byref(size), data, len(data))
        if seals:
            rest, place = ctypes.c_int(0), ctypes.create_string_buffer(16)
            library.EVP_CipherFinal_ex(context, ctypes.create_string_buffer(16), ctypes.byref(rest))
            library.EVP_CIPHER_CTX_ctrl(context, 0x10, 16, place)  # EVP_CTRL_AEAD_GET_TAG
            tag = place.raw
        library.EVP_CIPHER_CTX_free(context)
        return out.raw[: len(data)], tag

    def peek(self, number: int, data: bytes) -> bytes:
        """Decrypt the beginning of a record, or all of it, without its tag."""
        return self._run(number, b"", data, seals=False)[0]

    def seal(self, number: int, octets: bytes) -> bytes:
        """Return the record of application data with this number."""
        head = b"\x17\x03\x03" + struct.pack("!H", len(octets) + 17)
        data, tag = self._run(number, head, octets + b"\x17", seals=True)
        return head + data + tag
