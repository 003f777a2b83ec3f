"""A client of the simulation: mqtick's own track and estimator, with a wrong clock.

Requests, replies and follow-ups are real messages, with the trailers that the RTL wrote for them.
The clock is virtual, so the truth is known to the nanosecond.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bench.one_way_world import (
    GENERATION,
    KEYS,
    SECOND,
    SERVER,
    START_NS,
    TREE,
    Exchange,
    Heard,
    Life,
    name_of,
)
from mqtick.client.config import Settings
from mqtick.client.estimate import Estimate
from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.pending import WallSample
from mqtick.client.precise import PreciseTrack
from mqtick.client.sample import Kind, Reason, SampleVerdict
from mqtick.client.track import ClientContext, Track
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.protocol.precise import FollowUp, Leap, Reply, Request, tag_of
from mqtick.protocol.residence import Copies

_EARLY_NS = 30_000
"""A reply leaves this much later than its stated transmit time; the follow-up corrects it."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The properties of the clients' clocks, and of their kernels' stamps.

    Attributes:
        noise_ns: Values of the lateness of receive stamps, to draw from; empty: stamps are exact.
    """

    offset_s: float = 1.0
    frequency_ppm: float = 50.0
    wander_ppb: float = 1.0
    noise_ns: Sequence[int] = ()


class _SimulatedClock(VirtualClock):
    """A virtual clock in simulated time; a kernel's stamp is the true time."""

    __slots__ = ("now_ns",)

    def __init__(self, settings: VirtualClockSettings) -> None:
        super().__init__(settings, lambda: self.now_ns)
        self.now_ns = START_NS

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        return self.at_monotonic_raw_ns(realtime_ns)


class _Line:
    """Stands for the connection and the loop through the broker; only the trailer matters."""

    filled = True
    round_trip_ns = 0

    def __init__(self, clock: _SimulatedClock) -> None:
        self._clock = clock
        self.sent = b""

    def publish(self, _topic: str, payload: bytes, _properties: bytes = b"") -> Transmit:
        self.sent = payload
        transmit = Transmit(self._clock.now_ns)
        transmit.kernel_ns = self._clock.now_ns
        return transmit

    def collect_stamps(self) -> None:
        pass

    def subscribe(self, _topics: list[str], _done: Callable[[bool], None]) -> None:
        pass

    def delay_ns(self) -> None:
        pass

    def spread_ns(self) -> int:
        return 0

    def warm_up(self) -> None:
        pass


@dataclass
class Figures:
    """Errors of a client at each observation, ns, and how often the truth was outside."""

    errors: array[int] = field(default_factory=lambda: array("q"))
    halves: array[int] = field(default_factory=lambda: array("q"))
    assumed_halves: array[int] = field(default_factory=lambda: array("q"))
    outside: int = 0
    outside_assumed: int = 0

    def look(self, estimate: Estimate, truth_ns: int) -> None:
        """Compare an estimate with the truth."""
        if estimate.offset_ns is None:
            return  # there is no estimate yet
        assert estimate.lower_ns is not None
        assert estimate.upper_ns is not None
        low, high = estimate.narrow_lower_ns, estimate.narrow_upper_ns
        if low is None or high is None:
            low, high = estimate.lower_ns, estimate.upper_ns
        self.errors.append(estimate.offset_ns - truth_ns)
        self.halves.append((estimate.upper_ns - estimate.lower_ns + 1) // 2)
        self.assumed_halves.append((high - low + 1) // 2)
        self.outside += not estimate.lower_ns <= truth_ns <= estimate.upper_ns
        self.outside_assumed += not low <= truth_ns <= high


@dataclass
class Found:
    """The errors of one client.

    Attributes:
        asking: While its requests are answered.
        listening: Long after its last exchange.
        rest: At the start, and in between.
        without: As `listening`, but of an estimator that does not use residences.
    """

    asking: Figures = field(default_factory=Figures)
    listening: Figures = field(default_factory=Figures)
    rest: Figures = field(default_factory=Figures)
    without: Figures = field(default_factory=Figures)

    @property
    def outside(self) -> int:
        """How often the truth was outside the interval, from the first estimate on."""
        return sum(each.outside for each in (self.asking, self.listening, self.rest))

    @property
    def outside_assumed(self) -> int:
        """The same for the assumed interval."""
        return sum(each.outside_assumed for each in (self.asking, self.listening, self.rest))


class Client:
    """One client; its results are in `found`."""

    def __init__(
        self,
        number: int,
        life: Life,
        clocks: Clocks,
        settings: EstimatorSettings,
        *,
        compares: bool = False,
    ) -> None:
        chance = random.Random(number)
        self._name, self._life, self._noise = name_of(number), life, clocks.noise_ns
        self._chance = chance
        self._clock = _SimulatedClock(
            VirtualClockSettings(
                offset_ns=round(chance.uniform(-1, 1) * clocks.offset_s * SECOND),
                frequency_ppb=chance.uniform(-1, 1) * clocks.frequency_ppm * 1e3,
                wander_ppb=clocks.wander_ppb,
                seed=number,
                epoch_raw_ns=START_NS,
                epoch_time_ns=START_NS,
            )
        )
        self._line, self.refused = _Line(self._clock), Counter[str]()
        self._context = ClientContext(
            Settings(estimator=settings),
            self._name,
            self._clock,
            TREE,
            self._line,  # type: ignore[arg-type]
            self._line,  # type: ignore[arg-type]
            refuse=lambda reason: self.refused.update([reason]),
            on_sample=self._on_sample,
        )
        self.track = PreciseTrack(self._context, SERVER, KEYS)
        self._untold = Estimator(settings) if compares else None
        self._at_server = Copies()
        self.found = Found()

    def live(
        self, seconds: int, asking_s: tuple[float, float], listening_s: tuple[float, float]
    ) -> None:
        """Replay its life; observe once a second, and keep the results of two periods apart."""
        phase_ns, found = self._chance.randrange(SECOND), self.found
        events = [*self._all_heard(), *self._all_exchanged()]
        for second in range(seconds - 1):
            figures = found.rest
            if asking_s[0] <= second < asking_s[1]:
                figures = found.asking
            elif listening_s[0] <= second < listening_s[1]:
                figures = found.listening
            events.append((second * SECOND + phase_ns, partial(self._look, figures)))
        events.sort(key=lambda event: event[0])
        for at_ns, happens in events:
            self._clock.now_ns = START_NS + at_ns
            happens()

    def _late_ns(self) -> int:
        return self._chance.choice(self._noise) if self._noise else 0

    # -- events ------------------------------------------------------------------------------------

    def _all_heard(self) -> Iterator[tuple[int, Callable[[], None]]]:
        for heard in self._life.heard:
            at_ns = heard.at_ns + self._late_ns()
            yield at_ns, partial(self._hear, heard, at_ns)

    def _all_exchanged(self) -> Iterator[tuple[int, Callable[[], None]]]:
        for exchange in self._life.exchanges:
            came_ns = exchange.came_ns + self._late_ns()
            arrived_ns = exchange.arrived_ns + self._late_ns()
            if came_ns > exchange.answered_ns - _EARLY_NS:
                continue  # its receive stamp would be later than the simulated reply
            answering = self._exchange(exchange, came_ns, arrived_ns)
            told_ns = max(exchange.told_ns, arrived_ns + 1)
            for at_ns in (exchange.asked_ns, arrived_ns, told_ns):
                yield at_ns, partial(next, answering)

    def _hear(self, heard: Heard, at_ns: int) -> None:
        self.track.on_time(self._arrival(TREE.time(SERVER), heard.payload, at_ns))

    def _arrival(self, topic: str, payload: bytes, at_ns: int) -> Arrival:
        self._context.copies.note(payload)
        return Arrival(topic, payload, Stamp(START_NS + at_ns, StampSource.KERNEL), False, b"")

    def _exchange(self, exchange: Exchange, came_ns: int, arrived_ns: int) -> Iterator[None]:
        """Send the request, take the reply, take the follow-up; a step at each `next`."""
        assert self.track.ask()
        asked = self._line.sent
        yield
        request, keys = Request.decode(asked), KEYS.client(self._name)
        self._at_server.note(asked[: -len(exchange.request_trailer)] + exchange.request_trailer)
        residence = self._at_server.current
        stated_ns = exchange.answered_ns - _EARLY_NS
        reply = Reply(
            *(SERVER, request.sequence, START_NS + stated_ns, stated_ns - came_ns, 0, 1, Leap.NONE),
            receive_source=StampSource.KERNEL,
            generation=GENERATION,
            fills=request.version == 2,
            request_residence=residence.stated if residence else 0,
            request_source=residence.source if residence else 0,
            version=request.version,
        )
        topic = TREE.reply(SERVER, self._name)
        signed = keys.sign(reply.body(), topic, request.nonce)
        self.track.on_reply(
            self._arrival(topic, _filled(signed, exchange.reply_trailer), arrived_ns)
        )
        yield
        follow_up = FollowUp(
            *(SERVER, request.sequence, _EARLY_NS, StampSource.KERNEL, GENERATION),
            version=request.version,
        )
        topic = TREE.follow_up(SERVER, self._name)
        told = keys.sign(follow_up.body(), topic, tag_of(signed))
        self.track.on_follow_up(
            self._arrival(topic, _filled(told, exchange.follow_up_trailer), exchange.told_ns)
        )
        yield

    # -- results -----------------------------------------------------------------------------------

    def _on_sample(self, _track: Track, wall: WallSample) -> None:
        """Feed the estimator that does not use residences."""
        sample = wall.sample
        if self._untold is None or sample.kind is Kind.RESIDENCE:
            return
        told = sample.judged(SampleVerdict.PENDING, Reason.NONE)
        if sample.kind is Kind.ONE_WAY:
            assert sample.lower_ns is not None
            told = replace(told, offset_ns=sample.lower_ns, delay_ns=0, took_residence=False)
        self._untold.add(told)

    def _look(self, figures: Figures) -> None:
        raw_ns = self._clock.raw_ns()
        truth_ns = self._clock.now_ns - raw_ns
        figures.look(self.track.estimator.at(raw_ns), truth_ns)
        if self._untold is not None and figures is self.found.listening:
            self.found.without.look(self._untold.at(raw_ns), truth_ns)


def _filled(signed: bytes, trailer: bytes) -> bytes:
    """Return a message of version 2 with its trailer; one of version 1 as it is."""
    return signed[: -len(trailer)] + trailer if signed[0] >> 4 == 2 else signed
