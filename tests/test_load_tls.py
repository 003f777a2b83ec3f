"""mqtick-load over TLS: real brokers, and others that are not what they should be."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig import Authority, password_file
from test_load import SCENARIO, Debug, load, program, values
from test_load_machines import STAND_IN, Rig, executable

from demo.local_broker import Mosquitto, free_port, running, wait_for_port

pytestmark = [pytest.mark.broker, pytest.mark.needs("mosquitto"), pytest.mark.needs("openssl")]
RECORDS = "stamps over TLS: those of the record"


class Secured:
    """A real broker that listens with TLS, and who signed its certificate."""

    def __init__(self, kind: type[Mosquitto], folder: Path, *, asks: bool = False) -> None:
        self.authority, port = Authority(folder), free_port()
        if kind is Mosquitto:
            lines = self.authority.listener(port)
            if asks:
                lines += f"cafile {self.authority.certificate}\nrequire_certificate true\n"
        else:
            certificate, key = self.authority.issue("broker")
            lines = f'[[listener]]\naddress = "127.0.0.1:{port}"\n[listener.tls]\n'
            lines += f'certificate = "{certificate}"\nkey = "{key}"\n'
            if asks:
                lines += f'client_ca = "{self.authority.certificate}"\nrequire_certificate = true\n'
        self.broker = kind(folder, lines)
        self.port, self.url = port, f"mqtts://127.0.0.1:{port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Secured]:
        """Run the broker; both of its ports listen."""
        with running(self.broker):
            assert self.broker.process is not None
            wait_for_port(self.port, self.broker.process)
            yield self

    @property
    def trust(self) -> tuple[str, str]:
        return "--ca-file", str(self.authority.certificate)

    def shown(self) -> tuple[str, ...]:
        """A certificate of a client, as options."""
        certificate, key = self.authority.issue("load")
        return "--certificate-file", str(certificate), "--certificate-key-file", str(key)


@pytest.fixture(params=[Mosquitto, Debug], ids=["Mosquitto", "mqtick-broker"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    with Secured(request.param, tmp_path).running() as made:
        yield made


def refused(*words: str, code: int = 1) -> str:
    """What the program says when it fails; in one line, and soon."""
    done = subprocess.run(
        [program(), *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("mqtick-load: ")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_copy_comes_once_and_in_order(secured: Secured, tmp_path: Path, qos: int) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO.format(qos=qos))
    result = load("run", str(file), "--broker", secured.url, *secured.trust, "--mqtt", "5")
    found = values(result)
    for key in ("lost", "duplicates", "disorder", "refused", "unstamped"):
        assert found[key] == 0, key
    assert found["egress"] > 0
    assert 0 < found["wire_p50_us"] < found["delay_max_us"]
    assert any(RECORDS in note for note in result["notes"])


def test_a_long_message_takes_several_records(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    lines = "kind = 'latency'\npayload = 100_000\nmessages = 20\ninterval_us = 5000\n"
    file.write_text(f"seconds = 60\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\n{lines}")
    found = values(load("run", str(file), "--broker", secured.url, *secured.trust))
    assert (found["lost"], found["duplicates"], found["unstamped"]) == (0, 0, 0)
    assert found["wire_p50_us"] > 0


@pytest.mark.parametrize("qos", ["0", "1"])
def test_windows_and_fan_outs_are_measured_over_tls(secured: Secured, qos: str) -> None:
    flags = ("--broker", secured.url, *secured.trust, "--repeats", "1", "--qos", qos, "--floor")
    pairs = values(load("pairs", *flags, "--pairs", "2", "--window", "64", "--seconds", "0.2"))
    assert (pairs["lost"], pairs["duplicates"], pairs["disorder"]) == (0, 0, 0)
    fan = values(load("fanout", *flags, "--subscribers", "5", "--messages", "20"))
    assert fan["lost"] == 0
    assert fan["skew_p50_us"] > 0


@pytest.mark.slow
def test_a_limit_is_found_over_tls(secured: Secured, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text("[[group]]\nsubscribers = 20\ninterval_us = 2000\n")
    flags = ("--scenario", str(small), "--trial", "0.4", "--repeats", "2", "--resolution", "10")
    result = load("limit", secured.url, *secured.trust, *flags)
    found = values(result)
    assert found["limit_ingress_low"] < found["limit_ingress"] < found["limit_ingress_high"]
    assert result["parameters"]["broker"] == secured.url


@pytest.mark.parametrize("kind", [Mosquitto, Debug], ids=["Mosquitto", "mqtick-broker"])
def test_a_broker_that_wants_a_certificate_is_shown_one(
    kind: type[Mosquitto], tmp_path: Path
) -> None:
    made = Secured(kind, tmp_path, asks=True)
    flags = ("fanout", "--broker", made.url, *made.trust)
    with made.running():
        own = made.shown()
        found = values(load(*flags, *own, "--subscribers", "2", "--messages", "5"))
        assert found["lost"] == 0
        said = refused(*flags)
        assert "--certificate-file: the broker wants a certificate" in said or "closed" in said
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        certificate, key = Authority(elsewhere).issue("load")
        strange = ("--certificate-file", str(certificate), "--certificate-key-file", str(key))
        refused(*flags, *strange)
    # What cannot be used is said before anything is opened.
    assert "--certificate-key-file: " in refused(*flags, *own[:2], code=2)
    assert "without --certificate-file" in refused(*flags, *own[2:], code=2)
    assert "--certificate-file: " in refused(*flags, *own[:3], str(key), code=2)
    text = refused(*flags, *own[:3], own[1], code=2)
    assert "--certificate-key-file: " in text
    text = refused(*flags, "--certificate-file", *own[3:], *own[2:], code=2)
    assert "--certificate-file: no certificate in it" in text
    text = refused("fanout", "--broker", made.url, "--ca-file", own[3], code=2)
    assert "--ca-file: no certificate in it can be used" in text
    plain = refused("fanout", "--broker", made.broker.url, *made.trust, code=2)
    assert "without TLS" in plain


def test_name_and_password_come_from_a_file(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    users = password_file(tmp_path, {"load": "a word"})
    lines = f"{authority.listener(port)}password_file {users}\n"
    word = tmp_path / "word"
    word.write_text("a word\n")
    flags = ("fanout", "--broker", f"mqtts://127.0.0.1:{port}", "--ca-file")
    flags = (*flags, str(authority.certificate), "--username", "load")
    with running(Mosquitto(tmp_path, lines, anonymous=False)):
        found = load(*flags, "--password-file", str(word), "--subscribers", "2", "--messages", "5")
        assert values(found)["lost"] == 0
        assert "a word" not in json.dumps(found)
        assert "see --username, --password-file" in refused(*flags)


def test_a_file_of_mqttloader_may_ask_for_tls(secured: Secured, tmp_path: Path) -> None:
    certificate, key = secured.authority.issue("load")
    port = secured.url.rsplit(":", 1)[1]
    conf = tmp_path / "mqttloader.conf"
    conf.write_text(
        f"broker = 127.0.0.1\nbroker_port = {port}\ntls = true\nnum_messages = 10\n"
        f"tls_rootca_cert = {secured.authority.certificate}\ntls_client_key = {key}\n"
        f"tls_client_cert_chain = {certificate};{secured.authority.certificate}\n"
    )
    result = load("run", str(conf))
    assert (values(result)["lost"], values(result)["egress"] > 0) == (0, True)
    assert any(RECORDS in note for note in result["notes"])


def test_machines_are_given_what_tls_needs(secured: Secured, tmp_path: Path) -> None:
    executable(tmp_path / "ssh", STAND_IN)
    rig = Rig(tmp_path, secured.url)
    command = [*rig.command(), *secured.trust, *secured.shown()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=rig.environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    found = values(result)
    assert (found["lost"], found["unstamped"]) == (0, 0)
    assert "wire_low_p50_us" in found
    assert any(RECORDS in note for note in result["notes"])


@pytest.mark.parametrize("what", ["authority", "dates", "name", "own"])
def test_a_certificate_that_is_not_to_be_believed_ends_it(tmp_path: Path, what: str) -> None:
    authority, port = Authority(tmp_path), free_port()
    until = "20210101" if what == "dates" else "20991231"
    trusted, host = authority.certificate, "127.0.0.1"
    if what == "authority":
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        trusted = Authority(elsewhere).certificate
    if what == "name":
        host = "localhost"
    remedies = {
        "authority": "(see --ca-file",
        "dates": "renew it, or is the clock of this machine wrong?",
        "name": "write the broker's address by a name that is in its certificate",
        "own": "it is an authority's own: give the broker one that is not",
    }
    lines = authority.listener(port, until=until)
    if what == "own":
        lines = lines.replace(f"broker{port}.", "ca.")
    with running(Mosquitto(tmp_path, lines)):
        said = refused("fanout", "--broker", f"mqtts://{host}:{port}", "--ca-file", str(trusted))
        assert remedies[what] in said
        assert "sub0 of the broker: " in said
    # Nor is one believed that the system does not know.
    with running(Mosquitto(tmp_path, authority.listener(free_port()))) as broker:
        port = int(broker.config.read_text().split("listener ")[2].split()[0])
        assert "UnknownIssuer" in refused("fanout", "--broker", f"mqtts://127.0.0.1:{port}")


def test_a_broker_without_tls_is_told(tmp_path: Path) -> None:
    ca = str(Authority(tmp_path).certificate)
    with running(Mosquitto(tmp_path)) as broker:
        url = broker.url.replace("mqtt:", "mqtts:")
        said = refused("fanout", "--broker", url, "--ca-file", ca)
        assert "does it speak TLS at this port?" in said


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def dribbling(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
    while not threading.Event().wait(0.02):
        connection.sendall(b"\0")


def endless(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"\x16\x03\x03\x40\x00" + bytes(16384))


def nonsense(connection: socket.socket) -> None:
    connection.sendall(bytes(range(256)) * 8)
    silent(connection)


def gone(connection: socket.socket) -> None:
    connection.recv(100)


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Someone who is no broker; where."""

    def attend(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=attend, args=[door.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=accept, daemon=True).start()
        yield f"mqtts://127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("serve", "told"),
    [
        (silent, "waiting for the TLS handshake: the broker did not send it in time"),
        (dribbling, "waiting for the TLS handshake: the broker did not send it in time"),
        (endless, "the broker's TLS: "),
        (nonsense, "does it speak TLS at this port?"),
        (gone, "does it speak TLS at this port?"),
    ],
)
def test_who_breaks_the_handshake_or_stalls_in_it_is_told(
    serve: Callable[[socket.socket], None], told: str, tmp_path: Path
) -> None:
    ca = str(Authority(tmp_path).certificate)
    with listening(serve) as url:
        said = refused("fanout", "--broker", url, "--ca-file", ca, "--patience", "0.5")
    assert any(one in said for one in told.split("|")), said


@pytest.mark.parametrize("then", ["silent", "ends", "garbage"])
def test_a_broker_that_fails_behind_a_good_handshake_is_told(tmp_path: Path, then: str) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker"))

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(4096)
            if then == "silent":
                silent(secure)
            elif then == "garbage":
                # What is not encrypted cannot come in.
                socket.socket(fileno=secure.detach()).sendall(b"\x17\x03\x03\x00\x20" + bytes(32))

    told = {
        "silent": "waiting for CONNACK: the broker did not send it in time",
        "ends": "closed the connection instead of sending CONNACK|it ended TLS",
        "garbage": "the broker's TLS: ",
    }[then]
    with listening(serve) as url:
        flags = ("--ca-file", str(authority.certificate), "--patience", "0.5")
        said = refused("fanout", "--broker", url, *flags)
    assert any(one in said for one in told.split("|")), said
