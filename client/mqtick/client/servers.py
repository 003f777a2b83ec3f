"""The precise servers of a broker: adds and removes them, and limits how much each may send."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from mqtick.client.asking import Asking
from mqtick.client.precise import PreciseTrack
from mqtick.client.track import ClientContext
from mqtick.mqtt.frames import Arrival
from mqtick.protocol.auth import Keyring
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Time
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import says_gone

MAXIMUM_SERVERS = 16


class Servers:
    """Keeps a track for each server; everything that is refused is a DecodeError.

    `before_arrival` is called shortly before the next time message of a server is due.
    """

    def __init__(
        self, context: ClientContext, keyring: Keyring, before_arrival: Callable[[], None] | None
    ) -> None:
        self._context, self._settings = context, context.settings
        self._tree, self._name, self._connection = context.tree, context.name, context.connection
        self._keyring, self.broadcast_keys = keyring, keyring.broadcast()
        self._before_arrival = before_arrival
        self._asking = Asking(context.settings, context.connection.loop, self._may_ask)
        self._tracks: dict[int, PreciseTrack] = {}
        self._second_began_ns = 0
        self._times_this_second: Counter[int | None] = Counter()

    @property
    def tracks(self) -> list[PreciseTrack]:
        """The tracks of all servers, the lowest number first."""
        return [self._tracks[number] for number in sorted(self._tracks)]

    @property
    def is_any_heard(self) -> bool:
        """Whether a genuine message of any server has ever come."""
        return any(track.heard_raw_ns is not None for track in self._tracks.values())

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on."""
        self._keyring, self.broadcast_keys = keyring, keyring.broadcast()
        for track in self._tracks.values():
            track.use_keys(keyring)

    def topics(self) -> list[str]:
        """Return what to subscribe to after each connect."""
        return [
            *([self._tree.all_times()] if self._settings.traffic == "normal" else []),
            self._tree.all_follow_ups(self._name),
            self._tree.client_loop(self._name),
            *(self._tree.reply(number, self._name) for number in self._tracks),
        ]

    # -- messages --------------------------------------------------------------------------

    def count_time(self, number: int | None) -> None:
        """Refuse time messages of a server beyond its limit for this second."""
        now_ns = time.monotonic_ns()
        if now_ns - self._second_began_ns > NS_PER_S:
            self._second_began_ns = now_ns
            self._times_this_second.clear()
        self._times_this_second[number] += 1
        if self._times_this_second[number] > self._settings.time_messages_per_s:
            raise DecodeError("rate", "More time messages than a server sends; ignored.")

    def on_time(self, arrival: Arrival) -> None:
        """Take a time message, which may be the first of a new server."""
        number = self._tree.parse_time(arrival.topic)
        self.count_time(number)
        track = self._tracks.get(number)
        if track is None:
            self._check_stranger(arrival, number)
            track = self._meet(number)
        message = track.on_time(arrival)
        if message is not None:
            now_ns = time.monotonic_ns()
            ago_ns = min(max(time.time_ns() - arrival.stamp.realtime_ns, 0), NS_PER_S)
            track.rhythm.note(message.sequence, message.transmit_ns, now_ns - ago_ns)
            due_ns = track.rhythm.due_ns
            if self._before_arrival is not None and due_ns is not None and due_ns > now_ns:
                self._connection.loop.call_at(due_ns, self._before_arrival, precise=True)

    def _check_stranger(self, arrival: Arrival, number: int) -> None:
        """Refuse a message that must not add a server to the list, which has limited room."""
        if arrival.retain:
            raise DecodeError("retained", "A retained time message is old by nature; ignored.")
        if Time.decode(arrival.payload).server != number:
            raise DecodeError("server", "The message names another server than its topic.")
        self.broadcast_keys.verify(arrival.payload, arrival.topic)

    def on_status(self, arrival: Arrival) -> None:
        """Add a server that announces itself; it has to prove everything else.

        Anyone can send such a message, and often: so no other server is dropped to make room.
        """
        number = self._tree.parse_status(arrival.topic)
        has_room = len(self._tracks) < MAXIMUM_SERVERS
        if number not in self._tracks and has_room and not says_gone(arrival.payload):
            self._meet(number)

    def on_reply(self, arrival: Arrival) -> None:
        """Take a reply to us."""
        self._of(self._tree.parse_reply(arrival.topic)).on_reply(arrival)

    def on_follow_up(self, arrival: Arrival) -> None:
        """Take a follow-up or an echo to us."""
        self._of(self._tree.parse_follow_up(arrival.topic)).on_follow_up(arrival)

    def _of(self, address: tuple[int, str]) -> PreciseTrack:
        """Return the track to which a message with this server number and client name belongs."""
        number, name = address
        track = self._tracks.get(number)
        if track is None or name != self._name:
            raise DecodeError("unasked", "The message is about a server that was never heard.")
        return track

    # -- asking ------------------------------------------------------------------------------

    def see_to_asking(self, *, begin: bool) -> None:
        """Plan requests to servers that have none planned or want one; `begin`: start all anew."""
        for track in self.tracks:
            if not self._may_ask(track):
                continue
            if begin or not self._asking.is_planned(track):
                self._asking.begin(track)
            elif track.wants_exchange:
                self._asking.once_soon(track)
            track.wants_exchange = False

    def stop_asking(self) -> None:
        """Send no more requests: the connection is down."""
        self._asking.stop()

    def _may_ask(self, track: PreciseTrack) -> bool:
        """Whether a request makes sense: a server that has fallen silent would not answer."""
        if not self._connection.connected or not self._settings.estimator.use_two_way:
            return False
        return self._settings.traffic == "low" or not self._is_silent(track)  # low: replies only

    def _is_silent(self, track: PreciseTrack) -> bool:
        since_ns = track.met_raw_ns if track.heard_raw_ns is None else track.heard_raw_ns
        silence_ns = self._context.clock.raw_ns() - since_ns
        return silence_ns > self._settings.server_timeout_s * NS_PER_S

    # -- meeting and leaving -----------------------------------------------------------------

    def _meet(self, number: int) -> PreciseTrack:
        if len(self._tracks) >= MAXIMUM_SERVERS:
            self._forget_one()
        track = self._tracks[number] = PreciseTrack(self._context, number, self._keyring)
        self._context.hook(self._tree.time(number))
        if self._settings.estimator.use_two_way:
            self._connection.subscribe(
                [self._tree.reply(number, self._name)],
                lambda granted: (
                    self._asking.begin(track) if granted else self._context.subscribed(False)
                ),
            )
        return track

    def _forget_one(self) -> None:
        """Make room; DecodeError if there is none.

        Dropped is a server whose time was never heard, or one that has fallen silent and does not
        tell the time any more, or never did: whoever has a broadcast key can make servers up.
        """
        now_ns = self._context.clock.raw_ns()
        for number, track in self._tracks.items():
            is_known = track.estimator.at(now_ns).state.is_known
            if track.heard_raw_ns is None or (self._is_silent(track) and not is_known):
                self._asking.forget(track)
                self._connection.unsubscribe([self._tree.reply(number, self._name)])
                self._context.unhook(self._tree.time(number))
                del self._tracks[number]
                return
        raise DecodeError("servers", "There are more servers than are followed.")
