"""Processes with clients of a benchmark: each its own connection, clock and estimators.

The clocks are virtual, so that the truth is known exactly.
"""

from __future__ import annotations

import gc
import json
import pickle
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mqtick.client.agent import Agent
from mqtick.client.config import Settings
from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, SampleVerdict
from mqtick.client.track import Track
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings, read_kernel_time

_SECOND = 1_000_000_000
METHODS = ("best", "echo", "two-way", "one-way")


class Client:
    """One client of the benchmark: an agent, and more estimators fed with the same samples."""

    def __init__(self, index: int, url: str, settings: Settings, loop: Loop, wander: float) -> None:
        chance = random.Random(index)
        self.clock = VirtualClock(
            VirtualClockSettings.starting_now(
                offset_ns=round(chance.uniform(-1, 1) * _SECOND),
                frequency_ppb=chance.uniform(-50_000, 50_000),
                wander_ppb=wander,
                seed=index,
            )
        )
        base = settings.estimator
        self.extra = {
            "echo": Estimator(replace(base, use_lucky=False)),
            "two-way": Estimator(replace(base, use_echo=False)),
        }
        self.agent = Agent(
            settings,
            loop,
            parse_broker_url(url),
            self.clock,
            Keyring(),
            f"c{index}",
            on_sample=self.on_sample,
        )
        self.errors = {name: array("q") for name in METHODS}
        self.halves = {name: array("q") for name in METHODS}
        self.outside = dict.fromkeys(METHODS, 0)
        self.unknown = dict.fromkeys(METHODS, 0)
        self.samples: dict[str, array[int]] = {str(kind): array("q") for kind in Kind}
        self.measuring = False

    def truth_ns(self) -> tuple[int, int]:
        """Return (local raw now, true offset now)."""
        now = read_kernel_time()
        raw_ns = self.clock.at_monotonic_raw_ns(now.raw_ns)
        return raw_ns, now.realtime_ns - raw_ns

    def on_sample(self, _track: Track, wall: WallSample) -> None:
        """Feed the other estimators; note the error of the sample itself."""
        sample = replace(wall.sample, verdict=SampleVerdict.PENDING)
        if sample.kind is Kind.ECHO:
            self.extra["echo"].add(sample)
        elif sample.kind is Kind.TWO_WAY:
            self.extra["two-way"].add(sample)
        if not self.measuring:
            return
        raw_ns, truth_ns = self.truth_ns()
        rate = (self.clock.at_monotonic_raw_ns(self._later()) - raw_ns) / _SECOND - 1
        # The truth at the sample's instant: the clock's rate is known.
        then_ns = truth_ns + round(rate * (raw_ns - sample.local_ns))
        self.samples[str(sample.kind)].append(sample.offset_ns - then_ns)
        if sample.kind is Kind.ONE_WAY:
            self.errors["one-way"].append(sample.offset_ns - then_ns)

    @staticmethod
    def _later() -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + _SECOND

    def fall_silent(self) -> None:
        """Send no more requests, so that only broadcasts are left."""
        for track in self.agent.tracks:
            track.ask = lambda: False  # type: ignore[method-assign]

    def look(self) -> None:
        """Compare every estimate with the truth."""
        best = self.agent.best()
        estimators = dict(self.extra)
        if best is not None:
            estimators["best"] = best[0].estimator
        for name, estimator in estimators.items():
            raw_ns, truth_ns = self.truth_ns()
            estimate = estimator.at(raw_ns)
            if estimate.offset_ns is None or estimate.half_width_ns is None:
                self.unknown[name] += 1
                continue
            assert estimate.lower_ns is not None
            assert estimate.upper_ns is not None
            self.errors[name].append(estimate.offset_ns - truth_ns)
            self.halves[name].append(estimate.half_width_ns)
            self.outside[name] += not estimate.lower_ns <= truth_ns <= estimate.upper_ns


class Workers:
    """Clients in processes of their own, a connection for each URL."""

    def __init__(
        self,
        folder: Path,
        urls: Sequence[str],
        *,
        count: int,
        seconds: float,
        warm_up_s: float,
        silent_s: float = 0.0,
        exchange_interval_s: float = 16.0,
        exchange_burst: int = 4,
        wander_ppb: float = 10.0,
    ) -> None:
        self._started = []
        for number in range(count):
            result = folder / f"worker{number}.pickle"
            job = {
                "indexes": list(range(number, len(urls), count)),
                "urls": urls[number::count],
                "exchange_interval_s": exchange_interval_s,
                "exchange_burst": exchange_burst,
                "wander_ppb": wander_ppb,
                "warm_up_s": warm_up_s,
                "silent_s": silent_s,
                "seconds": seconds,
                "result": str(result),
            }
            command = [sys.executable, "-m", "bench.time_error_worker", json.dumps(job)]
            self._started.append((subprocess.Popen(command), result))

    def records(self) -> list[dict[str, Any]]:
        """Wait until all have ended, and return what they say of each client."""
        for process, _ in self._started:
            process.wait()
        return [row for _, path in self._started for row in pickle.loads(path.read_bytes())]


def main() -> None:
    """Run the clients that the job on the command line describes; write a pickle."""
    job = json.loads(sys.argv[1])
    loop = Loop()
    settings = Settings(
        broker=job["urls"][0],
        format="precise",
        exchange_interval_s=job["exchange_interval_s"],
        exchange_burst=job["exchange_burst"],
        start_burst=8,
        # The broker is our own, so echoes may narrow the interval, which is compared here.
        estimator=EstimatorSettings(trust_broker=True),
    )
    clients = [
        Client(index, url, settings, loop, job["wander_ppb"])
        for index, url in zip(job["indexes"], job["urls"], strict=True)
    ]
    # Connect one after the other, like hosts.
    for place, client in enumerate(clients):
        loop.call_later(place * 20_000_000 + 1, client.agent.start)
    silent_ns = time.monotonic_ns() + int(job["warm_up_s"] * _SECOND)
    start_ns = silent_ns + int(job["silent_s"] * _SECOND)
    end_ns = start_ns + int(job["seconds"] * _SECOND)

    def look(place: int) -> None:
        """Observe one client per turn, so that the loop is not blocked."""
        client = clients[place]
        now_ns = time.monotonic_ns()
        if now_ns >= end_ns:
            loop.stop()
            return
        if job["silent_s"] and now_ns >= silent_ns:
            client.fall_silent()
        if now_ns >= start_ns:
            client.measuring = True
            client.look()
        client.agent.tick()
        loop.call_later(_SECOND, lambda: look(place))

    for place in range(len(clients)):
        loop.call_later(_SECOND * (place + 1) // len(clients), partial(look, place))
    gc.collect()
    gc.freeze()
    gc.disable()
    loop.call_later(30 * _SECOND, lambda: None)
    loop.run()
    Path(job["result"]).write_bytes(
        pickle.dumps(
            [
                {
                    "errors": client.errors,
                    "halves": client.halves,
                    "outside": client.outside,
                    "unknown": client.unknown,
                    "samples": client.samples,
                }
                for client in clients
            ]
        )
    )
    for client in clients:
        client.agent.close()


if __name__ == "__main__":
    main()
