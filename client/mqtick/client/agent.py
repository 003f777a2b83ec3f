"""The client: one connection, a track for each server, callbacks for their samples."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from mqtick.client.certificate import CertificateDates
from mqtick.client.config import Settings, in_effect
from mqtick.client.estimate import Estimate
from mqtick.client.fleet.announcement import GONE
from mqtick.client.foreign import ForeignTrack
from mqtick.client.pending import WallSample
from mqtick.client.servers import Servers
from mqtick.client.settings_check import UNSIGNED, check_settings, may_follow_unsigned
from mqtick.client.track import ClientContext, Track
from mqtick.mqtt.broker import Broker
from mqtick.mqtt.connection import Connection, Will
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.loopback import Loopback
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import Clock
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Loop as LoopMessage
from mqtick.protocol.precise_fields import NONCE_OCTETS, TRAILER_OCTETS
from mqtick.protocol.residence import Copies
from mqtick.protocol.steps import Change, StepDetector
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicKind

_LOOP_BURST = 12
_LOOP_INTERVAL_NS = 16 * NS_PER_S
_LISTEN_NS = 3 * NS_PER_S
# The open implementation of 1451.1.6 publishes every 5 s.
_LISTEN_FOREIGN_NS = 12 * NS_PER_S


class ExperimentHooks(Protocol):
    """Callbacks for experiments, if they are enabled."""

    topic: str

    def on_command(self, arrival: Arrival) -> None:
        """Execute a command that came on `topic`."""

    def on_time(self, arrival: Arrival) -> None:
        """Take note of a time message, after all other handling."""

    def tick(self) -> None:
        """Do what is due about once a second."""


def _checks_dates_later(broker: Broker, keyring: Keyring) -> bool:
    """Whether certificate dates are checked later; without keys no time is ever authenticated."""
    return broker.scheme in ("mqtts", "wss") and bool(keyring.broadcast().keys)


def _loop_message() -> bytes:
    return LoopMessage(0, secrets.token_bytes(NONCE_OCTETS)).payload()


class Agent:
    """Follows every server on a broker.

    `on_sample(track, sample)` is called with every sample, judged. `on_arrival` is called at once
    when a time message was read from the socket, before it is decoded: pins. ValueError if the
    settings cannot work.
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
        on_sample: Callable[[Track, WallSample], None] = lambda _track, _sample: None,
        on_arrival: Callable[[], None] | None = None,
        before_arrival: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings = in_effect(settings)
        self.clock, self.name = clock, name
        self.tree = tree = check_settings(settings, keyring, name)
        self.refused: Counter[str] = Counter()
        self.steps = 0
        self.suspends = 0
        self.foreign: ForeignTrack | None = None
        self.experiments: ExperimentHooks | None = None
        """To be set before `start`."""
        self.joined = True
        """Whether the time topic is subscribed to while connected."""
        self._steps = StepDetector()
        self._slept = False
        self._listening_since_ns = 0
        self._hears_statuses = False
        self._may_follow_unsigned = may_follow_unsigned(settings, keyring)
        later = _checks_dates_later(broker, keyring)
        self.connection = Connection(
            loop,
            broker,
            f"mqtick-{name}",
            on_publish=self._on_publish,
            on_up=self._on_up,
            on_down=self._on_down,
            will=Will(tree.client_status(name), GONE) if settings.publish_status else None,
            check_dates=not later,
        )
        self.certificate = CertificateDates(self.connection, later=later)
        self.loopback = Loopback(
            loop,
            self.connection,
            tree.client_loop(name),
            burst=_LOOP_BURST,
            interval_ns=_LOOP_INTERVAL_NS,
            make=_loop_message,
            room=TRAILER_OCTETS,
        )
        self._copies = Copies()
        self._context = ClientContext(
            settings,
            name,
            clock,
            tree,
            self.connection,
            self.loopback,
            refuse=self.refuse,
            on_sample=on_sample,
            on_arrival=on_arrival,
            vouch=self.certificate.vouch,
            copies=self._copies,
            clock_changed=self._clock_changed,
        )
        self._servers = Servers(self._context, keyring, before_arrival)

    def start(self) -> None:
        """Connect."""
        self.connection.start()

    def use_keys(self, keyring: Keyring) -> None:
        """Sign and verify with these keys from now on; KeyFileError before any is changed.

        Connection, measurements and place behind the first echo stay.
        """
        check_settings(self.settings, keyring, self.name)
        self._servers.use_keys(keyring)
        self._may_follow_unsigned = may_follow_unsigned(self.settings, keyring)
        if not self._may_follow_unsigned:
            self._leave_foreign()

    @property
    def name_heard_twice(self) -> bool:
        """Whether another client asks under our name, and both spoil what the other measures."""
        return self._context.namesake.holds(time.monotonic_ns())

    @property
    def key_names(self) -> list[str]:
        """Names of the broadcast keys, which do not reveal the keys; the key that signs first."""
        return self._servers.broadcast_keys.names

    @property
    def tracks(self) -> list[Track]:
        """Every server followed, the lowest number first; a foreign one last."""
        found: list[Track] = list(self._servers.tracks)
        return [*found, self.foreign] if self.foreign is not None else found

    def best(self) -> tuple[Track, Estimate] | None:
        """The server whose interval, its own root distance included, is the narrowest.

        Servers whose bound is only assumed come last. Such a server may be at another site, and the
        access list may keep its answers there: its broadcasts may take longer than
        `assumed_path_delay_us`.
        """
        self._clock_changed()  # nothing is told of the time before the host slept
        now_ns = self.clock.raw_ns()
        known = [
            (track, estimate)
            for track in self.tracks
            if (estimate := track.estimator.at(now_ns)).state.is_known
            and estimate.half_width_ns is not None
        ]
        return min(
            known,
            key=lambda pair: (
                pair[1].assumed,
                (pair[1].half_width_ns or 0) + pair[1].root_distance_ns,
            ),
            default=None,
        )

    # -- connection ------------------------------------------------------------------------

    def _on_up(self) -> None:
        format_ = self.settings.format
        self._listening_since_ns = time.monotonic_ns()
        self._copies.forget()
        best = self.best()
        if not self.certificate.check_new_connection(best[1].reference_ns() if best else None):
            return
        if format_ in ("auto", "precise"):
            self.joined = True
            self.connection.subscribe(self._servers.topics(), self._context.subscribed)
            if self.settings.estimator.use_echo or self.settings.estimator.use_residence:
                self.loopback.start()
            # Retained statuses name the servers at once, before the next time message comes.
            self.connection.subscribe_retained(self.tree.all_statuses())
            self._hears_statuses = True
        if format_ in UNSIGNED:
            self._follow_foreign(format_)
        elif self.foreign is not None:
            self._follow_foreign(self.foreign.format)
        if self.experiments is not None:
            self.connection.subscribe([self.experiments.topic], self._context.subscribed)

    def leave(self) -> None:
        """Stop hearing the time until `join` or the next connection."""
        self.joined = False
        self._leave_foreign()
        self.connection.unsubscribe([self.tree.all_times()])

    def join(self, done: Callable[[bool], None]) -> None:
        """Hear the time again, as the last of all subscribers; `done(granted)` follows."""
        self.joined = True
        self._listening_since_ns = time.monotonic_ns()
        # Only UNSUBSCRIBE moves us behind the others: without it Mosquitto keeps our place.
        self.connection.unsubscribe([self.tree.all_times()])
        self.connection.subscribe([self.tree.all_times()], done)

    def _on_down(self, _reason: str) -> None:
        for track in self.tracks:
            track.connection_lost()
        self._servers.stop_asking()

    def _follow_foreign(self, format_: str) -> None:
        if self.foreign is None or self.foreign.format != format_:
            self._leave_foreign()
            self.foreign = ForeignTrack(self._context, format_)
        self._listening_since_ns = time.monotonic_ns()
        self.connection.subscribe(self.foreign.topics(), self._context.subscribed)
        self._context.hook(self.foreign.time_topic)

    def _leave_foreign(self) -> None:
        if self.foreign is not None:
            self.connection.unsubscribe(self.foreign.topics())
            self._context.unhook(self.foreign.time_topic)
            self.foreign = None

    # -- messages --------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """Count a refused message."""
        self.refused[reason] += 1

    def _on_publish(self, arrival: Arrival) -> None:
        with self._refusing():
            self._take(arrival)

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except DecodeError as error:
            self.refuse(error.reason)

    def _take(self, arrival: Arrival) -> None:
        kind = self.tree.kind_of(arrival.topic)
        if kind is TopicKind.TIME and not arrival.payload:
            return  # somebody has cleared a retained message, or a doctor tries what is forbidden
        if kind is not None:
            self._copies.note(arrival.payload)
        match kind:
            case TopicKind.TIME:
                self._check_stamp()
                self._servers.on_time(arrival)
                if self.experiments is not None:
                    self.experiments.on_time(arrival)
            case TopicKind.CLIENT_LOOP:
                self._clock_changed()  # if it has, the loopback forgets the message it waits for
                self.loopback.on_arrival(arrival)
            case TopicKind.REPLY:
                self._servers.on_reply(arrival)
            case TopicKind.FOLLOW_UP:
                self._servers.on_follow_up(arrival)
            case TopicKind.STATUS:
                self._servers.on_status(arrival)
            case TopicKind.COMMAND if self.experiments is not None:
                self.experiments.on_command(arrival)
            case _:
                self._take_foreign(arrival)

    def _check_stamp(self) -> None:
        """Refuse a broadcast that may have been stamped before the clock was set.

        A reply needs no such check: all earlier requests are forgotten when the clock is set.
        """
        self._clock_changed()
        if self._steps.is_recent:
            raise DecodeError("clock-changed", "The clock was just set, or the host slept.")

    def _take_foreign(self, arrival: Arrival) -> None:
        if self.foreign is None:
            raise DecodeError("topic", "Nobody asked for this topic.")
        if arrival.topic == self.foreign.time_topic:
            self._servers.count_time(None)
            self._check_stamp()
        self.foreign.on_publish(arrival)

    # -- every second ------------------------------------------------------------------------

    def tick(self) -> None:
        """Notice steps and sleep, expire exchanges, look for other formats if no time is heard."""
        self._clock_changed()
        for track in self.tracks:
            with self._refusing():
                track.expire()
        self._servers.see_to_asking(begin=self._slept)
        self._slept = False
        self._stop_hearing_statuses()
        if self.experiments is not None:
            self.experiments.tick()
        looks = self.settings.format == "auto" and self.settings.traffic == "normal"
        if looks and self.joined and self._may_follow_unsigned:
            self._look_for_foreign()

    def clock_changes(self, look: bool) -> int:
        """How often the clock was set, or the host slept, up to the last look; `look`: look now."""
        if look:
            self._clock_changed()
        return self.steps + self.suspends

    def _clock_changed(self) -> bool:
        """Whether the clock was set or the host slept; if so, forget the affected measurements."""
        change = self._steps.look()
        if change is None:
            return False
        self.steps += change is Change.SET
        self.suspends += change is Change.SLEPT
        self._slept |= change is Change.SLEPT
        self.loopback.forget_pending()
        for track in self.tracks:
            if change is Change.SLEPT:
                track.reset()
            else:
                track.connection_lost()  # an exchange must not use stamps from before and after
        return True

    def _stop_hearing_statuses(self) -> None:
        """Unsubscribe from statuses: new servers are noticed by their time messages from now on."""
        if self.settings.traffic == "low":
            return
        listened_ns = time.monotonic_ns() - self._listening_since_ns
        if self._hears_statuses and self.connection.connected and listened_ns > _LISTEN_NS:
            self._hears_statuses = False
            self.connection.unsubscribe([self.tree.all_statuses()])

    def _look_for_foreign(self) -> None:
        """If no server of the precise format is heard, try the other formats in turn."""
        waited_ns = time.monotonic_ns() - self._listening_since_ns
        if self._servers.is_any_heard:
            self._leave_foreign()
        elif not self.connection.connected:
            return
        elif self.foreign is None and waited_ns > _LISTEN_NS:
            self._follow_foreign("1451.1.6")
        elif (
            self.foreign is not None
            and self.foreign.heard_raw_ns is None
            and waited_ns > _LISTEN_FOREIGN_NS
        ):
            try_draft = self.foreign.format == "1451.1.6" and self.connection.version_5
            self._follow_foreign("draft-2021" if try_draft else "1451.1.6")

    def close(self) -> None:
        """Disconnect."""
        self._servers.stop_asking()
        self.connection.close()
