"""What every doctor says of a broker and of its connection to it.

`Link` and `Hold` stand for the classes of `mqtick.mqtt`, which this room does not import.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mqtick.service.check import Check, Result, fail, ok, warn

Link = Any
"""`mqtick.mqtt.link.Link`: the state of a connection."""
Hold = Any
"""`mqtick.mqtt.pairs.Hold`: what became of the second of two messages."""


def check_link(found: Link, name: str = "broker", *, needs_stamps: bool = True) -> Iterator[Check]:
    """Check that the broker has accepted and kept the connection, how, and with which stamps.

    `needs_stamps`: whether the lack of kernel stamps is worth a warning.
    """
    if not found.connected:
        yield fail(name, found.error, "a connection", found.speaks or found.cause.value)
        return
    value = f"{found.address} answered within {found.connect_ns / 1e6:.0f} ms, MQTT {found.version}"
    if found.lease_s:
        value += f", a lease of {found.lease_s:g} s"
    if not found.answers:
        value = f"{found.address} answers nothing: whether it is there, its messages show"
    if found.kernel_stamps:
        yield ok(name, f"{value}, kernel timestamps")
    elif not needs_stamps:
        yield ok(name, f"{value}, timestamps by the program")
    else:
        remedy = "unix:// has none, and `timestamps` may say user; mqtt:// and mqtts:// have them"
        yield warn(name, f"{value}, timestamps by the program", "kernel timestamps", remedy)
    if found.error_5:
        yield warn(
            "MQTT 5",
            f"{found.error_5}; MQTT 3.1.1 works",
            "MQTT 5, or 3.1.1 in the settings",
            'set mqtt_version = "3.1.1" in every program, which saves an attempt at each '
            "connection; everything but draft-2021 works with it",
        )
    if found.dead:
        yield warn(
            "broker's addresses",
            f"{', '.join(found.dead)} does not answer, another address of the same name does",
            "all answer",
            "each connection may wait for it: mend that route or name record, or write the address "
            "that answers",
        )


def check_subscriptions(
    granted: Mapping[str, bool], remedy: str, *, unneeded: Collection[str] = ()
) -> Check:
    """Check that the broker granted each needed subscription; `granted` is by topic filter."""
    name = "subscriptions"
    refused = sorted(topic for topic, was_granted in granted.items() if not was_granted)
    if needed := [topic for topic in refused if topic not in unneeded]:
        return fail(name, f"refused: {', '.join(needed)}", "granted", remedy)
    if not granted:
        return warn(name, "no answer", "granted", "is it overloaded, or no MQTT broker?")
    if refused:
        more = f"; refused, and not needed for precise time: {', '.join(refused)}"
        return ok(name, f"{len(granted) - len(refused)} granted{more}")
    return ok(name, f"all {len(granted)} granted")


def check_hold(name: str, hold: Hold, result: Result) -> Check:
    """Check that the broker does not hold the second of two messages back; `result` if it does."""
    if not hold.is_known:
        remedy = "ask again, and longer; see which messages are lost"
        return warn(name, f"{hold.pairs} complete pairs of messages", "4 or more", remedy)
    share = f"in {hold.held} of {hold.pairs} pairs"
    if not hold.found:
        return ok(name, f"the second of two messages was held back {share}")
    return Check(
        name,
        result,
        f"the second of two messages 1 ms apart was held back by {hold.median_ns / 1e6:.0f} ms "
        f"{share}, until a subscriber that acknowledges late had done so",
        "sent at once",
        "no TCP_NODELAY at the broker. Mosquitto: set_tcp_nodelay true; others: docs/brokers.md",
    )
