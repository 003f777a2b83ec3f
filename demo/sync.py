"""make demo: three wrong clocks find the time over MQTT, and a real chronyd watches one of them.

A real Mosquitto, a real time server, three real clients and a real chronyd (-x: it steers nothing).
Only the clients' clocks are simulated: virtual clocks that are wrong by a known amount, so that the
true error can be shown next to what each client believes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from demo.local_broker import Amqtt, Mosquitto, UdpReference, program, running
from demo.local_programs import Chronyd, time_client, time_server, true_error_ns
from demo.stage import any_broker, play
from mqtick.client.chrony_lines import refclock_lines
from mqtick.client.interval import Now, NowError, now_from
from mqtick.protocol.clocks import VirtualClockSettings
from mqtick.service import Status, StatusError, chronyd, read_status

CLOCKS = {
    "c1": ("3 ms behind", {"offset_ns": -3_000_000}),
    "c2": ("800 ms ahead", {"offset_ns": 800_000_000}),
    "c3": ("40 ppm fast", {"frequency_ppb": 40_000.0}),
}
FED = "c1"
LIMIT_NS = 100_000


class Broker(Protocol):
    """Where the programs are sent."""

    mqtt_version: str

    @property
    def url(self) -> str:
        """Where it listens."""


@dataclass
class Client:
    """One client process and what was seen of it."""

    name: str
    wrong: str
    folder: Path
    clock: VirtualClockSettings
    status: Status | None = None
    now: Now | None = None
    true_error_ns: int | None = None

    def look(self) -> None:
        """Read its status, and compare with this host's clock, which is the server's."""
        self.now = self.true_error_ns = None
        with contextlib.suppress(StatusError, NowError):
            self.status = read_status(self.folder / "status.json")
            self.now = now_from(self.status)
            self.true_error_ns = true_error_ns(self.now, self.clock)

    @property
    def inside(self) -> bool:
        """Whether the truth lies inside the interval that the client states."""
        if self.now is None or self.true_error_ns is None:
            return False
        return abs(self.true_error_ns) <= self.now.bound_ns

    def line(self) -> str:
        """Return its line of the table."""
        values = self.status.values if self.status is not None else {}
        rows, chosen = values.get("servers", []), values.get("chosen")
        if self.now is None or self.true_error_ns is None or chosen is None:
            return f"{self.name}  {self.wrong:13} {'unsynchronised':15}"
        row = rows[chosen]
        offset_ms = (self.now.estimate_ns - self.now.clock_ns) / 1e6
        return (
            f"{self.name}  {self.wrong:13} {self.now.state:15} {offset_ms:+13.4f} ms"
            f" {self.now.bound_ns / 1000:7.1f} us {_us(self.now.narrow_bound_ns):>10}"
            f" {_us(row['delay_ns']):>11}"
            f" {self.true_error_ns / 1000:+10.1f} us  {'inside' if self.inside else 'OUTSIDE'}"
        )


HEAD = (
    f"{'':4}{'clock is':13} {'state':15} {'offset':>16} {'bound':>10} {'assumed':>10}"
    f" {'round trip':>11} {'true error':>13}  bound"
)


def _us(value_ns: int | None) -> str:
    return "-" if value_ns is None else f"{value_ns / 1000:.1f} us"


def chronyd_for(folder: Path) -> Chronyd:
    """Start a private chronyd that listens to one client and steers nothing."""
    lines = refclock_lines(chronyd.version(), [0], poll=1, run_folder=str(folder))
    return Chronyd(folder, lines)


def says(watcher: Chronyd) -> str:
    """Return what chronyd believes, in a line."""
    tracking = watcher.tracking()
    if tracking is None or tracking.stratum == 0 or not tracking.name:
        return "chronyd: waits for samples"
    offset_ms = tracking.offset_reference_minus_local_ns / 1e6
    return (
        f"chronyd -x, fed by {FED}: selected {tracking.name}, "
        f"says the clock is off by {offset_ms:+.4f} ms"
    )


@contextlib.contextmanager
def started(
    folder: Path, broker: Broker, with_chronyd: bool
) -> Iterator[tuple[list[Client], Chronyd | None]]:
    """Run server, chronyd and clients for the length of a with block."""
    version = ("--mqtt-version", broker.mqtt_version)
    with contextlib.ExitStack() as stack:
        stack.enter_context(time_server(broker.url, folder, *version))
        watcher = None
        if with_chronyd:
            watcher = stack.enter_context(chronyd_for(folder / "chronyd"))
        clients = []
        for name, (wrong, error) in CLOCKS.items():
            clock = VirtualClockSettings.starting_now(**error)  # type: ignore[arg-type]
            arguments = [
                *(*version, "--fast", "--exchange-interval-s", "2"),
                *("--virtual-clock", clock.to_text()),
            ]
            if watcher is not None and name == FED:
                socket = f"{watcher.folder}/chrony.mqtick{{server}}.sock"
                arguments += ["--discipline", "chrony", "--chrony-socket", socket]
                arguments += ["--chrony-host", watcher.command_socket]
            stack.enter_context(time_client(broker.url, folder, name, *arguments))
            clients.append(Client(name, wrong, folder / name, clock))
        yield clients, watcher


def show(lines: list[str], again: bool) -> None:
    """Print a table; on a terminal, over the previous one."""
    if again and sys.stdout.isatty():
        print(f"\033[{len(lines)}A", end="")
    end = "\033[K\n" if sys.stdout.isatty() else "\n"
    print(end.join(lines), end=end, flush=True)


def demonstrate(folder: Path, seconds: float, kind: str) -> int:
    """Let three clients find the time; return the exit code."""
    broker = {"auto": any_broker, "amqtt": Amqtt, "udp": UdpReference}[kind](folder)
    has_chronyd = program("chronyd") is not None
    print(f"Broker: {broker.name}. Clients' clocks: simulated. Everything else is real.")
    if not has_chronyd:
        print("chrony is not installed: the demo runs without chronyd.")
    with running(broker), started(folder, broker, has_chronyd) as (clients, watcher):
        watch(clients, watcher, seconds)
    limit_ns = LIMIT_NS if type(broker) is Mosquitto else None
    return summary(clients, broker.name, limit_ns)


def main() -> int:
    """Run the demo; exit code 0 if every client ended inside its own bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30, help="how long to watch (default 30)")
    parser.add_argument("--broker", choices=("auto", "amqtt", "udp"), default="auto")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    args = parser.parse_args()
    return play(
        "demo", lambda folder: demonstrate(folder, args.seconds, args.broker), keep=args.keep
    )


def watch(clients: list[Client], watcher: Chronyd | None, seconds: float) -> None:
    """Show the table every second."""
    began = time.monotonic()
    count = 0
    while True:
        for client in clients:
            client.look()
        left = seconds - (time.monotonic() - began)
        lines = [HEAD, *(client.line() for client in clients)]
        if watcher is not None:
            lines.append(says(watcher))
        # Not on a terminal: a table every five seconds is enough.
        if sys.stdout.isatty() or count % 5 == 0 or left <= 0:
            show(lines, again=count > 0)
        if left <= 0:
            return
        count += 1
        time.sleep(1)


def summary(clients: list[Client], broker: str, limit_ns: int | None = None) -> int:
    """Say how it ended; return the exit code.

    Each client must be inside its own bound and, with a limit, within that of the true time.
    """
    bad = []
    for client in clients:
        if not client.inside or client.true_error_ns is None:
            bad.append(f"{client.name} did not end inside its own bound")
        elif limit_ns is not None and abs(client.true_error_ns) > limit_ns:
            bad.append(f"{client.name} ended {client.true_error_ns / 1000:+.1f} us off")
    print()
    if bad:
        print(f"NOT good over {broker}: {'; '.join(bad)}.")
        return 1
    worst = max(abs(client.true_error_ns or 0) for client in clients) / 1000
    bound = max(client.now.bound_ns if client.now else 0 for client in clients) / 1000
    print(
        f"Over {broker}, every client ended inside its own bound: "
        f"errors at most {worst:.1f} us, bounds at most {bound:.1f} us (clocks simulated)."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
