"""`mqtick-timeserver doctor`: looks for obstacles that keep clients from following the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mqtick.mqtt.broker import broker_from
from mqtick.protocol.auth import KeyFileError, Keyring, load_key_file
from mqtick.service import Status, StatusError
from mqtick.service.broker_checks import check_link, check_subscriptions
from mqtick.service.check import (
    Check,
    check_program,
    check_refusals,
    check_troubles,
    fail,
    fresh_values,
    guarded,
    known_status,
    ok,
    warn,
)
from mqtick.service.status_file import status_path
from mqtick.timeserver.config import Settings
from mqtick.timeserver.doctor_listen import Heard, listen
from mqtick.timeserver.reference import Reference, from_chronyd
from mqtick.timeserver.served import most_lag_ns
from mqtick.timeserver.settings_check import NO_KEYS, check_settings
from mqtick.timeserver.status import PROGRAM, lag_says

_OWN_NUMBER = "give each time server a number of its own (number)"
# Reasons in `refused` for which there is a remedy.
_REMEDIES = {
    "tag": "a client, or someone else, has other keys: compare the key files",
    "unsigned": "a client has no keys: give it its key file",
    "subscription": "the broker's access list or, over UDP, its tables: the log says more",
    "rate": "a client asks too often: client_requests_per_s, client_burst",
    "rate-total": "all clients ask too often: total_requests_per_s",
}


@dataclass(frozen=True, slots=True)
class Host:
    """The places at which the doctor looks; tests use others."""

    reference: Callable[[str | None, int | None], Reference] = from_chronyd
    listen_s: float = 3.0


def examine(settings: Settings, host: Host) -> Iterator[Check]:
    """Yield the findings one by one; never raises."""
    status = known_status(status_path(PROGRAM, settings.state_folder), PROGRAM)
    running = fresh_values(status)
    try:
        check_settings(settings)
    except (ValueError, OSError) as error:
        yield fail("settings", str(error), "usable settings", "correct the configuration")
    else:
        formats = ", ".join(settings.formats)
        yield ok(
            "settings", f"number {settings.number}, every {settings.interval_s:g} s, {formats}"
        )
    yield from guarded("formats", check_formats, settings)
    yield from guarded("keys", check_keys, settings.keys_file, running)
    yield from guarded("reference clock", check_reference, settings, host)
    yield from guarded("time server", check_server, status)
    yield from guarded("broker", _at_broker, settings, host, running)


def check_formats(settings: Settings) -> Iterator[Check]:
    """Check that no format is served that cannot be signed."""
    unsigned = [name for name in settings.formats if name != "precise"]
    if unsigned:
        yield warn(
            "formats",
            f"{', '.join(unsigned)}: messages without tags, even with keys",
            'formats = ["precise"]',
            "who may publish on their topics? leave out formats that no foreign node needs",
        )
    if settings.formats and "precise" not in settings.formats:
        remedy = "other servers and mqtick's clients know this one by its precise time messages"
        yield warn("formats", "without precise", "precise among them", remedy)


def check_keys(path: str, running: Mapping[str, Any]) -> Check:
    """Check the key file: closed to others, with the fleet key, and in use by the server."""
    if not path:
        return warn("keys", NO_KEYS, "a key file (keys_file)", "docs/protocol.md, section 5")
    try:
        keyring = load_key_file(path)
        keyring.server()
        mode = f"{path}, mode {os.stat(path).st_mode & 0o777:04o}"
    except KeyFileError as error:
        return fail("keys", str(error), "a file with the fleet key", "correct the file")
    except OSError as error:
        remedy = "correct keys_file, or ask as root"
        return fail("keys", f"{path}: {error.strerror}", "a file that can be read", remedy)
    names = keyring.broadcast().names
    if running and running.get("keys") != names:
        return warn(
            "keys",
            f"{mode}, names {', '.join(names)}; the running server has others",
            "the same",
            "systemctl reload mqtick-timeserver",
        )
    return ok("keys", f"{mode}, names {', '.join(names)}")


def check_reference(settings: Settings, host: Host) -> Check:
    """Check that the served clock is synchronised, or trusted by configuration."""
    if settings.virtual_clock:
        remedy = "leave virtual_clock out"
        return warn("reference clock", "a virtual one, for tests", "the host's", remedy)
    if settings.trust_system_clock:
        distance_us = settings.trusted_root_distance_us
        value = f"trusted by configuration, stratum {settings.trusted_stratum}"
        return ok("reference clock", f"{value}, root distance {distance_us:g} us")
    found = host.reference(settings.chronyd_host or None, settings.chronyd_port)
    if not found.synchronised:
        return fail(
            "reference clock",
            found.reason,
            "a clock synchronised by chronyd",
            "chronyc sources; or trust_system_clock, if this clock is right by definition",
        )
    return ok(
        "reference clock", f"{found.reason} Root distance {found.root_distance_ns / 1e3:.0f} us"
    )


def check_server(status: Status | StatusError) -> Iterator[Check]:
    """Check that the server runs, is connected and serves, by its own status."""
    values = fresh_values(status)
    state = values.get("state")
    remedy = _OWN_NUMBER if state == "standing by" else "see the reference clock above"
    yield check_program(
        "time server",
        PROGRAM,
        status,
        lambda text: fail("time server", f"{text}: {values.get('reason')}", "synchronised", remedy),
    )
    if values.get("same_number") and state != "standing by":
        yield warn(
            "its number", str(values["same_number"]), "used by this server only", _OWN_NUMBER
        )
    yield from _check_lag(values)
    yield from check_troubles(values)
    for name in values.get("names_heard_twice", ()):
        remedy = "give each client a name of its own (name)"
        yield warn("client names", f"two clients ask as {name}", "one", remedy)
    if values.get("silent_formats"):
        yield warn("formats", values["silent_formats"], "served", "see the reference clock above")
    yield from _check_echo(values)
    refused, good = values.get("refused", {}), values.get("done", {}).get("replies", 0)
    yield from check_refusals("refused since its start", refused, _REMEDIES, good=good)


def _check_lag(values: Mapping[str, Any]) -> Iterator[Check]:
    lag_ns, distance_ns = values.get("lag_ns", 0), values.get("root_distance_ns", 0)
    limit_ns = most_lag_ns(distance_ns - abs(lag_ns))
    if abs(lag_ns) > limit_ns:
        yield warn(
            "served clock",
            f"{lag_says(lag_ns)} the system clock",
            f"at most {limit_ns / 1e3:.0f} us",
            "chronyd slews the system clock faster than time is served; it is taken anew once it "
            "is steady: chronyc tracking",
        )


def _check_echo(values: Mapping[str, Any]) -> Iterator[Check]:
    found = values.get("echo_order")
    if found == "broken":
        yield warn(
            "echo",
            "not offered: the broker does not deliver in the order that the echo needs",
            "kept",
            "nothing is wrong: clients use the two-way exchange; docs/brokers.md has brokers "
            "that keep the order",
        )
    elif found == "unknown":
        yield ok("echo", "not offered yet: the broker's order is being tested")
    elif found is not None:
        yield ok("echo", "off" if found == "off" else "offered: the broker keeps the order")


def _at_broker(settings: Settings, host: Host, running: Mapping[str, Any]) -> Iterator[Check]:
    try:
        broker = broker_from(settings)
        keyring = load_key_file(settings.keys_file) if settings.keys_file else Keyring()
        listen_s = max(host.listen_s, 1.5 * settings.interval_s)
        heard = listen(settings, broker, keyring, listen_s)
    except (ValueError, OSError) as error:
        yield fail("broker", str(error), "usable settings", "correct the configuration")
        return
    yield from check_link(heard.link)
    if (running.get("number"), running.get("broker")) != (settings.number, heard.link.address):
        running = {}  # it is the status of another server
    if heard.link.connected:
        yield check_subscriptions(heard.granted, heard.link.refusal_remedy)
        yield check_loop(heard)
        yield from check_number(heard, settings, running)
        yield from check_others(heard, settings.number)


def check_loop(heard: Heard) -> Check:
    """Check that messages of this account to itself come back."""
    if heard.loop_ns is None:
        return fail(
            "messages to itself",
            f"nothing came back on {heard.loop_topic}",
            "all",
            "access list: a time server reads and writes this topic (docs/protocol.md, section 3)",
        )
    return ok("messages to itself", f"{heard.loop_ns / 1e6:.2f} ms to the broker and back")


def check_number(heard: Heard, settings: Settings, running: Mapping[str, Any]) -> Iterator[Check]:
    """Check that this server, and no other, answers for its number and publishes under it."""
    number, name = settings.number, f"number {settings.number}"
    others = [lot for lot in heard.holders if lot != running.get("lot")]
    count = heard.counts[number]
    came = f"in {heard.listened_s:g} s"
    if others:
        said = "another server has it" if len(others) == 1 else f"{len(others)} others have it"
        yield fail(name, f"{said}: whoever has served longer goes on", "free", _OWN_NUMBER)
    elif running and running.get("lot") not in heard.holders:
        remedy = f"access list: it reads and writes {settings.prefix}/o/{number}/+"
        yield warn(name, "the running server does not answer for it", "an answer", remedy)
    elif not running and count:
        remedy = "who publishes there? with keys, anyone who has a client's can"
        value = f"{count} time messages {came}, but no server answers for them"
        yield warn(name, value, "none", remedy)
    elif running:
        yield ok(name, "held by this server alone")
    else:
        yield ok(name, "free")
    serves = running.get("state") in ("synchronised", "unsynchronised")
    if serves and "precise" in settings.formats:
        topic = f"{settings.prefix}/t/{number}"
        if count:
            yield ok("time messages", f"{count} {came}")
        else:
            remedy = f"access list: this account has to be allowed to write {topic}"
            yield fail("time messages", f"none came on {topic}", "the running server's", remedy)


def check_others(heard: Heard, number: int) -> Iterator[Check]:
    """Report the other servers, and the refused messages."""
    others: Iterable[str] = (
        f"{other} (stratum {message.stratum}{', not synchronised' if message.leap == 3 else ''})"
        for other, message in sorted(heard.times.items())
        if other != number
    )
    yield ok("other servers", ", ".join(others) or "none")
    for reason, count in sorted(heard.refused.items()):
        remedy = _REMEDIES.get(reason, "somebody publishes foreign messages there")
        yield warn("messages of servers", f"{count} {reason}", "none refused", remedy)
