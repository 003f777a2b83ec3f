"""A real time server and a real client with a hostile broker between them, and who judges them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hostile_broker import HostileBroker, Line
from virtual_time import EPOCH_NS, MS, SECOND, US, HostClock, World

import mqtick.client.discipline as client_discipline
import mqtick.timeserver.echo as server_echo
import mqtick.timeserver.server as server_server
from mqtick.client import agent as client_agent
from mqtick.client.agent import Agent
from mqtick.client.chrony import Outcome
from mqtick.client.config import ChronyKeys
from mqtick.client.config import Settings as ClientSettings
from mqtick.client.discipline import Discipline
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.pending import WallSample
from mqtick.client.precise import PreciseTrack
from mqtick.client.track import Track
from mqtick.mqtt.broker import parse_broker_url
from mqtick.protocol.auth import Keyring, derive_broadcast_key, derive_client_key
from mqtick.protocol.steps import StepDetector
from mqtick.timeserver.config import Settings as ServerSettings
from mqtick.timeserver.server import Server

__all__ = ["FLEET", "NAME", "Conditions", "Play"]

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
    server_offset_ns: int = 0
    """What the server's clock is off by: less than its root distance."""
    root_distance_us: float = 25.0
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
    the client says that it knows the time, its interval holds the server's clock, with the root
    distance it shows the true time too; what is handed to chronyd lies in that interval and says of
    leap seconds what the server says; and no message silences the server.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = given = conditions
        self.world = world = World(given.seed)
        self.server_clock = HostClock(world, offset_ns=given.server_offset_ns)
        self.client_clock = HostClock(
            world,
            offset_ns=given.client_offset_ns,
            ppm=given.ppm,
            wander_ppb=given.wander_ppb,
            slew_ppm=given.slew_ppm,
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
        self._forecasts: list[tuple[int, int, int]] = []
        self._set_ns: dict[int | None, int] = {}
        """How far the server's clock was stepped when each of its generations began."""
        self.server: Server
        self.agent: Agent

    @contextlib.contextmanager
    def running(self) -> Iterator[Play]:
        """Start both; the world's time and chance are theirs for as long as this lasts."""
        with self.world.installed(
            (client_agent, "Connection", self.broker.connection),
            (server_server, "Connection", self.broker.connection),
            (server_echo, "Connection", self.broker.connection),
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
        self.server = Server(
            ServerSettings(
                trust_system_clock=True,
                trusted_root_distance_us=given.root_distance_us,
                formats=("precise",),
                interval_s=given.server_interval_s,
                name="hall/clock",
            ),
            self.world,  # type: ignore[arg-type]
            parse_broker_url("mqtt://hostile"),
            self.server_clock,
            fleet,
        )
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
            step_detector=self.client_clock.detector,
        )
        self.begins(self.server.generation)
        self.server.start()
        self.agent.start()
        self.world.call_later(SECOND, self._tick_server)
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

    def truth_ns(self, true_ns: int | None = None, generation: int | None = None) -> int:
        """The server's clock minus the client's timeline.

        `generation`: the clock is the one that this generation of the server began with. Once it
        was set, a client that cannot have heard of that yet may say what it would read otherwise.
        """
        true_ns = self.world.now_ns if true_ns is None else true_ns
        truth_ns = self.server_clock.realtime_at(true_ns) - self.client_clock.at(true_ns)
        set_ns = self.server_clock.set_ns(true_ns)
        return truth_ns - set_ns + self._set_ns.get(generation, set_ns)

    def _server_detector(self) -> StepDetector:
        return self.server_clock.detector(lambda: self.begins((self.server.generation + 1) % 256))

    def begins(self, generation: int) -> None:
        """Note what the server's clock is when it begins this generation."""
        self._set_ns[generation] = self.server_clock.set_ns(self.world.now_ns)

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
            truth_ns = self.truth_ns(generation=_generation(track))
            told = track.estimator.at(raw_ns)
            if not told.state.is_known:
                continue
            self.judged += 1
            who = f"server {track.number}, {when}"
            if told.lower_ns is None or told.upper_ns is None or told.offset_ns is None:
                self.fault(f"{who}: {told.state} without an interval")
                continue
            if not told.lower_ns <= truth_ns <= told.upper_ns:
                self.fault(
                    f"{who}: {told.state}, [{told.lower_ns - truth_ns}, "
                    f"{told.upper_ns - truth_ns}] ns about the truth does not hold it"
                )
            if not told.lower_ns <= told.offset_ns <= told.upper_ns:
                self.fault(f"{who}: the estimate is outside its own interval")
            distance_ns = round(self.conditions.root_distance_us * US)
            if told.root_distance_ns < distance_ns:
                self.fault(f"{who}: root distance {told.root_distance_ns}, not {distance_ns} ns")

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
        forecast = (self.world.elapsed_ns, told.lower_ns, told.upper_ns)
        generation, slept_ns = _generation(best[0]), self.client_clock.slept_ns()
        self._forecasts.append(forecast)

        def due() -> None:
            self._forecasts.remove(forecast)
            made_ns, lower_ns, upper_ns = forecast
            truth_ns = self.truth_ns(generation=generation)
            if self.client_clock.slept_ns() != slept_ns:
                return  # whoever reads it then is told that the host has slept
            if not lower_ns <= truth_ns <= upper_ns:
                self.fault(
                    f"what was told at {made_ns / SECOND:.3f} s of this moment, "
                    f"[{lower_ns - truth_ns}, {upper_ns - truth_ns}] ns about the truth, is wrong"
                )

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
                self.handed_ns.append(handed_ns - self.truth_ns(true_ns, _generation(track)))
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
        return best[1].offset_ns - self.truth_ns(generation=_generation(best[0]))


def _generation(track: Track) -> int | None:
    return track.generation if isinstance(track, PreciseTrack) else None


def utc_s(play: Play) -> float:
    """True Unix time, seconds."""
    return (EPOCH_NS + play.world.elapsed_ns) / SECOND
