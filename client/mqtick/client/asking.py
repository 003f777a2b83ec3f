"""Plans the requests to each server: a burst now and then, spread over the fleet."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from mqtick.client.config import Settings
from mqtick.client.precise import PreciseTrack
from mqtick.mqtt.loop import Loop, Timer
from mqtick.protocol.time_types import NS_PER_S


class Asking:
    """Keeps one plan per server; a new plan replaces the old one.

    `may_ask(track)` is called before each request. If it returns False, the plan ends, and the
    caller begins a new plan once requests make sense again.
    """

    def __init__(
        self, settings: Settings, loop: Loop, may_ask: Callable[[PreciseTrack], bool]
    ) -> None:
        self._settings, self._loop, self._may_ask = settings, loop, may_ask
        self._spacing_ns = int(settings.exchange_spacing_ms * 1e6)
        self._plans: dict[int, Timer] = {}
        self._pauses: dict[int, int] = {}
        """By server, the pause after the last burst, ns: doubled until it is the configured one."""

    def is_planned(self, track: PreciseTrack) -> bool:
        """Whether this server will be asked."""
        return track.number in self._plans

    def begin(self, track: PreciseTrack) -> None:
        """Begin with the long first burst: the server is new, or all measurements were lost.

        The next bursts follow soon, because the frequency is not known either.
        """
        self._pauses[track.number] = NS_PER_S
        self._plan(track, self._settings.start_burst, self._spread_ns())

    def once_soon(self, track: PreciseTrack) -> None:
        """Send one request soon, for a question that a broadcast cannot settle."""
        self._plan(track, 1, self._spread_ns())

    def stop(self) -> None:
        """Drop all plans: the connection is down."""
        for timer in self._plans.values():
            timer.cancel()
        self._plans.clear()

    def forget(self, track: PreciseTrack) -> None:
        """Drop the plan of a server that is not followed any more."""
        timer = self._plans.pop(track.number, None)
        if timer is not None:
            timer.cancel()

    def _spread_ns(self) -> int:
        """A random delay: clients that heard the same message must not all ask at once."""
        return 0 if self._settings.fast else random.randrange(NS_PER_S)

    def _plan(self, track: PreciseTrack, count: int, delay_ns: int) -> None:
        self.forget(track)
        self._plans[track.number] = self._loop.call_later(delay_ns, lambda: self._ask(track, count))

    def _begin_burst(self, track: PreciseTrack) -> None:
        """Begin a burst; if a broadcast would come during the burst, begin after the broadcast."""
        count, spacing_ns = self._settings.exchange_burst, self._spacing_ns
        wait_ns = track.rhythm.wait_ns(time.monotonic_ns(), (count - 1) * spacing_ns)
        if wait_ns:
            self._plan(track, count, wait_ns)
        else:
            self._ask(track, count)

    def _ask(self, track: PreciseTrack, left: int) -> None:
        del self._plans[track.number]
        if not self._may_ask(track):
            return
        if track.ask() and left > 1:
            self._plan(track, left - 1, self._spacing_ns)
            return
        # The pause is random, so that clients that started together drift apart.
        interval_ns = int(self._settings.exchange_interval_s * NS_PER_S)
        pause_ns = min(2 * self._pauses.get(track.number, interval_ns), interval_ns)
        self._pauses[track.number] = pause_ns
        delay_ns = int(pause_ns * random.uniform(0.8, 1.2))
        self.forget(track)
        self._plans[track.number] = self._loop.call_later(
            delay_ns, lambda: self._begin_burst(track)
        )
