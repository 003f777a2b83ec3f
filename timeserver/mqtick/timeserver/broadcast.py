"""Publishes the time message of the precise format, with the correction of the previous one."""

from __future__ import annotations

from mqtick.mqtt.stamps import StampSource, Transmit
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Time
from mqtick.timeserver.context import Context

_CORRECTION_LIMIT = 2**31 - 1
# A stamp is a second old when its message is corrected. If the clock was slewed suddenly meanwhile,
# nobody knows what the served clock was.
_UNSURE_NS = 1_000


class Broadcast:
    """Publishes time; remembers when the last message was really transmitted."""

    def __init__(self, context: Context, keyring: Keyring) -> None:
        self._context = context
        self.keys = keyring.broadcast()
        self._topic = context.tree.time(context.number)
        self.sequence = 0
        self.sent = 0
        self.payload = b""
        """The last message, as it was published."""
        self._previous: Transmit | None = None
        self._previous_stated_ns = 0
        self.last_correction_ns: int | None = None
        self.last_source = StampSource.NONE

    def _correction(self) -> tuple[int | None, StampSource]:
        """Real minus stated transmit time of the previous message, and the stamp's source."""
        if self._previous is None:
            return None, StampSource.NONE
        sent = self._previous.stamp
        earliest_ns, latest_ns = self._context.clock.span_of_kernel_ns(sent.realtime_ns)
        correction_ns = earliest_ns - self._previous_stated_ns
        if latest_ns - earliest_ns > _UNSURE_NS or abs(correction_ns) > _CORRECTION_LIMIT:
            return None, StampSource.NONE
        return correction_ns, sent.source

    def send(self) -> bool:
        """Publish one time message now; False if that failed, or if the clock was just set."""
        context, reference = self._context, self._context.reference
        self.sequence = (self.sequence + 1) % 2**32
        self.last_correction_ns, self.last_source = self._correction()
        stated_ns = context.clock.time_ns()
        if context.clock_changed():
            return False
        message = Time(
            context.number,
            self.sequence,
            stated_ns,
            self.last_correction_ns,
            context.root_distance_ns,
            reference.stratum,
            reference.leap,
            self.last_source,
            context.generation,
            fills=context.fills,
            version=2 if context.fills else 1,
        )
        self.payload = self.keys.sign(message.body(), self._topic)
        self._previous = context.connection.publish(self._topic, self.payload)
        self._previous_stated_ns = stated_ns
        self.sent += self._previous is not None
        return self._previous is not None

    def forget_previous(self) -> None:
        """Forget the last message's transmit time, because the clock was stepped."""
        self._previous = None
