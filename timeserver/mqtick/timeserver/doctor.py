"""`mqtick-timeserver doctor`: looks for what keeps clients from following a time server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mqtick.mqtt.broker import broker_from
from mqtick.mqtt.session import what_helps
from mqtick.protocol.auth import KeyFileError, Keyring, load_key_file
from mqtick.service import Status, StatusError, read_status
from mqtick.service.check import Check, fail, guarded, ok, warn
from mqtick.service.program import status_path
from mqtick.timeserver.config import Settings
from mqtick.timeserver.doctor_listen import Heard, listen
from mqtick.timeserver.reference import Reference, from_chronyd
from mqtick.timeserver.settings_check import NO_KEYS, check_settings
from mqtick.timeserver.status import PROGRAM, STALE_NS

__all__ = ["Host", "examine"]

_OWN_NUMBER = "give each time server a number of its own (number)"
# Reasons in `refused` that somebody can do something about.
_REMEDIES = {
    "tag": "a client, or someone else, has other keys: compare the key files",
    "unsigned": "a client has no keys: give it its key file",
    "subscription": "the broker's access list: compare it with docs/protocol.md, section 3",
    "rate": "a client asks too often: client_requests_per_s, client_burst",
    "rate-total": "all clients ask too often: total_requests_per_s",
}
_WORTH_A_WORD = 3


@dataclass(frozen=True, slots=True)
class Host:
    """Where the doctor looks; tests look elsewhere."""

    reference: Callable[[str | None, int | None], Reference] = from_chronyd
    listen_s: float = 3.0


def examine(settings: Settings, host: Host) -> Iterator[Check]:
    """Yield the findings one by one; never raises."""
    status = _status(settings)
    fresh = isinstance(status, Status) and status.age_ns <= STALE_NS
    running = status.values if isinstance(status, Status) and fresh else {}
    try:
        check_settings(settings)
    except (ValueError, OSError) as error:
        yield fail("settings", str(error), "usable settings", "correct the configuration")
    else:
        formats = ", ".join(settings.formats)
        yield ok(
            "settings", f"number {settings.number}, every {settings.interval_s:g} s, {formats}"
        )
    yield from guarded("formats", lambda: check_formats(settings))
    yield from guarded("keys", lambda: check_keys(settings.keys_file, running))
    yield from guarded("reference clock", lambda: check_reference(settings, host))
    yield from guarded("time server", lambda: check_server(status))
    yield from guarded("broker", lambda: _at_broker(settings, host, running))


def _status(settings: Settings) -> Status | StatusError:
    try:
        return read_status(status_path(PROGRAM, settings.state_folder))
    except StatusError as error:
        return error


def check_formats(settings: Settings) -> Iterator[Check]:
    """Check that nothing is served that cannot be signed."""
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
    """Check the key file: there, closed to others, with the fleet key, and the one in use."""
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
    """Check that somebody vouches for the clock that is served."""
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
    if isinstance(status, StatusError):
        remedy = "systemctl status mqtick-timeserver"
        yield warn("time server", str(status), "a running server", remedy)
        return
    if status.age_ns > STALE_NS:
        value = f"its status is {status.age_ns / 1e9:.0f} s old"
        remedy = "it has ended or hangs: journalctl -u mqtick-timeserver"
        yield fail("time server", value, "at most 5 s", remedy)
        return
    values = status.values
    state = str(values.get("state"))
    text = f"process {status.pid}, {state}"
    if not values.get("connected"):
        reason = values.get("last_error")
        remedy = "see the broker below"
        yield fail("time server", f"{text}, not connected: {reason}", "connected", remedy)
    elif state != "synchronised":
        remedy = _OWN_NUMBER if state == "standing by" else "see the reference clock above"
        yield fail("time server", f"{text}: {values.get('reason')}", "synchronised", remedy)
    else:
        yield ok("time server", text)
    if values.get("same_number") and state != "standing by":
        yield warn(
            "its number", str(values["same_number"]), "used by this server only", _OWN_NUMBER
        )
    yield from _check_echo(values)
    for reason, remedy in _REMEDIES.items():
        if (count := values.get("refused", {}).get(reason, 0)) >= _WORTH_A_WORD:
            yield warn("refused since its start", f"{count} {reason}", "none", remedy)


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
    yield check_broker(heard)
    if (running.get("number"), running.get("broker")) != (settings.number, heard.address):
        running = {}  # another one's status
    if heard.connected:
        yield check_subscriptions(heard)
        yield check_loop(heard)
        yield from check_number(heard, settings, running)
        yield from check_others(heard, settings.number)


def check_broker(heard: Heard) -> Check:
    """Check that the broker took our connection, and kept it."""
    if not heard.connected:
        return fail("broker", heard.error, "a connection", what_helps(heard.error, heard.cause))
    value = f"{heard.address} answered within {heard.connect_ns / 1e6:.0f} ms"
    if heard.kernel_stamps:
        return ok("broker", f"{value}, kernel timestamps")
    remedy = "unix:// has none, and `timestamps` may say user; mqtt:// and mqtts:// have them"
    return warn("broker", f"{value}, timestamps by the program", "kernel timestamps", remedy)


def check_subscriptions(heard: Heard) -> Check:
    """Check that the broker grants the subscriptions that a time server needs."""
    refused = [topic for topic, granted in heard.granted.items() if not granted]
    if refused:
        remedy = "the access list: docs/protocol.md, section 3"
        return fail("subscriptions", f"refused: {', '.join(refused)}", "all granted", remedy)
    return ok("subscriptions", f"all {len(heard.granted)} granted")


def check_loop(heard: Heard) -> Check:
    """Check that what this account publishes comes through."""
    if heard.loop_ns is None:
        return fail(
            "messages to itself",
            f"nothing came back on {heard.loop_topic}",
            "all",
            "access list: a time server reads and writes this topic (docs/protocol.md, section 3)",
        )
    return ok("messages to itself", f"{heard.loop_ns / 1e6:.2f} ms to the broker and back")


def check_number(heard: Heard, settings: Settings, running: Mapping[str, Any]) -> Iterator[Check]:
    """Check that this server, and nobody else, answers for its number and publishes under it."""
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
    """Say which other servers are there, and what could not be believed."""
    others: Iterable[str] = (
        f"{other} (stratum {message.stratum}{', not synchronised' if message.leap == 3 else ''})"
        for other, message in sorted(heard.times.items())
        if other != number
    )
    yield ok("other servers", ", ".join(others) or "none")
    for reason, count in sorted(heard.refused.items()):
        remedy = _REMEDIES.get(reason, "somebody publishes foreign messages there")
        yield warn("messages of servers", f"{count} {reason}", "none refused", remedy)
