"""Keys, tags and the guard against replayed time messages.

A tag is the first 8 octets of HMAC-SHA256 over topic, NUL, context and body. Every client holds the
broadcast key, so the tag of a broadcast tells members of the fleet from strangers, not the server
from a compromised client; exchanges have a separate key for each client, and messages between
servers have one that no client is given.
"""

import hmac
import os
import re
import stat
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from mqtick.protocol.errors import DecodeError, shown
from mqtick.protocol.precise import Time
from mqtick.protocol.precise_fields import (
    TAG_OCTETS,
    TRAILER_OCTETS,
    version_of,
    without_trailer,
)
from mqtick.protocol.topics import check_client_name

MIN_KEY_OCTETS: Final = 16
MAX_KEY_OCTETS: Final = 64
_MAX_FILE: Final = 65_536
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})+")
_NO_TAG: Final = bytes(TAG_OCTETS)
_REMEMBERED_GENERATIONS: Final = 8


class KeyFileError(ValueError):
    """A key file that cannot be used; the message never holds key material."""


def derive_broadcast_key(fleet_key: bytes) -> bytes:
    """Return the key of kind 1."""
    return hmac.digest(fleet_key, b"mqtick broadcast", "sha256")


def derive_client_key(fleet_key: bytes, client: str) -> bytes:
    """Return the key of kinds 2 to 5 for one client."""
    return hmac.digest(fleet_key, b"mqtick client " + check_client_name(client).encode(), "sha256")


def derive_server_key(fleet_key: bytes) -> bytes:
    """Return the key of kind 6, which only holders of the fleet key have."""
    return hmac.digest(fleet_key, b"mqtick server", "sha256")


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """The keys of one purpose: the first signs, every one verifies. Without any, tags are zero."""

    keys: tuple[bytes, ...] = ()

    @property
    def names(self) -> list[str]:
        """8 hexadecimal digits for each key: they tell keys apart, but reveal nothing of them."""
        return [hmac.digest(key, b"mqtick key name", "sha256")[:4].hex() for key in self.keys]

    def sign(self, body: bytes, topic: str, context: bytes = b"") -> bytes:
        """Return the payload: `body`, its tag and, in version 2, room for the trailer.

        `context`: the request's nonce for kind 3, the reply's tag for kinds 4 and 8, else empty.
        """
        tag = _tag(self.keys[0], body, topic, context) if self.keys else _NO_TAG
        return body + tag + (bytes(TRAILER_OCTETS) if version_of(body) == 2 else b"")

    def verify(self, payload: bytes, topic: str, context: bytes = b"") -> None:
        """Raise `DecodeError` unless one of the keys made the tag of `payload`.

        Without a key every tag is accepted, so that a fleet can be given keys one by one. A trailer
        is not covered.
        """
        payload = without_trailer(payload)
        if len(payload) < TAG_OCTETS:
            raise DecodeError("length", f"{len(payload)} octets are too few for a tag; ignored.")
        if not self.keys:
            return
        body, tag = payload[:-TAG_OCTETS], payload[-TAG_OCTETS:]
        if any(hmac.compare_digest(_tag(key, body, topic, context), tag) for key in self.keys):
            return
        if tag == _NO_TAG:
            raise DecodeError(
                "unsigned",
                f"The message on {shown(topic)} is unsigned; ignored. Give its sender the keys.",
            )
        raise DecodeError(
            "tag",
            f"The tag of the message on {shown(topic)} was not made with a known key for this "
            "topic and exchange; ignored. Compare the key files, or look for a forger.",
        )

    def __repr__(self) -> str:
        return f"Keys({len(self.keys)})"  # never the keys themselves


@dataclass(frozen=True, slots=True, repr=False)
class Keyring:
    """The keys a program holds: `fleet` keys (a server), or the keys derived for one client."""

    fleet: tuple[bytes, ...] = ()
    broadcast_only: tuple[bytes, ...] = ()
    client_only: tuple[bytes, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> "Keyring":
        """Read the lines of a key file: `fleet HEX`, or `broadcast HEX` and `client HEX`.

        Two lines of one kind are a rotation: the first signs, both verify. `#` starts a comment.
        """
        found: dict[str, list[bytes]] = {"fleet": [], "broadcast": [], "client": []}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2 or words[0] not in found:
                raise _bad_line(number, "is not `fleet HEX`, `broadcast HEX` or `client HEX`")
            if not _HEX.fullmatch(words[1]):
                raise _bad_line(number, "holds a key that is not pairs of hexadecimal digits")
            key = bytes.fromhex(words[1])
            if not MIN_KEY_OCTETS <= len(key) <= MAX_KEY_OCTETS:
                limits = f"{MIN_KEY_OCTETS} to {MAX_KEY_OCTETS}"
                raise _bad_line(number, f"holds a key of {len(key)} octets; {limits} are allowed")
            found[words[0]].append(key)
            if len(found[words[0]]) > 2:
                raise _bad_line(number, f"is a third `{words[0]}` line; a rotation takes two")
        ring = cls(*(tuple(keys) for keys in found.values()))
        if not any(found.values()):
            raise KeyFileError("The key file holds no key. Add one, or configure no key file.")
        if ring.fleet and (ring.broadcast_only or ring.client_only):
            raise KeyFileError(
                "The key file holds both fleet keys and derived ones, so it is unclear which of "
                "them signs. Keep fleet keys on the time server only, derived ones on a client."
            )
        return ring

    def broadcast(self) -> Keys:
        """Return the keys of the broadcast."""
        return self._keys(
            "broadcast", self.broadcast_only, tuple(map(derive_broadcast_key, self.fleet))
        )

    def client(self, name: str) -> Keys:
        """Return the keys of the exchanges with the client `name`."""
        derived = tuple(derive_client_key(key, name) for key in self.fleet)
        return self._keys("client", self.client_only, derived)

    def server(self) -> Keys:
        """Return the keys of messages between servers; KeyFileError without fleet keys."""
        if self.broadcast_only or self.client_only:
            raise KeyFileError(
                "The key file has no `fleet` line, so a time server cannot answer for its number. "
                "Give it the fleet key; the derived keys are a client's."
            )
        return Keys(tuple(map(derive_server_key, self.fleet)))

    def _keys(self, what: str, held: tuple[bytes, ...], derived: tuple[bytes, ...]) -> Keys:
        if (self.broadcast_only or self.client_only) and not held:
            raise KeyFileError(
                f"The key file has no `{what}` line, so such messages cannot be signed or "
                f"verified. Add the {what} key that the fleet key gives, or remove the other line."
            )
        return Keys(held or derived)

    def __repr__(self) -> str:
        counts = (len(self.fleet), len(self.broadcast_only), len(self.client_only))
        return f"Keyring(fleet={counts[0]}, broadcast={counts[1]}, client={counts[2]})"


def load_key_file(path: str | os.PathLike[str]) -> Keyring:
    """Read a key file; refuse one that anyone but owner and group may read or write."""
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode  # of the open file: the path may change meanwhile
        octets = file.read(_MAX_FILE + 1)
    if not stat.S_ISREG(mode) or len(octets) > _MAX_FILE:
        raise KeyFileError(
            f"{path} is not a file of at most {_MAX_FILE} octets; no key was loaded."
        )
    if mode & stat.S_IRWXO:
        raise KeyFileError(
            f"The key file {path} is open to every user of this machine (mode {mode & 0o777:04o}), "
            f"who could then forge the time; no key was loaded. Run `chmod o= {path}`."
        )
    try:
        return Keyring.from_text(octets.decode("ascii"))
    except UnicodeDecodeError:
        raise KeyFileError(f"{path} is not ASCII text; no key was loaded.") from None
    except KeyFileError as error:
        raise KeyFileError(f"{path}: {error}") from None


def is_newer(sequence: int, last: int) -> bool:
    """Say whether a u32 sequence comes after `last`, across the wrap (RFC 1982, 3.2)."""
    return 0 < (sequence - last) & 0xFFFF_FFFF < 1 << 31


class Replay:
    """Refuses broadcasts that were recorded and sent again.

    Within a generation of a server, sequence and stated time must both rise; the last eight
    generations are remembered. Ask only after the tag was verified. `tolerance_ns`: how far the
    stated time may be from the local clock, either way.
    """

    def __init__(self, tolerance_ns: int) -> None:
        if tolerance_ns <= 0:
            raise ValueError(
                f"The tolerance is {tolerance_ns} ns; every message would be refused. Set it "
                "to more than the error of the local clock when the program starts."
            )
        self.tolerance_ns = tolerance_ns
        self._last: dict[int, OrderedDict[int, Time]] = {}

    def accept(self, message: Time, now_ns: int | None) -> None:
        """Take note of a broadcast, or raise `DecodeError` and change nothing.

        `now_ns`: the local clock in ns since 1970; None while it is not known to be near, which
        leaves the stated time unchecked.
        """
        if now_ns is not None and abs(message.transmit_ns - now_ns) > self.tolerance_ns:
            raise DecodeError(
                "stated-time",
                f"Server {message.server} states a time {message.transmit_ns - now_ns} ns from the "
                f"local clock; {self.tolerance_ns} ns are tolerated; ignored. If the local clock "
                "is wrong, set it or raise the tolerance; else someone is replaying old messages.",
            )
        generations = self._last.setdefault(message.server, OrderedDict())
        last = generations.get(message.generation)
        if last is not None and not is_newer(message.sequence, last.sequence):
            raise DecodeError(
                "replayed",
                f"Sequence {message.sequence} of server {message.server}, generation "
                f"{message.generation}, does not come after {last.sequence}; ignored.",
            )
        if last is not None and message.transmit_ns <= last.transmit_ns:
            raise DecodeError(
                "backwards",
                f"Server {message.server} states a time {last.transmit_ns - message.transmit_ns} "
                "ns before its last one in the same generation; ignored.",
            )
        generations[message.generation] = message
        generations.move_to_end(message.generation)
        if len(generations) > _REMEMBERED_GENERATIONS:
            generations.popitem(last=False)


def _tag(key: bytes, body: bytes, topic: str, context: bytes) -> bytes:
    # surrogatepass: a topic with a lone surrogate must give a wrong tag, not a UnicodeEncodeError
    text = b"".join((topic.encode("utf-8", "surrogatepass"), b"\0", context, body))
    return hmac.digest(key, text, "sha256")[:TAG_OCTETS]


def _bad_line(number: int, fault: str) -> KeyFileError:
    return KeyFileError(f"Line {number} {fault}; no key was loaded. Correct the line.")
