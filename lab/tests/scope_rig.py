"""A simulated oscilloscope on a socket of this machine, with edges that the test makes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

from mqtick.lab.scope.conversation import Conversation, Reply, Step
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger
from mqtick.lab.scope.simulator import EdgeFeed, Faults, Front, InstrumentServer, Model, Physics
from mqtick.pins.base import monotonic_raw_ns
from mqtick.recording.edges import Edge, find_edges
from mqtick.recording.waveform import Waveform

T = TypeVar("T")
LINES = {1: 1, 2: 2, 3: 3, 4: 4}
LATE_S, SHORT_S, LONG_S = 4.0, 2.0, 30.0


def each_fault(*kinds: str) -> pytest.MarkDecorator:
    """Run a test with each fault, `kind`, and with the driver's patience for it, `timeout_s`.

    Only the end of that shows a block that ends too soon, or an answer that is late. Any other
    answer comes, however busy this machine is.
    """
    return pytest.mark.parametrize(
        ("kind", "timeout_s"),
        [
            pytest.param(kind, SHORT_S, marks=pytest.mark.slow, id=kind)
            if kind in ("short-block", "late")
            else pytest.param(kind, LONG_S, id=kind)
            for kind in kinds
        ],
    )


@dataclass
class Simulated:
    """A simulated instrument that runs."""

    model: Model
    front: Front
    server: InstrumentServer
    now_ns: int = 0
    """Its clock, while that is moved by hand."""

    @property
    def resource(self) -> str:
        """Its VISA name."""
        return f"TCPIP::127.0.0.1::{self.server.port}::SOCKET"

    def clock_by_hand(self) -> Callable[[float], None]:
        """Stop its clock; what is returned moves it on by that many seconds."""
        self.now_ns = monotonic_raw_ns()
        self.model._now = lambda: self.now_ns

        def later(seconds: float) -> None:
            self.now_ns += int(seconds * 1e9)

        return later

    def edges(self, *delays_ns: int, rising: bool = True, ahead_ns: int = 1_000_000) -> int:
        """Make an edge on lines 1, 2, ... after that many ns each; returns the first one's instant.

        The edges lie a moment ahead, so that none is in the past of an armed trigger.
        """
        begin_ns = monotonic_raw_ns() + ahead_ns
        for line, delay_ns in enumerate((0, *delays_ns), start=1):
            self.model.feed.add(line, begin_ns + delay_ns, rising)
        return begin_ns

    def shot(self, scope: Oscilloscope, settings: ScopeSettings, *delays_ns: int) -> None:
        """Set up, arm, make edges and wait for the end of the acquisition."""
        scope.set_up(settings)
        assert scope.arm()
        for _ in range(settings.segments):
            self.edges(*delays_ns)
            time.sleep(settings.span_s + 0.005)
            for line in range(1, len(delays_ns) + 2):
                self.model.feed.add(line, monotonic_raw_ns(), False)
            time.sleep(settings.span_s + 0.005)
        assert scope.wait(2.0)


@contextlib.contextmanager
def simulated(
    front: type[Front], physics: Physics | None = None, faults: Faults | None = None
) -> Iterator[Simulated]:
    """Serve a front on a port of its own, in a thread, until the end of the block."""
    model = Model(EdgeFeed(), dict(LINES), physics or front.physics)
    instrument = front(model)
    server = InstrumentServer(instrument, faults)
    loop = asyncio.new_event_loop()
    started = threading.Event()

    def serve() -> None:
        loop.run_until_complete(server.start())
        started.set()
        loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(5)
    try:
        yield Simulated(model, instrument, server)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@contextlib.contextmanager
def opened(
    front: type[Front],
    physics: Physics | None = None,
    faults: Faults | None = None,
    timeout_s: float = LONG_S,
) -> Iterator[tuple[Simulated, Oscilloscope]]:
    """Serve a front and open it, until the end of the block."""
    with simulated(front, physics, faults) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=timeout_s)
        try:
            yield instrument, scope
        finally:
            scope.close()


class Answering:
    """A transport whose instrument answers as a function says."""

    name = "scripted"

    def __init__(self, answer: Callable[[Step], Reply]) -> None:
        self.play = answer

    def reopen(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def first_edges(found: Mapping[int, Waveform]) -> list[Edge]:
    """Return the first edge of each channel."""
    return [find_edges(waveform)[0] for waveform in found.values()]


def apart_fs(found: Mapping[int, Waveform]) -> int:
    """Return how much later than the first channel's the second one's first edge is."""
    first, second = first_edges(found)
    return second.instant_fs - first.instant_fs


def usual(
    span_s: float = 1e-3, points: int = 10_000, channels: int = 2, segments: int = 1
) -> ScopeSettings:
    """A usual set-up: 3.3 V pins, trigger on channel 1."""
    return ScopeSettings(
        channels=tuple(ChannelSettings(number) for number in range(1, channels + 1)),
        trigger=Trigger(1),
        span_s=span_s,
        points=points,
        segments=segments,
    )


def sent(
    conversation: Conversation[T], answers: Mapping[str, str | bytes] | None = None
) -> list[str]:
    """Play a conversation to its end, and return what was sent.

    A query that is not among the answers is answered by what was set before, or else by 1.
    """
    commands: list[str] = []
    known: dict[str, str | bytes] = {}
    reply: Reply = None
    with contextlib.suppress(StopIteration):
        while True:
            command = getattr(conversation.send(reply), "command", "")
            commands += [command] if command else []
            header, _, value = command.partition(" ")
            known[f"{header}?"] = value
            reply = ({**known, **(answers or {})}.get(command, "1")) if "?" in command else None
    return commands


def converse(conversation: Conversation[T], pairs: Sequence[tuple[str, str | bytes | None]]) -> T:
    """Play a conversation against pairs of command and reply; all must be used, in order."""
    expected = list(pairs)
    reply: Reply = None
    try:
        while True:
            step: Step = conversation.send(reply)
            command = getattr(step, "command", None)
            if command is None:  # a pause
                reply = None
                continue
            assert expected, f"nothing more was expected, but {command!r} was sent"
            wanted, reply = expected.pop(0)
            assert command == wanted
    except StopIteration as end:
        assert not expected, f"never sent: {expected}"
        found: T = end.value
        return found
