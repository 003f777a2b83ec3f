"""`mqtick-broker` as a program: what its settings promise, and what hostile clients get.

What MQTT itself demands is in `broker/conformance`.
"""

from __future__ import annotations

import re
import signal
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest

from broker.conformance.client import (
    DISCONNECT,
    PING,
    PINGRESP,
    PUBACK,
    SUBACK,
    UNSUBACK,
    V5,
    Client,
    Will,
)
from broker.conformance.launch import PASSWORD, USER, write_rules
from broker.tests.harness.brokers import Broker, Launch
from broker.tests.harness.events import until
from broker.tests.harness.timing import NOT_STATED
from broker.tests.harness.tools import certificate
from demo.local_broker import free_port
from mqtick.mqtt.packets import connect_packet, encode_publish, subscribe_packet

KEEP_ALIVE = 0x8D
SO_TIMESTAMPNS = 35
pytestmark = pytest.mark.broker


# -- settings --------------------------------------------------------------------------------------


def test_exact_filters_are_served_first_then_plus_then_hash(launch: Launch) -> None:
    """mqtick's echoes depend on this order, which is Mosquitto's."""
    client = launch().client()
    for pattern, identifier in (("#", 1), ("a/+", 2), ("a/b", 3)):
        client.subscribe(pattern, properties=[("subscription_id", identifier)])
    client.send(client.encode.publish("a/b", b"x"))
    assert [client.message().get("subscription_id") for _ in range(3)] == [3, 2, 1]


@pytest.mark.parametrize("mode", ["ordered", "alternating", "parallel", "batched"])
def test_each_subscriber_gets_each_message_once_and_in_order(launch: Launch, mode: str) -> None:
    broker = launch(f'[[delivery.topic]]\nfilter = "a/#"\nmode = "{mode}"', first="threads = 3")
    clients = [broker.client() for _ in range(20)]
    for client in clients:
        client.subscribe("a/b")
    sender = broker.client()
    wanted = [b"%d" % number for number in range(200)]
    sender.send(*(sender.encode.publish("a/b", payload) for payload in wanted))
    for client in clients:
        assert [client.message().payload for _ in wanted] == wanted


class Audience:
    """Subscribers of one topic, and a publisher; the kernel stamps what comes."""

    def __init__(self, broker: Broker, topic: str, count: int) -> None:
        self._packet = encode_publish(topic.encode(), b"x", None)
        self._hearers = [self._connected(broker.port, f"h{n}", [topic]) for n in range(count)]
        self._sender = self._connected(broker.port, "sender", [])

    @staticmethod
    def _connected(port: int, name: str, topics: list[str]) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", port), 20)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.sendall(connect_packet(name) + (subscribe_packet(topics) if topics else b""))
        sock.recv(4 + 5 * len(topics), socket.MSG_WAITALL)
        return sock

    def order(self) -> list[int]:
        """Publish a message: in which order its copies came, by number of the subscriber."""
        self._sender.sendall(self._packet)
        came = []
        for hearer in self._hearers:
            octets, ancillary, _, _ = hearer.recvmsg(len(self._packet), 64)
            assert octets == self._packet
            came.append(struct.unpack("@qq", ancillary[0][2]))
        return sorted(range(len(came)), key=came.__getitem__)


def test_ordered_is_the_order_of_subscription_whichever_thread_owns_the_connections(
    launch: Launch,
) -> None:
    broker = launch('[[delivery.topic]]\nfilter = "a"\nmode = "ordered"', first="threads = 3")
    audience = Audience(broker, "a", 30)
    assert [audience.order() for _ in range(50)] == [list(range(30))] * 50


def test_alternating_is_that_order_and_then_the_other_way_round(launch: Launch) -> None:
    """So a subscriber's mean place is the middle."""
    broker = launch('[[delivery.topic]]\nfilter = "a"\nmode = "alternating"', first="threads = 3")
    audience, there = Audience(broker, "a", 30), list(range(30))
    orders = [audience.order() for _ in range(50)]
    assert orders in ([there, there[::-1]] * 25, [there[::-1], there] * 25)


@pytest.mark.parametrize(("mode", "shares"), [("ordered", False), ("parallel", True)])
def test_in_parallel_each_thread_writes_its_part_of_the_copies_else_one_does(
    launch: Launch, mode: str, shares: bool
) -> None:
    """By the processor time of each: nothing else is there to do."""
    lines = f'[[delivery.topic]]\nfilter = "a"\nmode = "{mode}"'
    broker = launch(lines, first="threads = 2")
    audience = Audience(broker, "a", 60)
    assert broker.process is not None
    tasks = Path(f"/proc/{broker.process.pid}/task").iterdir()
    workers = [task for task in tasks if (task / "comm").read_text().startswith("worker")]

    def used_ns() -> list[int]:
        return [int((worker / "schedstat").read_text().split()[0]) for worker in workers]

    audience.order()
    before_ns = used_ns()
    for _ in range(200):
        audience.order()
    used = [after - before for after, before in zip(used_ns(), before_ns, strict=True)]
    assert len(used) == 2
    assert (min(used) > max(used) / 4) == shares


def test_the_members_of_a_shared_subscription_take_turns_whichever_thread_serves_them(
    launch: Launch,
) -> None:
    broker = launch(first="threads = 2")
    members = [broker.client() for _ in range(3)]
    for member in members:
        member.subscribe(("$share/g/a", 0))
    senders = [broker.client() for _ in range(6)]

    def served() -> list[int]:
        for number in range(60):
            sender = senders[number % 6]
            sender.send(sender.encode.publish("a", b"x", qos=1, packet_id=number + 1))
            sender.expect(PUBACK)
        return [len(member.settle()) for member in members]

    assert served() == [20, 20, 20]
    members.pop().vanish()
    assert served() == [30, 30]


def test_who_waited_for_a_password_gets_all_that_is_retained(
    launch: Launch, tmp_path: Path
) -> None:
    """More than the socket takes at once: the rest follows when the client reads."""
    passwords, _ = write_rules(tmp_path)
    broker = launch(f'password_file = "{passwords}"')
    sender = broker.client()
    for number in range(40):
        sender.send(sender.encode.publish(f"a/{number}", bytes(500_000), retain=True))
    sender.settle()
    client = broker.client(username=USER, password=PASSWORD)
    client.send(client.encode.subscribe(1, ("a/#", 0)))
    time.sleep(2.5)  # long enough for the fault: each second the broker looks at those that wait
    client.expect(SUBACK)
    assert len([client.message() for _ in range(40)]) == 40


def test_who_comes_back_with_a_smaller_window_gets_no_more_than_that(launch: Launch) -> None:
    broker = launch()
    kept = [("session_expiry", 3600)]
    first = broker.client(clean=False, properties=kept)
    first.subscribe(("a", 1))
    sender = broker.client()
    payloads = [b"%d" % number for number in range(10)]
    for number, payload in enumerate(payloads, 1):
        sender.send(sender.encode.publish("a", payload, qos=1, packet_id=number))
        sender.expect(PUBACK)
    assert len(first.settle()) == 10
    first.vanish()
    again = broker.raw(first.id)
    answer = again.connect(clean=False, properties=[*kept, ("receive_maximum", 2)])
    assert answer.session_present
    under_way = again.settle()
    assert [one.payload for one in under_way] == payloads[:2]
    for one in under_way:
        again.send(again.encode.ack(PUBACK, one.packet_id))
    assert [again.message().payload for _ in range(8)] == payloads[2:]


def test_what_changed_in_the_files_counts_after_sighup(launch: Launch, tmp_path: Path) -> None:
    passwords, rules = write_rules(tmp_path)
    broker = launch(f'password_file = "{passwords}"\nacl_file = "{rules}"')
    client = broker.client(username=USER, password=PASSWORD)
    client.subscribe("#")
    rules.write_text("nonsense\n")
    broker.read_again("what was read before stays")
    client.send(client.encode.publish("forbidden", b"no"), client.encode.publish("allowed/a", b"x"))
    assert client.message().payload == b"x"
    rules.write_text(f"user {USER}\ntopic readwrite forbidden\n")
    broker.read_again()
    client.send(client.encode.publish("allowed/a", b"no"), client.encode.publish("forbidden", b"y"))
    assert client.message().payload == b"y"


def shown(port: int, trust: Path) -> tuple[str, ssl.SSLSocket]:
    """The common name that a listener shows to whom trusts this, and the connection."""
    context = ssl.create_default_context(cafile=str(trust))
    plain = socket.create_connection(("127.0.0.1", port))
    made = context.wrap_socket(plain, server_hostname="127.0.0.1")
    return dict(pair[0] for pair in made.getpeercert()["subject"])["commonName"], made


def test_tls_with_a_certificate_that_is_replaced_while_it_runs(
    launch: Launch, tmp_path: Path
) -> None:
    tls, port = certificate(tmp_path, "first"), free_port()
    broker = launch(first=f'[[listener]]\naddress = "127.0.0.1:{port}"\n{tls}')
    plain = broker.client()
    plain.subscribe("a")
    for name in ("first", "second"):
        found, carrier = shown(port, tmp_path / "certificate.pem")
        assert found == name
        client = Client(("", 0), V5, name, carrier)
        assert client.connect().reason == 0
        client.send(client.encode.publish("a", name.encode() * 10_000))
        assert plain.message().payload == name.encode() * 10_000
        certificate(tmp_path, "second")
        broker.read_again()


def test_where_one_of_two_certificates_cannot_be_used_none_is_replaced(
    launch: Launch, tmp_path: Path
) -> None:
    good, bad, ports = tmp_path / "good", tmp_path / "bad", [free_port(), free_port()]
    listeners = "".join(
        f'[[listener]]\naddress = "127.0.0.1:{port}"\n{certificate(folder, "first")}\n'
        for port, folder in zip(ports, (good, bad), strict=True)
    )
    broker = launch(first=listeners)
    trust = tmp_path / "first.pem"
    trust.write_bytes((good / "certificate.pem").read_bytes())
    certificate(good, "second")
    (bad / "key.pem").write_text("no key")
    broker.read_again("what was read before stays")
    assert shown(ports[0], trust)[0] == "first"


def test_a_unix_socket_is_a_listener_as_any_other(launch: Launch, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    broker = launch(first=f'[[listener]]\npath = "{path}"')
    client = broker.raw()
    client.socket.close()
    client.socket = socket.socket(socket.AF_UNIX)
    client.socket.connect(str(path))
    assert client.connect().reason == 0


# -- residence -------------------------------------------------------------------------------------

TIMED = bytes([0x27]) + bytes(31)
"""A message with a trailer; its shape is all that counts here."""


def test_what_waited_in_the_broker_states_no_residence(launch: Launch) -> None:
    """A will, what was queued, retained, or read more slowly: nobody knows how long it was here."""
    broker = launch("[limits]\npublishes_a_second_a_client = 1")
    hearer, sender = broker.client(), broker.client()
    hearer.subscribe(("mqtick/#", 1))
    timed = sender.encode.publish("mqtick/a", TIMED, retain=True)
    sender.send(timed, timed)
    assert hearer.message().payload[-16:] != NOT_STATED, "at once"
    assert hearer.message().payload[-16:] == NOT_STATED, "a second later"
    other = broker.client()
    other.send(other.encode.publish("mqtick/a", TIMED, qos=1, packet_id=1))
    assert hearer.message().payload[-16:] == NOT_STATED, "QoS 1"
    late = broker.client()
    late.subscribe("mqtick/#")
    assert late.message().payload[-16:] == NOT_STATED, "retained"
    dying = broker.client(will=Will("mqtick/will", TIMED))
    dying.vanish()
    assert hearer.message().payload[-16:] == NOT_STATED, "a will"


# -- hostile clients -------------------------------------------------------------------------------


def test_a_pause_of_the_broker_ends_no_client_that_spoke_meanwhile(launch: Launch) -> None:
    """More clients than one thread hears at once, which it hears again only one after another."""
    broker = launch(first="threads = 1")
    crowd = [broker.client(keep_alive=2) for _ in range(600)]
    broker.send_signal(signal.SIGSTOP)
    for one in crowd:
        one.send(PING)
    time.sleep(6)  # twice as long as a client may be silent
    broker.send_signal(signal.SIGCONT)
    for one in crowd:
        one.expect(PINGRESP)
    for one in crowd:  # which speak no more
        assert one.expect(DISCONNECT).reason == KEEP_ALIVE


def test_a_connect_that_dribbles_ends_in_time(launch: Launch) -> None:
    broker = launch("[limits]\nconnect_timeout_s = 2")
    slow = broker.raw()
    slow.socket.settimeout(0.5)
    for octet in slow.encode.connect(slow.id + "x" * 100):
        slow.send(bytes([octet]))
        try:
            ended = not slow.socket.recv(1)
        except TimeoutError:
            ended = False
        except ConnectionResetError:
            ended = True
        if ended:
            return
    pytest.fail("it was not ended")


def test_more_clients_than_allowed_are_refused_and_come_in_when_others_leave(
    launch: Launch,
) -> None:
    broker = launch("[limits]\nconnections = 3")
    clients = [broker.client() for _ in range(3)]
    assert broker.raw().connect().reason == 0x97
    clients[0].disconnect()
    until(lambda: broker.raw().connect().reason == 0)


def test_who_publishes_too_fast_is_read_more_slowly_and_loses_nothing(launch: Launch) -> None:
    broker = launch("[limits]\npublishes_a_second_a_client = 50")
    fast, other, hearer = broker.client(), broker.client(), broker.client()
    hearer.subscribe("a", "b")
    fast.send(*(fast.encode.publish("a", b"%d" % number) for number in range(120)))
    first = time.monotonic()
    other.send(other.encode.publish("b", b"x", qos=1, packet_id=1))
    other.expect(PUBACK)
    found = [hearer.message() for _ in range(121)]
    assert [one.payload for one in found if one.topic == b"a"] == [b"%d" % n for n in range(120)]
    assert time.monotonic() - first > 1, "two whole seconds' ends lie between"


def test_who_unsubscribes_too_fast_is_read_more_slowly(launch: Launch) -> None:
    client = launch("[limits]\npublishes_a_second_a_client = 50").client()
    first = time.monotonic()
    client.send(*(client.encode.unsubscribe(number, "a") for number in range(1, 121)))
    assert [client.expect(UNSUBACK).packet_id for _ in range(120)] == list(range(1, 121))
    assert time.monotonic() - first > 1, "two whole seconds' ends lie between"


def test_deep_and_wild_filters_are_refused_or_served_like_others(launch: Launch) -> None:
    broker = launch()
    client = broker.client()
    assert client.subscribe("/".join("+" * 30_000)).reasons[0] in (0x8F, 0x97)
    for number in range(200):
        client.subscribe(("/".join("+" * (number % 20 + 1)) + f"/{number}", 0))
    topic = "/".join("a" * 30_000)
    client.send(client.encode.publish(topic, b"x"))
    assert broker.client().settle() == []


def test_the_log_stays_short_whatever_comes(launch: Launch) -> None:
    broker = launch()
    began_s = time.monotonic()
    for _ in range(300):
        client = broker.raw()
        client.send(b"\x10\x02\x00")
        client.send(b"\xff")
        client.close()
    assert broker.client().settle() == []
    broker.says("refused")
    seconds = int(time.monotonic() - began_s) + 2  # the first and the last one in part
    assert len(re.findall(r"refused", broker.log())) <= 10 * seconds
