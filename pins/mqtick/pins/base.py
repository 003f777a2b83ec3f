"""What every back end shares: the settings, the line it opens, and what an edge is.

A back end (memory, gpiod, gpiomem, pigpio, or one by somebody else) knows how to set one line
high or low: that is a `Line`. `Output` (output.py) adds the rest, once for all of them.
"""

from __future__ import annotations

import difflib
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol, get_args, runtime_checkable

Mode = Literal["toggle", "pulse"]
Clock = Callable[[], int]

MAX_LINE: Final = 1023
"""Highest line number any back end is asked for; each has its own, lower limit."""
MAX_WIDTH_US: Final = 500_000
"""Longest pulse, in us: half of the period of one pulse per second."""
COMPLETE_US: Final = 100
"""Longest pulse, in us, that fire() itself completes (also the limit of pigpio's TRIG)."""

monotonic_raw_ns: Clock = functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
"""Read CLOCK_MONOTONIC_RAW, in ns: the clock of every edge, since chrony does not slew it."""


class PinError(Exception):
    """A pin cannot be used; the message is a sentence that says why and what to do next."""


class LatencyClass(StrEnum):
    """How a back end reaches its pin, and thus the order of magnitude of its delay.

    Published figures in brackets, from different boards and kernels; measure your own.
    """

    CLOSED = "not open"
    """There is no line yet, or no longer."""
    SIMULATED = "simulated"
    """No pin at all: the edge is only recorded."""
    REGISTER = "register"
    """A store to the pin controller (below 1 us)."""
    SYSTEM_CALL = "system call"
    """One ioctl for each edge (3 us)."""
    DAEMON = "daemon"
    """A question to another process and its answer (0.7 ms), even across a network."""


class Edge(NamedTuple):
    """When an edge was made: at before_ns or later, at after_ns or earlier.

    Both are CLOCK_MONOTONIC_RAW in ns. `level` is the electrical level after the edge (True is
    high). An edge that failed, or whose success is not known, has after_ns = 0 and is false in
    `made`; before_ns then says when it was tried.  (A tuple, because it is made in the hot path.)
    """

    before_ns: int
    after_ns: int
    level: bool

    @property
    def made(self) -> bool:
        """Whether the back end confirmed the edge."""
        return self.after_ns != 0


class Line(Protocol):
    """One output line of one back end: all that a new back end has to write.

    `open_pin(settings) -> Line` makes it: an output that is at `settings.inactive_level`, without
    an edge if it was there before; raises PinError if that is not possible. A line that can time
    a pulse by itself may also have `pulse(level: bool) -> None`, see `PulseLine`.
    """

    @property
    def name(self) -> str:
        """What the line is, for people: "gpiomem GPIO 17 (RP1)"."""

    @property
    def latency_class(self) -> LatencyClass:
        """How the back end reaches the pin."""

    def set(self, level: bool) -> None:
        """Set the line high (True) or low; return once it is; any exception means it failed.

        If the line already has that level, there is no edge.
        """

    def close(self) -> None:
        """Release the line, at the level it has."""


@runtime_checkable
class PulseLine(Line, Protocol):
    """A line whose hardware or daemon times pulses of up to COMPLETE_US by itself."""

    def pulse(self, level: bool) -> None:
        """Go to `level` for settings.width_us, back, and return."""


@dataclass(frozen=True, slots=True)
class PinSettings:
    """What to open, and what kind of edges to make on it.

    Attributes:
        backend: name in the entry point group `mqtick.pins`: memory, gpiod, gpiomem, pigpio, ...
        line: GPIO number on the chip (on a Raspberry Pi: the BCM number, not the place on the
        header), 0 to 1023; each back end has its own limit.
        mode: "toggle" (each edge flips the line, so rising and falling alternate) or "pulse"
            (each edge goes active, and the line returns after width_us).
        width_us: length of a pulse in us, 1 to 500,000; unused when toggling. Up to 100 us
            fire() waits for its end, above that the caller's event loop calls release().
        active_low: the line rests high, and its active level is low.
        chip_label: gpiod: label of the chip ("pinctrl-rp1"), or its path ("/dev/gpiochip0");
            empty: the header chip of a Raspberry Pi.
        device: gpiomem: the file with the registers; empty: the one that belongs to the board.
        host: pigpio: name or address of the machine that runs the daemon.
        port: pigpio: TCP port of the daemon, 1 to 65535.
        timeout_ms: pigpio: longest wait for one answer of the daemon, in ms, 1 to 10,000.
        sink: memory: where each edge is also sent: path of a Unix datagram socket that somebody
            reads, or "fd:N" for the open descriptor N of a pipe or socket; empty: nowhere.
        ring_edges: memory: edges that are kept, 1 to 1,000,000; older ones are counted and lost.
    """

    backend: str = "gpiod"
    line: int = 17
    mode: Mode = "toggle"
    width_us: int = 100
    active_low: bool = False
    chip_label: str = ""
    device: str = ""
    host: str = "localhost"
    port: int = 8888
    timeout_ms: int = 100
    sink: str = ""
    ring_edges: int = 4096

    def __post_init__(self) -> None:
        problems = [
            _range_problem("line", self.line, 0, MAX_LINE, "", "use the BCM number of the pin"),
            _range_problem(
                "width_us", self.width_us, 1, MAX_WIDTH_US, " us", "choose a width within them"
            ),
            _range_problem("port", self.port, 1, 65535, "", "pigpiod listens on 8888 by default"),
            _range_problem("timeout_ms", self.timeout_ms, 1, 10_000, " ms", "100 is usual"),
            _range_problem("ring_edges", self.ring_edges, 1, 1_000_000, " edges", "4096 is usual"),
        ]
        modes = get_args(Mode)
        if self.mode not in modes:
            problems.append(
                f"mode is {self.mode!r}, which is neither of {' and '.join(modes)}"
                f"; {nearest(str(self.mode), modes)}."
            )
        found = [problem for problem in problems if problem]
        if found:
            raise PinError(" ".join(found))

    @property
    def active_level(self) -> bool:
        """The electrical level when active: True is high."""
        return not self.active_low

    @property
    def inactive_level(self) -> bool:
        """The electrical level at rest: True is high."""
        return self.active_low


def _range_problem(name: str, value: int, low: int, high: int, unit: str, remedy: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return ""
    return (
        f"{name} is {value!r}, outside the limits {low} to {high}{unit}, so no pin is opened"
        f"; {remedy}."
    )


def nearest(given: str, known: tuple[str, ...] | list[str]) -> str:
    """Say which known name a wrong one was probably meant to be, as a part of a sentence."""
    close = difflib.get_close_matches(given.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}" if close else f"choose {' or '.join(known)}"
