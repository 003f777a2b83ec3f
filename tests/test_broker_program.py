"""`mqtick-broker` as a program: what its settings promise, and what hostile clients get.

What MQTT itself demands is in `broker/conformance`.
"""

from __future__ import annotations

import itertools
import re
import signal
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.conformance.client import (
    CONNACK,
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
from demo.local_broker import MqtickBroker, free_port, running
from mqtick.mqtt.packets import connect_packet, encode_publish, subscribe_packet

KEEP_ALIVE = 0x8D
SO_TIMESTAMPNS = 35
pytestmark = pytest.mark.broker
_numbers = itertools.count(1)


class Broker(MqtickBroker):
    """The broker with more lines of configuration, and clients for it."""

    def __init__(self, folder: Path, lines: str = "", *, first: str = "") -> None:
        super().__init__(folder, lines)
        self.config.write_text(f"{first}\n{self.config.read_text()}")

    def client(self, **options: object) -> Client:
        """A connected client of MQTT 5."""
        client = self.raw()
        assert client.connect(**options).reason == 0
        return client

    def raw(self) -> Client:
        """A connection on which nothing was said."""
        return Client(("127.0.0.1", self.port), V5, f"c{next(_numbers)}")

    def log(self) -> str:
        """What it said."""
        return (self.folder / "broker.log").read_text()

    def report(self, what: str) -> int:
        """A number of `$SYS`, the next time that it is said."""
        watcher = self.client()
        watcher.subscribe(f"$SYS/broker/{what}")
        found = watcher.message()
        while found.retain:
            found = watcher.message()
        return int(found.payload)


Launch = Callable[..., Broker]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a broker with these lines of configuration."""
    open_ones = []

    def start(lines: str = "", *, first: str = "") -> Broker:
        context = running(Broker(tmp_path, lines, first=first))
        broker = context.__enter__()
        open_ones.append(context)
        assert isinstance(broker, Broker)
        return broker

    yield start
    for context in open_ones:
        context.__exit__(None, None, None)
    log = tmp_path / "broker.log"
    assert "panicked" not in (log.read_text() if log.exists() else "")


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


def test_mosquittos_password_and_access_files_are_taken_as_they_are(
    launch: Launch, tmp_path: Path
) -> None:
    passwords, rules = write_rules(tmp_path)
    lines = f'password_file = "{passwords}"\nacl_file = "{rules}"'
    broker = launch(lines)
    assert broker.raw().connect(username=USER, password=b"wrong").reason == 0x86
    client = broker.client(username=USER, password=PASSWORD)
    client.subscribe("#")
    client.send(client.encode.publish("forbidden", b"no"), client.encode.publish("allowed/a", b"x"))
    assert client.message().payload == b"x"


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
    again = Client(("127.0.0.1", broker.port), V5, first.id)
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
    assert broker.process is not None
    rules.write_text("nonsense\n")
    broker.process.send_signal(signal.SIGHUP)
    wait(lambda: "what was read before stays" in broker.log())
    client.send(client.encode.publish("forbidden", b"no"), client.encode.publish("allowed/a", b"x"))
    assert client.message().payload == b"x"
    rules.write_text(f"user {USER}\ntopic readwrite forbidden\n")
    broker.process.send_signal(signal.SIGHUP)
    wait(lambda: "were read again" in broker.log())
    client.send(client.encode.publish("allowed/a", b"no"), client.encode.publish("forbidden", b"y"))
    assert client.message().payload == b"y"


def certificate(folder: Path, name: str) -> str:
    """Make one with this common name in the place of an earlier one; how a listener says it."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    files = ["-subj", f"/CN={name}", "-keyout", "key.pem", "-out", "new.pem"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1"]
    folder.mkdir(exist_ok=True)
    subprocess.run(command.split() + files + more, cwd=folder, check=True, capture_output=True)
    (folder / "new.pem").rename(folder / "certificate.pem")
    return f'tls = {{ certificate = "{folder}/certificate.pem", key = "{folder}/key.pem" }}'


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
        assert broker.process is not None
        broker.process.send_signal(signal.SIGHUP)
        wait(lambda: "were read again" in broker.log())


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
    assert broker.process is not None
    broker.process.send_signal(signal.SIGHUP)
    wait(lambda: "what was read before stays" in broker.log())
    assert shown(ports[0], trust)[0] == "first"


def test_a_unix_socket_is_a_listener_as_any_other(launch: Launch, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    broker = launch(first=f'[[listener]]\npath = "{path}"')
    client = broker.raw()
    client.socket.close()
    client.socket = socket.socket(socket.AF_UNIX)
    client.socket.connect(str(path))
    assert client.connect().reason == 0


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("[limits]\npacket = 1", "packet"),
        ("[limits]\nunknown = 1", "unknown"),
        ("[[listener]]\naddress = 'nowhere'", "address"),
        ("[access]\npassword_file = '/no/such/file'\nanonymous = false", "/no/such/file"),
    ],
)
def test_wrong_settings_are_a_sentence_and_an_exit_code(
    tmp_path: Path, lines: str, why: str
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(lines)
    command = [MqtickBroker(tmp_path).built(), "--check-config", "--config", config]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert why in ended.stderr
    assert ended.stderr.count("\n") == 1


# -- residence -------------------------------------------------------------------------------------

NOT_STATED = bytes.fromhex("0000000000000000 80000000 000000 00")
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


# -- systemd ---------------------------------------------------------------------------------------


def test_systemd_is_told_when_clients_can_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with running(Broker(tmp_path)):
            assert told.recv(100) == b"READY=1"
        assert told.recv(100) == b"STOPPING=1"


def test_at_its_end_it_tells_its_clients(launch: Launch) -> None:
    broker = launch()
    client = broker.client()
    assert broker.process is not None
    broker.process.terminate()
    assert client.expect(DISCONNECT).reason == 0x8B
    assert broker.process.wait(30) == 0


# -- hostile clients -------------------------------------------------------------------------------


def test_a_pause_of_the_broker_ends_no_client_that_spoke_meanwhile(launch: Launch) -> None:
    """More clients than one thread hears at once, which it hears again only one after another."""
    broker = launch(first="threads = 1")
    assert broker.process is not None
    crowd = [broker.client(keep_alive=2) for _ in range(600)]
    broker.process.send_signal(signal.SIGSTOP)
    for one in crowd:
        one.send(PING)
    time.sleep(6)  # twice as long as a client may be silent
    broker.process.send_signal(signal.SIGCONT)
    for one in crowd:
        one.expect(PINGRESP)
    for one in crowd:  # which speak no more
        assert one.expect(DISCONNECT).reason == KEEP_ALIVE


def test_a_client_that_reads_nothing_holds_up_nobody(launch: Launch) -> None:
    broker = launch("[limits]\npacket = 100000\nqueue = 100000")
    deaf, other, sender = broker.client(), broker.client(), broker.client()
    deaf.subscribe("a")
    other.subscribe("a")
    payload = bytes(50_000)
    for _ in range(400):  # 20 MB: more than the sockets take
        sender.send(sender.encode.publish("a", payload))
        assert other.message().payload == payload
    wait(lambda: broker.report("publish/messages/dropped") > 0)


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


def test_half_a_packet_takes_no_memory_before_it_comes(launch: Launch) -> None:
    broker = launch()
    client = broker.client()
    assert client.refused(b"\x30\xff\xff\xff\x7f") == 0x95  # 256 MiB
    assert broker.client().settle() == []


def test_one_client_cannot_take_all_subscriptions(launch: Launch) -> None:
    client = launch("[limits]\nsubscriptions_a_client = 100").client()
    filters = [(f"a/{number}", 0) for number in range(150)]
    assert client.subscribe(*filters).reasons == [0] * 100 + [0x97] * 50
    client.unsubscribe("a/0")
    assert client.subscribe("b").reasons == [2]


def test_more_clients_than_allowed_are_refused_and_come_in_when_others_leave(
    launch: Launch,
) -> None:
    broker = launch("[limits]\nconnections = 3")
    clients = [broker.client() for _ in range(3)]
    assert broker.raw().connect().reason == 0x97
    clients[0].disconnect()
    wait(lambda: broker.raw().connect().reason == 0)


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


def test_a_storm_of_connections_leaves_those_that_are_there_alone(launch: Launch) -> None:
    broker = launch("[limits]\nconnections_a_second = 200")
    client = broker.client()
    client.subscribe("a")
    storm = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(1000)]
    for number, sock in enumerate(storm):
        sock.sendall((b"\x16\x03\x01", b"GET / HTTP/1.1\r\n", b"\x10\xff\xff\xff", b"")[number % 4])
    client.send(client.encode.publish("a", b"x"))
    assert client.message().payload == b"x"
    for sock in storm:
        sock.close()
    wait(lambda: broker.raw().connect().reason == 0)


def test_the_log_stays_short_whatever_comes(launch: Launch) -> None:
    broker = launch()
    began_s = time.monotonic()
    for _ in range(300):
        client = broker.raw()
        client.send(b"\x10\x02\x00")
        client.send(b"\xff")
        client.close()
    assert broker.client().settle() == []
    wait(lambda: "refused" in broker.log())
    seconds = int(time.monotonic() - began_s) + 2  # the first and the last one in part
    assert len(re.findall(r"refused", broker.log())) <= 10 * seconds


def test_passwords_are_checked_beside_the_threads_that_deliver(
    launch: Launch, tmp_path: Path
) -> None:
    """Each check takes milliseconds on purpose; a flood of wrong ones must not hold up messages."""
    passwords, _ = write_rules(tmp_path)
    broker = launch(f'password_file = "{passwords}"')
    client = broker.client(username=USER, password=PASSWORD)
    client.subscribe("a")
    flood = [broker.raw() for _ in range(600)]
    for one in flood:
        one.send(one.encode.connect(one.id, username=USER, password=b"wrong"))
    client.send(client.encode.publish("a", b"x"), PING)
    assert client.message().payload == b"x"
    client.expect(PINGRESP)
    assert {one.expect(CONNACK).reason for one in flood} <= {0x86, 0x89}


def wait(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.05)
