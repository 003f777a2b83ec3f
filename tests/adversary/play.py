"""A real time server and a real client with a hostile broker between them, and who judges them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hostile_broker import HostileBroker, Line
from truth import Truth
from virtual_time import EPOCH_NS, MS, SECOND, US, HostClock, Slew, World

import mqtick.client.discipline as client_discipline
import mqtick.timeserver.echo as server_echo
import mqtick.timeserver.server as server_server
from mqtick.client import agent as client_agent
from mqtick.client.agent import Agent
from mqtick.client.chrony import Outcome
from mqtick.client.config import ChronyKeys
from mqtick.client.config import Settings as ClientSettings
from mqtick.client.discipline import Discipline
from mqtick.client.estimate import Estimate
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.pending import WallSample
from mqtick.client.precise import PreciseTrack
from mqtick.client.track import Track
from mqtick.mqtt.broker import parse_broker_url
from mqtick.protocol.auth import Keyring, derive_broadcast_key, derive_client_key
from mqtick.protocol.steps import StepDetector
from mqtick.timeserver.config import Settings as ServerSettings
from mqtick.timeserver.server import Server

NAME = "pi7"
FLEET = b"the fleet key, 32 octets long..."
_KEPT = 8
"""So many forecasts are remembered at once."""
_HORIZONS_S = (1, 4, 16, 64)


@dataclass(frozen=True)
class Conditions:
    """What the attacker does not choose: clocks, links, settings."""

    seed: int = 0
    keys: bool = True
    duration_s: float = 40.0
    client_offset_ns: int = -3 * MS
    """What the client's clocks are off by at the start (ahead: positive)."""
    ppm: float = 20.0
    wander_ppb: float = 1.0
    slew_ppm: float = 0.0
    client_slews: tuple[Slew, ...] = ()
    server_offset_ns: int = 0
    """What the server's clock is off by at the start; its chronyd knows."""
    server_early_s: float = 6.0
    """How long the server runs before the client starts: in 4 s it learns the rate of its clock."""
    server_ppm: float = 0.0
    """How fast its crystal is."""
    server_wander_ppb: float = 0.0
    server_residual_ppm: float = 0.0
    """What its chronyd leaves of that."""
    server_slews: tuple[Slew, ...] = ()
    """How its chronyd corrects its clock."""
    root_distance_us: float = 25.0
    """What chronyd says at least, in addition to all that it has to correct."""
    server_interval_s: float = 1.0
    least_link_ns: int = 40 * US
    kernel_stamps: bool = True
    shared_reads: float = 0.0
    """Share of the messages of which the kernel's stamp is lost, and of those maybe held."""
    busy_ns: int = 0
    """How long a program may take to come to read what has arrived."""
    fills: bool = False
    """Whether the broker says how long each message was in it."""
    url: str = "mqtt://hostile"
    certificate_dates_s: tuple[int, int] = (0, 2**32)
    client: dict[str, Any] = field(default_factory=dict)
    """Settings of the client."""
    estimator: dict[str, Any] = field(default_factory=dict)


class _Socket:
    """In place of chronyd's: tells the judge what comes."""

    def __init__(self, judge: Play, path: str) -> None:
        self.path, self._judge = path, judge
        self.counts: dict[Outcome, int] = {}

    def send(self, realtime_ns: int, offset_ns: int, leap: int = 0) -> Outcome:
        self._judge.handed(realtime_ns, offset_ns, leap)
        return Outcome.SENT

    def birth(self) -> None:
        """Say that there is no socket: chronyd is not fed as a new one."""

    def explain(self, outcome: Outcome) -> str:
        return str(outcome)

    def close(self) -> None:
        pass


class Play:
    """Puts server, broker and client together; `faults` says what must never happen and did.

    Judged after each sample, each second, and when the time comes that the client foretold: while
    the client says that it knows the time, its interval holds what the server serves, and with the
    root distance UTC; what is handed to chronyd lies in that interval and says of
    leap seconds what the server says; and no message silences the server.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = given = conditions
        self.world = world = World(given.seed)
        self.server_clock = HostClock(
            world,
            offset_ns=given.server_offset_ns,
            ppm=given.server_ppm,
            wander_ppb=given.server_wander_ppb,
            slew_ppm=given.server_residual_ppm - given.server_ppm,
            slews=given.server_slews,
            seed=given.seed + 1,
        )
        self.client_clock = HostClock(
            world,
            offset_ns=given.client_offset_ns,
            ppm=given.ppm,
            wander_ppb=given.wander_ppb,
            slew_ppm=given.slew_ppm,
            slews=given.client_slews,
            seed=given.seed,
        )
        self.broker = HostileBroker(
            world,
            {"server": self.server_clock, "client": self.client_clock},
            least_link_ns=given.least_link_ns,
            kernel_stamps=given.kernel_stamps,
            shared_reads=given.shared_reads,
            busy_ns=given.busy_ns,
            fills=given.fills,
            certificate_dates_s=given.certificate_dates_s,
        )
        self.faults: list[str] = []
        self.samples: list[WallSample] = []
        self.handed_ns: list[int] = []
        """Errors of what chronyd was handed: offset minus truth."""
        self.judged = 0
        """How many answers were compared with the truth."""
        self._arrived: dict[int, list[tuple[Track, WallSample]]] = {}
        self._forecasts: list[tuple[int, Estimate]] = []
        self.truth = Truth(
            world, self.server_clock, self.client_clock, round(given.root_distance_us * US)
        )
        self.server: Server
        self.agent: Agent

    @contextlib.contextmanager
    def running(self) -> Iterator[Play]:
        """Start both; the world's time and chance are theirs for as long as this lasts."""
        with self.world.installed(
            (client_agent, "Connection", self.broker.connection),
            (server_server, "Connection", self.broker.connection),
            (server_echo, "Connection", self.broker.connection),
            (server_server, "ServedClock", self.truth.serve),
            (server_server, "ReferenceWatch", self.truth.watch),
            (client_discipline, "ChronySock", lambda path, _layout: _Socket(self, path)),
            (client_agent, "StepDetector", self.client_clock.detector),
            (server_server, "StepDetector", self._server_detector),
        ):
            self._start(self.conditions)
            yield self

    def _start(self, given: Conditions) -> None:
        fleet = Keyring(fleet=(FLEET,)) if given.keys else Keyring()
        derived = Keyring(
            broadcast_only=(derive_broadcast_key(FLEET),),
            client_only=(derive_client_key(FLEET, NAME),),
        )
        early_ns = round(given.server_early_s * SECOND)
        self.world.now_ns -= early_ns
        self.server = Server(
            ServerSettings(
                formats=("precise",),
                interval_s=given.server_interval_s,
                name="hall/clock",
            ),
            self.world,  # type: ignore[arg-type]
            parse_broker_url("mqtt://hostile"),
            self.server_clock,
            fleet,
        )
        self.truth.server = self.server
        self.truth.begins(self.server.generation)
        self.server.start()
        self.world.call_later(SECOND, self._tick_server)
        self.world.run(self.world.now_ns + early_ns - 1)  # what is due then finds the client there
        settings = ClientSettings(
            **{"fast": True, "exchange_interval_s": 4.0, **given.client},
            estimator=EstimatorSettings(**given.estimator),
        )
        self.agent = Agent(
            settings,
            self.world,  # type: ignore[arg-type]
            parse_broker_url(given.url),
            self.client_clock,
            derived if given.keys else Keyring(),
            NAME,
            on_sample=self._on_sample,
        )
        self.discipline = Discipline(
            ChronyKeys(),
            self.world,  # type: ignore[arg-type]
            interval_ns=int(settings.exchange_interval_s * SECOND),
            burst_ns=int(settings.exchange_burst * settings.exchange_spacing_ms * MS) + 100 * MS,
            broadcasts_ns=int(settings.estimator.lucky_broadcasts_s * SECOND),
            clock_changes=self.agent.clock_changes,
        )
        self.agent.start()
        self.world.call_later(SECOND, self._tick_client)

    def _tick_server(self) -> None:
        self.server.tick()
        if self.conditions.keys and self.server.claims.standing_by:
            self.fault("the server believes in another one and is silent")
        self.world.call_later(SECOND, self._tick_server)

    def _tick_client(self) -> None:
        self.agent.tick()
        self.judge("each second")
        self._foretell()
        self.world.call_later(SECOND, self._tick_client)

    def run(self, seconds: float | None = None) -> None:
        """Let so much true time pass; the conditions' duration unless told."""
        seconds = self.conditions.duration_s if seconds is None else seconds
        self.world.run(self.world.now_ns + round(seconds * SECOND))

    # -- what holds ------------------------------------------------------------------------------

    def _server_detector(self) -> StepDetector:
        return self.server_clock.detector(
            lambda: self.truth.begins((self.server.generation + 1) % 256)
        )

    @property
    def line(self) -> Line:
        """The client's connection."""
        return self.broker.lines["client"]

    def fault(self, what: str) -> None:
        self.faults.append(f"{self.world.elapsed_ns / SECOND:.3f} s: {what}")

    def judge(self, when: str) -> None:
        """Compare what the client says now with the truth."""
        raw_ns = self.client_clock.raw_ns()
        for track in self.agent.tracks:
            told = track.estimator.at(raw_ns)
            if not told.state.is_known or not self._assumption_holds(told):
                continue
            self.judged += 1
            who = f"server {track.number}, {when}"
            if told.lower_ns is None or told.upper_ns is None or told.offset_ns is None:
                self.fault(f"{who}: {told.state} without an interval")
                continue
            if not told.lower_ns <= told.offset_ns <= told.upper_ns:
                self.fault(f"{who}: the estimate is outside its own interval")
            self._compare(f"{who}: {told.state}", told, _generation(track))

    def _assumption_holds(self, told: Estimate) -> bool:
        """Whether what the client names as its assumption was so, if it had to make one."""
        assumed_ppm = self.agent.settings.estimator.assumed_slew_ppm
        return not told.slew_is_assumed or self.truth.slewed_within(assumed_ppm)

    def _compare(self, who: str, told: Estimate, generation: int | None) -> None:
        assert told.lower_ns is not None
        assert told.upper_ns is not None
        truths = (
            ("the served time", self.truth.served_ns(generation), 0),
            ("UTC", self.truth.utc_ns(generation), told.root_distance_ns),
        )
        for name, truth_ns, more_ns in truths:
            if truth_ns is None:
                continue
            lower_ns = told.lower_ns - more_ns - truth_ns
            upper_ns = told.upper_ns + more_ns - truth_ns
            if not lower_ns <= 0 <= upper_ns:
                self.fault(f"{who}, [{lower_ns}, {upper_ns}] ns about {name} does not hold it")

    def _foretell(self) -> None:
        """Remember now and then what the client says of the future, and judge it then."""
        best = self.agent.best()
        if best is None or len(self._forecasts) >= _KEPT:
            return
        chance = self.world.random
        after_ns = chance.choice(_HORIZONS_S) * SECOND
        true_ns = self.world.now_ns + after_ns
        told = best[0].estimator.at(self.client_clock.at(true_ns))
        if not told.state.is_known or told.lower_ns is None or told.upper_ns is None:
            return
        forecast = self.world.elapsed_ns, told
        generation, slept_ns = _generation(best[0]), self.client_clock.slept_ns()
        begun = self.truth.begun[generation]
        self._forecasts.append(forecast)

        def due() -> None:
            self._forecasts.remove(forecast)
            if self.client_clock.slept_ns() != slept_ns:
                return  # whoever reads it then is told that the host has slept
            if self.truth.begun[generation] != begun:
                return  # a server that was started again has drawn the same number
            if self._assumption_holds(told):
                self._compare(f"what was told at {forecast[0] / SECOND:.3f} s", told, generation)

        self.world.call_at(true_ns, due)

    def _on_sample(self, track: Track, wall: WallSample) -> None:
        self.samples.append(wall)
        self._arrived.setdefault(wall.realtime_ns, []).append((track, wall))
        self.discipline.on_sample(track, wall)
        self.judge(f"after a {wall.sample.kind} sample")

    def handed(self, realtime_ns: int, offset_ns: int, leap: int) -> None:
        """Chronyd is handed this, of one of the samples that arrived then."""
        if leap != self.server.reference.leap:
            self.fault(f"chronyd is told leap {leap}")
        outside = ""
        for track, wall in self._arrived[realtime_ns]:
            raw_ns = wall.sample.arrived_ns
            told = track.estimator.at(raw_ns)
            if not told.state.is_known or told.lower_ns is None or told.upper_ns is None:
                outside = "chronyd is handed what the client does not believe"
                continue
            handed_ns = offset_ns + wall.time_minus_raw_ns
            if told.lower_ns <= handed_ns <= told.upper_ns:
                true_ns = self.world.now_ns - (self.client_clock.raw_ns() - raw_ns)
                if self.client_clock.set_ns(self.world.now_ns) != self.client_clock.set_ns(true_ns):
                    self.fault("chronyd is handed what was measured before the clock was set")
                truth_ns = self.truth.served_ns(_generation(track))
                if truth_ns is not None:
                    # The served time has gone on like the true one since then, almost.
                    gained_ns = self.client_clock.raw_ns() - raw_ns - (self.world.now_ns - true_ns)
                    self.handed_ns.append(handed_ns - truth_ns - gained_ns)
                return
            outside = (
                f"chronyd is handed {handed_ns} ns ({wall.sample.kind}), outside "
                f"[{told.lower_ns}, {told.upper_ns}] ns"
            )
        self.fault(outside)

    # -- for statements about one attack ---------------------------------------------------------

    @property
    def state(self) -> str:
        """What `status` says in its first line."""
        best = self.agent.best()
        return str(best[1].state) if best is not None else "unsynchronised"

    @property
    def error_ns(self) -> int | None:
        """By how much the estimate is wrong now; None while nothing is known."""
        best = self.agent.best()
        if best is None or best[1].offset_ns is None:
            return None
        truth_ns = self.truth.served_ns(_generation(best[0]))
        return None if truth_ns is None else best[1].offset_ns - truth_ns


def _generation(track: Track) -> int | None:
    return track.generation if isinstance(track, PreciseTrack) else None


def utc_s(play: Play) -> float:
    """True Unix time, seconds."""
    return (EPOCH_NS + play.world.elapsed_ns) / SECOND
