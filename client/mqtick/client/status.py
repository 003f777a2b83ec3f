"""What the client says about itself: the status file, its lines for people, its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mqtick.client.agent import Agent, AnyTrack
from mqtick.client.estimate import State
from mqtick.client.foreign import ForeignTrack
from mqtick.client.present import boot_id
from mqtick.protocol.clocks import VirtualClock
from mqtick.service import Metric

__all__ = ["forecast", "metrics", "status", "status_lines", "summary"]

_SECOND = 1_000_000_000
# Between these ages a reader draws straight lines; the interval widens ever faster, so that a
# straight line lies outside of it: wider than the truth, never narrower.
_HORIZONS_S = (0, 1, 4, 16, 64, 256, 1024, 4096, 16384)


def forecast(track: AnyTrack, raw_ns: int) -> list[dict[str, Any]]:
    """Return the estimate now and at later ages, so that others can know the time from it."""
    rows = []
    for horizon_s in _HORIZONS_S:
        estimate = track.estimator.at(raw_ns + horizon_s * _SECOND)
        if estimate.lower_ns is None or estimate.upper_ns is None:
            break
        rows.append(
            {
                "local_ns": estimate.local_ns,
                "offset_ns": estimate.offset_ns,
                "lower_ns": estimate.lower_ns - estimate.root_distance_ns,
                "upper_ns": estimate.upper_ns + estimate.root_distance_ns,
                "state": str(estimate.state),
            }
        )
    return rows


def _server(track: AnyTrack, raw_ns: int, time_minus_raw_ns: int) -> dict[str, Any]:
    estimate = track.estimator.at(raw_ns)
    if isinstance(track, ForeignTrack):
        which: dict[str, Any] = {"server": None, "format": track.format}
    else:
        which = {
            "server": track.number,
            "format": "precise",
            "server_loop_delay_ns": track.server_loop_ns,
        }
    return {
        **which,
        "state": str(estimate.state),
        "offset_ns": _against_wall(estimate.offset_ns, time_minus_raw_ns),
        "earliest_offset_ns": _against_wall(estimate.lower_ns, time_minus_raw_ns),
        "latest_offset_ns": _against_wall(estimate.upper_ns, time_minus_raw_ns),
        "bound_ns": estimate.bound_ns,
        "bound_is_assumed": estimate.assumed,
        "root_distance_ns": estimate.root_distance_ns,
        "delay_ns": track.last_delay_ns,
        "frequency_ppb": round(estimate.frequency_ppb, 3),
        "frequency_uncertainty_ppb": _finite(estimate.frequency_uncertainty_ppb),
        "age_ns": estimate.age_ns,
        "kind": str(estimate.kind) if estimate.kind is not None else None,
        "samples": estimate.samples,
        "stratum": track.stratum,
        "leap": track.leap,
        "authenticated": track.authenticated and getattr(track, "secured", False),
        "verdicts": [
            {"kind": str(kind), "verdict": str(verdict), "reason": str(reason), "count": count}
            for kind, verdict, reason, count in track.estimator.counters.rows()
        ],
    }


def _against_wall(offset_ns: int | None, time_minus_raw_ns: int) -> int | None:
    return None if offset_ns is None else offset_ns - time_minus_raw_ns


def _finite(value: float) -> float | None:
    return round(value, 3) if value < 1e12 else None


def status(agent: Agent, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole status; offsets are reference minus the judged clock, ns."""
    raw_ns, time_minus_raw_ns = agent.clock.raw_ns(), agent.clock.time_minus_raw_ns()
    best = agent.best()
    servers = [_server(track, raw_ns, time_minus_raw_ns) for track in agent.tracks]
    chosen = agent.tracks.index(best[0]) if best is not None else None
    clock = agent.clock
    return {
        "name": agent.name,
        "state": str(best[1].state if best is not None else State.UNSYNCHRONISED),
        "chosen": chosen,
        "servers": servers,
        "forecast": forecast(best[0], raw_ns) if best is not None else [],
        "boot_id": boot_id(),
        "virtual_clock": clock.settings.to_text() if isinstance(clock, VirtualClock) else "",
        "broker": agent.connection.address,
        "connected": agent.connection.connected,
        "attempts": agent.connection.attempts,
        "connects": agent.connection.connects,
        "last_error": agent.certificate_error or agent.connection.last_error,
        "kernel_timestamps": agent.connection.kernel_stamps,
        "messages_dropped": agent.connection.dropped,
        "loop_delay_ns": agent.loopback.delay_ns(),
        "keys": agent.key_names,
        "clock_steps": agent.steps,
        "suspends": agent.suspends,
        "refused": dict(agent.refused),
        **extra,
    }


def summary(values: Mapping[str, Any]) -> str:
    """Return one line for systemd and for logs."""
    if values["chosen"] is None:
        return "unsynchronised"
    row = values["servers"][values["chosen"]]
    return f"{values['state']}: offset {_us(row['offset_ns'])}, bound {_us(row['bound_ns'])}"


def _us(value_ns: int | None) -> str:
    if value_ns is None:
        return "unknown"
    if abs(value_ns) >= 10_000_000:
        return f"{value_ns / 1e6:+.3f} ms"
    return f"{value_ns / 1000:+.1f} us"


def status_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the status as a person reads it."""
    link = "connected"
    if not values["connected"]:
        link = f"not connected after {values['attempts']} attempts: {values['last_error']}"
    stamps = "kernel" if values["kernel_timestamps"] else "user"
    yield f"client            {values['name']}, {values['state']}"
    yield f"broker            {values['broker']}, {link}, {stamps} timestamps"
    if not values["servers"]:
        yield "server            none heard yet"
    for index, row in enumerate(values["servers"]):
        name = row["format"] if row["server"] is None else f"{row['server']} ({row['format']})"
        mark = ", in use" if index == values["chosen"] else ""
        yield f"server {name}{mark}"
        yield f"  state           {row['state']}, stratum {row['stratum']}"
        if row["offset_ns"] is not None:
            bound = _us(row["bound_ns"]).lstrip("+")
            assumed = " (assumed: only broadcasts are heard)" if row["bound_is_assumed"] else ""
            yield f"  offset          {_us(row['offset_ns'])} (server minus this clock)"
            yield f"  bound           {bound}{assumed}, root distance {_plain(row)}"
            yield (
                f"  frequency       {row['frequency_ppb'] / 1000:+.3f} ppm "
                f"(positive: this clock is slow)"
            )
            yield f"  last sample     {row['age_ns'] / 1e9:.1f} s ago, {row['kind']}"
        if row["delay_ns"] is not None:
            yield f"  round trip      {_us(row['delay_ns']).lstrip('+')}"
        yield f"  samples         {_verdicts(row['verdicts'])}"
    for number, feed in values.get("chrony", {}).items():
        sent = ", ".join(f"{count} {outcome}" for outcome, count in feed["sent"].items())
        yield f"chrony            server {number}: {sent or 'nothing sent'}; {feed['says']}"
    pps = values.get("pps")
    if pps:
        yield f"pps               {pps['made']} made, {pps['missed']} missed"
    for name, pin in values.get("pins", {}).items():
        errors = f"{pin['errors']} errors, the last: {pin['last']}" if pin["errors"] else "good"
        yield f"pin               {name}: {pin['backend']}, {errors}"
    refused = ", ".join(f"{name} {count}" for name, count in sorted(values["refused"].items()))
    yield f"refused           {refused or 'nothing'}"


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Count samples by verdict; of those refused, by reason."""
    counts = Counter[str]()
    reasons = Counter[str]()
    for row in rows:
        counts[row["verdict"]] += row["count"]
        if row["verdict"] == "refused":
            reasons[row["reason"]] += row["count"]
    why = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    text = f"{counts['used']} used, {counts['kept']} kept, {counts['refused']} refused"
    return f"{text} ({why})" if why else text


def _plain(row: Mapping[str, Any]) -> str:
    return _us(row["root_distance_ns"]).lstrip("+")


def _clock_error_s(values: Mapping[str, Any]) -> float | None:
    """Return what `wait --within` compares: the far end of the interval, root distance included."""
    if values["chosen"] is None:
        return None
    row = values["servers"][values["chosen"]]
    earliest_ns, latest_ns = row["earliest_offset_ns"], row["latest_offset_ns"]
    if earliest_ns is None or latest_ns is None:
        return None
    return float(max(latest_ns, -earliest_ns) + row["root_distance_ns"]) / 1e9


def metrics(values: Mapping[str, Any]) -> list[Metric]:
    """Return the Prometheus metrics of a status."""
    found = [
        Metric("mqtick_client_connected", float(values["connected"]), "1 while connected."),
        Metric(
            "mqtick_client_synchronised",
            float(values["state"] == "synchronised"),
            "1 while synchronised.",
        ),
        Metric(
            "mqtick_client_holdover",
            float(values["state"] == "holdover"),
            "1 while the time is known from earlier samples only.",
        ),
        Metric(
            "mqtick_client_clock_error_seconds",
            _clock_error_s(values),
            "The most by which this clock can be wrong, by the server in use.",
        ),
        Metric("mqtick_client_clock_steps_total", values["clock_steps"], "Steps seen.", "counter"),
    ]
    for index, row in enumerate(values["servers"]):
        labels = {"server": row["format"] if row["server"] is None else str(row["server"])}
        in_use = float(index == values["chosen"])
        text = "1 for the server in use."
        found.append(Metric("mqtick_client_server_in_use", in_use, text, "gauge", labels))
        for name, value, text in (
            ("offset", row["offset_ns"], "Server minus this clock."),
            ("bound", row["bound_ns"], "The offset is certainly within this of what is shown."),
            ("root_distance", row["root_distance_ns"], "Bound of the server's own error."),
            ("delay", row["delay_ns"], "Round trip to the server and back."),
            ("sample_age", row["age_ns"], "Time since the newest sample in use."),
        ):
            seconds = None if value is None else value / 1e9
            found.append(Metric(f"mqtick_client_{name}_seconds", seconds, text, "gauge", labels))
        for verdict in row["verdicts"]:
            which = {name: verdict[name] for name in ("kind", "verdict", "reason")}
            found.append(
                Metric(
                    "mqtick_client_samples_total",
                    verdict["count"],
                    "Samples, by what became of them.",
                    "counter",
                    {**labels, **which},
                )
            )
    for number, feed in values.get("chrony", {}).items():
        for outcome, count in feed["sent"].items():
            text = "Samples given to chronyd, by what became of them."
            labels = {"server": number, "outcome": outcome}
            found.append(Metric("mqtick_client_chrony_total", count, text, "counter", labels))
    for reason, count in sorted(values["refused"].items()):
        text = "Messages refused, by reason."
        found.append(
            Metric("mqtick_client_refused_total", count, text, "counter", {"reason": reason})
        )
    return found
