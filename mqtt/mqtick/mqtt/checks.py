"""The checks of a broker and its connection that all doctors share.

A doctor gives a finding its name, and prints it: `Check(name, *finding)`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.pairs import find_hold
from mqtick.mqtt.udp_session import lease_s

__all__ = [
    "NO_DOTS",
    "Finding",
    "Link",
    "check_hold",
    "check_link",
    "check_subscriptions",
    "check_version",
    "reach",
]

NO_DOTS: Final = "nats-server before 2.10 carries no topic with a dot"
_ACCESS_LIST: Final = f"{Broker().refusal_remedy}; {NO_DOTS}"


class Finding(NamedTuple):
    """What a check found, in the order of the fields of a doctor's line.

    Attributes:
        result: OK; WARN: worse than it could be; FAIL: not good enough.
        value: What was found.
        expectation: What was expected.
        remedy: What to do.
    """

    result: Literal["OK", "WARN", "FAIL"]
    value: str
    expectation: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """The state of a doctor's connection.

    Attributes:
        address: The broker's address.
        connected: Whether the broker has accepted the connection, and kept it.
        error: Why it has not.
        cause: The cause of `error`, for programs.
        version: The version of MQTT in use.
        error_5: Why 3.1.1 is in use although the settings say 5.
        kernel_stamps: Whether messages have timestamps of the kernel.
        connect_ns: From the first attempt to the broker's answer.
        lease_s: Over UDP, how long the broker keeps subscriptions after it last heard from us.
        answers: Whether the broker sends answers: in the published dialect of UDP it does not.
        refusal_remedy: What to do if the broker refuses a subscription.
    """

    address: str
    connected: bool = True
    error: str = ""
    cause: Cause = Cause.UNKNOWN
    version: str = "5"
    error_5: str = ""
    kernel_stamps: bool = True
    connect_ns: int = 0
    lease_s: float = 0.0
    answers: bool = True
    refusal_remedy: str = _ACCESS_LIST

    @classmethod
    def of(cls, connection: Connection, connect_ns: int = 0) -> Link:
        """Return the present state of a connection."""
        is_silent = not connection.connected and not connection.last_error
        return cls(
            connection.address,
            connection.connected,
            "no answer" if is_silent else connection.last_error,
            Cause.SILENT if is_silent else connection.last_cause,
            "5" if connection.version_5 else "3.1.1",
            connection.error_5,
            connection.kernel_stamps,
            connect_ns,
            lease_s(connection.broker),
            not connection.broker.dialect,
            connection.broker.refusal_remedy if lease_s(connection.broker) else _ACCESS_LIST,
        )


def reach(loop: Loop, connections: Sequence[Connection]) -> int:
    """Start connections to one broker, wait until each is up or has failed; return the time, ns."""
    began_ns = time.monotonic_ns()
    for connection in connections:
        connection.start()
    broker = connections[0].broker
    attempts = 2 if broker.version == "5" else 1  # the second attempt uses MQTT 3.1.1
    loop.turn_until(
        lambda: all(one.connected or one.last_error for one in connections),
        attempts * broker.connect_timeout_s + 2,
    )
    return time.monotonic_ns() - began_ns


def check_link(found: Link, *, needs_stamps: bool = True) -> Finding:
    """Check that the broker has accepted and kept the connection, and that the kernel stamps.

    `needs_stamps`: whether the lack of kernel stamps is worth a warning.
    """
    if not found.connected:
        return Finding("FAIL", found.error, "a connection", found.cause.value)
    value = f"{found.address} answered within {found.connect_ns / 1e6:.0f} ms, MQTT {found.version}"
    if found.lease_s:
        value += f", a lease of {found.lease_s:g} s"
    if not found.answers:
        value = f"{found.address} answers nothing: whether it is there, its messages show"
    if found.kernel_stamps:
        return Finding("OK", f"{value}, kernel timestamps")
    value += ", timestamps by the program"
    if not needs_stamps:
        return Finding("OK", value)
    remedy = "unix:// has none, and `timestamps` may say user; mqtt:// and mqtts:// have them"
    return Finding("WARN", value, "kernel timestamps", remedy)


def check_version(found: Link) -> Finding | None:
    """Check that the broker speaks MQTT 5 if the settings ask for it; None if so."""
    if not found.connected or not found.error_5:
        return None
    return Finding(
        "WARN",
        f"{found.error_5}; MQTT 3.1.1 works",
        "MQTT 5, or 3.1.1 in the settings",
        'set mqtt_version = "3.1.1" in every program, which saves an attempt at each connection; '
        "everything but draft-2021 works with it",
    )


def check_subscriptions(
    granted: Mapping[str, bool],
    *,
    unneeded: Collection[str] = (),
    remedy: str = _ACCESS_LIST,
) -> Finding:
    """Check that the broker granted each needed subscription; `granted` is by topic filter."""
    refused = sorted(topic for topic, was_granted in granted.items() if not was_granted)
    if needed := [topic for topic in refused if topic not in unneeded]:
        return Finding("FAIL", f"refused: {', '.join(needed)}", "granted", remedy)
    if not granted:
        return Finding("WARN", "no answer", "granted", "is it overloaded, or no MQTT broker?")
    if refused:
        more = f"; refused, and not needed for precise time: {', '.join(refused)}"
        return Finding("OK", f"{len(granted) - len(refused)} granted{more}")
    return Finding("OK", f"all {len(granted)} granted")


def check_hold(delays_ns: Sequence[tuple[int, int]], result: Literal["WARN", "FAIL"]) -> Finding:
    """Check that the broker does not hold the second of two messages back (see `Pairs`).

    `result` is the result if it does.
    """
    hold = find_hold(delays_ns)
    if not hold.is_known:
        remedy = "ask again, and longer; see which messages are lost"
        return Finding("WARN", f"{hold.pairs} complete pairs of messages", "4 or more", remedy)
    share = f"in {hold.held} of {hold.pairs} pairs"
    if not hold.found:
        return Finding("OK", f"the second of two messages was held back {share}")
    return Finding(
        result,
        f"the second of two messages 1 ms apart was held back by {hold.median_ns / 1e6:.0f} ms "
        f"{share}, until a subscriber that acknowledges late had done so",
        "sent at once",
        "no TCP_NODELAY at the broker. Mosquitto: set_tcp_nodelay true; others: docs/brokers.md",
    )
