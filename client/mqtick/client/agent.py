"""The client: one connection, a track for each server, sinks for what they measure."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable

from mqtick.client.config import Settings
from mqtick.client.estimate import Estimate
from mqtick.client.foreign import ForeignTrack
from mqtick.client.track import Track, WallSample
from mqtick.protocol.auth import Keyring
from mqtick.protocol.broker import Broker
from mqtick.protocol.clocks import Clock, StepDetector
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.frames import Arrival
from mqtick.protocol.loop import Loop
from mqtick.protocol.mqtt import Connection
from mqtick.protocol.topics import TopicTree

__all__ = ["Agent", "AnyTrack"]

_SECOND = 1_000_000_000
_MAXIMUM_SERVERS = 16
_LISTEN_NS = 3 * _SECOND
_START_SPACING_NS = 60_000_000

AnyTrack = Track | ForeignTrack


class Agent:
    """Follows every server on a broker.

    `on_sample(track, sample)` is called with every sample, judged. `on_arrival` is called at once
    when a time message was read from the socket, before it is decoded: pins.
    """

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        broker: Broker,
        clock: Clock,
        keyring: Keyring,
        name: str,
        *,
        on_sample: Callable[[AnyTrack, WallSample], None] = lambda _track, _sample: None,
        on_arrival: Callable[[], None] | None = None,
    ) -> None:
        self.settings, self.loop, self.clock, self.name = settings, loop, clock, name
        self.tree = TopicTree(settings.prefix)
        self.refused: Counter[str] = Counter()
        self.certificate_error: str | None = None
        self.steps = 0
        self.suspends = 0
        self._keyring = keyring
        self._on_sample, self._on_arrival = on_sample, on_arrival
        self._tracks: dict[int, Track] = {}
        self.foreign: ForeignTrack | None = None
        self._steps = StepDetector()
        self._flood_ns = 0
        self._flood_count = 0
        self._asking: set[int] = set()
        self._listening_since_ns = 0
        self.connection = Connection(
            loop,
            broker,
            f"mqtick-{name}-{secrets.token_hex(3)}",
            on_publish=self._on_publish,
            on_up=self._on_up,
            on_down=self._on_down,
            check_dates=not self._checks_dates_later(broker, keyring),
        )

    @staticmethod
    def _checks_dates_later(broker: Broker, keyring: Keyring) -> bool:
        """Without keys nothing else would ever vouch for the time: then dates are checked now."""
        return broker.scheme in ("mqtts", "wss") and bool(keyring.broadcast().keys)

    def start(self) -> None:
        """Connect."""
        self.connection.start()

    @property
    def tracks(self) -> list[AnyTrack]:
        """Every server followed, the lowest number first; a foreign one last."""
        found: list[AnyTrack] = [self._tracks[number] for number in sorted(self._tracks)]
        return [*found, self.foreign] if self.foreign is not None else found

    def best(self) -> tuple[AnyTrack, Estimate] | None:
        """The server whose interval, its own root distance included, is the narrowest."""
        now_ns = self.clock.raw_ns()
        known = [
            (track, estimate)
            for track in self.tracks
            if (estimate := track.estimator.at(now_ns)).state.is_known
            and estimate.half_width_ns is not None
        ]
        return min(
            known,
            key=lambda pair: (pair[1].half_width_ns or 0) + pair[1].root_distance_ns,
            default=None,
        )

    # -- connection ------------------------------------------------------------------------

    def _on_up(self) -> None:
        format_ = self.settings.format
        self._listening_since_ns = time.monotonic_ns()
        topics = []
        if format_ in ("auto", "precise"):
            topics = [
                self.tree.all_times(),
                f"{self.tree.prefix}/f/+/{self.name}",
                *(topic for number in self._tracks for topic in self._exact_topics(number)),
            ]
        if format_ in ("1451.1.6", "draft-2021"):
            self._follow_foreign(format_)
        elif format_ == "auto" and self.foreign is not None:
            self._follow_foreign(self.foreign.format)
        self.connection.subscribe(topics, self._subscribed)

    def _subscribed(self, granted: bool) -> None:
        if not granted:
            self.refused["subscription"] += 1
            self.connection.last_error = (
                f"{self.connection.address} refused a subscription: compare its access list "
                "with the one in docs/protocol.md"
            )

    def _on_down(self, _reason: str) -> None:
        for track in self.tracks:
            track.connection_lost()
        self._asking.clear()

    def _follow_foreign(self, format_: str) -> None:
        if self.foreign is None or self.foreign.format != format_:
            self.foreign = ForeignTrack(
                format_,
                self.settings,
                self.name,
                self.clock,
                self.connection,
                on_sample=self._sampled,
                refuse=self._refuse,
            )
        self.connection.subscribe(self.foreign.topics(), self._subscribed)
        if self._on_arrival is not None:
            self.connection.hooks[self.foreign.time_topic.encode()] = self._on_arrival

    # -- messages --------------------------------------------------------------------------

    def _refuse(self, reason: str) -> None:
        self.refused[reason] += 1

    def _sampled(self, track: AnyTrack, sample: WallSample) -> None:
        self._on_sample(track, sample)

    def _on_publish(self, arrival: Arrival) -> None:
        kind = arrival.topic.removeprefix(self.tree.prefix)[:3]
        try:
            if kind == "/t/":
                self._on_time(arrival)
            elif kind == "/q/":
                self._track_of(self.tree.parse_request(arrival.topic)).on_own_request(arrival)
            elif kind == "/r/":
                self._track_of(self.tree.parse_reply(arrival.topic)).on_reply(arrival)
            elif kind == "/f/":
                track = self._track_of(self.tree.parse_follow_up(arrival.topic))
                track.on_follow_up(arrival)
                self._check_certificate(track)
            elif self.foreign is not None:
                if arrival.topic == self.foreign.time_topic and self._floods():
                    return
                self.foreign.on_publish(arrival)
            else:
                raise DecodeError("topic", "Nobody asked for this topic.")
        except DecodeError as error:
            self._refuse(error.reason)

    def _track_of(self, address: tuple[int, str]) -> Track:
        number, name = address
        track = self._tracks.get(number)
        if track is None or name != self.name:
            raise DecodeError("unasked", "The message is about a server that was never heard.")
        return track

    def _floods(self) -> bool:
        """Whether this second's share of time messages is used up."""
        now_ns = time.monotonic_ns()
        if now_ns - self._flood_ns > _SECOND:
            self._flood_ns, self._flood_count = now_ns, 0
        self._flood_count += 1
        if self._flood_count > self.settings.time_messages_per_s:
            self.refused["rate"] += 1
            return True
        return False

    def _on_time(self, arrival: Arrival) -> None:
        if self._floods():
            return
        number = self.tree.parse_time(arrival.topic)
        track = self._tracks.get(number)
        if track is None:
            track = self._meet(number)
        track.on_time(arrival)
        if track.wants_exchange:
            self._ask(track, 1, 0)

    def _meet(self, number: int) -> Track:
        """Begin to follow a server that is heard for the first time."""
        if len(self._tracks) >= _MAXIMUM_SERVERS:
            raise DecodeError("servers", "There are more servers than are followed.")
        track = Track(
            number,
            self.name,
            self.tree,
            self.clock,
            self._keyring,
            self.settings.estimator,
            publish=self.connection.publish,
            collect_stamps=self.connection.collect_stamps,
            place_behind=lambda placed: self._place_behind(number, placed),
            on_sample=self._sampled,
            refuse=self._refuse,
            time_tolerance_ns=int(self.settings.time_tolerance_s * _SECOND),
        )
        self._tracks[number] = track
        if self._on_arrival is not None:
            self.connection.hooks[self.tree.time(number).encode()] = self._on_arrival
        if self.settings.estimator.use_two_way:
            self.connection.subscribe(
                self._exact_topics(number),
                lambda granted: self._begin(track) if granted else self._subscribed(False),
            )
        return track

    def _exact_topics(self, number: int) -> list[str]:
        """Topics to which we subscribe without a wildcard: that decides the order of delivery.

        Our own request has to come back before the server, which subscribes with `+`, gets it,
        as the server's own loop messages come back to it first.
        """
        return [self.tree.reply(number, self.name), self.tree.request(number, self.name)]

    def _place_behind(self, number: int, placed: Callable[[bool], None]) -> None:
        """Subscribe anew: only UNSUBSCRIBE moves us behind those who subscribed meanwhile."""
        topic = self.tree.reply(number, self.name)
        self.connection.unsubscribe([topic])
        self.connection.subscribe([topic], placed)

    # -- asking ----------------------------------------------------------------------------

    def _begin(self, track: Track) -> None:
        self._asking.discard(track.number)
        delay_ns = 0 if self.settings.fast else random.randrange(_SECOND)
        self._ask(track, self.settings.start_burst, delay_ns)

    def _ask(self, track: Track, count: int, delay_ns: int) -> None:
        """Plan a burst of exchanges with a server, unless one is planned already."""
        if track.number not in self._asking:
            self._asking.add(track.number)
            self.loop.call_later(delay_ns, lambda: self._ask_now(track, count))

    def _ask_now(self, track: Track, left: int) -> None:
        if track.number not in self._asking:
            return
        asked = self.connection.connected and not self._is_silent(track) and track.ask()
        if asked and left > 1:
            spacing_ns = int(self.settings.exchange_spacing_ms * 1e6)
            self.loop.call_later(spacing_ns, lambda: self._ask_now(track, left - 1))
            return
        self._asking.discard(track.number)
        if self.connection.connected:
            # Spread, so that clients that started together do not go on asking together.
            interval_ns = self.settings.exchange_interval_s * _SECOND
            delay_ns = int(interval_ns * random.uniform(0.8, 1.2))
            self._ask(track, self.settings.exchange_burst, delay_ns)

    def _is_silent(self, track: Track) -> bool:
        if track.heard_raw_ns is None:
            return False
        silence_ns = self.clock.raw_ns() - track.heard_raw_ns
        return silence_ns > self.settings.server_timeout_s * _SECOND

    # -- every second ------------------------------------------------------------------------

    def tick(self) -> None:
        """Notice steps and sleep, expire exchanges, look for other formats where none is heard."""
        step_ns, slept_ns = self._steps.look()
        if step_ns:
            self.steps += 1
            for track in self.tracks:
                track.connection_lost()  # stamps of two clocks must not meet in one exchange
        if slept_ns:
            self.suspends += 1
            for track in self.tracks:
                track.reset("suspend")
        for track in self.tracks:
            track.expire()
            if isinstance(track, Track) and self._should_ask(track):
                self._begin(track)
        self._look_for_foreign()

    def _should_ask(self, track: Track) -> bool:
        return (
            self.connection.connected
            and self.settings.estimator.use_two_way
            and track.number not in self._asking
            and not self._is_silent(track)
        )

    def _look_for_foreign(self) -> None:
        if (
            self.settings.format == "auto"
            and self.connection.connected
            and not self._tracks
            and self.foreign is None
            and time.monotonic_ns() - self._listening_since_ns > _LISTEN_NS
        ):
            self._follow_foreign("1451.1.6")

    def _check_certificate(self, track: Track) -> None:
        """Check the dates that could not be checked before the time was known."""
        if self.connection.check_dates or not track.authenticated:
            return
        now_ns = self.clock.raw_ns()
        reference_ns = track.estimator.at(now_ns).reference_ns()
        if reference_ns is None:
            return
        error = self.connection.check_certificate_dates(reference_ns / _SECOND)
        if error is not None:
            self.certificate_error = error
            track.reset("certificate")
            self.connection.drop(error)

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()
