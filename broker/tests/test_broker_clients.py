"""Clients of other authors against `mqtick-broker`: each does what users do with it.

The client of `broker/conformance` is at the other end, and checks each octet that it is told.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.conformance.client import V5, Client
from broker.conformance.launch import PASSWORD, USER, write_rules
from broker.tests.harness.events import PATIENCE_S
from broker.tests.harness.tools import certificate
from demo.local_broker import MqtickBroker, free_port, running, wait_for_port
from tests.rig import Wire

pytestmark = pytest.mark.broker
ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
MAKES = ("python", "mosquitto", "rust", "javascript")


# -- the clients -----------------------------------------------------------------------------------


class Message(NamedTuple):
    """A message as the client was told it."""

    topic: str
    qos: int
    retain: bool
    payload: bytes


@dataclass(frozen=True)
class Call:
    """How a client is called."""

    url: str
    version: int
    id: str
    clean: bool = True
    user: str = ""
    password: str = ""
    will: str = ""
    ca: str = ""


class Process:
    """A program whose lines are read as they come."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self.program = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.told: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.program.stdout is not None
        for line in self.program.stdout:
            self.lines.put(line.rstrip("\n"))

    def tell(self, *words: object) -> None:
        """Write a line."""
        assert self.program.stdin is not None
        print(*words, file=self.program.stdin, flush=True)

    def expect(self, word: str) -> str:
        """The next line with that word; what was said before it and not asked for is kept."""
        for at, line in enumerate(self.told):
            if word in line:
                return self.told.pop(at)
        while True:
            try:
                line = self.lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no {word!r}, but {str(self.told)[-2000:]}") from None
            if word in line:
                return line
            self.told.append(line)

    def kill(self) -> None:
        """End it as a failing host does."""
        self.program.kill()
        self.program.wait()


class Agent:
    """A client that is told what to do line by line: see `clients/README.md`."""

    def __init__(self, call: Call, command: list[str], **environment: str) -> None:
        words = {**vars(call), "clean": int(call.clean)}
        given = [f"{name}={value}" for name, value in words.items() if value != ""]
        self.process = Process([*command, *given], **environment)

    def connect(self) -> None:
        """Wait until it is connected."""
        self.process.expect("connected")

    def refused(self) -> None:
        """Wait until the broker has refused it."""
        self.process.expect("refused")

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        """Subscribe; the broker has granted it afterwards."""
        for each in filters:
            self.process.tell("subscribe", each, qos)
            self.process.expect("subscribed")

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        """Publish; the broker has it afterwards, from QoS 1 on."""
        self.process.tell("publish", topic, qos, int(retain), payload.hex())
        self.process.expect("published")

    def message(self) -> Message:
        """The next message."""
        _, topic, qos, retain, payload = self.process.expect("message ").split(" ")
        return Message(topic, int(qos), retain == "1", bytes.fromhex(payload))

    def kill(self) -> None:
        """End it as a failing host does."""
        self.process.kill()


class Mosquitto(Agent):
    """`mosquitto_sub`, and a `mosquitto_pub` for each message."""

    def __init__(self, call: Call) -> None:
        scheme, _, where = call.url.partition("://")
        assert scheme in ("mqtt", "mqtts")
        host, _, port = where.partition(":")
        self.command = ["-h", host, "-p", port, "-V", "mqttv5" if call.version == 5 else "311"]
        if call.user:
            self.command += ["-u", call.user, "-P", call.password]
        if call.ca:
            self.command += ["--cafile", call.ca]
        self.own = ["-i", call.id, "-q", "2", "-d", "-F", "message %t %q %r %x"]
        if call.will:
            self.own += ["--will-topic", call.will, "--will-payload", "gone", "--will-qos", "1"]
        if not call.clean:
            self.own += ["-c"]

    def connect(self) -> None:
        """It does when it subscribes."""

    def refused(self) -> None:
        """Wait until the broker has refused it."""
        self.subscribe("a", granted="Connection error")

    def subscribe(self, *filters: str, qos: int = 2, granted: str = "received SUBACK") -> None:
        """Subscribe; the broker has granted it afterwards."""
        topics = [word for each in filters for word in ("-t", each)]
        lines = ["stdbuf", "-oL", "mosquitto_sub"]
        self.process = Process([*lines, *self.command, *self.own, *topics])
        self.process.expect(granted)

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        """Publish; the broker has it afterwards, from QoS 1 on."""
        how = ["-t", topic, "-q", str(qos), *(["-r"] if retain else [])]
        how += ["-s"] if payload else ["-n"]
        subprocess.run(["mosquitto_pub", *self.command, *how], input=payload, check=True)


def make_agent(make: str, call: Call) -> Agent:
    """A client of this make; skips where it is not here."""
    if make == "python":
        return Agent(call, [sys.executable, str(CLIENTS / "python.py")])
    if make == "mosquitto":
        if shutil.which("mosquitto_sub") is None:
            pytest.skip("mosquitto_sub is not installed: apt-get install mosquitto-clients")
        return Mosquitto(call)
    if make == "rust":
        program = ROOT / "broker/server/target/debug/mqtick-clients"
        if not program.exists():
            pytest.skip("the Rust client is not built: run make test-broker")
        return Agent(call, [str(program)])
    modules = ROOT / "build/clients/node_modules"
    if shutil.which("node") is None or not (modules / "mqtt").exists():
        pytest.skip("node and npm were not there when make test-broker began: apt-get install npm")
    return Agent(call, ["node", str(CLIENTS / "javascript.cjs")], NODE_PATH=str(modules))


# -- the broker ------------------------------------------------------------------------------------


class Everything(MqtickBroker):
    """The broker with every kind of listener, and whether passwords are asked for."""

    def __init__(self, folder: Path, *, guarded: bool = False) -> None:
        super().__init__(folder)
        self.urls = {"mqtt": self.url}
        self.ca = str(folder / "certificate.pem")
        tls = certificate(folder)
        lines = ""
        for scheme in ("mqtts", "ws", "wss"):
            port = free_port()
            self.urls[scheme] = f"{scheme}://127.0.0.1:{port}"
            lines += f'[[listener]]\naddress = "127.0.0.1:{port}"\n'
            lines += f"{tls}\n" if scheme in ("mqtts", "wss") else ""
            lines += 'transport = "websocket"\n' if scheme in ("ws", "wss") else ""
        lines += "[access]\n"
        if guarded:
            lines += f'password_file = "{write_rules(folder)[0]}"\n'
        self.config.write_text(f'[[listener]]\naddress = "127.0.0.1:{self.port}"\n{lines}')

    def start(self) -> None:
        """Start and wait until it listens everywhere."""
        super().start()
        assert self.process is not None
        for url in self.urls.values():
            wait_for_port(int(url.rpartition(":")[2]), self.process)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    folder = tmp_path_factory.mktemp("broker")
    with running(Everything(folder)) as found:
        yield found
    assert "panicked" not in (folder / "broker.log").read_text()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    with running(Everything(tmp_path_factory.mktemp("guarded"), guarded=True)) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A client identifier, and the beginning of topics, that no other test has."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


Start = Callable[..., Agent]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start clients that end with the test."""
    started = []

    def begin(make: str, call: Call) -> Agent:
        started.append(make_agent(make, call))
        return started[-1]

    yield begin
    for agent in started:
        agent.kill()


@pytest.fixture
def other(broker: Everything, name: str) -> Iterator[Client]:
    """The client at the other end."""
    client = Client(("127.0.0.1", broker.port), V5, f"other-{name}")
    assert client.connect().reason == 0
    yield client
    client.close()


# -- what users do ---------------------------------------------------------------------------------

each_make = pytest.mark.parametrize("make", MAKES)
each_version = pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5"])
PAYLOADS = (b"", bytes(range(256)), bytes(range(256)) * 1024)


@each_make
@each_version
def test_messages_of_each_qos_and_length_pass_both_ways(
    broker: Everything, other: Client, start: Start, name: str, make: str, version: int
) -> None:
    agent = start(make, Call(broker.url, version, name))
    agent.connect()
    agent.subscribe(f"{name}/to/#")
    other.subscribe(f"{name}/from/#")
    for qos in range(3):
        for payload in PAYLOADS:
            other.publish(f"{name}/to/{qos}", payload, qos=qos)
            assert agent.message() == (f"{name}/to/{qos}", qos, False, payload)
            agent.publish(f"{name}/from/{qos}", payload, qos)
            found = other.message()
            assert (found.topic.decode(), found.qos) == (f"{name}/from/{qos}", qos)
            assert found.payload == payload


@each_make
@each_version
def test_what_is_retained_is_there_for_who_comes_later_until_it_is_removed(
    broker: Everything, other: Client, start: Start, name: str, make: str, version: int
) -> None:
    other.publish(f"{name}/a", b"theirs", qos=1, retain=True)
    agent = start(make, Call(broker.url, version, name))
    agent.connect()
    agent.subscribe(f"{name}/a")
    assert agent.message() == (f"{name}/a", 1, True, b"theirs")
    agent.publish(f"{name}/b", b"mine", 1, retain=True)
    other.subscribe(f"{name}/b")
    found = other.message()
    assert (found.payload, found.retain) == (b"mine", True)
    agent.publish(f"{name}/b", b"", 1, retain=True)
    assert other.message().payload == b""
    other.subscribe(f"{name}/b")
    assert other.settle() == []


@each_make
@each_version
def test_a_client_that_dies_leaves_its_will(
    broker: Everything, other: Client, start: Start, name: str, make: str, version: int
) -> None:
    other.subscribe(f"{name}/will")
    agent = start(make, Call(broker.url, version, name, will=f"{name}/will"))
    agent.connect()
    agent.subscribe(f"{name}/a")
    agent.kill()
    assert other.message().payload == b"gone"


@each_make
@each_version
def test_a_session_loses_nothing_while_the_connection_breaks_again_and_again(
    broker: Everything, other: Client, start: Start, name: str, make: str, version: int
) -> None:
    wire = Wire(broker.port)
    agent = start(make, Call(wire.url, version, name, clean=False))
    agent.connect()
    agent.subscribe(f"{name}/to")
    # After a break, rumqttc 0.25 ends the connection at each PUBREL of a message from before, and
    # libmosquitto 2.0.11 where a repeated message of QoS 2 fills its Receive Maximum.
    levels = (1, 2) if make in ("python", "javascript") else (1, 1)
    wanted = [(levels[number % 2], b"%d" % number) for number in range(60)]
    for number, (qos, payload) in enumerate(wanted):
        other.publish(f"{name}/to", payload, qos=qos)
        if number in (20, 40):
            wire.cut()
    # Of those that were under way some may come twice: what a client makes of that is its own.
    found = dict[tuple[int, bytes], None]()
    while len(found) < len(wanted):
        message = agent.message()
        found[message.qos, message.payload] = None
    for qos in (1, 2):
        assert [one for one in found if one[0] == qos] == [one for one in wanted if one[0] == qos]
    other.subscribe(f"{name}/from")
    wire.cut()
    agent.publish(f"{name}/from", b"after", 1)
    assert other.message().payload == b"after"
    wire.close()


@each_make
def test_two_share_a_subscription(
    broker: Everything, other: Client, start: Start, name: str, make: str
) -> None:
    agents = [start(make, Call(broker.url, 5, f"{name}-{number}")) for number in range(2)]
    for agent in agents:
        agent.connect()
        agent.subscribe(f"$share/group/{name}/a", f"{name}/end")
    wanted = [b"%d" % number for number in range(20)]
    for payload in wanted:
        other.publish(f"{name}/a", payload, qos=1)
    other.publish(f"{name}/end", b"end", qos=1)
    shares = []
    for agent in agents:
        share = []
        while (payload := agent.message().payload) != b"end":
            share.append(payload)
        shares.append(share)
    assert sorted(shares[0] + shares[1]) == sorted(wanted)
    assert all(shares)


@pytest.mark.parametrize(
    ("make", "scheme"),
    [
        ("python", "mqtts"),
        ("python", "ws"),
        ("python", "wss"),
        ("mosquitto", "mqtts"),
        ("javascript", "mqtts"),
        ("javascript", "ws"),
        ("javascript", "wss"),
    ],
)
def test_tls_and_websocket_carry_the_same(
    broker: Everything, other: Client, start: Start, name: str, make: str, scheme: str
) -> None:
    ca = broker.ca if scheme in ("mqtts", "wss") else ""
    agent = start(make, Call(broker.urls[scheme], 5, name, ca=ca))
    agent.connect()
    agent.subscribe(f"{name}/to")
    other.subscribe(f"{name}/from")
    for payload in PAYLOADS:
        other.publish(f"{name}/to", payload, qos=2)
        assert agent.message().payload == payload
        agent.publish(f"{name}/from", payload, 2)
        assert other.message().payload == payload


@each_make
@each_version
def test_who_has_the_password_comes_in_and_nobody_else(
    guarded: Everything, start: Start, name: str, make: str, version: int
) -> None:
    known = start(make, Call(guarded.url, version, name, user=USER, password=PASSWORD.decode()))
    known.connect()
    known.subscribe(name)
    known.publish(name, b"x", 1)
    assert known.message().payload == b"x"
    start(make, Call(guarded.url, version, f"{name}-2", user=USER, password="wrong")).refused()
