"""What is true: what the server serves in each of its generations, UTC, and what chronyd knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from virtual_time import SECOND, HostClock, World

from mqtick.protocol.precise import Leap
from mqtick.timeserver.reference import Reference, ReferenceWatch
from mqtick.timeserver.served import Look, ServedClock
from mqtick.timeserver.server import Server

_RATE_ERROR_PPB = 1_000.0


class _Line(NamedTuple):
    """How a generation of the served time would have gone on; None: at no known rate."""

    raw_ns: int
    served_ns: int
    rate_ppb: float | None


class _Served(ServedClock):
    """The real one; tells when its time is taken anew."""

    truth: Truth

    def line(self) -> _Line:
        return _Line(self.raw_ns(), self.time_ns(), self._rate_ppb)

    def look(self, most_lag_ns: int, runs_true: Callable[[float], bool] = lambda _: True) -> bool:
        anew = super().look(most_lag_ns, runs_true)
        if anew:
            self.truth.ends(self._before)
        return anew

    def _follow(self, look: Look) -> None:
        self._before = self.line()
        super()._follow(look)


class _Watch(ReferenceWatch):
    """The real one, without a thread."""

    world: World

    def start(self) -> None:
        self._ask()

    @property
    def current(self) -> Reference:
        if self.world.now_ns - self._asked_ns >= self._interval_s * SECOND:
            self._ask()
        return super().current


class Truth:
    """Knows what no program can know.

    If the server's clock is set by somebody, it serves another time from then on: a client that
    cannot have heard of the new generation may say what the old one would be now. Nor does chronyd
    know it: UTC counts as set, too.
    """

    server: Server

    def __init__(
        self, world: World, server: HostClock, client: HostClock, root_distance_ns: int
    ) -> None:
        self._world, self._system, self._client = world, server, client
        self._root_distance_ns = root_distance_ns
        self.begun = Counter[int | None]()
        """How often a generation of each number has begun: the first number is drawn by chance."""
        self._ended: dict[int | None, _Line] = {}
        self._set_ns: dict[int | None, int] = {}
        """How far the server's clock was stepped when each of its generations began."""

    # -- in place of what the server asks --------------------------------------------------------

    def serve(self, clock: HostClock, _steady: Callable[[], int]) -> ServedClock:
        """Make the served clock."""
        served = _Served(clock, clock.raw_ns)
        served.truth = self
        return served

    def watch(
        self, interval_s: float, _query: Callable[[], Reference], look: Callable[[], Look]
    ) -> ReferenceWatch:
        """Make the watch that asks chronyd."""
        watch = _Watch(interval_s, self._chronyd, look)
        watch.world = self._world
        return watch

    def _chronyd(self) -> Reference:
        """It knows by how much the clock is off, but for steps, and how fast the crystal is."""
        now_ns, clock = self._world.now_ns, self._system
        off_ns = clock.time_ns() - clock.set_ns(now_ns) - self._world.utc_ns
        distance_ns = abs(off_ns) + self._root_distance_ns
        return Reference(
            True,
            1,
            distance_ns,
            Leap.NONE,
            "chronyd says so.",
            -clock.rate_ppb(now_ns),
            _RATE_ERROR_PPB,
        )

    # -- generations -------------------------------------------------------------------------------

    def begins(self, generation: int) -> None:
        """Note that a generation of the server begins, but for which the last would go on."""
        served = self.server.clock
        assert isinstance(served, _Served)
        self.ends(served.line(), generation)

    def ends(self, line: _Line, following: int | None = None) -> None:
        """Note how a generation ends."""
        last = self.server.generation
        self._ended[last] = line
        generation = (last + 1) % 256 if following is None else following
        self._set_ns[generation] = self._system.set_ns(self._world.now_ns)
        self._ended.pop(generation, None)
        self.begun[generation] += 1

    def served_ns(self, generation: int | None) -> int | None:
        """What the server serves, minus the client's timeline; None if nobody can know."""
        served = self.server.clock
        assert isinstance(served, _Served)
        line = self._ended.get(generation)
        now = served.line()
        if line is not None:
            if line.rate_ppb is None:
                return None
            passed_ns = now.raw_ns - line.raw_ns
            served_ns = line.served_ns + passed_ns + round(passed_ns * line.rate_ppb / SECOND)
        else:
            served_ns = now.served_ns
            if now.rate_ppb is None:
                served_ns -= self._system.set_ns(self._world.now_ns) - self._set(generation)
        return served_ns - self._client.raw_ns()

    def _set(self, generation: int | None) -> int:
        return self._set_ns.get(generation, self._system.set_ns(self._world.now_ns))

    def utc_ns(self, generation: int | None) -> int:
        """UTC minus the client's timeline."""
        return self._world.utc_ns + self._set(generation) - self._client.raw_ns()

    def slewed_within(self, ppm: float) -> bool:
        """Whether the server's clock was slewed no faster than this so far."""
        return self._system.slewed_ppm() <= ppm
