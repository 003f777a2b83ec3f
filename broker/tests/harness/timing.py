"""Time through brokers: what their copies state, and how long a way is."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from broker.tests.harness.brokers import Broker
from broker.tests.harness.events import PATIENCE_S
from mqtick.mqtt import Arrival, Connection, StampSource
from mqtick.mqtt import Broker as Address
from mqtick.mqtt import Loop as Poller
from mqtick.mqtt.packets import connect_packet, encode_publish, subscribe_packet
from mqtick.protocol.precise import Loop
from mqtick.protocol.residence import Copies, Residence
from tests.rig import Client, Wire

UNKNOWN = -(1 << 31)
NOT_STATED = struct.pack(">QiI", 0, UNKNOWN, 0)
TIMED, OTHER, TOPIC = "mqtick/t", "other", "mqtick/c/a"
APART_S = 0.03
LINK_S = 0.02


def trailer_of(payload: bytes) -> tuple[int, int, int, int]:
    """Residence in 2^-16 ns, correction in ns, copy and source."""
    stated, correction_ns, tail = struct.unpack(">QiI", payload[-16:])
    return stated, correction_ns, tail >> 8, tail & 255


class TimeBroker(Broker):
    """`mqtick-broker` that states how long it had the time messages of a fleet."""

    prefix = "mqtick"

    def __init__(self, folder: Path) -> None:
        rule = f'filter = "{self.prefix}/#"\nmode = "ordered"\nresidence = true'
        super().__init__(folder, f"[[delivery.topic]]\n{rule}")


class ElsewhereBroker(TimeBroker):
    """The same in a fleet with other topics."""

    prefix = "plant/time"


class LongWire(Wire):
    """A wire on which everything takes a while."""

    delay_s = LINK_S

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(65536):
                time.sleep(self.delay_s)
                sink.sendall(octets)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Node:
    """Somebody with a socket."""

    def __init__(self, port: int, *topics: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._socket.sendall(connect_packet(f"node-{id(self)}"))
        assert self._socket.recv(4) == b"\x20\x02\0\0"
        if topics:
            self._socket.sendall(subscribe_packet(list(topics)))
            granted = bytes(len(topics))
            # What is retained may come with it.
            assert self._socket.recv(4 + len(granted), socket.MSG_WAITALL)[4:] == granted

    def say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        packet = encode_publish(topic.encode(), payload, None)
        self._socket.sendall(bytes([packet[0] | retain]) + packet[1:])

    def hear(self) -> tuple[str, bytes]:
        """The next message; shorter than 128 octets."""
        head = self._socket.recv(2, socket.MSG_WAITALL)
        body = self._socket.recv(head[1], socket.MSG_WAITALL)
        end = 2 + int.from_bytes(body[:2])
        return body[2:end].decode(), body[end:]


def payload(number: int = 0) -> bytes:
    """A payload that differs from all others."""
    return Loop(3, struct.pack(">Q", number)).payload()


def until_stated(say: Callable[[bytes], bytes]) -> tuple[bytes, int]:
    """Publish until a copy states its residence (a busy machine may lose stamps). Returns that
    copy, and how long it took from before it was published to after it was received."""
    for number in range(20):
        begin_ns = time.monotonic_ns()
        copy = say(payload(number))
        took_ns = time.monotonic_ns() - begin_ns
        if copy[-16:] != NOT_STATED:
            return copy, took_ns
    raise AssertionError("no copy states anything")


def relayed(hearer: Node, writer: Node, octets: bytes) -> bytes:
    writer.say(TOPIC, octets)
    topic, copy = hearer.hear()
    assert (topic, copy[:-16]) == (TOPIC, octets[:-16])
    return copy


class Rounds:
    """A sender and a hearer over one transport, and each message that was timed."""

    def __init__(self, broker: Address) -> None:
        self.loop, self.copies = Poller(), Copies()
        self.granted: list[bool] = []
        self.heard: list[tuple[Arrival, Residence | None]] = []
        self.hearer = self._connect(broker, "hearer")
        self.sender = self._connect(broker, "sender")
        self.hearer.subscribe([TIMED, OTHER], self.granted.append)
        self._wait(lambda: self.granted == [True])

    def _connect(self, broker: Address, name: str) -> Connection:
        connection = Connection(self.loop, broker, name, on_publish=self._hear, on_up=lambda: None)
        connection.start()
        self._wait(lambda: connection.connected)
        return connection

    def _wait(self, condition: Callable[[], bool]) -> None:
        assert self.loop.turn_until(condition, PATIENCE_S)

    def _hear(self, arrival: Arrival) -> None:
        self.copies.note(arrival.payload)
        self.heard.append((arrival, self.copies.current))

    def between_ns(self, topic: str, payload: bytes) -> int | None:
        """From the sender's stamp of a message to the hearer's; None if the kernel lost one."""
        before = len(self.heard)
        sent = self.sender.publish(topic, payload)
        assert sent is not None
        self._wait(lambda: len(self.heard) > before)
        self.sender.collect_stamps()
        stamps = self.heard[-1][0].stamp, sent.stamp
        if any(stamp.source is not StampSource.KERNEL for stamp in stamps):
            return None
        return stamps[0].realtime_ns - stamps[1].realtime_ns

    def close(self) -> None:
        self.hearer.close()
        self.sender.close()


def logged(log: Path, *kinds: str) -> list[dict[int, dict[str, int]]]:
    """Samples of each kind that were not refused, by sequence, from one reading of the log."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows = [row for row in rows if row["verdict"] != "refused"]
    return [{row["sequence"]: row for row in rows if row["kind"] == kind} for kind in kinds]


def uses(client: Client, kind: str) -> None:
    """Wait until the client goes by samples of this kind, and is right."""
    client.wait_for(
        lambda values: (
            values["chosen"] is not None
            and values["servers"][values["chosen"]]["kind"] == kind
            and values["servers"][values["chosen"]]["age_ns"] < 5_000_000_000
        ),
        f"the client uses {kind}",
        150.0,
    )
    assert client.is_right(), client.look()
