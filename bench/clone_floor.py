"""What the kernel itself takes to copy a datagram: `clone_floor.bpf.c`, between two namespaces."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import subprocess
import time
from pathlib import Path

from demo.local_sensors import BROKER_SIDE, CLIENT_SIDE, inside

SOURCE = Path(__file__).with_suffix(".bpf.c")
FIRST_PORT, TO_PORT = 20_000, 9
_TIMESTAMPNS = 35
_WARM_UP, _PAUSE_S, _PATIENCE_S = 5, 0.002, 5.0


def measure(folder: Path, to: str, count: int, messages: int) -> list[tuple[float, float]]:
    """Return send() to first and first to last, us, by the kernel's receive stamps.

    `to`: the address at the other end of `b0`. OSError, CalledProcessError: it cannot be built,
    loaded or received.
    """
    built = folder / "clone_floor.o"
    machine = subprocess.check_output(["cc", "-print-multiarch"], text=True).strip()
    given = f"-DCOPIES={count} -DFIRST_PORT={FIRST_PORT} -DTO_PORT={TO_PORT}"
    flags = f"-O2 -g -target bpf -mcpu=v3 -I/usr/include/{machine} {given}"
    subprocess.run(["clang", *flags.split(), "-c", str(SOURCE), "-o", str(built)], check=True)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    with contextlib.ExitStack() as open_ones:
        open_ones.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        with inside(CLIENT_SIDE):
            sockets = [
                open_ones.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                for _ in range(count + 1)
            ]
        publisher, receivers = sockets[0], sockets[1:]
        for port, receiver in enumerate(receivers, FIRST_PORT):
            receiver.bind(("", port))
            receiver.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
            receiver.settimeout(_PATIENCE_S)
        _tc("qdisc add dev b0 clsact")
        open_ones.callback(_tc, "qdisc del dev b0 clsact")
        _tc(f"filter add dev b0 ingress bpf da obj {built} sec classifier")
        found = []
        for _ in range(_WARM_UP + messages):
            time.sleep(_PAUSE_S)
            sent_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            publisher.sendto(bytes(100), (to, TO_PORT))
            stamps = [_stamp_ns(receiver) for receiver in receivers]
            found.append(((min(stamps) - sent_ns) / 1e3, (max(stamps) - min(stamps)) / 1e3))
    return found[_WARM_UP:]


def _tc(words: str) -> None:
    subprocess.run(["tc", "-n", BROKER_SIDE, *words.split()], check=True)


def _stamp_ns(receiver: socket.socket) -> int:
    _, extra, *_ = receiver.recvmsg(2048, 64)
    seconds, ns = struct.unpack("qq", extra[0][2])
    return int(seconds) * 1_000_000_000 + int(ns)
