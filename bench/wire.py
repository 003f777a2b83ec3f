"""A wire in user space: packets between network namespaces, with delay, jitter and loss.

Kernels without netem have TUN devices all the same. One process carries the packets of many wires:

    python -m bench.wire HUB < wires.json

HUB is the namespace at the near end of all wires. Each wire is a `Wire`, and has devices of its
own. It ends with its standard input, or when it is terminated.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass

_SET_INTERFACE = 0x400454CA  # linux/if_tun.h, TUNSETIFF
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_NEW_NETWORK = 0x40000000
_PACKETS_PER_TURN = 64
_LONGEST_S = 0.3


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire: `far` is the namespace at its end, `number` names its devices and addresses.

    A packet takes `up_s` (from the far end) or `down_s`, and up to `jitter` times as much more,
    evenly distributed; none overtakes another. `loss`: the share of the packets that is lost.
    """

    number: int
    far: str
    up_s: float
    down_s: float
    jitter: float = 0.0
    loss: float = 0.0

    @property
    def near_address(self) -> str:
        """The hub's address on this wire."""
        return f"10.88.{self.number}.1"

    @property
    def far_address(self) -> str:
        """The address at the far end."""
        return f"10.88.{self.number}.2"


def enter(namespace: str) -> None:
    """Move this thread into a network namespace."""
    with open(f"/run/netns/{namespace}", "rb") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")


def _device(namespace: str, name: str, address: str) -> int:
    enter(namespace)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    for words in (f"addr add {address}/24 dev {name}", f"link set {name} mtu 1400 up"):
        subprocess.run(["ip", *words.split()], check=True)
    return tun


class _Direction:
    """Packets of one wire, one way."""

    def __init__(self, wire: Wire, delay_s: float, to: int) -> None:
        self._wire, self._delay_s, self._to = wire, delay_s, to
        self._random = random.Random(f"{wire}{delay_s}{to}")
        self._last_s = 0.0

    def out_s(self, now_s: float) -> float | None:
        """When a packet that enters now leaves; None: it is lost."""
        if self._random.random() < self._wire.loss:
            return None
        extra = self._random.uniform(0.0, self._wire.jitter)
        self._last_s = max(self._last_s, now_s + self._delay_s * (1 + extra))
        return self._last_s

    def leave(self, packet: bytes) -> None:
        """Hand a packet over at the other end."""
        try:
            os.write(self._to, packet)
        except OSError:  # no room there: lost
            return


def carry(hub: str, wires: list[Wire]) -> None:
    """Carry packets until standard input ends."""
    ways: dict[int, _Direction] = {}
    poll = select.epoll()
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    for wire in wires:
        near = _device(hub, f"w{wire.number}", wire.near_address)
        far = _device(wire.far, f"w{wire.number}", wire.far_address)
        ways[near] = _Direction(wire, wire.down_s, far)
        ways[far] = _Direction(wire, wire.up_s, near)
        poll.register(near, select.EPOLLIN)
        poll.register(far, select.EPOLLIN)
    print("ready", flush=True)
    queue: list[tuple[float, int, _Direction, bytes]] = []
    count = 0
    while True:
        wait_s = queue[0][0] - time.monotonic() if queue else _LONGEST_S
        for tun, _ in poll.poll(max(0.0, min(wait_s, _LONGEST_S))):
            if tun == 0:
                return
            for _ in range(_PACKETS_PER_TURN):
                try:
                    packet = os.read(tun, 65536)
                except BlockingIOError:
                    break
                out_s = ways[tun].out_s(time.monotonic())
                if out_s is not None:
                    count += 1
                    heapq.heappush(queue, (out_s, count, ways[tun], packet))
        while queue and queue[0][0] <= time.monotonic():
            _, _, way, packet = heapq.heappop(queue)
            way.leave(packet)


if __name__ == "__main__":
    carry(sys.argv[1], [Wire(**each) for each in json.loads(sys.stdin.readline())])
