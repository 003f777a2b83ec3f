"""One oscilloscope: plays a dialect's conversations, and waits with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from mqtick.lab.scope.conversation import Conversation, InstrumentError, Query, Reply, Step
from mqtick.lab.scope.dialects import Dialect, Identity, Segment, dialect_for
from mqtick.lab.scope.settings import ScopeSettings, State
from mqtick.lab.scope.transport import Transport, VisaTransport
from mqtick.recording.waveform import Waveform

T = TypeVar("T")

_POLL_S: Final = 0.005
_TRIES: Final = 4
_OPEN_TRIES: Final = 2
"""What does not answer at all may be no instrument, and nobody should wait long to be told."""
_READ_AGAIN_S: Final = 0.1
_SETTLE_S: Final = 0.3
_SLOW_S: Final = 0.1
"""An answer that takes as long may hide an event; usual ones take some ms."""


def play(transport: Transport, conversation: Conversation[T]) -> T:
    """Play a conversation to its end and return its result."""
    reply: Reply = None
    while True:
        try:
            step = conversation.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        except InstrumentError:
            raise
        except Exception as fault:  # a dialect of another package may raise anything
            raise InstrumentError(
                f"The dialect failed ({type(fault).__name__}: {fault}) after the answer "
                f"{str(reply)[:40]!r}. If it is of another package, repair or remove that; else "
                "please report it."
            ) from fault
        if not isinstance(step, Step):
            raise InstrumentError(
                f"The dialect asks for {step!r}, which is no step of a conversation; repair or "
                "remove the package that provides it."
            )
        reply = transport.play(step)


def _identify() -> Conversation[Reply]:
    return (yield Query("*IDN?"))


class Oscilloscope:
    """A connected oscilloscope of a known family.

    `set_up`, then for each shot: `arm`, make the event happen, `wait`, `read`.
    """

    def __init__(self, transport: Transport, dialect: str = "auto") -> None:
        self.transport = transport
        self.read_again = 0
        """How often a query was repeated, because an answer was late, cut off or not valid.

        The transport then reconnects, so that the next answer is not a stale one.
        """
        self.slowest_s = 0.0
        """How long it took at most to say whether it is armed, the last time it was armed."""
        self.identity = Identity.parse(str(self._again(_identify, _OPEN_TRIES)))
        self.dialect: Dialect = dialect_for(self.identity, dialect)

    @classmethod
    def open(
        cls, resource: str, dialect: str = "auto", *, timeout_s: float = 3.0, backend: str = "@py"
    ) -> Oscilloscope:
        """Open a VISA resource; InstrumentError if it cannot be reached, or is not known."""
        transport = VisaTransport(resource, timeout_s=timeout_s, backend=backend)
        try:
            return cls(transport, dialect)
        except BaseException:
            transport.close()
            raise

    @property
    def description(self) -> str:
        """Manufacturer, model, serial number and firmware."""
        return str(self.identity)

    @property
    def simulated(self) -> bool:
        """Whether it is one of our simulated instruments, by its serial number."""
        return self.identity.serial == "SIMULATED"

    def play(self, conversation: Conversation[T]) -> T:
        """Play a conversation of the dialect."""
        return play(self.transport, conversation)

    def set_up(self, settings: ScopeSettings) -> None:
        """Apply the settings; InstrumentError with the instrument's words if it refuses one."""
        # Discard earlier errors.
        self._again(self.dialect.errors)
        self._again(partial(self.dialect.set_up, settings))
        refused = self._again(self.dialect.errors)
        if refused:
            raise InstrumentError(
                f"{self.identity.model} refused a setting: {'; '.join(refused)}. Compare the "
                "experiment's channels, time span and memory with what the instrument has."
            )

    def arm(self, timeout_s: float = 5.0) -> bool:
        """Begin one acquisition and wait until it waits for the trigger.

        False if it stopped before it was seen waiting, because it was triggered at once: then the
        record cannot be used. InstrumentError if neither happened in time.
        """
        self._again(self.dialect.arm)
        began_s = asked_s = time.monotonic()
        self.slowest_s = 0.0
        while True:
            state = self._again(self.dialect.state)
            self.slowest_s = max(self.slowest_s, time.monotonic() - asked_s)
            waited_s = time.monotonic() - began_s
            if state is State.ARMED:
                return True
            if state is State.STOPPED and waited_s > _SETTLE_S:
                return False
            if waited_s > timeout_s:
                raise InstrumentError(
                    f"{self.identity.model} was not armed within {timeout_s:g} s of being told to "
                    f"(it is {state.name.lower()}); check its screen."
                )
            time.sleep(_POLL_S)
            asked_s = time.monotonic()

    @property
    def unseen(self) -> str:
        """Why an armed acquisition may have ended before it was seen waiting; "" if unknown."""
        if self.slowest_s < _SLOW_S:
            return ""
        return (
            f"The instrument is slow: it took {self.slowest_s:.2g} s to say whether it is armed, "
            "and its trigger came in that time. Make events rarer than that, or look at its network"
        )

    def is_waiting(self) -> bool:
        """Whether it is still waiting for the trigger for which it was armed."""
        return self._again(self.dialect.state) is State.ARMED

    def wait(self, timeout_s: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the acquisition is complete; False if it took too long and was stopped."""
        end_s = time.monotonic() + timeout_s
        while self._again(self.dialect.state) is not State.STOPPED:
            if time.monotonic() > end_s or give_up():
                self._again(self.dialect.stop)
                return False
            time.sleep(_POLL_S)
        return True

    def read(self, channels: Sequence[int]) -> dict[int, Waveform]:
        """Read channels of the finished acquisition."""
        return {channel: self._again(partial(self.dialect.read, channel)) for channel in channels}

    def read_segments(self, channels: Sequence[int]) -> list[Segment]:
        """Read all segments."""
        return self._again(partial(self.dialect.read_segments, channels))

    def screenshot(self) -> bytes:
        """Return the screen as a picture (PNG or BMP)."""
        return self._again(self.dialect.screenshot)

    def _again(self, ask: Callable[[], Conversation[T]], tries: int = _TRIES) -> T:
        """Play a conversation; repeat it if it failed, which reconnects, or was too early."""
        for left in reversed(range(tries)):
            try:
                return self.play(ask())
            except InstrumentError:
                if not left:
                    raise
                self.read_again += 1
                time.sleep(_READ_AGAIN_S)
                self.transport.reopen()
        raise AssertionError

    def close(self) -> None:
        """Release it."""
        self.transport.close()
