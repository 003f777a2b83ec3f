"""The reference behind a real UDP socket, for tests of what speaks MQTT over UDP.

`python -m broker.rtl.sim.udp_door` prints where it listens, and at the end what it counted. The
residence that it states begins with the kernel's stamp of the arrival and ends with its own of the
departure, so its source is *a program*.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import struct
import time
from ipaddress import IPv4Network

from broker.rtl.sim.golden import Golden, Settings

PROGRAM = 1
SO_TIMESTAMPNS = 35
STAMP = struct.Struct("@qq")


class UdpDoor:
    """A broker that has just been reset, on a socket."""

    def __init__(self, settings: Settings, host: str = "127.0.0.1", port: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind((host, port))
        self.host, self.port = self.socket.getsockname()
        self.reset_ns = time.monotonic_ns()
        settings.stamps = PROGRAM
        self.broker = Golden(settings)
        self.broker.departure = lambda _: time.time_ns() << 16

    def serve(self) -> None:
        """Wait for one datagram, and send what the broker sends for it."""
        octets, ancillary, _, (ip, port) = self.socket.recvmsg(65_536, 64)
        arrival_ns = time.time_ns()
        for level, kind, stamp in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = STAMP.unpack(stamp)
                arrival_ns = seconds * 10**9 + nanoseconds
        now_ns = time.monotonic_ns() - self.reset_ns
        for sent in self.broker.datagram(now_ns, ip, port, octets, arrival_ns << 16):
            self.socket.sendto(sent.octets, (sent.ip, sent.port))


def main() -> None:
    """Serve until interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="udp_door", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--lease-s", type=int, default=60)
    parser.add_argument("--residence-prefix", default="mqtick")
    parser.add_argument("--publishers", type=IPv4Network, action="append", metavar="SUBNET")
    parser.add_argument("--subscribers", type=IPv4Network, action="append", metavar="SUBNET")
    given = parser.parse_args()
    settings = Settings(
        secret=os.urandom(16),
        lease_s=given.lease_s,
        residence_prefix=given.residence_prefix,
        loopback_door=True,
    )
    settings.publishers = tuple(given.publishers or settings.publishers)
    settings.subscribers = tuple(given.subscribers or settings.subscribers)
    door = UdpDoor(settings, given.host, given.port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"listening on {door.host}:{door.port}", flush=True)
    try:
        while True:
            door.serve()
    except KeyboardInterrupt:
        print(json.dumps(door.broker.counters), flush=True)


if __name__ == "__main__":
    main()
