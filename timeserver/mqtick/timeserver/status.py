"""The status of the time server, for people and for monitoring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqtick.service import Metric
from mqtick.service.program import trouble_lines
from mqtick.timeserver.server import Server

PROGRAM = "mqtick-timeserver"

_ECHO = {
    "kept": "offered, the broker keeps the order",
    "broken": "not offered, the broker does not keep the order",
    "unknown": "not offered yet, the broker's order is being tested",
    "off": "off",
}


def status(server: Server, monotonic_ns: int) -> dict[str, Any]:
    """Return the whole status; durations in ns, as their names say."""
    reference, late, echo, claims = server.reference, server.lateness, server.echo, server.claims
    state = "synchronised" if reference.synchronised else "unsynchronised"
    return {
        "state": "standing by" if claims.standing_by else state,
        "reason": claims.says if claims.standing_by else reference.reason,
        "number": server.number,
        "formats": list(server.settings.formats),
        "leads": server.leads(),
        "other_servers": server.election.alive(monotonic_ns),
        "conflicts": claims.strangers,
        "same_number": claims.says,
        "names_heard_twice": server.responder.namesakes.names(monotonic_ns),
        "lot": claims.lot,
        "broker": server.connection.address,
        "connected": server.connection.connected,
        "connects": server.connection.connects,
        "last_error": server.connection.last_error,
        "broker_lacks": server.connection.lacks,
        "unasked": server.connection.unasked,
        "silent_formats": server.foreign.silent,
        "kernel_timestamps": server.connection.kernel_stamps,
        "keys": server.broadcast.keys.names,
        "stratum": reference.stratum,
        "leap": reference.leap,
        "root_distance_ns": server.root_distance_ns,
        "lag_ns": server.clock.read().lag_ns,
        "rate_change_ppb": server.clock.rate_change_ppb,
        "generation": server.generation,
        "clock_steps": server.steps,
        "interval_ns": server.interval_ns,
        "sequence": server.broadcast.sequence,
        "lateness_last_ns": late.last_ns,
        "lateness_mean_ns": late.mean_ns,
        "lateness_maximum_ns": late.maximum_ns,
        "deadlines_missed": late.missed,
        "correction_last_ns": server.broadcast.last_correction_ns,
        "correction_source": server.broadcast.last_source.name.lower(),
        "broker_fills": server.fills,
        "loop_delay_ns": server.loopback.delay_ns(),
        "echo_span_ns": server.responder.spans.value(monotonic_ns),
        "echo_order": server.order.says if server.settings.echo else "off",
        "echo_clients": echo.clients,
        "messages_dropped": server.connection.dropped,
        "done": dict(server.counters.done),
        "refused": dict(server.counters.refused + server.connection.unread),
    }


def lag_says(lag_ns: int, digits: int = 0) -> str:
    """Say of a lag: `12 us behind`, or `ahead of` if it is negative."""
    return f"{abs(lag_ns) / 1000:.{digits}f} us {'behind' if lag_ns >= 0 else 'ahead of'}"


def status_lines(values: dict[str, Any]) -> Iterator[str]:
    """Yield the status as a person reads it."""
    us = 1000.0
    yield f"state             {values['state']}: {values['reason']}"
    served = [] if values["state"] == "standing by" else values["formats"]
    served = [name for name in served if name == "precise" or values["leads"]]
    others = ", ".join(str(number) for number in values["other_servers"]) or "none"
    yield (
        f"server            number {values['number']}, serves {', '.join(served) or 'nothing'}; "
        f"other servers: {others}"
    )
    if values["same_number"] and values["same_number"] != values["reason"]:
        yield f"its number        {values['same_number']}"
    if values["names_heard_twice"]:
        names = ", ".join(values["names_heard_twice"])
        yield f"client names      used by two clients each: {names}; give each a name of its own"
    if values["silent_formats"]:
        yield f"not served        {values['silent_formats']}"
    link = "connected" if values["connected"] else f"not connected: {values['last_error']}"
    says = ", says how long each message was in it" if values["broker_fills"] else ""
    yield f"broker            {values['broker']}, {link}{says}"
    if values["broker_lacks"]:
        yield f"broker lacks      {values['broker_lacks']}"
    yield (
        f"clock             stratum {values['stratum']}, "
        f"root distance {values['root_distance_ns'] / us:.1f} us, {values['clock_steps']} steps"
    )
    change_ppb = values["rate_change_ppb"]
    promise = f"by {change_ppb} ppb at most" if change_ppb is not None else "not known yet"
    yield (
        f"served clock      {lag_says(values['lag_ns'], 1)} the system clock, "
        f"changes its rate {promise}"
    )
    yield (
        f"time messages     {values['done'].get('times', 0)} sent, every "
        f"{values['interval_ns'] / 1e9:g} s, "
        f"late by {values['lateness_mean_ns'] / us:.0f} us mean, "
        f"{values['lateness_maximum_ns'] / us:.0f} us at most, "
        f"{values['deadlines_missed']} deadlines missed"
    )
    if values["correction_last_ns"] is not None:
        yield (
            f"transmit stamps   {values['correction_source']}, "
            f"last message left {values['correction_last_ns'] / us:.1f} us after it says"
        )
    yield (
        f"requests          {values['done'].get('replies', 0)} answered, "
        f"{values['done'].get('echoes', 0)} of them with the echo"
    )
    clients = "client is" if values["echo_clients"] == 1 else "clients are"
    yield (
        f"echo              {_ECHO[values['echo_order']]}; "
        f"{values['echo_clients']} {clients} set up for it"
    )
    refused = ", ".join(f"{name} {count}" for name, count in sorted(values["refused"].items()))
    yield f"refused           {refused or 'nothing'}"
    yield from trouble_lines(values)


def metrics(values: dict[str, Any]) -> list[Metric]:
    """Return the Prometheus metrics of a status."""
    gauges = {
        "synchronised": (
            "1 while the served clock is synchronised.",
            values["state"] == "synchronised",
        ),
        "standing_by": (
            "1 while another server, which has served longer, has this one's number.",
            values["state"] == "standing by",
        ),
        "connected": ("1 while the broker is connected.", values["connected"]),
        "broker_fills": (
            "1 while the broker says how long each message was in it.",
            values["broker_fills"],
        ),
        "root_distance_seconds": (
            "Bound of the served clock's error.",
            values["root_distance_ns"] / 1e9,
        ),
        "lag_seconds": (
            "By how much the served clock is behind the system clock.",
            values["lag_ns"] / 1e9,
        ),
        "promises_rate": (
            "1 while messages promise how little the served clock's rate changes.",
            values["rate_change_ppb"] is not None,
        ),
        "lateness_mean_seconds": (
            "Mean lateness of time messages.",
            values["lateness_mean_ns"] / 1e9,
        ),
        "echo_clients": ("Clients with a private echo.", values["echo_clients"]),
        "names_heard_twice": (
            "Client names under which two clients ask.",
            len(values["names_heard_twice"]),
        ),
        "broker_lacks": (
            "1 while the broker takes no retained messages.",
            bool(values["broker_lacks"]),
        ),
    }
    found = [
        Metric(f"mqtick_timeserver_{name}", float(value), text)
        for name, (text, value) in gauges.items()
    ]
    for name, text in (
        ("conflicts", "Messages by others under this server's number."),
        ("unasked", "Connections ended because the broker sent what it must not."),
    ):
        found.append(Metric(f"mqtick_timeserver_{name}_total", values[name], text, "counter"))
    for kind, text in (("done", "Things done."), ("refused", "Messages refused, by reason.")):
        for name, count in sorted(values[kind].items()):
            found.append(
                Metric(f"mqtick_timeserver_{kind}_total", count, text, "counter", {"what": name})
            )
    return found
