"""The precise servers of a broker: which are met and forgotten, and how much each may send."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from mqtick.client.asking import Asking
from mqtick.client.config import Settings
from mqtick.client.expect import Expectation
from mqtick.client.pending import WallSample
from mqtick.client.track import Track
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loopback import Loopback
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import Clock
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Time
from mqtick.protocol.topics import TopicTree

__all__ = ["MAXIMUM_SERVERS", "Servers"]

MAXIMUM_SERVERS = 16
_SECOND = 1_000_000_000


class Servers:
    """Keeps a track for each server; everything that is refused is a DecodeError.

    `on_arrival` is called at once when a time message of a server that is followed was read,
    `before_arrival` shortly before the next one is due.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        tree: TopicTree,
        clock: Clock,
        keyring: Keyring,
        connection: Connection,
        loopback: Loopback,
        asking: Asking,
        *,
        on_sample: Callable[[Track, WallSample], None],
        on_arrival: Callable[[], None] | None,
        before_arrival: Callable[[], None] | None,
        refuse: Callable[[str], None],
        vouch: Callable[[Track, int], bool],
        subscribed: Callable[[bool], None],
    ) -> None:
        self._settings, self._name, self._tree = settings, name, tree
        self._clock, self._keyring, self.broadcast_keys = clock, keyring, keyring.broadcast()
        self._connection, self._loopback, self._asking = connection, loopback, asking
        self._on_sample, self._on_arrival = on_sample, on_arrival
        self._before_arrival = before_arrival
        self._expectations: dict[int, Expectation] = {}
        self._refuse, self._vouch, self._subscribed = refuse, vouch, subscribed
        self._tracks: dict[int, Track] = {}
        self._second_began_ns = 0
        self._times_this_second: Counter[int] = Counter()

    @property
    def tracks(self) -> list[Track]:
        """All of them, the lowest number first."""
        return [self._tracks[number] for number in sorted(self._tracks)]

    @property
    def is_any_heard(self) -> bool:
        """Whether a time message of any server was ever accepted as its own."""
        return any(track.heard_raw_ns is not None for track in self._tracks.values())

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on."""
        self._keyring, self.broadcast_keys = keyring, keyring.broadcast()
        for track in self._tracks.values():
            track.use_keys(keyring)

    def topics(self) -> list[str]:
        """Return what to subscribe to after each connect."""
        return [
            self._tree.all_times(),
            f"{self._tree.prefix}/f/+/{self._name}",
            self._tree.client_loop(self._name),
            *(self._tree.reply(number, self._name) for number in self._tracks),
        ]

    def of(self, address: tuple[int, str]) -> Track:
        """Return the track that a message with our name in its topic belongs to."""
        number, name = address
        track = self._tracks.get(number)
        if track is None or name != self._name:
            raise DecodeError("unasked", "The message is about a server that was never heard.")
        return track

    # -- messages --------------------------------------------------------------------------

    def count_time(self, number: int) -> None:
        """Refuse the time messages of a server beyond its share of this second."""
        now_ns = time.monotonic_ns()
        if now_ns - self._second_began_ns > _SECOND:
            self._second_began_ns = now_ns
            self._times_this_second.clear()
        self._times_this_second[number] += 1
        if self._times_this_second[number] > self._settings.time_messages_per_s:
            raise DecodeError("rate", "More time messages than a server sends; ignored.")

    def on_time(self, arrival: Arrival) -> None:
        """Take a time message, of a server that may be new."""
        number = self._tree.parse_time(arrival.topic)
        self.count_time(number)
        track = self._tracks.get(number)
        if track is None:
            self._check_stranger(arrival, number)
            track = self._meet(number)
        message = track.on_time(arrival)
        if message is not None and self._before_arrival is not None:
            self._expect_next(message, arrival)

    def _expect_next(self, message: Time, arrival: Arrival) -> None:
        """Be awake when this server's next message comes."""
        assert self._before_arrival is not None
        now_ns = time.monotonic_ns()
        ago_ns = min(max(time.time_ns() - arrival.stamp.realtime_ns, 0), _SECOND)
        expectation = self._expectations.setdefault(message.server, Expectation())
        expectation.note(message.sequence, message.transmit_ns, now_ns - ago_ns)
        if expectation.due_ns is not None and expectation.due_ns > now_ns:
            self._connection.loop.call_at(expectation.due_ns, self._before_arrival, precise=True)

    def _check_stranger(self, arrival: Arrival, number: int) -> None:
        """Only a message that could count makes a server known: no other may fill the list."""
        if arrival.retain:
            raise DecodeError("retained", "A retained time message is old by nature; ignored.")
        if Time.decode(arrival.payload).server != number:
            raise DecodeError("server", "The message names another server than its topic.")
        self.broadcast_keys.verify(arrival.payload, arrival.topic)

    def on_status(self, arrival: Arrival) -> None:
        """Meet a server that says that it is there; it has to prove everything else."""
        number = self._tree.parse_status(arrival.topic)
        if number not in self._tracks and b'"gone"' not in arrival.payload[:64]:
            self._meet(number)

    # -- meeting and leaving -----------------------------------------------------------------

    def _meet(self, number: int) -> Track:
        if len(self._tracks) >= MAXIMUM_SERVERS:
            self._forget_one()
        track = Track(
            number,
            self._name,
            self._tree,
            self._clock,
            self._keyring,
            self._settings.estimator,
            self._loopback,
            publish=self._connection.publish,
            collect_stamps=self._connection.collect_stamps,
            place_behind=lambda placed: self._place_behind(number, placed),
            on_sample=self._on_sample,
            refuse=self._refuse,
            vouch=self._vouch,
            time_tolerance_ns=int(self._settings.time_tolerance_s * _SECOND),
        )
        self._tracks[number] = track
        if self._on_arrival is not None:
            self._connection.hooks[self._tree.time(number).encode()] = self._on_arrival
        if self._settings.estimator.use_two_way:
            self._connection.subscribe(
                [self._tree.reply(number, self._name)],
                lambda granted: self._asking.begin(track) if granted else self._subscribed(False),
            )
        return track

    def _forget_one(self) -> None:
        """Make room by leaving a server whose time was never heard, if there is one."""
        for number, track in self._tracks.items():
            if track.heard_raw_ns is None:
                self._asking.forget(track)
                self._connection.unsubscribe([self._tree.reply(number, self._name)])
                self._connection.hooks.pop(self._tree.time(number).encode(), None)
                self._expectations.pop(number, None)
                del self._tracks[number]
                return
        raise DecodeError("servers", "There are more servers than are followed.")

    def _place_behind(self, number: int, placed: Callable[[bool], None]) -> None:
        """Subscribe again: only UNSUBSCRIBE moves us behind those who subscribed meanwhile."""
        topic = self._tree.reply(number, self._name)
        self._connection.unsubscribe([topic])
        self._connection.subscribe([topic], placed)
