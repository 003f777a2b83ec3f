"""The state of a doctor's connection to a broker; `mqtick.service.broker_checks` judges it."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.udp_session import lease_s

NO_DOTS: Final = "nats-server before 2.10 carries no topic with a dot"
_CONNECT: Final = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00"
"""CONNECT of MQTT 3.1.1 with a clean session and an identifier that the broker makes."""
_PATIENCE_S: Final = 1.0
_ACCESS_LIST: Final = f"{Broker().refusal_remedy}; {NO_DOTS}"


@dataclass(frozen=True, slots=True)
class Link:
    """The state of a doctor's connection.

    Attributes:
        address: The broker's address.
        connected: Whether the broker has accepted the connection, and kept it.
        error: Why it has not.
        cause: The cause of `error`, for programs.
        version: The version of MQTT in use.
        error_5: Why 3.1.1 is in use although the settings say 5.
        kernel_stamps: Whether messages have timestamps of the kernel.
        connect_ns: From the first attempt to the broker's answer.
        lease_s: Over UDP, how long the broker keeps subscriptions after it last heard from us.
        answers: Whether the broker sends answers: in the published dialect of UDP it does not.
        refusal_remedy: What to do if the broker refuses a subscription.
        speaks: What answers at the port instead, a sentence; empty if that is not known.
        dead: Addresses of the broker's name that do not answer, where another one does.
    """

    address: str
    connected: bool = True
    error: str = ""
    cause: Cause = Cause.UNKNOWN
    version: str = "5"
    error_5: str = ""
    kernel_stamps: bool = True
    connect_ns: int = 0
    lease_s: float = 0.0
    answers: bool = True
    refusal_remedy: str = _ACCESS_LIST
    speaks: str = ""
    dead: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: Connection, connect_ns: int = 0) -> Link:
        """Return the present state of a connection."""
        is_silent = not connection.connected and not connection.last_error
        return cls(
            connection.address,
            connection.connected,
            "no answer" if is_silent else connection.last_error,
            Cause.SILENT if is_silent else connection.last_cause,
            "5" if connection.version_5 else "3.1.1",
            connection.error_5,
            connection.kernel_stamps,
            connect_ns,
            lease_s(connection.broker),
            not connection.broker.dialect,
            connection.broker.refusal_remedy if lease_s(connection.broker) else _ACCESS_LIST,
        )


def reach(loop: Loop, connections: Sequence[Connection]) -> int:
    """Start connections to one broker, wait until each is up or has failed; return the time, ns."""
    began_ns = time.monotonic_ns()
    for connection in connections:
        connection.start()
    broker = connections[0].broker
    attempts = 2 if broker.version == "5" else 1  # the second attempt uses MQTT 3.1.1
    loop.turn_until(
        lambda: all(one.connected or one.last_error for one in connections),
        attempts * broker.connect_timeout_s + 2,
    )
    return time.monotonic_ns() - began_ns


def look_at_door(found: Link, broker: Broker) -> Link:
    """Add what else answers where we were not accepted, or which addresses are dead."""
    if broker.scheme in ("unix", "mqtt+udp"):
        return found
    if found.connected:
        return replace(found, dead=_dead_addresses(broker))
    return replace(found, speaks=_what_speaks(broker))


def _what_speaks(broker: Broker) -> str:
    """Try TLS, expected or not, and plain MQTT where TLS is expected."""
    has_tls = broker.scheme in ("mqtts", "wss")
    answer = _answer(broker, tls=True)
    if "CERTIFICATE_REQUIRED" in answer and not broker.certificate_file:
        return "the broker wants a certificate of ours: certificate_file, certificate_key_file"
    if not has_tls and ("ALERT" in answer or answer.startswith("TLS")):
        return f"port {broker.port} speaks TLS: write {broker.scheme}s://"
    if has_tls and _answer(broker, tls=False) == "MQTT":
        return f"port {broker.port} speaks MQTT without TLS: write mqtt://"
    return ""


def _answer(broker: Broker, *, tls: bool) -> str:
    """Return what answers: `MQTT` to a CONNECT, a version or an error of TLS; else nothing."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    version = ""
    try:
        with socket.create_connection((broker.host, broker.port), _PATIENCE_S) as plain:
            if not tls:
                plain.sendall(_CONNECT)
                return "MQTT" if plain.recv(16)[:1] == b"\x20" else ""  # CONNACK
            with context.wrap_socket(plain, server_hostname=broker.host) as door:
                version = str(door.version())
                door.recv(16)  # an alert: TLS 1.3 asks for a certificate after the handshake
    except ssl.SSLError as error:
        return error.reason or version
    except OSError:
        pass  # nobody, or it waits for us to speak
    return version


def _dead_addresses(broker: Broker) -> tuple[str, ...]:
    dead, found = [], socket.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
    for family, kind, _, _, where in found if len(found) > 1 else ():
        try:
            with socket.socket(family, kind) as door:
                door.settimeout(_PATIENCE_S)
                door.connect(where)
        except TimeoutError:
            dead.append(str(where[0]))
        except OSError:
            pass  # refused at once: that costs nothing
    return tuple(dead)
