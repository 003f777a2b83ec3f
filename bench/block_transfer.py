"""block-transfer: a waveform of 1 MB from an instrument, by our transport and by two others.

The instrument is a process on this machine that answers at once, so that only reading is measured.
Data are random, or all 0x0A: line feeds, which end a line but not a block.

    python -m bench.block_transfer            200 rounds
    python -m bench.block_transfer --short    30 rounds
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import socket
import time
from collections.abc import Callable

import numpy as np
import pyvisa

from bench.harness import Ratio, Report, Row, progress
from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.conversation import Block
from mqtick.lab.scope.transport import VisaTransport

_OCTETS = 1_000_000
_DATA = {
    "random data": ("R?", random.Random(1).randbytes(_OCTETS)),
    "all 0x0A": ("F?", b"\n" * _OCTETS),
}
_SLOW_ROUNDS = 2  # PyVISA takes seconds for a block of line feeds


def serve(listener: socket.socket) -> None:
    """Answer every connection, each with a block for each line."""
    answers = {f"{name}\n".encode(): definite_block(data) + b"\n" for name, data in _DATA.values()}
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while line := connection.recv(100):
                connection.sendall(answers[line])


def plain_reader(port: int) -> Callable[[str], object]:
    """Read as little as possible: the header is assumed to be known, and nothing is checked."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    expected = len(definite_block(bytes(_OCTETS))) + 1

    def read(command: str) -> bytes:
        connection.sendall(command.encode() + b"\n")
        parts, left = [], expected
        while left:
            parts.append(connection.recv(min(left, 1 << 16)))
            left -= len(parts[-1])
        return b"".join(parts)

    return read


def started() -> tuple[multiprocessing.Process, int]:
    """Serve from a separate process, so that nothing waits for this one's interpreter."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.Process(target=serve, args=(listener,), daemon=True)
    process.start()
    return process, listener.getsockname()[1]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    rounds = 30 if parser.parse_args().short else 200
    processes = [started() for _ in range(3)]
    names = [f"TCPIP::127.0.0.1::{port}::SOCKET" for _, port in processes]
    ours = VisaTransport(names[0], timeout_s=60)
    peer = pyvisa.ResourceManager("@py").open_resource(
        names[1], read_termination="\n", write_termination="\n", timeout=60_000
    )
    plain = plain_reader(processes[2][1])
    readers: dict[str, Callable[[str], object]] = {
        "mqtick": lambda command: ours.play(Block(command)),
        "PyVISA query_binary_values": lambda command: peer.query_binary_values(  # type: ignore[attr-defined]
            command, datatype="B", container=np.array
        ),
        "plain socket": plain,
    }
    chance = random.Random(2)
    took_ms: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for what, (command, _) in _DATA.items():
            # A reader that follows a slow one has cold caches: so the order is random.
            for who, read in chance.sample(list(readers.items()), len(readers)):
                if who.startswith("PyVISA") and command == "F?" and number >= _SLOW_ROUNDS:
                    continue
                began_ns = time.perf_counter_ns()
                read(command)
                took_ms.setdefault((what, who), []).append(
                    (time.perf_counter_ns() - began_ns) / 1e6
                )
    report = Report("block-transfer")
    rows = {
        (what, who): Row.of(f"1 MB, {what}", "ms", who, values)
        for (what, who), values in took_ms.items()
    }
    report.rows += rows.values()
    for what in _DATA:
        for peer_name, goal in (("plain socket", 2.0), ("PyVISA query_binary_values", None)):
            mine, other = rows[what, "mqtick"].median, rows[what, peer_name].median
            report.ratios.append(
                Ratio.of(f"{what}: median, mqtick / {peer_name}", mine, other, goal)
            )
    report.finish()
    for process, _ in processes:
        process.terminate()


if __name__ == "__main__":
    main()
