"""What public cloud brokers refuse (docs/brokers.md): the real programs go on, or say so.

Between the programs and a Mosquitto there is a wire that reads what they send, and ends the
connection, or answers itself, as the cloud broker does.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from rig import Rig, Wire, password_file

from mqtick.mqtt.packets import read_variable_length

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.slow]

PUBLISH, SUBSCRIBE, CONNECT = 3, 8, 1


class Sent(NamedTuple):
    """A packet of a program: its kind, flags, and the texts in it (identifier, topic, filters)."""

    kind: int
    flags: int
    number: bytes
    texts: list[str]
    octets: bytes


class RefusedError(Exception):
    """What the broker answers before it ends the connection, or goes on (`ends`)."""

    def __init__(self, answer: bytes = b"", *, ends: bool = True) -> None:
        super().__init__()
        self.answer, self.ends = answer, ends


class CloudWire(Wire):
    """`limit` is asked about each packet, with the subscriptions that its connection has."""

    def __init__(self, port: int, limit: Callable[[Sent, int], None]) -> None:
        self._limit = limit
        super().__init__(port)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        if source.getsockname()[1] != self.port:
            super()._carry(source, sink)
            return
        rest, filters = b"", 0
        with contextlib.suppress(OSError):
            while octets := source.recv(65_536):
                rest += octets
                while packet := first_packet(rest):
                    rest = rest[len(packet) :]
                    sent = read(packet)
                    filters += len(sent.texts) if sent.kind == SUBSCRIBE else 0
                    try:
                        self._limit(sent, filters)
                        sink.sendall(packet)
                    except RefusedError as refused:
                        source.sendall(refused.answer)
                        if refused.ends:
                            raise ConnectionError from None
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def first_packet(octets: bytes) -> bytes:
    if len(octets) < 2:
        return b""
    length, body = read_variable_length(octets, 1, len(octets))
    return octets[: body + length] if 0 <= length <= len(octets) - body else b""


def texts(octets: bytes, more: int) -> Iterator[str]:
    while octets:
        end = 2 + int.from_bytes(octets[:2], "big")
        yield octets[2:end].decode()
        octets = octets[end + more :]


def read(packet: bytes) -> Sent:
    """Read a packet of MQTT 5 as mqtick sends it: no properties in SUBSCRIBE."""
    kind, flags = packet[0] >> 4, packet[0] & 15
    body = packet[read_variable_length(packet, 1, len(packet))[1] :]
    if kind == CONNECT:
        properties = 10 + body[6 + 4] + 1
        return Sent(kind, body[7], b"", [next(texts(body[properties:], 0))], packet)
    if kind == SUBSCRIBE:
        return Sent(kind, flags, body[:2], list(texts(body[3:], 1)), packet)
    return Sent(kind, flags, b"", [next(texts(body, 0))] if kind == PUBLISH else [], packet)


def aws(sent: Sent, _filters: int) -> None:
    if sent.kind == SUBSCRIBE and len(sent.texts) > 8:
        raise RefusedError
    if any(text.count("/") > 7 or len(text) > 256 for text in sent.texts):
        raise RefusedError
    if sent.kind == CONNECT and len(sent.texts[0]) > 128:
        raise RefusedError
    if sent.kind == PUBLISH and sent.flags & 4:
        raise RefusedError


def no_retain(sent: Sent, _filters: int) -> None:
    """Event Grid before it kept messages, IoT Hub: RETAIN is refused, in wills too."""
    if sent.kind == CONNECT and sent.flags & 0x20:
        raise RefusedError(b"\x20\x03\0\x9a\0")
    if sent.kind == PUBLISH and sent.flags & 1:
        raise RefusedError(b"\xe0\x01\x9a")


def ten_filters(sent: Sent, filters: int) -> None:
    """EMQX Serverless: a client has ten subscriptions at most."""
    if sent.kind == SUBSCRIBE and filters > 10:
        raise RefusedError(b"\x90\x04" + sent.number + b"\0\x97", ends=False)


def short_identifiers(sent: Sent, _filters: int) -> None:
    if sent.kind == CONNECT and len(sent.texts[0]) > 23:
        raise RefusedError(b"\x20\x03\0\x85\0")


def fixed_topics(sent: Sent, _filters: int) -> None:
    """IoT Hub: devices/ID/messages/... and $iothub/... only."""
    if sent.kind == SUBSCRIBE:
        grants = b"\x87" * len(sent.texts)
        answer = b"\x90" + bytes((3 + len(grants),)) + sent.number + b"\0" + grants
        raise RefusedError(answer, ends=False)


def no_system_topics(sent: Sent, _filters: int) -> None:
    if any(text.startswith("$") for text in sent.texts):
        raise RefusedError


def behind(limit: Callable[[Sent, int], None], rig: Rig) -> str:
    """Return the address of a broker with this limit."""
    wire = CloudWire(rig.broker().port, limit)
    rig.on_close(wire.close)
    return wire.url


@pytest.mark.parametrize("limit", [aws, no_retain, ten_filters, no_system_topics])
def test_time_comes_through_a_broker_that_refuses(
    limit: Callable[[Sent, int], None], rig: Rig
) -> None:
    url = behind(limit, rig)
    server = rig.server(url)
    server.wait_ready()
    clients = [rig.client(url, f"c{number}") for number in range(12 if limit is ten_filters else 1)]
    for client in clients:
        client.wait_synchronised(60.0)
    assert server.status()["connects"] == 1
    assert bool(server.status()["broker_lacks"]) == (limit is no_retain)


def test_more_servers_than_a_broker_takes_filters_at_once_are_followed(rig: Rig) -> None:
    url = behind(aws, rig)
    for number in range(9):
        rig.server(url, number=number)
    client = rig.client(url)
    client.wait_for(lambda values: len(values["servers"]) == 9, "all are heard", 60.0)
    assert client.status()["connects"] == 1


def test_a_broker_that_refuses_our_identifier_is_told_another_one(rig: Rig) -> None:
    url = behind(short_identifiers, rig)
    refused = rig.server(url, number=3)
    said = "refused the connection: Client identifier not valid"
    refused.wait_for(lambda values: said in values["last_error"], "it says why", 30.0)
    rig.server(url, "--client-id", "account-1").wait_ready()
    rig.client(url, "c1", "--client-id", "account-2").wait_synchronised(30.0)


def test_a_broker_with_topics_of_its_own_is_named_with_the_remedy(rig: Rig) -> None:
    client = rig.client(behind(fixed_topics, rig))
    said = "refused a subscription: compare its access list"
    client.wait_for(lambda values: said in values["last_error"], "it says why", 30.0)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_mosquitto_that_keeps_no_retained_messages_serves_and_the_server_says_what_is_lost(
    version: str, rig: Rig
) -> None:
    broker = rig.broker("retain_available false")
    server = rig.server(broker.url, "--mqtt-version", version)
    server.wait_ready()
    rig.client(broker.url, "c1", "--mqtt-version", version).wait_synchronised(30.0)
    assert "without retained messages" in server.status()["broker_lacks"]
    assert "without retained messages" in server.log


def test_a_mosquitto_that_takes_one_identifier_for_each_account_serves_without_the_echo(
    rig: Rig,
) -> None:
    passwords = password_file(rig.new_folder("passwords"), {"srv": "pw", "c1": "pw"})
    lines = f"password_file {passwords}\nuse_username_as_clientid true"
    broker = rig.broker(lines, anonymous=False)
    secret = rig.secret("pw")
    server = rig.server(broker.url, "--username", "srv", "--password-file", secret, "--no-echo")
    server.wait_ready()
    client = rig.client(broker.url, "c1", "--username", "c1", "--password-file", secret)
    client.wait_synchronised(30.0)
    assert server.status()["connects"] == client.status()["connects"] == 1


def test_no_message_status_or_log_tells_an_identifier(rig: Rig) -> None:
    told: list[Sent] = []
    server = rig.server(behind(lambda sent, _filters: told.append(sent), rig))
    server.wait_for(lambda values: values["done"].get("times", 0) > 3, "it serves", 30.0)
    identifiers = {sent.texts[0] for sent in told if sent.kind == CONNECT}
    assert len(identifiers) == 4
    rest = b"".join(sent.octets for sent in told if sent.kind != CONNECT)
    assert b'"instance"' in rest
    said = server.log + json.dumps(server.status()) + rest.decode("latin-1")
    assert [one for one in identifiers if one.rpartition("-")[2] in said] == []
