"""Samples made by hand, and an estimator that is fed with them."""

from __future__ import annotations

from dataclasses import replace

from mqtick.client.estimate import Estimate
from mqtick.client.estimator import Estimator
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind, Reading, Reason, Sample, SampleVerdict

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
US = 1000
EPOCH = 1_790_000_000 * SECOND
TRUSTING = EstimatorSettings(trust_broker=True)
"""Echoes then count like any exchange, which lets one sample stand for one."""


def local(at_s: float) -> int:
    return round(at_s * SECOND)


def outcome(sample: Sample) -> tuple[SampleVerdict, Reason]:
    return sample.verdict, sample.reason


def holds(estimate: Estimate, truth_ns: int = EPOCH) -> bool:
    """Whether the truth is in the interval, and no farther from the estimate than its bound."""
    assert estimate.lower_ns is not None
    assert estimate.upper_ns is not None
    assert estimate.offset_ns is not None
    assert estimate.bound_ns is not None
    inside = estimate.lower_ns <= truth_ns <= estimate.upper_ns
    return inside and abs(estimate.offset_ns - truth_ns) <= estimate.bound_ns


def exchange(
    at_s: float,
    offset_ns: int = EPOCH,
    half_ns: int = 30 * US,
    kind: Kind = Kind.ECHO,
    error_ns: int = 0,
    **fields: object,
) -> Sample:
    """An exchange whose interval has the truth in the middle, off by `error_ns`."""
    local_ns = round(at_s * SECOND)
    sample = Sample(
        kind=kind,
        local_ns=local_ns,
        offset_ns=offset_ns + error_ns,
        lower_ns=offset_ns - half_ns,
        upper_ns=offset_ns + half_ns,
        delay_ns=2 * half_ns,
        sequence=round(at_s * 1000),
        readings=(("t1", Reading(local_ns)),),
        rate_change_ppb=0,
    )
    return replace(sample, **fields)  # type: ignore[arg-type]


def broadcast(at_s: float, offset_ns: int = EPOCH, delay_ns: int = 300 * US) -> Sample:
    local_ns = round(at_s * SECOND)
    lower_ns = offset_ns - delay_ns
    return Sample(
        kind=Kind.ONE_WAY,
        local_ns=local_ns,
        offset_ns=lower_ns,
        lower_ns=lower_ns,
        upper_ns=None,
        sequence=round(at_s * 1000),
        readings=(("transmit", Reading(local_ns + lower_ns)),),
    )


class Fed(Estimator):
    """An estimator with the broker trusted, unless told otherwise, that is fed by seconds."""

    def __init__(self, settings: EstimatorSettings | None = None) -> None:
        super().__init__(settings or TRUSTING)

    def after(self, at_s: float) -> Estimate:
        """What it says at this second."""
        return self.at(local(at_s))

    def exchange(self, at_s: float, *args: object, **fields: object) -> Sample:
        """Add an exchange; returns it judged."""
        return self.add(exchange(at_s, *args, **fields))  # type: ignore[arg-type]

    def broadcast(self, at_s: float, *args: int, **fields: int) -> Sample:
        """Add a broadcast; returns it judged."""
        return self.add(broadcast(at_s, *args, **fields))

    def add_all(self, *samples: Sample) -> None:
        """Add several."""
        for sample in samples:
            self.add(sample)


def settled(seconds: int = 200, settings: EstimatorSettings | None = None, **fields: object) -> Fed:
    """An estimator after an echo each 8 s, on a clock without frequency error."""
    estimator = Fed(settings)
    for at_s in range(0, seconds, 8):
        estimator.exchange(at_s, **fields)
    return estimator
