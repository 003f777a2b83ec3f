"""Real programs below which a hostile broker has its own TCP stack, and a clock that is true.

Everything is in a network namespace of its own. `World.judge` looks at what each client claims, and
at what it hands chronyd, until something has happened, and remembers each look that was wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from nursery import ForkedClient, Nursery
from plays import NAME, Attack, Play
from rig import FLEET, MODULES, Authority, Client, Rig, Server, client_lines, fleet_lines
from tcp_broker import MS, SECOND, Broker, Certificate
from tcp_stack import Network

from demo.local_programs import true_error_ns
from demo.local_sensors import inside
from mqtick.client.interval import NowError
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.service import StatusError

needs_tun = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/net/tun"),
    reason="a TCP stack of our own needs root and /dev/net/tun",
)
MODULES["slewed-timeserver"] = "tests.adversary.slewed_server"
# A client that asks often, so that an attack needs seconds only.
_ASKS = ("--fast", "--exchange-interval-s", "0.4", "--exchange-burst", "1", "--start-burst", "1")
_BELIEVES_SOON = "[estimator]\nconfirm_s = 2.0\n"
AT_ONCE = 10
"""So many clients are attacked at the same time, at most."""
_WORLDS_AT_ONCE = 3
_worlds = itertools.count()
SLEW = (-500_000, 90_000)
"""A server's clock that is 500 us behind, and is corrected at 90 ppm, in nanoseconds and ppb."""
_STATUS_S = 2.5
"""A status is this old at most."""
_SAMPLE = struct.Struct("=qqd4i")


@dataclass
class Watched:
    """A client, what is played to it, and what it claimed; errors in ns."""

    client: Client
    play: Play
    chronyd: socket.socket
    looks: int = 0
    outside: int = 0
    worst_ns: int = 0
    bound_ns: int = 0
    """The bound that was stated with the worst error."""
    handed: dict[float, float] = field(default_factory=dict)
    """By when chronyd got a sample (s), its error."""
    faults: list[str] = field(default_factory=list)
    _known: dict[float, int] = field(default_factory=dict)

    def look(self) -> None:
        """Compare what it says now with the truth, and take what chronyd got meanwhile."""
        self._take_samples()
        try:
            now = self.client.now()
        except (NowError, StatusError):
            return
        error_ns = true_error_ns(now, self.client.clock, self.client.reference)
        truth_ns = now.estimate_ns - error_ns
        self.looks += 1
        if now.state == "unsynchronised":
            return
        self._known[time.monotonic()] = now.bound_ns
        if not now.earliest_ns <= truth_ns <= now.latest_ns:
            self.outside += 1
            self.faults.append(f"{error_ns / MS:+.3f} ms, stated {now.bound_ns / MS:.3f} ms")
            if abs(error_ns) > abs(self.worst_ns):
                self.worst_ns, self.bound_ns = error_ns, now.bound_ns

    @property
    def known(self) -> int:
        """How often it said that it knows the time."""
        return len(self._known)

    def _take_samples(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                seconds, microseconds, offset_s, *_ = _SAMPLE.unpack(self.chronyd.recv(64))
                clock = VirtualClock(self.client.clock)
                truth_ns = seconds * SECOND + microseconds * 1_000
                error_ns = offset_s * 1e9 - (truth_ns - clock.raw_of_kernel_ns(truth_ns))
                self.handed[time.monotonic()] = error_ns

    def judge_samples(self) -> None:
        """Compare what chronyd got with what the client knew around that time."""
        last = max(self._known, default=time.monotonic())
        for at, error_ns in self.handed.items():
            if at > last - _STATUS_S / 2:
                continue  # its status may not say so yet
            around = [bound for seen, bound in self._known.items() if abs(seen - at) < _STATUS_S]
            if not around:
                self.faults.append(f"chronyd got {error_ns / MS:+.3f} ms, unsynchronised")
            elif abs(error_ns) > 2 * max(around):
                self.faults.append(f"chronyd got {error_ns / MS:+.3f} ms, {max(around) / MS:.3f}")


class World:
    """A hostile broker, a server and any number of clients, in a namespace."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig, self.namespace = rig, namespace
        self.network = Network(namespace)
        rig.on_close(self.network.close)
        self._ports = iter(range(2001, 60_000))
        self._authority = Authority(rig.new_folder("authority"), "10.77.0.2")
        certificate = Certificate(*self._authority.issue("broker"), rig.new_folder("secrets"))
        self.broker = Broker(self.network, certificate)
        self.watched: list[Watched] = []
        with inside(namespace):
            self._nursery = Nursery()
        rig.on_close(self._nursery.close)
        self.network.start()

    def _trusts(self, play: Play) -> list[str]:
        return ["--ca-file", str(self._authority.certificate)] if play.scheme == "mqtts" else []

    def server(self, play: Play, slew: tuple[int, int] | None = None) -> Server:
        """Start the time server, and wait until it serves; `slew`: its clock's, ns and ppb."""
        url = self.broker.listen(next(self._ports), play, play.scheme)
        more = ["--keys-file", self.rig.keys(*fleet_lines(FLEET)), *self._trusts(play)]
        server = self.rig.server(url, *more, start=False)
        if slew is not None:
            server.command = "slewed-timeserver"
            server.arguments[:0] = map(str, slew)
        with inside(self.namespace):
            server.start()
        server.wait_for(lambda status: status["done"].get("times"), "the server publishes", 60)
        return server

    def client(self, play: Play, name: str, clock: VirtualClockSettings | None = None) -> Watched:
        """Start a client, with a wrong clock."""
        url = self.broker.listen(next(self._ports), play, play.scheme)
        folder = self.rig.new_folder(name)
        chronyd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        chronyd.bind(str(folder / "chronyd"))
        self.rig.on_close(chronyd.close)
        (folder / "client.toml").write_text(_BELIEVES_SOON)
        client = ForkedClient(
            folder,
            "mqtick-client",
            *("--broker", url, "--name", name, "--config", str(folder / "client.toml")),
            *("--keys-file", self.rig.keys(*client_lines(name, FLEET)), *self._trusts(play)),
            *("-v", "--discipline", "chrony", "--chrony-socket", str(folder / "chronyd"), *_ASKS),
        )
        client.nursery = self._nursery
        self.rig.on_close(client.stop)
        client.run_with(
            clock or VirtualClockSettings.starting_now(offset_ns=3 * MS, frequency_ppb=20_000.0)
        )
        watched = Watched(client, play, chronyd)
        self.watched.append(watched)
        return watched

    def judge(self, is_over: Callable[[], bool], timeout_s: float) -> None:
        """Look at all clients until something is so, or the time has passed."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and not is_over():
            time.sleep(0.05)
            assert self.network.fault is None, self.network.fault
            for watched in self.watched:
                watched.look()


@contextlib.contextmanager
def world_of(rig: Rig) -> Iterator[World]:
    """Make a namespace, and a world in it."""
    namespace = f"mqtick-below-{os.getpid()}-{next(_worlds)}"
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    rig.on_close(lambda: subprocess.run(["ip", "netns", "del", namespace], check=True))
    yield World(rig, namespace)


def play(attacks: Mapping[str, Attack], slew: tuple[int, int] | None = None) -> dict[str, Watched]:
    """Play attacks at the same time, each on a client of its own of one server; what they claimed.

    Each is played until it was made often enough, and as long again as a status may be old.
    """
    rig, first = Rig(), next(iter(attacks.values()))
    try:
        with world_of(rig) as world:
            world.server(first.server or Play(first.client.version), slew)
            found = {}
            for turn, (name, attack) in enumerate(attacks.items()):
                found[name] = world.client(attack.client, f"{NAME}{turn:02}")

            def has_ended(attack: Attack, watched: Watched) -> bool:
                knows = watched.known >= 20 or not attack.may_know
                steers = watched.handed or not attack.steers
                return attack.made >= attack.times and knows and bool(steers)

            def is_over() -> bool:
                return all(has_ended(attack, found[name]) for name, attack in attacks.items())

            world.judge(is_over, 60)
            world.judge(lambda: False, _STATUS_S)
            for watched in found.values():
                watched.judge_samples()
            return found
    finally:
        rig.close()


def play_all(made: Mapping[str, Callable[[], Attack]]) -> Iterator[tuple[str, Attack, Watched]]:
    """Play attacks, those on honestly served servers together."""
    attacks = {name: make() for name, make in made.items()}
    worlds: dict[object, dict[str, Attack]] = {}
    for turn, (name, attack) in enumerate(attacks.items()):
        # An attack on the server is alone with it.
        key = name if attack.server else (attack.client.version, turn // AT_ONCE)
        worlds.setdefault(key, {})[name] = attack
    with ThreadPoolExecutor(_WORLDS_AT_ONCE) as pool:
        for together, found in zip(worlds.values(), pool.map(play, worlds.values()), strict=True):
            for name, watched in found.items():
                yield name, together[name], watched
