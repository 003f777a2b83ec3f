"""From the trigger to the file: four channels of 100,000 points of a simulated oscilloscope.

Ours does what a run does for each shot: arm, wait, read through PyVISA, write the file and flush it
to the disk. The peer reads the same record over a plain socket and does nothing with it: that is
the time of the (simulated) instrument itself.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Ratio, Report, Row, progress
from demo.local_broker import free_port, wait_for_port
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger
from mqtick.pins import PinSettings, monotonic_raw_ns, open_output
from mqtick.recording.shot import Shot, write_shot

CHANNELS = (1, 2, 3, 4)
POINTS, SPAN_S = 100_000, 1e-3
OURS, PEER = "mqtick", "plain socket"


@contextlib.contextmanager
def instrument(folder: Path) -> Iterator[tuple[int, Path]]:
    """Run a simulated oscilloscope in a separate process; gives its port and its pins' socket."""
    port, sink = free_port(), folder / "pins.sock"
    command = [sys.executable, "-m", "mqtick.lab.cli", "simulate", "--family", "keysight"]
    command += ["--port", str(port), "--listen", str(sink)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for_port(port, process)
            yield port, sink
        finally:
            process.terminate()


class PlainSocket:
    """Reads the record like a short script, block by block."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def read(self) -> int:
        """Read all channels; returns the octets."""
        octets = 0
        for channel in CHANNELS:
            command = f":WAV:SOUR CHAN{channel}\n:WAV:FORM WORD\n:WAV:PRE?\n:WAV:DATA?\n"
            self._socket.sendall(command.encode())
            self._file.readline()
            head = self._file.read(2)
            length = int(self._file.read(int(head[1:])))
            octets += len(self._file.read(length))
            self._file.read(1)
        return octets

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()


def measure(shots: int) -> Report:
    """Take shots, and after each let the peer read the same record."""
    found: dict[str, list[float]] = defaultdict(list)
    report = Report("shot")
    with tempfile.TemporaryDirectory() as name, instrument(Path(name)) as (port, sink):
        pins = [
            open_output(PinSettings("memory", line, "pulse", width_us=50, sink=str(sink)))
            for line in CHANNELS
        ]
        scope = Oscilloscope.open(f"TCPIP::127.0.0.1::{port}::SOCKET")
        scope.set_up(
            ScopeSettings(tuple(map(ChannelSettings, CHANNELS)), Trigger(1), SPAN_S, points=POINTS)
        )
        peer = PlainSocket(port)
        for number in range(shots + 1):  # the first one warms up
            progress(f"shot {number} of {shots}")
            began_ns = monotonic_raw_ns()
            assert scope.arm()
            armed_ns = monotonic_raw_ns()
            edge_ns = pins[0].fire().before_ns
            for pin in pins[1:]:
                pin.fire()
            assert scope.wait(2.0)
            complete_ns = monotonic_raw_ns()
            waveforms = {f"c{key}": value for key, value in scope.read(CHANNELS).items()}
            read_ns = monotonic_raw_ns()
            meta = Shot(number, 2, simulated=True)
            write_shot(Path(name) / f"{number}.npz", meta, waveforms)
            written_ns = monotonic_raw_ns()
            octets = peer.read()
            peer_ns = monotonic_raw_ns()
            assert octets == 2 * sum(waveform.codes.size for waveform in waveforms.values())
            if number:
                found["told to arm, until armed"].append((armed_ns - began_ns) / 1e6)
                found["trigger, until complete"].append((complete_ns - edge_ns) / 1e6)
                found["complete, until read"].append((read_ns - complete_ns) / 1e6)
                found["read, until on the disk"].append((written_ns - read_ns) / 1e6)
                found["trigger to file"].append((written_ns - edge_ns) / 1e6)
                found["peer"].append((peer_ns - written_ns) / 1e6)
        peer.close()
        scope.close()
        for pin in pins:
            pin.close()
    plain = found.pop("peer")
    for quantity, values in found.items():
        report.rows.append(Row.of(quantity, "ms", OURS, values, simulated=True))
    report.rows.append(Row.of("complete, until read", "ms", PEER, plain, simulated=True))
    medians = {row.quantity: row.median for row in report.rows if row.who == OURS}
    peer_ms = report.rows[-1].median
    report.ratios.append(
        Ratio.of("reading 4 x 100,000 points", medians["complete, until read"], peer_ms, 2.0)
    )
    own_ms = round(medians["trigger, until complete"] + peer_ms, 2)
    report.ratios.append(
        Ratio.of(
            "trigger to file / the instrument's own time", medians["trigger to file"], own_ms, None
        )
    )
    return report


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shots", type=int, default=100)
    measure(parser.parse_args().shots).finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
