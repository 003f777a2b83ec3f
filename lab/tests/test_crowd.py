"""A crowd of subscribers on a real Mosquitto."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from crowd_rig import Running, clock_on
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.local_broker import Mosquitto, Nats, free_port, running
from mqtick.lab.cli import main
from mqtick.lab.load import crowd as crowd_module
from mqtick.lab.load.member import ConnectTarget, Member, State
from mqtick.lab.runner.control import Control, NodeError
from mqtick.mqtt.broker import Broker, parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.packets import connect_packet, subscribe_packet
from mqtick.protocol.topics import TopicTree, acl


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running(Mosquitto(tmp_path_factory.mktemp("crowd"))) as made:
        yield made


@pytest.mark.needs("mosquitto")
def test_three_hundred_are_up_soon_and_each_counts_each_message(broker: Mosquitto) -> None:
    with Running(parse_broker_url(broker.url)) as crowd, clock_on(broker.port) as clock:
        began_s = time.monotonic()
        assert crowd.ask("join", count=300) == {"members": 300, "granted": 300, "refused": 0}
        assert time.monotonic() - began_s < 2
        for number in range(3):
            clock.publish(f"mqtick/t/{number}", b"x" * 32)
        crowd.counted(members=300, messages=900, least=3, most=3, lost=0)
        assert crowd.ask("info")["members"] == 300
        assert crowd.ask("leave") == {}
        clock.publish("mqtick/t/0", b"x" * 32)
        time.sleep(0.05)
        gone = {"members": 0, "least": 0, "most": 0, "lost": 0}
        assert crowd.ask("count") == {**gone, "messages": 900}


@pytest.mark.needs("mosquitto")
def test_those_who_join_take_the_place_of_those_who_were_there(broker: Mosquitto) -> None:
    with Running(parse_broker_url(broker.url)) as crowd, clock_on(broker.port) as clock:
        crowd.ask("join", count=20)
        clock.publish("mqtick/t/0", b"x")
        crowd.counted(messages=20)
        crowd.ask("join", count=10)
        clock.publish("mqtick/t/0", b"x")
        crowd.counted(members=10, messages=10, least=1, most=1, lost=0)


@pytest.mark.needs("mosquitto")
def test_a_message_that_the_broker_kept_is_not_counted(broker: Mosquitto) -> None:
    with Running(parse_broker_url(broker.url)) as crowd, clock_on(broker.port) as clock:
        clock.publish("mqtick/t/9", b"old", qos=1, retain=True).wait_for_publish(5)
        crowd.ask("join", count=5)
        clock.publish("mqtick/t/0", b"x", qos=1).wait_for_publish(5)
        crowd.counted(messages=5, least=1, most=1)
        clock.publish("mqtick/t/9", b"", qos=1, retain=True).wait_for_publish(5)


@pytest.mark.needs("mosquitto")
def test_what_a_broadcast_costs_the_crowd_is_next_to_nothing(broker: Mosquitto) -> None:
    with Running(parse_broker_url(broker.url)) as crowd, clock_on(broker.port) as clock:
        crowd.ask("join", count=100)
        crowd.loop.call_soon_threadsafe(crowd.crowd._reading.cancel)  # type: ignore[union-attr]
        turns = 0
        turn = crowd.loop.turn

        def counting(longest_s: float = 60.0) -> None:
            nonlocal turns
            turns += 1
            turn(longest_s)

        crowd.loop.turn = counting  # type: ignore[method-assign]
        for _ in range(20):
            clock.publish("mqtick/t/0", b"x" * 32, qos=1).wait_for_publish(5)
        assert turns <= 4  # two thousand messages
        crowd.counted(messages=2000)


@pytest.mark.needs("mosquitto")
def test_what_nobody_asks_for_is_read_now_and_then(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd_module, "_READ_EVERY_S", (0.05, 0.06))
    with Running(parse_broker_url(broker.url)) as crowd, clock_on(broker.port) as clock:
        crowd.ask("join", count=50)
        for round_ in (1, 2):
            clock.publish("mqtick/t/0", b"x" * 32)
            end = time.monotonic() + 30
            while {member.messages for member in crowd.crowd._members} != {round_}:
                assert time.monotonic() < end
                time.sleep(0.01)
        assert crowd.ask("count")["messages"] == 100


@pytest.mark.needs("mosquitto")
def test_members_that_their_runner_forgot_leave(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd_module, "_READ_EVERY_S", (0.05, 0.1))
    with Running(parse_broker_url(broker.url)) as running:
        assert running.ask("join", count=5)["granted"] == 5
        monkeypatch.setattr(crowd_module, "_FORGOTTEN_S", 0.2)
        time.sleep(0.6)
        assert running.ask("info")["members"] == 0


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("count", [0, 601, -1, "many", None])
def test_a_number_of_members_that_makes_no_sense_is_refused(
    broker: Mosquitto, count: object
) -> None:
    with (
        Running(parse_broker_url(broker.url)) as crowd,
        pytest.raises(NodeError, match=r"count is .* whole number from 1 to 600"),
    ):
        crowd.ask("join", count=count)


@pytest.mark.needs("mosquitto")
def test_members_whose_broker_goes_away_are_lost_and_new_ones_can_join(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        with Running(parse_broker_url(broker.url)) as crowd:
            crowd.ask("join", count=30)
            broker.stop()
            broker.start()
            end = time.monotonic() + 30
            count: dict[str, Any] = {}
            while not count:
                assert time.monotonic() < end
                with contextlib.suppress(NodeError):
                    count = crowd.ask("count", timeout_s=0.2)
                time.sleep(0.02)
            assert count == {"members": 0, "messages": 0, "least": 0, "most": 0, "lost": 30}
            assert crowd.ask("join", count=30)["granted"] == 30
            crowd.counted(members=30, lost=0)
    finally:
        broker.stop()


@pytest.mark.needs("mosquitto")
def test_subscriptions_that_the_broker_refuses_are_counted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    plugin = next(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), None)
    if plugin is None:
        pytest.skip("Mosquitto's plugin that refuses subscriptions is not installed")
    rights = {"publishClientSend": True, "publishClientReceive": True, "unsubscribe": True}
    allowed = [
        {"acltype": "subscribePattern", "topic": f"mqtick/{letter}/#", "allow": True}
        for letter in "xy"
    ]
    rules = {
        "defaultACLAccess": {**rights, "subscribe": False},
        "anonymousGroup": "all",
        "groups": [{"groupname": "all", "roles": [{"rolename": "all"}]}],
        "roles": [{"rolename": "all", "acls": allowed}],
    }
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    lines = f"plugin {plugin}\nplugin_opt_config_file {tmp_path / 'rules.json'}"
    with (
        running(Mosquitto(tmp_path, lines)) as broker,
        Running(parse_broker_url(broker.url)) as crowd,
    ):
        problem = "the broker refused the subscription to mqtick/t/+"
        nobody = {"members": 0, "granted": 0, "failed": 0}
        assert crowd.ask("join", count=70) == {**nobody, "refused": 70, "problem": problem}
        crowd.counted(members=0, lost=0)


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("user", ["w1", "mqtick-lab"])
def test_the_access_list_of_the_document_lets_a_runner_and_its_crowds_talk(
    tmp_path: Path, user: str
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "acl").write_text(acl(TopicTree(), "mqtick-server", "mqtick-lab"))
    with running(Mosquitto(tmp_path, f"acl_file {tmp_path / 'acl'}")) as broker:
        here = parse_broker_url(broker.url)
        crowd_user, lab, server = (
            replace(here, username=name) for name in (user, "mqtick-lab", "mqtick-server")
        )
        with (
            Running(crowd_user, lab) as crowd,
            clock_on(broker.port, user=server.username) as clock,
            Control(replace(here, username="w2")) as stranger,
        ):
            assert crowd.ask("join", count=5)["granted"] == 5
            clock.publish("mqtick/t/0", b"x")
            crowd.counted(messages=5)
            with pytest.raises(NodeError, match=r"access list allow mqtick/x/w/w1 and mqtick/y/w"):
                stranger.ask("crowd:w1", "leave", timeout_s=0.2)
            crowd.counted(members=5)


@pytest.mark.needs("mosquitto")
def test_a_broker_that_accepts_and_says_nothing_is_given_up(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd_module, "_JOIN_NS", 200_000_000)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=200) as silent,
        Running(parse_broker_url(broker.url)) as crowd,
    ):
        crowd.crowd.broker = parse_broker_url(f"mqtt://127.0.0.1:{silent.getsockname()[1]}")
        problem = "the broker did not answer in time"
        nobody = {"members": 0, "granted": 0, "refused": 0}
        assert crowd.ask("join", count=3) == {**nobody, "failed": 3, "problem": problem}
        crowd.crowd.broker = parse_broker_url(f"mqtt://127.0.0.1:{free_port()}")
        with pytest.raises(NodeError, match="Connection refused"):
            crowd.ask("join", count=3)


@pytest.mark.needs("mosquitto")
def test_a_password_and_tls_let_the_members_in(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=broker"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-addext", "keyUsage=critical,keyCertSign,digitalSignature"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (tmp_path / "users").write_text("")
    subprocess.run(
        ["mosquitto_passwd", "-b", tmp_path / "users", "w1", "secret"],
        check=True,
        capture_output=True,
    )
    port = free_port()
    lines = (
        f"listener {port} 127.0.0.1\ncertfile {tmp_path}/cert.pem\nkeyfile {tmp_path}/key.pem\n"
        f"password_file {tmp_path}/users"
    )
    members = Broker(
        "mqtts", "127.0.0.1", port, username="w1", password="secret", ca_file=f"{tmp_path}/cert.pem"
    )
    with (
        running(Mosquitto(tmp_path, lines, anonymous=False)),
        Running(members) as crowd,
    ):
        assert crowd.ask("join", count=20) == {"members": 20, "granted": 20, "refused": 0}
        sender = paho.Client(paho.CallbackAPIVersion.VERSION2)
        sender.tls_set(f"{tmp_path}/cert.pem")
        sender.username_pw_set("w1", "secret")
        sender.connect("127.0.0.1", port)
        sender.loop_start()
        for _ in range(5):
            sender.publish("mqtick/t/0", b"x" * 32)
        crowd.counted(messages=100, least=5, most=5, lost=0)
        sender.disconnect()
        sender.loop_stop()
        crowd.crowd.broker = Broker(
            "mqtts", "127.0.0.1", port, username="w1", password="wrong", ca_file=members.ca_file
        )
        answer = crowd.ask("join", count=2)
        assert answer["refused"] == 2
        assert answer["problem"] == "the broker refused the connection: this user may not connect"


def publish(payload: bytes, *, retain: bool = False) -> bytes:
    return bytes((0x31 if retain else 0x30, 12 + len(payload))) + b"\x00\x0amqtick/t/0" + payload


@contextlib.contextmanager
def lone_member() -> Iterator[Member]:
    """A member that nobody has answered yet; what it would receive is fed to it."""
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = ConnectTarget(socket.AF_INET, server.getsockname(), "here", "mqtick/t/+")
        member = Member(loop, target, "m", lambda _member: None)
        try:
            yield member
        finally:
            member.close()
            loop.close()


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1), st.integers(0, 60))
def test_messages_are_counted_however_the_stream_is_cut(cuts: list[int], many: int) -> None:
    stream = b"\x20\x02\x00\x00" + publish(b"early") + b"\x90\x03\x00\x01\x00"
    stream += publish(b"x" * 32) * many + publish(b"old", retain=True) + b"\xd0\x00"
    with lone_member() as member:
        at, place = 0, 0
        while at < len(stream):
            size = cuts[place % len(cuts)]
            member._feed(stream[at : at + size])
            at, place = at + size, place + 1
        assert member.state is State.UP
        assert member.messages == many


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=80), max_size=8))
def test_no_octets_of_a_broker_raise(chunks: list[bytes]) -> None:
    with lone_member() as member:
        for chunk in chunks:
            member._feed(chunk)


@pytest.mark.parametrize("octets", [b"\x30\xff\xff\xff\xff\xff", b"\x30\x80\x80\x80\x7f"])
def test_what_is_not_mqtt_or_far_too_long_ends_the_member(octets: bytes) -> None:
    with lone_member() as member:
        member._feed(octets)
    assert member.state is State.FAILED
    assert member.problem == "it sent something that is not MQTT"


@pytest.mark.slow
def test_too_few_open_files_are_said_before_anything_is_connected() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = "import sys; from mqtick.lab.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["crowd", "--broker", f"mqtt://127.0.0.1:{free_port()}", "--name", "w1"]
    done = subprocess.run(
        [
            *("sh", "-c", 'ulimit -n 128; exec "$0" -c "$@"'),
            *(sys.executable, code, *arguments, "--most-members", "100"),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert (
        "100 connections need 164 open files, but this process may have at most 128" in done.stderr
    )
    assert "LimitNOFILE=" in done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_the_soft_limit_is_raised_to_what_is_needed() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
            crowd_module.make_room(200)
            os._exit(0 if resource.getrlimit(resource.RLIMIT_NOFILE) == (264, hard) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("url", ["ws://localhost/mqtt", "wss://localhost", "unix:///run/b.sock"])
def test_only_tcp_tls_and_udp_are_spoken(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crowd", "--broker", url]) == 2
    assert "plain MQTT over TCP, TLS or UDP, not" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["crowd --broker", "doctor"])
def test_the_published_board_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "mqtt+udp://localhost?dialect=published"]) == 2
    assert "does not work with the published dialect" in capsys.readouterr().err


def test_files_for_tls_that_are_none_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crowd", "--broker", "mqtts://localhost", "--ca-file", "/etc/hostname"]) == 2
    assert "TLS cannot be set up with /etc/hostname" in capsys.readouterr().err


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crowd", "--name", "a/b"]) == 2
    assert "'crowd:a/b' is not a node" in capsys.readouterr().err


def test_the_packets_are_those_of_the_standard() -> None:
    # MQTT 3.1.1, figure 3.6 with user name and password, clean session and no keep-alive.
    assert connect_packet("id", "u", "pw") == (
        b"\x10\x15\x00\x04MQTT\x04\xc2\x00\x00\x00\x02id\x00\x01u\x00\x02pw"
    )
    # figure 3.23
    assert subscribe_packet(["a/b", "c/d"]) == (b"\x82\x0e\x00\x01\x00\x03a/b\x00\x00\x03c/d\x00")
    long = connect_packet("i" * 200)
    assert long[:3] == bytes((0x10, (len(long) - 3) % 128 | 0x80, (len(long) - 3) // 128))


@pytest.mark.needs("nats-server")
def test_another_broker_takes_a_crowd_too(tmp_path: Path) -> None:
    with running(Nats(tmp_path)) as broker:
        here = replace(parse_broker_url(broker.url), version=broker.mqtt_version)
        with Running(here) as crowd, clock_on(broker.port) as clock:
            assert crowd.ask("join", count=50) == {"members": 50, "granted": 50, "refused": 0}
            for _ in range(3):
                clock.publish("mqtick/t/0", b"x" * 32)
            crowd.counted(members=50, messages=150, least=3, most=3, lost=0)
            crowd.ask("leave")
            crowd.counted(members=0, lost=0)


@pytest.mark.needs("mosquitto")
def test_a_crowd_that_is_joining_can_be_told_to_leave(broker: Mosquitto) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=200) as silent,
        Running(parse_broker_url(broker.url)) as crowd,
    ):
        crowd.crowd.broker = parse_broker_url(f"mqtt://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(NodeError, match="did not answer"):
            crowd.ask("join", timeout_s=0.3, count=3)
        assert crowd.ask("leave") == {}
        crowd.crowd.broker = parse_broker_url(broker.url)
        assert crowd.ask("join", count=3)["granted"] == 3
