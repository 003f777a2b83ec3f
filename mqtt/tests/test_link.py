"""What every doctor says of a broker: causes, the state of the connection, pairs held back."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

import pytest
from live import Node
from paho.mqtt.client import WebsocketConnectionError
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from demo.local_broker import Mosquitto, running
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.causes import Cause, cause_of, cause_of_refusal, why_not_connected
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.link import NO_DOTS, Link, look_at_door, reach
from mqtick.mqtt.pairs import DELAYED_ACK_NS, Pairs, find_hold
from mqtick.service.broker_checks import check_hold, check_link, check_subscriptions
from mqtick.service.check import Check

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


REMEDY = Link("").refusal_remedy


@pytest.mark.parametrize(
    ("found", "result", "says"),
    [
        (check_link(GOOD), "OK", "mqtt://b:1883 answered within 15 ms, MQTT 5, kernel timestamps"),
        (check_link(Link("mqtt+udp://b:1", version="3.1.1", lease_s=22.5)), "OK", "of 22.5 s, ker"),
        (check_link(Link("mqtt+udp://b:1", answers=False)), "OK", "mqtt+udp://b:1 answers nothing"),
        (check_link(Link("", kernel_stamps=False)), "WARN", "timestamps by the program"),
        (check_link(Link("", kernel_stamps=False), needs_stamps=False), "OK", "by the program"),
        (check_link(Link("", False, "it is away", Cause.HOST_UNKNOWN)), "FAIL", "it is away"),
        (check_link(Link("", False, "x", Cause.EXTENSIONS)), "FAIL", "make new ones: docs/op"),
        (check_link(Link("", False, "x", Cause.CREDENTIALS)), "FAIL", "--password-file"),
        (check_link(Link("", False, "x", speaks="it speaks TLS")), "FAIL", "it speaks TLS"),
        (check_link(Link("", False, error_5="it hung up")), "FAIL", ""),
        (check_link(Link("", error_5="it hung up")), "OK WARN", 'mqtt_version = "3.1.1"'),
        (check_link(Link("", dead=("2001:db8::1",))), "OK WARN", "2001:db8::1 does not answer"),
        ([check_subscriptions({"a": True, "b": True}, REMEDY)], "OK", "all 2 granted"),
        ([check_subscriptions({}, REMEDY)], "WARN", "no answer"),
        ([check_subscriptions({"a": True, "b": False}, REMEDY)], "FAIL", "refused: b"),
        ([check_subscriptions({"b": False}, REMEDY)], "FAIL", "compare its access list"),
        ([check_subscriptions({"b": False}, REMEDY)], "FAIL", NO_DOTS),
        ([check_subscriptions({"b": False, "a": True}, "", unneeded=["b"])], "OK", "1 granted; r"),
    ],
)
def test_what_is_found_is_said_with_what_helps(
    found: Iterable[Check], result: str, says: str
) -> None:
    checks = list(found)
    assert " ".join(each.result for each in checks) == result
    assert says in "\n".join(each.line() for each in checks)
    assert all((each.result == "OK") is (not each.remedy) for each in checks)


@pytest.mark.needs("mosquitto")
def test_a_plain_port_that_is_asked_for_tls_is_named(tmp_path: Path) -> None:
    with running(Mosquitto(tmp_path)) as broker:
        port = parse_broker_url(broker.url).port
        asked = parse_broker_url(f"mqtts://127.0.0.1:{port}")
        found = look_at_door(Link("", False, "the handshake failed"), asked)
    assert found.speaks == f"port {port} speaks MQTT without TLS: write mqtt://"


def test_an_address_that_does_not_answer_beside_one_that_does_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqtick.mqtt.link._PATIENCE_S", 0.2)
    # A full backlog: the kernel drops what comes then, as a dead route does.
    with (
        socket.create_server(("127.0.0.2", 0), backlog=0) as dead,
        socket.create_connection(dead.getsockname()),
        socket.create_server(("127.0.0.1", dead.getsockname()[1])) as alive,
    ):
        rows = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", each.getsockname())
            for each in (dead, alive)
        ]
        # With `ipv6.disable=1` names still have IPv6 addresses, for which there are no sockets.
        rows.insert(0, (44, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0)))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: rows)
        found = look_at_door(GOOD, parse_broker_url("mqtt://broker.lan"))
    assert found.dead == ("127.0.0.2",)


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
    finding = check_hold("x", find_hold([(90 * US, second_ns)] * 8), "WARN")
    assert finding.result == result
    assert says in finding.value
    few = check_hold("x", find_hold([(90 * US, second_ns)] * 2), "FAIL")
    assert (few.result, few.value) == ("WARN", "2 complete pairs of messages")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.needs("mosquitto")
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
