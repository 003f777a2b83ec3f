"""The client as a program: agent, sinks and housekeeping in one loop."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqtick.client.agent import Agent
from mqtick.client.config import Settings, in_effect
from mqtick.client.discipline import Discipline
from mqtick.client.experiments import KEPT_EDGES, Experiments
from mqtick.client.fleet.announcement import Announcer
from mqtick.client.interval import PROGRAM
from mqtick.client.metrics import metrics
from mqtick.client.pending import WallSample
from mqtick.client.sample_log import SampleLog
from mqtick.client.status import status
from mqtick.client.status_text import summary
from mqtick.client.track import Track
from mqtick.mqtt.broker import broker_from
from mqtick.mqtt.loop import Loop
from mqtick.pins import Edge, keepers
from mqtick.pins.drive import PpsDriver, about_outputs, firing
from mqtick.protocol.auth import Keyring, load_key_file
from mqtick.protocol.clocks import Clock, SystemClock, VirtualClock, VirtualClockSettings
from mqtick.protocol.experiments import about_host
from mqtick.protocol.hangup import read_keys_on_hangup
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import check_client_name
from mqtick.service.program import TICK_NS, Housekeeping

_log = logging.getLogger("mqtick.client")


class _Program:
    """All parts of the running client, which can call each other through it."""

    def __init__(self, settings: Settings, name: str) -> None:
        settings = in_effect(settings)
        self.house = Housekeeping(
            PROGRAM,
            settings.state_folder,
            settings.metrics_listen,
            settings.realtime,
            status=self._status,
            summary=summary,
            metrics=metrics,
        )
        self.loop = Loop()
        self.clock: Clock = SystemClock()
        if settings.virtual_clock:
            self.clock = VirtualClock(VirtualClockSettings.from_text(settings.virtual_clock))
        keyring = load_key_file(settings.keys_file) if settings.keys_file else Keyring()
        pins = keepers(arrival=settings.pin, pps=settings.pps)
        self.house.parts |= {f"pin {name}": keeper for name, keeper in pins.items()}
        self.pins = {name: keeper.output for name, keeper in pins.items()}
        self.pin, pps_pin = self.pins.get("arrival"), self.pins.get("pps")
        self.log = SampleLog(settings.sample_log) if settings.sample_log else None
        if self.log is not None:
            self.house.parts["sample log"] = self.log
        self.discipline: Discipline | None = None
        if settings.discipline == "chrony":
            spacing_ns = int(settings.exchange_spacing_ms * 1e6)
            self.discipline = Discipline(
                settings.chrony,
                self.loop,
                interval_ns=int(settings.exchange_interval_s * NS_PER_S),
                burst_ns=settings.exchange_burst * spacing_ns + 100_000_000,
                broadcasts_ns=int(settings.estimator.lucky_broadcasts_s * NS_PER_S),
                clock_changes=self._clock_changes,
            )
        edges: deque[Edge] | None = deque(maxlen=KEPT_EDGES) if settings.experiments else None
        self.agent = Agent(
            settings,
            self.loop,
            broker_from(settings),
            self.clock,
            keyring,
            name,
            on_sample=self._on_sample,
            on_arrival=firing(self.loop, self.pin, edges) if self.pin is not None else None,
            before_arrival=self._rehearse if self.pin is not None else None,
        )
        self.announcer: Announcer | None = None
        if settings.publish_status:
            topic = self.agent.tree.client_status(name)
            self.announcer = Announcer(settings, self.agent.connection, topic)
        self.pps: PpsDriver | None = None
        if pps_pin is not None:
            self.pps = PpsDriver(self.loop, pps_pin, self._raw_of_time)
        if edges is not None:
            self.agent.experiments = Experiments(self.agent, edges, self.pps, self._about(settings))

    def _about(self, settings: Settings) -> Callable[[], dict[str, Any]]:
        """Return a function that describes this client and its time for an experiment's record."""
        fixed = {**about_host(), "settings": dataclasses.asdict(settings)}
        return lambda: {
            **fixed,
            **about_outputs(self.pins),
            "chrony": self.discipline.status() if self.discipline is not None else None,
            "clock": summary(self._status()),
        }

    def _on_sample(self, track: Track, wall: WallSample) -> None:
        if self.discipline is not None:
            self.discipline.on_sample(track, wall)
        if self.log is not None:
            self.log.write(track, wall)

    def _clock_changes(self, look: bool) -> int:
        return self.agent.clock_changes(look)

    def _rehearse(self) -> None:
        """Run the code of an arrival shortly before it comes, so that caches are warm."""
        assert self.pin is not None
        self.pin.rehearse()
        self.agent.connection.rehearse()

    def _raw_of_time(self, time_ns: int) -> int | None:
        """Convert the estimated reference time to CLOCK_MONOTONIC_RAW; None while not known."""
        best = self.agent.best()
        if best is None:
            return None
        raw_ns = self.clock.raw_ns()
        offset_ns = best[0].estimator.at(raw_ns).offset_ns
        if offset_ns is None:
            return None
        for _ in range(2):  # the offset changes by some ppm: two steps are exact to 1 ns
            raw_ns = time_ns - offset_ns
            offset_ns = best[0].estimator.at(raw_ns).offset_ns or offset_ns
        return self.clock.monotonic_raw_ns(time_ns - offset_ns)

    def _status(self) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self.discipline is not None:
            extra["chrony"] = self.discipline.status()
        if self.pins:
            extra["pins"] = {
                name: {"backend": output.name, "errors": output.errors, "last": output.last_error}
                for name, output in self.pins.items()
            }
        if self.pps is not None:
            extra["pps"] = {
                "made": self.pps.pps.made,
                "missed": self.pps.pps.missed,
                "edges": [edge._asdict() for edge in list(self.pps.edges)[-8:]],
            }
        if self.log is not None:
            extra["samples_not_logged"] = self.log.lost
        return status(self.agent, extra)

    def tick(self) -> None:
        """Do what is due about once a second."""
        if self.discipline is not None:
            self.discipline.tick()  # first, because it may make the agent send a request
        self.agent.tick()
        self.house.tick()
        if self.announcer is not None:
            self.announcer.tick(self.house.latest, time.monotonic_ns())
        self.loop.call_lazily(*TICK_NS, self.tick)

    def run(self) -> None:
        """Run until a signal."""
        self.loop.stop_on_signals()
        read_keys_on_hangup(
            self.loop.call_on_signal, self.agent.settings.keys_file, self.agent.use_keys
        )
        self.agent.start()
        if self.pps is not None:
            self.pps.start()
        self.house.start()
        self.loop.call_lazily(*TICK_NS, self.tick)
        _log.info("following time on %s as %s", self.agent.connection.address, self.agent.name)
        try:
            self.loop.run()
        finally:
            self.house.stop()
            if self.announcer is not None:
                self.announcer.close()
            self.agent.close()
            for thing in (self.discipline, self.log, *self.pins.values()):
                if thing is not None:
                    thing.close()
            self.loop.close()


def follow(settings: Settings, name: str) -> int:
    """Run the client until a signal; returns the exit code."""
    _Program(settings, check_client_name(name)).run()
    return 0
