"""The result of the estimator: an offset with its interval, never a bare number."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mqtick.client.sample import Kind


class State(enum.StrEnum):
    """How far an estimate can be relied on."""

    UNSYNCHRONISED = "unsynchronised"
    SYNCHRONISED = "synchronised"
    HOLDOVER = "holdover"

    @property
    def is_known(self) -> bool:
        """Whether the time is known: synchronised or in holdover."""
        return self is not State.UNSYNCHRONISED


@dataclass(frozen=True, slots=True)
class Estimate:
    """The offset at one local instant; reference minus local, integer nanoseconds.

    Attributes:
        offset_ns: Best estimate, always inside the interval; None before the first sample.
        lower_ns: The offset is at least this; None: no lower limit is known.
        upper_ns: The offset is at most this; None: no upper limit is known.
        narrow_lower_ns: Lower end of the narrower interval that echoes and residences give, inside
            the interval above; None if they do not narrow it. It holds only if the broker is honest
            (delivers in order, states residence truly), and if links are symmetric within
            `link_asymmetry_us`: a client cannot check this against a broker that lies.
        narrow_upper_ns: The upper end of the narrower interval.
        assumed: The upper limit is assumed, not measured: there were only broadcasts, and only
            `assumed_path_delay_us` bounds their delay.
        frequency_ppb: Change of the offset in ns per s; positive: the local clock is slow.
        frequency_uncertainty_ppb: One standard deviation of the frequency.
        age_ns: Local time since the newest sample in use.
        kind: The kind of samples in use.
        samples: How many samples the line goes through.
        root_distance_ns: How far the server's own clock may be wrong, as the server stated in the
            last exchange, grown since. The interval is about the server's clock: add this on both
            sides to bound UTC.
        slew_ppb: How fast the server's clock may depart from a straight line, ns per s; the
            interval grows by it.
        slew_is_assumed: The server promises nothing: `assumed_slew_ppm` is all that limits it.
    """

    local_ns: int
    state: State
    offset_ns: int | None = None
    lower_ns: int | None = None
    upper_ns: int | None = None
    narrow_lower_ns: int | None = None
    narrow_upper_ns: int | None = None
    assumed: bool = False
    frequency_ppb: float = 0.0
    frequency_uncertainty_ppb: float = float("inf")
    age_ns: int | None = None
    kind: Kind | None = None
    samples: int = 0
    root_distance_ns: int = 0
    slew_ppb: int = 0
    slew_is_assumed: bool = False

    @property
    def is_measured(self) -> bool:
        """Whether the time is known, and its bound is measured, not only assumed."""
        return self.state.is_known and not self.assumed

    @property
    def half_width_ns(self) -> int | None:
        """Half the guaranteed interval, rounded up; None if one side is open."""
        if self.lower_ns is None or self.upper_ns is None:
            return None
        return (self.upper_ns - self.lower_ns + 1) // 2

    @property
    def bound_ns(self) -> int | None:
        """The largest possible error of the best estimate; None if one side is open.

        More than half the interval if the estimate is not in its middle.
        """
        if self.offset_ns is None or self.lower_ns is None or self.upper_ns is None:
            return None
        return max(self.upper_ns - self.offset_ns, self.offset_ns - self.lower_ns)

    @property
    def narrow_bound_ns(self) -> int | None:
        """The largest possible error of the best estimate if the broker is honest, or None."""
        if self.offset_ns is None or self.narrow_lower_ns is None or self.narrow_upper_ns is None:
            return None
        return max(self.narrow_upper_ns - self.offset_ns, self.offset_ns - self.narrow_lower_ns)

    def reference_ns(self) -> int | None:
        """The server's time at this local instant (Unix ns), as estimated."""
        return None if self.offset_ns is None else self.local_ns + self.offset_ns
