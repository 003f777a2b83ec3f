"""The broker's address, as people write it, and the other settings of a connection."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_SCHEMES = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443, "mqtt+udp": 1883, "unix": 0}
_WITH_TLS = ("mqtts", "wss")
# Below the ports that Linux assigns automatically (32768 to 60999).
_PUBLISHED_PORT = 18830
# A password that the check misses, because it contains a '/', must not appear in other messages.
_PASSWORD = re.compile(r"^((?>(?:[\w+]+://)?)[^:/@]*:).*@", re.DOTALL)


class BrokerError(ValueError):
    """A broker's address or credentials that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the broker is and how to speak to it."""

    scheme: str = "mqtt"
    host: str = "localhost"
    port: int = 1883
    path: str = "/mqtt"
    """WebSocket path, or the file of a Unix socket."""
    version: str = "5"
    """`5` or `3.1.1`."""
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    client_id: str = ""
    """The client identifier, if the broker binds it to the account; empty: one of our own."""
    keepalive_s: int = 15
    connect_timeout_s: float = 5.0
    kernel_stamps: str = "auto"
    """`auto` or `user`."""
    dialect: str = ""
    """For `mqtt+udp`: `published` for the published hardware broker, empty for our own broker."""
    local_port: int = 0
    """With the published dialect, the first local port to try."""

    @property
    def address(self) -> str:
        """The address as people write it, for messages."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = self.path if self.scheme in ("ws", "wss") else ""
        dialect = f"?dialect={self.dialect}" if self.dialect else ""
        return f"{self.scheme}://{host}:{self.port}{path}{dialect}"

    def part(self, name: str) -> Broker:
        """Return the same for a further connection: a given client identifier ends in `-name`."""
        return replace(self, client_id=self.client_id and f"{self.client_id}-{name}")

    @property
    def refusal_remedy(self) -> str:
        """What to do if the broker refuses a subscription, for messages."""
        if self.scheme == "mqtt+udp":
            return (
                "over UDP there is no access list, but room for so many filters only: the "
                "broker's counters filter, share, shape and table say which limit it was "
                "(broker/spec/mqtt-udp.md, section 5)"
            )
        return "compare its access list with the one in docs/protocol.md"


def parse_broker_url(url: str) -> Broker:
    """Read `mqtt://HOST[:PORT]`, `mqtts://`, `ws://HOST/PATH`, `wss://` or `unix:///PATH`.

    Or `mqtt+udp://HOST[:PORT]`, to which `?dialect=published[&port=NNNN]` may be added.
    A password in the address is refused: it would be seen in process lists and logs.
    """
    known = ", ".join(f"{name}://" for name in _SCHEMES)
    text = url if "://" in url or url.startswith("unix:") else f"mqtt://{url}"
    if ":" in text.partition("://")[2].partition("/")[0].rpartition("@")[0]:
        raise BrokerError(
            "the broker's address holds a password, which others could read in process lists: "
            "put it in a file and give that as password_file"
        )
    shown = repr(_PASSWORD.sub(r"\1...@", url))
    if any(character.isspace() or not character.isprintable() for character in url):
        raise BrokerError(f"broker {shown} holds a space or a control character: write {known}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        why = "" if shown != repr(url) else f" ({error})"
        raise BrokerError(f"broker {shown} is not an address{why}: write {known}") from None
    if parts.scheme not in _SCHEMES:
        raise BrokerError(f"broker {shown} has the scheme {parts.scheme!r}: use one of {known}")
    if port == 0:
        raise BrokerError(f"broker {shown} has the port 0, but a broker listens on 1 to 65535")
    if parts.fragment or (parts.query and parts.scheme != "mqtt+udp"):
        raise BrokerError(f"broker {shown} has a part after '?' or '#', which has no meaning here")
    if parts.scheme == "unix":
        if parts.netloc or parts.path.endswith("/") or not parts.path:
            raise BrokerError(f"broker {shown} names no socket file: write unix:///run/broker.sock")
        return Broker(scheme="unix", host=parts.path, port=0, path=parts.path)
    if not parts.hostname:
        raise BrokerError(f"broker {shown} names no host: write {parts.scheme}://HOST")
    if parts.path not in ("", "/") and parts.scheme not in ("ws", "wss"):
        raise BrokerError(f"broker {shown} has a path, which only ws:// and wss:// have")
    if parts.scheme == "mqtt+udp":
        return _parse_udp(parts, shown, parts.hostname, port)
    username = unquote(parts.username) if parts.username else None
    if username is not None and not username.isprintable():
        raise BrokerError(f"broker {shown} has a user name with a control character")
    return Broker(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or _SCHEMES[parts.scheme],
        path=parts.path if parts.path not in ("", "/") else "/mqtt",
        username=username,
    )


def _parse_udp(parts: SplitResult, shown: str, host: str, port: int | None) -> Broker:
    """Read the rest of an `mqtt+udp://` address."""
    if parts.username is not None:
        raise BrokerError(f"broker {shown} has a user name, but MQTT over UDP has no accounts")
    if ":" in host:
        raise BrokerError(
            f"broker {shown} is an IPv6 address, but MQTT over UDP is IPv4 only: write the "
            "broker's IPv4 address or its name"
        )
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    twice = len(options) < len(pairs)
    dialect = options.pop("dialect", "")
    text = options.pop("port", str(_PUBLISHED_PORT) if dialect else "0")
    good = dialect in ("", "published") and (dialect or text == "0") and not options and not twice
    if not good or (parts.query and not dialect):
        raise BrokerError(
            f"broker {shown} has a part after '?' that means nothing: MQTT over UDP knows "
            "?dialect=published and ?dialect=published&port=NNNN"
        )
    if dialect and not (re.fullmatch("[0-9]{1,5}", text) and 0 < int(text) < 65536):
        raise BrokerError(f"broker {shown} has the port {text!r} of our own: it is 1 to 65535")
    return Broker(
        scheme=parts.scheme,
        host=host,
        port=port or _SCHEMES[parts.scheme],
        version="3.1.1",
        dialect=dialect,
        local_port=int(text),
    )


def refuse_dialect(broker: Broker, who: str) -> None:
    """Raise BrokerError for the published dialect, which lacks features that `who` needs."""
    if broker.dialect:
        raise BrokerError(
            f"{who} does not work with the published dialect, whose board carries 32 octets a "
            "message and forgets no subscription: name a broker that speaks our mqtt+udp://, or "
            "mqtt://"
        )


def read_password_file(path: str) -> str:
    """Return the first line of a file that only its owner and group may read."""
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            password = file.readline(4097).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(f"the password file {path} cannot be read: {error}") from None
    if mode & stat.S_IRWXO:
        raise BrokerError(
            f"the password file {path} is open to every user of this machine: run chmod o= {path}"
        )
    if not password or len(password) > 4096:
        raise BrokerError(f"the first line of {path} is not a password of 1 to 4096 characters")
    return password


class _Keys(Protocol):
    """The configuration keys for a broker; text is empty if none is given."""

    @property
    def broker(self) -> str: ...

    @property
    def mqtt_version(self) -> str: ...

    @property
    def username(self) -> str: ...

    @property
    def password_file(self) -> str: ...

    @property
    def ca_file(self) -> str: ...

    @property
    def certificate_file(self) -> str: ...

    @property
    def certificate_key_file(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def keepalive_s(self) -> int: ...

    @property
    def connect_timeout_s(self) -> float: ...

    @property
    def timestamps(self) -> str: ...


def broker_from(keys: _Keys) -> Broker:
    """Return the broker of a configuration; BrokerError if the settings are invalid."""
    broker = parse_broker_url(keys.broker)
    if broker.scheme not in _WITH_TLS and (keys.ca_file or keys.certificate_file):
        raise BrokerError(
            f"broker {keys.broker!r} is reached without TLS, so ca_file and certificate_file "
            "protect nothing: write mqtts:// or wss://, or leave them out"
        )
    if keys.certificate_key_file and not keys.certificate_file:
        raise BrokerError(
            "certificate_key_file is given without certificate_file, so there is nothing to "
            "prove with it: give both, or neither"
        )
    if broker.scheme == "mqtt+udp" and (keys.username or keys.password_file or keys.client_id):
        raise BrokerError(
            f"broker {keys.broker!r} is reached by UDP, where there are no accounts, so username, "
            "password_file and client_id protect nothing: leave them out"
        )
    if keys.password_file and not (keys.username or broker.username):
        raise BrokerError(
            "password_file is given without a user name, so no broker would accept it: "
            "set username too"
        )
    for path in filter(None, (keys.ca_file, keys.certificate_file, keys.certificate_key_file)):
        if not os.access(path, os.R_OK):
            raise BrokerError(f"the file {path} does not exist or cannot be read")
    return replace(
        broker,
        version=broker.version if broker.scheme == "mqtt+udp" else keys.mqtt_version,
        username=keys.username or broker.username,
        password=read_password_file(keys.password_file) if keys.password_file else None,
        ca_file=keys.ca_file or None,
        certificate_file=keys.certificate_file or None,
        key_file=keys.certificate_key_file or None,
        client_id=keys.client_id,
        keepalive_s=keys.keepalive_s,
        connect_timeout_s=keys.connect_timeout_s,
        kernel_stamps=keys.timestamps,
    )
