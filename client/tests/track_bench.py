"""A track without a network: a clock that stands still, a server of a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from mqtick.client.config import Settings
from mqtick.client.estimate import Estimate
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.pending import WallSample
from mqtick.client.precise import PreciseTrack
from mqtick.client.sample import Kind, Sample, SampleVerdict
from mqtick.client.track import ClientContext, Track
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.stamps import Stamp, StampSource, Transmit
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import (
    TAG_OCTETS,
    Echo,
    FollowUp,
    Leap,
    Reply,
    Request,
    Time,
)
from mqtick.protocol.topics import TopicTree

MS, US, SECOND = 1_000_000, 1_000, 1_000_000_000
START_NS = 1_800_000_000 * SECOND
OFFSET_NS = 5 * MS
"""Server minus client: the client's clock is slow."""
WAY_NS = 200 * US
"""From server to client, and from client to server."""
KEYS = Keyring(fleet=(b"fleet key of 24 octets..",))
OTHER_KEYS = Keyring(fleet=(b"another key of 26 octets..",))
TREE = TopicTree()
NAME = "pi7"


class StillClock:
    """The free-running timeline moves when it is told to; the judged one is that, and slewed."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.slewed_ns = 0

    def raw_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.now_ns + self.slewed_ns

    def time_minus_raw_ns(self) -> int:
        return self.slewed_ns

    def raw_of_kernel_ns(self, realtime_ns: int) -> int:
        return realtime_ns - self.slewed_ns

    def time_of_kernel_ns(self, realtime_ns: int) -> int:
        return realtime_ns

    def monotonic_raw_ns(self, raw_ns: int) -> int:
        return raw_ns


def is_inside(truth_ns: int, sample: Sample) -> bool:
    """Whether what a sample guarantees on both sides is true."""
    assert sample.lower_ns is not None
    assert sample.upper_ns is not None
    return sample.lower_ns <= truth_ns <= sample.upper_ns


def arrival(
    topic: str,
    payload: bytes,
    at_ns: int,
    source: StampSource = StampSource.KERNEL,
    retain: bool = False,
) -> Arrival:
    return Arrival(topic, payload, Stamp(at_ns, source), retain, b"")


class StillConnection:
    """A connection that keeps what is sent, and a loop through the broker that takes `loop_ns`."""

    def __init__(self, clock: StillClock) -> None:
        self.clock = clock
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.placing: list[Callable[[bool], None]] = []
        """What waits for the broker's answer to a subscription."""
        self.connected = True
        self.round_trip_ns = 0
        self.loop_ns: int | None = 150 * US
        self.filled = False

    def publish(self, topic: str, payload: bytes, properties: bytes = b"") -> Transmit | None:
        if not self.connected:
            return None
        self.sent.append((topic, payload, properties))
        transmit = Transmit(self.clock.time_ns())
        transmit.kernel_ns = self.clock.time_ns()
        return transmit

    def collect_stamps(self) -> None:
        pass

    def subscribe(self, _topics: list[str], done: Callable[[bool], None]) -> None:
        self.placing.append(done)

    def unsubscribe(self, _topics: list[str]) -> None:
        pass

    def delay_ns(self) -> int | None:
        return self.loop_ns

    def spread_ns(self) -> int:
        return 0

    def warm_up(self) -> None:
        self.sent.append((TREE.client_loop(NAME), b"", b""))


class TrackBench:
    """What a track of any format talks to, and what came of it."""

    track: Track

    def __init__(self, settings: Settings | None = None) -> None:
        self.clock = StillClock()
        self.connection = StillConnection(self.clock)
        self.vouched = True
        self.refused: Counter[str] = Counter()
        self.samples: list[WallSample] = []
        self.context = ClientContext(
            settings or Settings(),
            NAME,
            self.clock,
            TREE,
            self.connection,  # type: ignore[arg-type]
            self.connection,  # type: ignore[arg-type]
            refuse=lambda reason: self.refused.update([reason]),
            on_sample=lambda _track, wall: self.samples.append(wall),
            vouch=lambda _track, _time_ns: self.vouched,
        )

    @property
    def sent(self) -> list[tuple[str, bytes, bytes]]:
        """Topic, payload and properties of each request."""
        return self.connection.sent

    def of(self, kind: Kind) -> list[WallSample]:
        """The samples of a kind."""
        return [wall for wall in self.samples if wall.sample.kind is kind]

    def used(self, kind: Kind) -> list[WallSample]:
        """The samples of a kind that were not refused."""
        return [wall for wall in self.of(kind) if wall.sample.verdict is not SampleVerdict.REFUSED]

    @property
    def estimate(self) -> Estimate:
        """What the track thinks now."""
        return self.track.estimator.at(self.clock.now_ns)

    @property
    def offset_ns(self) -> int | None:
        """What it thinks of the offset."""
        return self.estimate.offset_ns


class Bench(TrackBench):
    """A precise track and its server; `keys` is what both sides hold."""

    track: PreciseTrack

    def __init__(
        self,
        keys: Keyring | None = None,
        settings: EstimatorSettings | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(Settings(estimator=settings or EstimatorSettings()))
        self.keys = keys or Keyring()
        self.number = number
        self.generation = 7
        self.placement = 1
        self.reply_tag = b""
        """Of the last reply: what a follow-up or an echo is bound to."""
        self.placing = self.connection.placing
        self.track = PreciseTrack(self.context, number, self.keys)

    # -- the server ------------------------------------------------------------------------

    def server_ns(self) -> int:
        """What the server's clock reads now."""
        return self.clock.now_ns + OFFSET_NS

    def time(  # the name of the message
        self,
        sequence: int,
        *,
        jump_ns: int = 0,
        correction_ns: int | None = 0,
        generation: int | None = None,
        leap: Leap = Leap.NONE,
        keys: Keyring | None = None,
        number: int | None = None,
    ) -> bytes:
        """Return a time message that the server makes now."""
        message = Time(
            self.number if number is None else number,
            sequence,
            self.server_ns() + jump_ns,
            correction_ns,
            0,
            1,
            leap,
            StampSource.KERNEL,
            self.generation if generation is None else generation,
        )
        return (keys or self.keys).broadcast().sign(message.body(), TREE.time(self.number))

    def hear(
        self, payload: bytes, *, way_ns: int = WAY_NS, retain: bool = False, after_ns: int = 0
    ) -> None:
        """Let a time message arrive."""
        self.clock.now_ns += way_ns + after_ns
        topic = TREE.time(self.number)
        self.track.on_time(arrival(topic, payload, self.clock.time_ns(), retain=retain))

    def hear_times(self, first: int, count: int) -> None:
        """Let `count` good time messages arrive, one a second."""
        for sequence in range(first, first + count):
            self.hear(self.time(sequence % 2**32))
            self.clock.now_ns += SECOND

    @property
    def request(self) -> Request:
        """The last request that went out."""
        return Request.decode(self.sent[-1][1])

    def reply(
        self,
        request: Request,
        *,
        way_ns: int = WAY_NS,
        nonce: bytes | None = None,
        keys: Keyring | None = None,
        leap: Leap = Leap.NONE,
        retain: bool = False,
        maybe_held: bool = False,
        slewed_ns: int = 0,
    ) -> int:
        """Let the request go, be answered at once and the reply arrive; returns stated T3.

        `slewed_ns`: how far the judged clock was moved before the client came to read it.
        """
        self.clock.now_ns += way_ns
        t3_ns = self.server_ns()
        message = Reply(
            self.number, request.sequence, t3_ns, 0, 0, 1, leap, StampSource.KERNEL, self.generation
        )
        topic = TREE.reply(self.number, NAME)
        signed = (
            (keys or self.keys)
            .client(NAME)
            .sign(message.body(), topic, request.nonce if nonce is None else nonce)
        )
        self.reply_tag = signed[-TAG_OCTETS:]
        self.clock.now_ns += way_ns
        came = arrival(topic, signed, self.clock.time_ns(), retain=retain)
        self.clock.slewed_ns += slewed_ns
        self.track.on_reply(came._replace(maybe_held=maybe_held))
        return t3_ns

    def ask(self) -> Request:
        """Have the track ask; returns the request."""
        assert self.track.ask()
        return self.request

    def follow_up(
        self, request: Request, *, correction_ns: int | None = 0, keys: Keyring | None = None
    ) -> None:
        """Let the follow-up arrive."""
        source = StampSource.NONE if correction_ns is None else StampSource.KERNEL
        message = FollowUp(self.number, request.sequence, correction_ns, source, self.generation)
        self._complete(message, keys)

    def echo(self, request: Request, *, first_ns: int, span_ns: int, loop_ns: int | None) -> None:
        """Let an echo message arrive."""
        message = Echo(
            self.number,
            request.sequence,
            0,
            first_ns,
            span_ns,
            StampSource.KERNEL,
            StampSource.KERNEL,
            StampSource.KERNEL,
            self.generation,
            loop_ns,
            self.placement,
        )
        self._complete(message, None)

    def _complete(self, message: FollowUp | Echo, keys: Keyring | None) -> None:
        topic = TREE.follow_up(self.number, NAME)
        signed = (keys or self.keys).client(NAME).sign(message.body(), topic, self.reply_tag)
        self.track.on_follow_up(arrival(topic, signed, self.clock.time_ns()))

    def exchange(self, *, way_ns: int = WAY_NS) -> None:
        """Make one whole exchange with follow-up."""
        request = self.ask()
        self.reply(request, way_ns=way_ns)
        self.follow_up(request)

    def echo_exchange(
        self, *, server_loop_ns: int | None = 150 * US, maybe_held: bool = False
    ) -> None:
        """Make one whole exchange with echo; the client is served amid the two echoes."""
        request = self.ask()
        self.reply(request, maybe_held=maybe_held)
        self.echo(request, first_ns=WAY_NS - 5 * US, span_ns=10 * US, loop_ns=server_loop_ns)

    def go_behind_first_echo(self) -> None:
        """Make an exchange with echo, subscribe behind the server's first echo, and wait."""
        self.echo_exchange()
        self.placing[-1](True)
        self.clock.now_ns += SECOND
