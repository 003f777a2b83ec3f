"""residence: how far apart subscribers receive one message, with and without the broker's share.

A publisher and 100 or 600 subscribers on this machine, over TCP and then over UDP, through
mqtick-broker, which fills trailers. The residence in its trailer is subtracted from each copy's
kernel receive stamp, first as stated, and then as corrected by the next copy's trailer. The rest is
the kernel's way from the broker's socket to the subscriber's.

    python -m bench.residence              5 blocks of 200 messages, 50 ms apart on average
    python -m bench.residence --short      1 block of 50
"""

from __future__ import annotations

import contextlib
import random
import secrets
import select
import socket
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

from bench.harness import Report, connected, fresh, options, progress, spread_of_blocks
from demo.local_broker import MqtickBroker
from mqtick.mqtt.packets import PUBLISH, connect_packet, encode_publish, subscribe_packet
from mqtick.mqtt.stamps import KernelSocket, StampSource
from mqtick.protocol.precise import Loop
from mqtick.protocol.residence import Copies, Residence

_TOPIC = "mqtick/t/0"
_FILLS = f"[[delivery.topic]]\nfilter = '{_TOPIC}'\nmode = 'ordered'\nresidence = true"
_SPACING_S = 0.05
_AIMS_US = {100: 1, 600: 2}
_AIM_P99_US = 10
_GOOD_BYE = b"\xe0\x00"
_PLAIN, _STATED, _CORRECTED = "as they arrive", "residence taken out", "and corrected"
_EACH = "and corrected, first to each"


def _over_udp(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(10)
    sock.connect(("127.0.0.1", port))
    return sock


def _lease(port: int, name: str) -> socket.socket:
    """Return a connection over UDP, subscribed."""
    sock = _over_udp(port)
    for packet in (connect_packet(name), subscribe_packet([_TOPIC])):
        sock.sendall(packet)
        answer = sock.recv(64)
        if answer[0] == PUBLISH:  # the proof of the address
            sock.sendall(answer)
            sock.sendall(packet)
            sock.recv(64)
    return sock


class _Broker(MqtickBroker):
    """Our broker, also over UDP on the same port."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, _FILLS)
        udp = f'\n[udp]\naddress = "127.0.0.1:{self.port}"\nsubnets = ["127.0.0.0/8"]\n'
        self.config.write_text(self.config.read_text() + udp)


class Subscriber:
    """One connection; reads one copy at a time."""

    def __init__(self, port: int, number: int, udp: bool) -> None:
        name = f"s{number}"
        self.kernel = KernelSocket(_lease(port, name) if udp else connected(port, name, _TOPIC))
        self._copies = Copies()

    def read(self) -> tuple[int, Residence] | None:
        """Return a copy's arrival and residence; None without kernel stamp or residence."""
        data = self.kernel.recv(4096)
        self.kernel.acknowledge()
        self._copies.note(data[4 + len(_TOPIC) :])
        stamp, residence = self.kernel.received, self._copies.current
        if stamp.source is not StampSource.KERNEL or residence is None:
            return None
        return stamp.realtime_ns, residence

    def close(self, udp: bool) -> None:
        """Disconnect; over UDP only this ends the lease at once."""
        if udp:
            self.kernel.sock.sendall(_GOOD_BYE)
        self.kernel.close()


Round = list[tuple[int, Residence]]


def spreads(rounds: list[Round]) -> Iterator[tuple[str, float]]:
    """Yield the distance of the first and last copy of each message, us, in each of three ways.

    For corrected copies also the distance of the first and each other copy.
    """
    for these, _ in pairwise(rounds):  # not the last round, which no next copy corrects
        if any(residence.correction_ns is None for _, residence in these):
            continue
        for how, instants in (
            (_PLAIN, [came_ns for came_ns, _ in these]),
            (_STATED, [came_ns - (one.stated >> 16) for came_ns, one in these]),
            (_CORRECTED, [came_ns - one.ns for came_ns, one in these]),
        ):
            yield how, (max(instants) - min(instants)) / 1e3
        first_ns = min(instants)  # of the corrected copies, by the last pass of the loop
        yield from ((_EACH, (ns - first_ns) / 1e3) for ns in instants)


def block(messages: int, count: int, port: int, udp: bool) -> dict[str, list[float]]:
    """Publish `messages` messages to `count` new subscribers; return the distances, us."""
    with contextlib.ExitStack() as stack:
        subscribers = [Subscriber(port, number, udp) for number in range(count)]
        for one in subscribers:
            stack.callback(one.close, udp)
        publisher = stack.enter_context(_over_udp(port) if udp else connected(port, "publisher"))
        rounds: list[Round] = []
        for _ in range(messages + 1):
            payload = Loop(0, secrets.token_bytes(8)).payload()
            time.sleep(_SPACING_S * random.uniform(0.7, 1.3))
            publisher.sendall(encode_publish(_TOPIC.encode(), payload, None))
            heard = []
            # Wait for the last copy first: until then we sleep, and take no time from the broker.
            # That is possible because the stamps are the kernel's.
            for one in reversed(subscribers):
                select.select([one.kernel.sock], [], [], 5)
                heard.append(one.read())
            rounds.append([copy for copy in heard if copy is not None])
    found: dict[str, list[float]] = {how: [] for how in (_PLAIN, _STATED, _CORRECTED, _EACH)}
    for how, distance_us in spreads([one for one in rounds if len(one) == count]):
        found[how].append(distance_us)
    return found


def measure(report: Report, blocks: int, messages: int, count: int, udp: bool) -> None:
    """Run all blocks with `count` subscribers."""
    with fresh(_Broker) as broker:
        found = []
        for number in range(blocks):
            progress(f"{count} subscribers, block {number + 1} of {blocks}")
            found.append(block(messages, count, broker.port, udp))
    quantity, rows = f"first to last of {count} subscribers{' over UDP' if udp else ''}", {}
    for how in found[0]:
        values = [one[how] for one in found]
        spread_of_blocks(how, values)
        rows[how] = report.add(quantity, "us", how, list(chain(*values)))
    corrected = rows[_CORRECTED]
    what = f"{quantity}, p50: corrected / as they arrive"
    report.compare(what, corrected.median, rows[_PLAIN].median)
    for part, value, aim_us in (
        ("p50", corrected.median, _AIMS_US[count]),
        ("p99", corrected.p99, _AIM_P99_US),
    ):
        report.compare(f"{quantity}, {part}: corrected / {aim_us} us", value, aim_us, goal=1)


def main() -> None:
    """Run the benchmark."""
    args = options(__doc__, {"blocks": 1, "messages": 50}, blocks=5, messages=200)
    report = Report("residence")
    for udp in (False, True):
        for count in (100, 600):
            measure(report, args.blocks, args.messages, count, udp)
    report.finish()


if __name__ == "__main__":
    main()
