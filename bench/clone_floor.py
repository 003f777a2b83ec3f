"""The kernel's own time to copy a datagram: `clone_floor.bpf.c`, on the broker's interface."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from demo.local_sensors import BROKER_SIDE

SOURCE = Path(__file__).with_suffix(".bpf.c")


@contextlib.contextmanager
def attached(folder: Path) -> Iterator[None]:
    """Attach the program for a with block: each mqtt-udp subscriber gets a copy of each message.

    OSError, CalledProcessError: it cannot be built or attached.
    """
    built = folder / "clone_floor.o"
    machine = subprocess.check_output(["cc", "-print-multiarch"], text=True).strip()
    flags = f"-O2 -g -target bpf -mcpu=v3 -I/usr/include/{machine}"
    subprocess.run(["clang", *flags.split(), "-c", str(SOURCE), "-o", str(built)], check=True)
    _tc("qdisc add dev b0 clsact")
    try:
        _tc(f"filter add dev b0 ingress bpf da obj {built} sec classifier")
        yield
    finally:
        _tc("qdisc del dev b0 clsact")


def _tc(words: str) -> None:
    subprocess.run(["tc", "-n", BROKER_SIDE, *words.split()], check=True)
