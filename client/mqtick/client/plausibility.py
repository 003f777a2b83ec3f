"""Checks a sample before it is compared with others; computes the interval that it guarantees.

Values that a hostile server invents are refused here.
"""

from __future__ import annotations

from mqtick.client.bracket import Interval
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.sample import Kind, Reason, Sample

_RANGE = 1 << 63
"""Instants and offsets are 64-bit nanoseconds: 292 years either way."""


def fault(sample: Sample, settings: EstimatorSettings, newest: Sample | None) -> Reason | None:
    """Return why a sample cannot be used at all, or None.

    `newest`: the newest sample that was accepted, if there is one.
    """
    uses = {
        Kind.ONE_WAY: True,
        Kind.TWO_WAY: settings.use_two_way,
        Kind.ECHO: settings.use_echo,
        Kind.RESIDENCE: settings.use_residence,
    }
    if not uses[sample.kind]:
        return Reason.SWITCHED_OFF
    if settings.refuse_unsynchronised_server and sample.leap == 3:
        return Reason.SERVER_UNSYNCHRONISED
    if newest is not None and sample.server != newest.server:
        return Reason.OTHER_SERVER
    is_late = newest is not None and newest.local_ns - sample.local_ns > settings.late_s * 1e9
    return _impossible(sample, settings) or (Reason.STALE if is_late else None)


def _impossible(sample: Sample, settings: EstimatorSettings) -> Reason | None:
    lower, upper = sample.lower_ns, sample.upper_ns
    if lower is None or (upper is None and sample.kind.is_exchange):
        return Reason.UNBOUNDED
    numbers = sample.local_ns, sample.offset_ns, sample.delay_ns, sample.duration_ns, lower
    if not all(
        -_RANGE <= number < _RANGE for number in (*numbers, lower if upper is None else upper)
    ):
        return Reason.RANGE
    if upper is not None and not lower <= sample.offset_ns <= upper:
        return Reason.INVERTED
    if sample.delay_ns < 0 or sample.duration_ns < 0:
        return Reason.NEGATIVE_DELAY
    if sample.delay_ns > settings.maximum_delay_us * 1e3:
        return Reason.DELAY
    return None


def guaranteed(sample: Sample, upper_ns: int, settings: EstimatorSettings) -> Interval:
    """Return the interval of a sample without fault, widened by the errors that it leaves out.

    These are the error of converting timestamps, and how far the two clocks can have drifted apart
    during the exchange. `upper_ns` is the sample's own upper limit, or a substitute.
    """
    assert sample.lower_ns is not None
    promised = sample.rate_change_ppb
    # From one limit to the other, a clock departs from its line by twice the limit.
    slew = 2 * settings.assumed_slew_ppm * 1e-6 if promised is None else promised * 1e-9
    drift = (settings.frequency_limit_ppm * 1e-6 + slew) * sample.duration_ns
    extra_ns = round(settings.stamp_error_us * 1e3 + drift) + sample.stamp_error_ns
    return Interval(sample.local_ns, sample.lower_ns - extra_ns, upper_ns + extra_ns, slew)
