"""The doctor's checks of the running client and of its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mqtick.client.interval import PROGRAM
from mqtick.client.status_text import ASSUMPTION
from mqtick.service import Status, StatusError
from mqtick.service.check import (
    Check,
    check_program,
    check_refusals,
    check_troubles,
    fail,
    fresh_values,
    ok,
    warn,
)

REMEDIES: Final = {
    "tag": "the keys differ: compare the key files of server and client, and the client's name",
    "unsigned": "the sender has no keys: give the server its key file",
    "before-exchange": "with keys, nothing counts before an exchange: see no-reply and tag",
    "no-reply": "the server does not answer: access list, rate limit or keys; see its status",
    "subscription": "the broker's access list or, over UDP, its tables: the log says more",
    "rate": "two servers with one number, or a loop between bridged brokers",
    "stated-time": "a replay, or two servers under one number",
    "contradicts": "somebody steps the clock of the server, or this one",
    "retained": "somebody retains time messages: mosquitto_pub -t TOPIC -r -n",
}
"""Reason for which messages or samples were refused: what to do about it."""
_OFTEN: Final = 20
_NARROWER: Final = "without it the narrower bound is shown next to the certain one"
_DOORS: Final = {
    "follow_unsigned": (
        "formats without tags are followed although there are keys",
        "anyone who may publish on the broker can set this clock: leave it out as soon as all "
        "servers speak precise",
    ),
    "trust_broker": (
        "the bound rests on the broker's order of delivery",
        f"right only if nobody but you runs the broker; {_NARROWER}",
    ),
    "trust_broker_residence": (
        "the bound rests on what brokers say of the time that messages spent in them",
        f"right only if nobody but you runs every broker on the way, and each says so; {_NARROWER}",
    ),
}


def check_doors(**is_open: bool) -> Iterator[Check]:
    """Check that no setting, by its name, weakens the guarantees of keys and exchanges."""
    for name, (value, remedy) in _DOORS.items():
        if is_open[name]:
            yield warn(name, value, "false", remedy)


def check_client(status: Status | StatusError) -> Iterator[Check]:
    """Check that the client runs, is connected and knows the time, by its own status."""
    remedy = "see below; after a start it takes seconds"
    yield check_program(
        "client", PROGRAM, status, lambda text: warn("client", text, "synchronised", remedy)
    )
    values = fresh_values(status)
    yield from check_troubles(values)
    if values.get("name_heard_twice"):
        yield fail(
            "name",
            f"another client asks under the name {values['name']}, and each spoils the other",
            "a name of its own",
            "set name in one of them; hosts cloned from one image have one host name",
        )
    if values.get("connects", 0) >= _OFTEN:
        yield warn(
            "connection",
            f"made {values['connects']} times, lost last because: {values.get('last_error')}",
            "one that lasts",
            "the broker's log says why: a second client with the same identifier (client_id) takes "
            "it over; or keep-alive, Wi-Fi power saving, a NAT that forgets",
        )
    refused, good = Counter(values.get("refused", {})), 0
    for one in (each for row in values.get("servers", ()) for each in row.get("verdicts", ())):
        if one["verdict"] == "refused":
            refused[one["reason"]] += one["count"]
        else:
            good += one["count"]
    if values.get("state") == "synchronised":
        del refused["before-exchange"]  # an exchange has succeeded since
    yield from check_refusals("refused since the client's start", refused, REMEDIES, good=good)


def check_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """Check that servers answer the running client; `rows` is `servers` of its status."""
    for row in rows:
        limited = _limited(row)
        if limited is not None:
            yield limited
        name = f"exchange with server {row['server'] if row['server'] is not None else ''}".strip()
        if row["delay_ns"] is None:
            remedy = "access list for its request, reply and follow-up topics; keys; rate limit"
            yield fail(name, "the client that runs got no answer", "an answer", remedy)
        else:
            kind, delay_us = row["kind"] or "no sample", row["delay_ns"] / 1000
            value = f"the client that runs uses {kind}, round trip {delay_us:.0f} us"
            yield ok(name, f"{value}{_bounds(row)}")


def _limited(row: Mapping[str, Any]) -> Check | None:
    """Say why a server's time is not known although it answers: which setting refuses it."""
    if row.get("state") != "unsynchronised" or row["delay_ns"] is None:
        return None
    counts = Counter({one["reason"]: one["count"] for one in row.get("verdicts", ())})
    why = row.get("why_unknown") or ""
    delay = f"a round trip of {row['delay_ns'] / 1e6:.0f} ms"
    if not why and counts["delay"]:
        why = f"{delay} is above estimator.maximum_delay_us, {counts['delay']} samples are refused"
    if not why and (bound_ns := row.get("bound_ns")) is not None:
        why = f"its bound is {bound_ns / 1e6:.0f} ms, with {delay}, and has a limit"
    if not why:
        return None
    remedy = "raise estimator.maximum_delay_us and estimator.unsynchronised_bound_us, or the link"
    return fail(f"time of server {row['server']}", f"not known: {why}", "known", remedy)


def _bounds(row: Mapping[str, Any]) -> str:
    """Describe the measured bound and, separately, the bound that rests on an assumption."""
    bound_ns, narrow_ns = row.get("bound_ns"), row.get("narrow_bound_ns")
    if bound_ns is None:
        return ""
    said = f", bound {bound_ns / 1000:.0f} us"
    return said if narrow_ns is None else f"{said}, assumed {narrow_ns / 1000:.0f} us {ASSUMPTION}"
