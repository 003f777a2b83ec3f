"""The content of the client's status file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mqtick.client.agent import Agent
from mqtick.client.disagreement import Disagreement, disagreements
from mqtick.client.estimate import Estimate, State
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.client.interval import boot_id, slept_ns
from mqtick.client.track import Track
from mqtick.client.unknown import why_unknown
from mqtick.protocol.clocks import VirtualClock
from mqtick.protocol.time_types import NS_PER_S

# A reader interpolates linearly between these ages. The interval widens ever faster, so a straight
# line lies outside it: the reader's interval is wider than the true one, never narrower.
_HORIZONS_S = (0, 1, 4, 16, 64, 256, 1024, 4096, 16384)


def forecast(track: Track, raw_ns: int) -> list[dict[str, Any]]:
    """Return the estimate now and at later ages, from which other programs compute the time."""
    rows = []
    for horizon_s in _HORIZONS_S:
        estimate = track.estimator.at(raw_ns + horizon_s * NS_PER_S)
        if estimate.lower_ns is None or estimate.upper_ns is None:
            break
        rows.append(
            {
                "local_ns": estimate.local_ns,
                "offset_ns": estimate.offset_ns,
                "lower_ns": estimate.lower_ns - estimate.root_distance_ns,
                "upper_ns": estimate.upper_ns + estimate.root_distance_ns,
                "narrow_lower_ns": _plus(estimate.narrow_lower_ns, -estimate.root_distance_ns),
                "narrow_upper_ns": _plus(estimate.narrow_upper_ns, estimate.root_distance_ns),
                "state": str(estimate.state),
                "bound_is_assumed": estimate.assumed,
            }
        )
    return rows


def _server(track: Track, raw_ns: int, time_minus_raw_ns: int) -> dict[str, Any]:
    estimate = track.estimator.at(raw_ns)
    return {
        "server": track.number,
        "format": track.format,
        "server_loop_delay_ns": track.server_loop_ns,
        "state": str(estimate.state),
        "why_unknown": why_unknown(track.estimator, raw_ns),
        "offset_ns": _plus(estimate.offset_ns, -time_minus_raw_ns),
        "earliest_offset_ns": _plus(estimate.lower_ns, -time_minus_raw_ns),
        "latest_offset_ns": _plus(estimate.upper_ns, -time_minus_raw_ns),
        "bound_ns": estimate.bound_ns,
        "bound_is_assumed": estimate.assumed,
        "narrow_bound_ns": estimate.narrow_bound_ns,
        "root_distance_ns": estimate.root_distance_ns,
        "slew_ppb": estimate.slew_ppb,
        "slew_is_assumed": estimate.slew_is_assumed,
        "delay_ns": track.last_delay_ns,
        "frequency_ppb": frequency_ppb(estimate, track.estimator.settings),
        "frequency_uncertainty_ppb": _finite(estimate.frequency_uncertainty_ppb),
        "age_ns": estimate.age_ns,
        "kind": str(estimate.kind) if estimate.kind is not None else None,
        "samples": estimate.samples,
        "stratum": track.stratum,
        "leap": track.leap,
        "authenticated": track.authenticated and track.secured,
        "jumps": track.estimator.jumps,
        "resets": track.estimator.resets,
        "in_doubt": track.estimator.in_doubt,
        "trouble": asdict(track.first.trouble) if track.first.trouble is not None else None,
        "verdicts": [
            {"kind": str(kind), "verdict": str(verdict), "reason": str(reason), "count": count}
            for kind, verdict, reason, count in track.estimator.counters.rows()
        ],
    }


def clock_error_ns(row: Mapping[str, Any]) -> int | None:
    """Return the most by which the judged clock can be wrong, what `wait --within` compares."""
    earliest_ns, latest_ns = row["earliest_offset_ns"], row["latest_offset_ns"]
    if earliest_ns is None or latest_ns is None:
        return None
    return int(max(latest_ns, -earliest_ns) + row["root_distance_ns"])


def frequency_ppb(estimate: Estimate, settings: EstimatorSettings) -> float | None:
    """Return the frequency; None if it is not known better than the limit for any clock."""
    limit_ppb = settings.frequency_limit_ppm * 1e3
    unsure_ppb = settings.frequency_sigmas * estimate.frequency_uncertainty_ppb
    known = unsure_ppb < limit_ppb and abs(estimate.frequency_ppb) < limit_ppb
    return round(estimate.frequency_ppb, 3) if known else None


def _plus(value_ns: int | None, more_ns: int) -> int | None:
    return None if value_ns is None else value_ns + more_ns


def _finite(value: float) -> float | None:
    return round(value, 3) if value < 1e12 else None


def disagreements_at(tracks: Sequence[Track], raw_ns: int) -> list[Disagreement]:
    """Return which servers contradict each other at this local instant."""
    return disagreements({track.label: track.estimator.at(raw_ns) for track in tracks})


def status(agent: Agent, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole status; offsets are reference minus the judged clock, ns."""
    # In this order: if the host sleeps before the agent looks, it forgets what it measured; if it
    # sleeps later, readers compare with how long it had slept before.
    slept_before_ns = slept_ns()
    best = agent.best()
    raw_ns, time_minus_raw_ns = agent.clock.raw_ns(), agent.clock.time_minus_raw_ns()
    servers = [_server(track, raw_ns, time_minus_raw_ns) for track in agent.tracks]
    chosen = agent.tracks.index(best[0]) if best is not None else None
    clock, connection = agent.clock, agent.connection
    return {
        "name": agent.name,
        "name_heard_twice": agent.name_heard_twice,
        "state": str(best[1].state if best is not None else State.UNSYNCHRONISED),
        "chosen": chosen,
        "clock_error_ns": clock_error_ns(servers[chosen]) if chosen is not None else None,
        "servers": servers,
        "disagreements": [asdict(each) for each in disagreements_at(agent.tracks, raw_ns)],
        "forecast": forecast(best[0], raw_ns) if best is not None else [],
        "boot_id": boot_id(),
        "slept_ns": slept_before_ns,
        "virtual_clock": clock.settings.to_text() if isinstance(clock, VirtualClock) else "",
        "broker": connection.address,
        "connected": connection.connected,
        "mqtt_version": "5" if connection.version_5 else "3.1.1",
        "attempts": connection.attempts,
        "connects": connection.connects,
        "last_error": agent.certificate.error or connection.last_error or connection.error_5,
        "kernel_timestamps": connection.kernel_stamps,
        "messages_dropped": connection.dropped,
        "unasked": connection.unasked,
        "loop_delay_ns": agent.loopback.delay_ns(),
        "keys": agent.key_names,
        "follow_unsigned": agent.settings.follow_unsigned and bool(agent.key_names),
        "broker_fills": agent.loopback.filled,
        "trust_broker_residence": agent.settings.estimator.trust_broker_residence,
        "trust_broker": agent.settings.estimator.trust_broker,
        "clock_steps": agent.steps,
        "suspends": agent.suspends,
        "refused": dict(agent.refused + connection.unread),
        **extra,
    }
