"""What every doctor says of a broker: causes, findings, and pairs that are held back."""

from __future__ import annotations

import errno
import socket
import ssl
import sys
from pathlib import Path

import pytest
from paho.mqtt.client import WebsocketConnectionError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from mqtick.mqtt.causes import Cause, cause_of, cause_of_refusal, why_not_connected
from mqtick.mqtt.checks import (
    Finding,
    Link,
    check_hold,
    check_link,
    check_subscriptions,
    check_version,
    reach,
)
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.pairs import DELAYED_ACK_NS, Pairs, find_hold

sys.path.insert(0, str(Path(__file__).parent))
from live import Mosquitto, Node, program, running

US, MS = 1_000, 1_000_000


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("the certificate is not good")
    error.verify_code = code
    return error


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "an alert")
    error.reason = reason
    return error


# -- causes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (unverified(10), Cause.DATES),
        (unverified(9), Cause.DATES),
        (unverified(62), Cause.NAME),
        (unverified(64), Cause.NAME),
        (unverified(92), Cause.EXTENSIONS),
        (unverified(19), Cause.AUTHORITY),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), Cause.OUR_CERTIFICATE),
        (alert("WRONG_VERSION_NUMBER"), Cause.TLS),
        (socket.gaierror(-2, "Name or service not known"), Cause.HOST_UNKNOWN),
        (ConnectionRefusedError(111, "Connection refused"), Cause.NOBODY_LISTENS),
        (FileNotFoundError(2, "No such file"), Cause.NOBODY_LISTENS),
        (TimeoutError("timed out"), Cause.TIMED_OUT),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Cause.UNREACHABLE),
        (OSError(errno.EMFILE, "Too many open files"), Cause.UNKNOWN),
        (WebsocketConnectionError("WebSocket handshake error"), Cause.NOT_MQTT),
        (IndexError("list index out of range"), Cause.NOT_MQTT),
    ],
)
def test_what_connecting_raises_has_a_cause(error: Exception, cause: Cause) -> None:
    assert cause_of(error) is cause


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Unsupported protocol version", Cause.VERSION),
        ("Client identifier not valid", Cause.IDENTIFIER),
        ("Bad user name or password", Cause.CREDENTIALS),
        ("Not authorized", Cause.CREDENTIALS),
        ("Server unavailable", Cause.BUSY),
        ("Unspecified error", Cause.UNKNOWN),
    ],
)
def test_a_refusal_has_a_cause(reason: str, cause: Cause) -> None:
    assert cause_of_refusal(ReasonCode(PacketTypes.CONNACK, reason).value) is cause


def test_what_needs_an_explanation_has_one() -> None:
    assert "this machine's clock says 20" in why_not_connected(unverified(10))
    assert "Python 3.13 and newer refuse" in why_not_connected(unverified(92))
    assert why_not_connected(TimeoutError()) == "TimeoutError"


# -- findings --------------------------------------------------------------------------------------

GOOD = Link("mqtt://b:1883", connect_ns=15 * MS)


@pytest.mark.parametrize(
    ("finding", "result", "says"),
    [
        (check_link(GOOD), "OK", "mqtt://b:1883 answered within 15 ms, MQTT 5, kernel timestamps"),
        (check_link(Link("mqtt+udp://b:1", version="3.1.1", lease_s=22.5)), "OK", "of 22.5 s, ker"),
        (check_link(Link("mqtt+udp://b:1", answers=False)), "OK", "mqtt+udp://b:1 answers nothing"),
        (check_link(Link("", kernel_stamps=False)), "WARN", "timestamps by the program"),
        (check_link(Link("", kernel_stamps=False), needs_stamps=False), "OK", "by the program"),
        (check_link(Link("", False, "it is away", Cause.HOST_UNKNOWN)), "FAIL", "it is away"),
        (check_link(Link("", False, "x", Cause.EXTENSIONS)), "FAIL", "make new ones: docs/op"),
        (check_link(Link("", False, "x", Cause.CREDENTIALS)), "FAIL", "--password-file"),
        (check_version(Link("", error_5="it hung up")), "WARN", 'mqtt_version = "3.1.1"'),
        (check_subscriptions({"a": True, "b": True}), "OK", "all 2 granted"),
        (check_subscriptions({}), "WARN", "no answer"),
        (check_subscriptions({"a": True, "b": False}), "FAIL", "refused: b"),
        (check_subscriptions({"b": False}), "FAIL", "compare its access list"),
        (check_subscriptions({"b": False}, remedy="ask"), "FAIL", "ask"),
        (check_subscriptions({"a": True, "b": False}, unneeded=["b"]), "OK", "1 granted; refused"),
    ],
)
def test_what_is_found_is_said_with_what_helps(finding: Finding, result: str, says: str) -> None:
    assert finding.result == result
    assert says in finding.value or says in finding.remedy
    assert (result == "OK") is (not finding.remedy)


def test_nothing_is_said_of_a_version_that_is_spoken() -> None:
    assert check_version(GOOD) is None
    assert check_version(Link("", False, error_5="it hung up")) is None


# -- pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs_ns", "found"),
    [
        ([(90 * US, 39_700 * US)] * 9 + [(90 * US, 80 * US)], True),
        ([(90 * US, 30 * MS)] * 4, True),  # a kernel that counts in 10 ms
        ([(90 * US, 80 * US)] * 10, False),
        ([(90 * US, 39_700 * US)] * 3, False),  # too few to say
        ([(90 * US, 39_700 * US)] * 4 + [(90 * US, 80 * US)] * 6, False),  # not as a rule
        ([(40 * MS, 41 * MS)] * 10, False),  # both late: something else
        ([], False),
    ],
)
def test_the_second_of_two_that_waits_for_an_acknowledgement_is_held(
    pairs_ns: list[tuple[int, int]], found: bool
) -> None:
    assert find_hold(pairs_ns).found is found


@pytest.mark.parametrize(
    ("second_ns", "result", "says"),
    [
        (80 * US, "OK", "held back in 0 of 8 pairs"),
        (40 * MS, "WARN", "held back by 40 ms in 8 of 8 pairs"),
    ],
)
def test_a_hold_is_said_with_its_length(second_ns: int, result: str, says: str) -> None:
    finding = check_hold([(90 * US, second_ns)] * 8, "WARN")
    assert finding.result == result
    assert says in finding.value
    few = check_hold([(90 * US, second_ns)] * 2, "FAIL")
    assert (few.result, few.value) == ("WARN", "2 complete pairs of messages")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(program("mosquitto") is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("nodelay", [True, False])
def test_a_real_broker_holds_the_second_back_unless_it_is_told_not_to(
    tmp_path: Path, nodelay: bool
) -> None:
    broker = Mosquitto(tmp_path)
    if not nodelay:
        broker.config.write_text(broker.config.read_text().replace("set_tcp_nodelay true\n", ""))
    with running(broker), Node(broker.url) as node:
        sender = Connection(
            node.loop, node.connection.broker, "x", on_publish=print, on_up=lambda: None
        )
        assert reach(node.loop, [sender]) > 0
        pairs = Pairs(sender, node.up().connection, "mqtick/c/x")
        assert node.subscribed(pairs.topic)
        for _ in range(6):
            pairs.send()
        assert all(pairs.takes(arrival) for arrival in node.arrivals)
        hold = find_hold(pairs.delays_ns())
        sender.close()
    assert (hold.pairs, hold.found) == (6, not nodelay)
    assert nodelay or hold.median_ns < 2 * DELAYED_ACK_NS
