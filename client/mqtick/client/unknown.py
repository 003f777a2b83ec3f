"""Why the time is not known: the value, the limit, and the setting that names it."""

from __future__ import annotations

from mqtick.client.estimator import Estimator


def why_unknown(estimator: Estimator, local_ns: int) -> str:
    """Return why the time is not known at this local instant; empty if it is known."""
    told, settings = estimator.at(local_ns), estimator.settings
    if told.state.is_known:
        return ""
    if told.half_width_ns is None or told.age_ns is None:
        return "no sample was accepted yet"
    if estimator.in_doubt:
        return "the newest exchanges contradict the interval"
    if told.age_ns > settings.maximum_age_s * 1e9:
        return (
            f"the last sample is {told.age_ns / 1e9:.0f} s old, more than "
            f"estimator.maximum_age_s ({settings.maximum_age_s:g} s)"
        )
    if told.half_width_ns > settings.unsynchronised_bound_us * 1e3:
        return (
            f"half the guaranteed interval is {told.half_width_ns / 1e6:.1f} ms, more than "
            f"estimator.unsynchronised_bound_us ({settings.unsynchronised_bound_us / 1e3:g} ms): "
            "half the round trip through the broker is part of it; raise the limit if the link is "
            "that long and such a bound will do"
        )
    return f"fewer than estimator.confirm_samples ({settings.confirm_samples}) broadcasts agree"
