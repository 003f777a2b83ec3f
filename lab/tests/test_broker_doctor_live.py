"""The broker's doctor before real brokers, and before one with faults made on purpose."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_proxy import Drop, Fault, Flush, Proxy, Shuffle, Steps, Swap

from demo.local_broker import Amqtt, Mosquitto, MqtickBroker, Nats, program, running
from mqtick.lab.cli import main
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import SystemClock
from mqtick.timeserver import Server, Settings

# Each listens for seconds, or it could not tell chance from pattern.
pytestmark = [pytest.mark.slow, pytest.mark.alone]

Ask = Callable[..., tuple[int, dict[str, dict[str, str]]]]
Launch = Callable[[type[Mosquitto]], Mosquitto]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that gives the exit code and what is not OK, by name."""

    def asked(url: str, *flags: str) -> tuple[int, dict[str, dict[str, str]]]:
        code = main(["doctor", url, "--seconds", "2.5", "--json", *flags])
        checks: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["checks"]
        return code, {one["name"]: one for one in checks if one["result"] != "OK"}

    return asked


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Return a function that runs a broker until the test ends, and skips it if there is none."""
    with contextlib.ExitStack() as stack:

        def launched(kind: type[Mosquitto]) -> Mosquitto:
            try:
                return stack.enter_context(running(kind(tmp_path)))
            except FileNotFoundError as error:
                pytest.skip(str(error))

        yield launched


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    if program("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    with running(Mosquitto(tmp_path_factory.mktemp("broker"))) as broker:
        yield broker


@pytest.mark.parametrize("kind", [Mosquitto, MqtickBroker])
def test_nothing_is_wrong_with_a_broker_that_is_set_up_well(
    launch: Launch, ask: Ask, kind: type[Mosquitto]
) -> None:
    broker = launch(kind)
    assert ask(broker.url) == (0, {})
    assert ask(broker.url, "--mqtt-version", "3.1.1") == (0, {})


@pytest.mark.needs("mosquitto")
def test_mosquitto_as_it_comes_has_no_tcp_nodelay(tmp_path: Path, ask: Ask) -> None:
    broker = Mosquitto(tmp_path)
    broker.config.write_text(broker.config.read_text().replace("set_tcp_nodelay true\n", ""))
    with running(broker):
        code, found = ask(broker.url)
    assert (code, list(found)) == (1, ["TCP_NODELAY"])
    assert "set_tcp_nodelay true" in found["TCP_NODELAY"]["remedy"]


@pytest.mark.needs("nats-server")
def test_nats_speaks_the_older_mqtt_and_keeps_no_order_of_subscribers(
    tmp_path: Path, ask: Ask
) -> None:
    with running(Nats(tmp_path)) as broker:
        code, found = ask(broker.url)
    assert (code, list(found)) == (0, ["MQTT 5", "order of subscribers", "topics with a dot"])
    assert "Unsupported protocol version" in found["MQTT 5"]["value"]


def as_a_time_server_finds(url: str, mqtt_version: str) -> str:
    """Let a time server try out the broker's order; `kept` or `broken`."""
    loop, broker = Loop(), replace(parse_broker_url(url), version=mqtt_version)
    server = Server(Settings(trust_system_clock=True), loop, broker, SystemClock(), Keyring())
    server.start()
    end = time.monotonic() + 10
    while server.order.says == "unknown" and time.monotonic() < end:
        loop.turn(0.02)
    server.close()
    loop.close()
    return server.order.says


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Mosquitto, "kept"), (MqtickBroker, "kept"), (Nats, "broken"), (Amqtt, "broken")],
)
def test_of_the_order_of_subscribers_the_doctor_says_what_a_time_server_finds(
    launch: Launch, ask: Ask, kind: type[Mosquitto], says: str
) -> None:
    broker = launch(kind)
    assert as_a_time_server_finds(broker.url, broker.mqtt_version) == says
    found = ask(broker.url, "--mqtt-version", broker.mqtt_version)[1]
    assert ("order of subscribers" in found) == (says == "broken")


@pytest.mark.parametrize(
    ("fault", "code", "names"),
    [
        (Fault(), 0, []),
        (Steps(), 1, ["delayed acknowledgements"]),
        (Flush(0.1), 1, ["flushing"]),
        (Swap(), 1, ["order of messages"]),
        (Shuffle(), 0, ["order of subscribers"]),
        (Drop(), 1, ["messages"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Fault) else "",
)
def test_the_fault_that_is_there_is_named_and_no_other(
    mosquitto: Mosquitto, ask: Ask, fault: Fault, code: int, names: list[str]
) -> None:
    with Proxy(mosquitto.port, fault) as proxy:
        got, found = ask(proxy.url)
    assert (got, list(found)) == (code, names), found


@pytest.mark.needs("mosquitto")
def test_an_access_list_in_the_way_is_said_with_the_topic(tmp_path: Path, ask: Ask) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite other/#\n")
    rules.chmod(0o600)
    with running(Mosquitto(tmp_path, f"acl_file {rules}")) as broker:
        code, found = ask(broker.url)
        assert (code, list(found)) == (1, ["messages"])
        assert "publish to and read mqtick/d/#" in found["messages"]["remedy"]
        assert ask(broker.url, "--prefix", "other") == (0, {})


@pytest.mark.needs("nats-server")
def test_a_broker_that_refuses_subscriptions_is_quoted(tmp_path: Path, ask: Ask) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    rights = '{publish: ">", subscribe: {deny: "mqtick.>"}}'
    users = f"authorization {{ users: [{{user: u, password: secret, permissions: {rights}}}] }}"
    with running(Nats(tmp_path, users)) as broker:
        flags = ("--username", "u", "--password-file", str(password))
        code, found = ask(broker.url, "--mqtt-version", "3.1.1", *flags)
        assert (code, list(found)) == (1, ["subscriptions"])
        assert "publish to and read mqtick/d/#" in found["subscriptions"]["remedy"]
        code, found = ask(broker.url)  # whose first refusal is that of MQTT 5
    assert (code, list(found)) == (1, ["connection"])
    assert "--username and --password-file" in found["connection"]["remedy"]


def test_what_is_no_broker_is_said(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, found = ask(f"mqtt://127.0.0.1:{silent.getsockname()[1]}")
    assert (code, list(found)) == (1, ["connection"])
    assert "does MQTT live on this port" in found["connection"]["remedy"]


def test_a_unix_socket_has_neither_nagle_nor_kernel_stamps(tmp_path: Path, ask: Ask) -> None:
    if program("mosquitto") is None:
        pytest.skip("mosquitto is not installed")
    with running(Mosquitto(tmp_path, f"listener 0 {tmp_path}/b.sock")):
        assert ask(f"unix://{tmp_path}/b.sock") == (0, {})


@pytest.mark.needs("mosquitto")
def test_credentials_that_the_broker_does_not_know_are_said(tmp_path: Path, ask: Ask) -> None:
    with running(Mosquitto(tmp_path, anonymous=False)) as broker:
        code, found = ask(broker.url)
    assert (code, list(found)) == (1, ["connection"])
    assert "--username and --password-file" in found["connection"]["remedy"]


def test_it_leaves_nothing_behind_at_the_broker(mosquitto: Mosquitto, ask: Ask) -> None:
    ask(mosquitto.url, "--prefix", "tidy")
    loop, arrivals = Loop(), []
    connection = Connection(
        loop,
        parse_broker_url(mosquitto.url),
        "late",
        on_publish=arrivals.append,
        on_up=lambda: connection.subscribe_retained("tidy/#"),
    )
    connection.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        loop.turn(0.05)
    assert connection.connected
    connection.close()
    loop.close()
    assert arrivals == []


def test_ctrl_c_ends_it_without_a_word(mosquitto: Mosquitto) -> None:
    command = (
        "import signal, sys; from mqtick.lab.cli import main;"
        # A background job of a shell ignores SIGINT, and so would its children.
        "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main(sys.argv[1:]))"
    )
    log = mosquitto.folder / "broker.log"
    before = log.stat().st_size
    doctor = subprocess.Popen(
        [sys.executable, "-c", command, "doctor", mosquitto.url, "--seconds", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 30
    while b" as md" not in log.read_bytes()[before:]:  # it has connected
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(doctor.pid, signal.SIGINT)
    out, err = doctor.communicate(timeout=10)
    assert (doctor.returncode, out, err) == (130, b"", b"")
