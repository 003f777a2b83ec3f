"""Broker addresses: what people write, and a sentence for everything else."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.mqtt.broker import Broker, BrokerError, broker_from, parse_broker_url

GOOD = {
    "mqtt://broker.lan": ("mqtt", "broker.lan", 1883),
    "broker.lan": ("mqtt", "broker.lan", 1883),
    "broker.lan:2000": ("mqtt", "broker.lan", 2000),
    "192.0.2.7": ("mqtt", "192.0.2.7", 1883),
    "mqtt://[2001:db8::7]:1884": ("mqtt", "2001:db8::7", 1884),
    "mqtts://broker.lan": ("mqtts", "broker.lan", 8883),
    "ws://broker.lan": ("ws", "broker.lan", 80),
    "wss://broker.lan:9443/": ("wss", "broker.lan", 9443),
    "MQTT://Broker.LAN": ("mqtt", "broker.lan", 1883),
    "mqtt+udp://broker.lan": ("mqtt+udp", "broker.lan", 1883),
    "mqtt+udp://192.0.2.7:2000": ("mqtt+udp", "192.0.2.7", 2000),
}


@pytest.mark.parametrize("url", GOOD)
def test_an_address_is_scheme_host_and_port_with_the_usual_ones_left_out(url: str) -> None:
    broker = parse_broker_url(url)
    assert (broker.scheme, broker.host, broker.port) == GOOD[url]
    assert broker.username is None


def test_a_websocket_has_a_path_and_the_usual_one_if_it_is_left_out() -> None:
    assert parse_broker_url("ws://broker.lan").path == "/mqtt"
    assert parse_broker_url("wss://broker.lan:9443/time/ws").path == "/time/ws"


@pytest.mark.parametrize("url", ["unix:///run/broker.sock", "unix:/run/broker.sock"])
def test_a_unix_socket_is_a_file(url: str) -> None:
    broker = parse_broker_url(url)
    assert (broker.scheme, broker.path) == ("unix", "/run/broker.sock")


def test_a_user_name_may_stand_before_the_host() -> None:
    assert parse_broker_url("mqtt://kitchen-1@broker.lan").username == "kitchen-1"
    assert parse_broker_url("mqtt://a%40b@broker.lan").username == "a@b"


BAD = {
    "": "names no host",
    "mqtt://": "names no host: write mqtt://HOST",
    "mqtt://:1883": "names no host",
    "http://broker.lan": "has the scheme 'http': use one of mqtt://, mqtts://",
    "mqtt://broker.lan:0": "port 0, but a broker listens on 1 to 65535",
    "mqtt://broker.lan:65536": "is not an address",
    "mqtt://broker.lan:port": "is not an address",
    "mqtt://[::1": "is not an address",
    "::1": "is not an address",
    "mqtt://broker.lan/time": "has a path, which only ws:// and wss:// have",
    "mqtt://broker.lan?x=1": "after '?' or '#'",
    "mqtt://broker.lan#x": "after '?' or '#'",
    "mqtt://broker lan": "holds a space or a control character",
    "mqtt://broker.lan\n": "holds a space or a control character",
    "mqtt://a%00b@broker.lan": "has a user name with a control character",
    "mqtt+udp://pi@broker.lan": "has a user name, but MQTT over UDP has no accounts",
    "mqtt+udp://[2001:db8::7]": "is an IPv6 address, but MQTT over UDP is IPv4 only",
    "mqtt+udp://broker.lan/time": "has a path, which only ws:// and wss:// have",
    "mqtt+udp://broker.lan?x=1": "MQTT over UDP knows ?dialect=published and",
    "mqtt+udp://broker.lan?dialect=": "MQTT over UDP knows ?dialect=published and",
    "mqtt+udp://broker.lan?dialect=old": "MQTT over UDP knows ?dialect=published and",
    "mqtt+udp://broker.lan?dialect=published&port=1&port=2": "MQTT over UDP knows ?dialect=",
    "mqtt+udp://broker.lan?port=7": "MQTT over UDP knows ?dialect=published and",
    "mqtt+udp://broker.lan?dialect=published&port=0": "has the port '0' of our own",
    "mqtt+udp://broker.lan?dialect=published&port=65536": "has the port '65536' of our own",
    "mqtt+udp://broker.lan?dialect=published&port=0001883": "has the port '0001883' of our own",
    "mqtt+udp://broker.lan?dialect=published&port=001883099": "has the port '001883099' of our own",
    "mqtt+udp://broker.lan?dialect=published&x=1": "a part after '?' that means nothing",
    "mqtt://broker.lan?dialect=published": "after '?' or '#'",
    "unix://run/broker.sock": "names no socket file: write unix:///run/broker.sock",
    "unix://": "names no socket file",
    "unix:///run/": "names no socket file",
}


@pytest.mark.parametrize("url", BAD)
def test_a_bad_address_is_answered_with_a_sentence(url: str) -> None:
    with pytest.raises(BrokerError) as caught:
        parse_broker_url(url)
    assert BAD[url] in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mqtt://user:hunter2@broker.lan",
        "user:hunter2@broker.lan",
        "mqtts://user:hunter2@broker.lan:99999",
        "http://user:hunter2@broker.lan",
        "unix://user:hunter2@/run/broker.sock",
        "mqtt://:hunter2@broker.lan",
        "mqtt://user:hun@ter2@broker.lan",
        "mqtt+udp://user:hunter2@broker.lan",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BrokerError, match="put it in a file") as caught:
        parse_broker_url(url)
    assert "hun" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mqtt://user:hun/ter2@broker.lan",
        "user:hun/ter2@broker.lan?x",
        "mqtt+udp://user:hun/ter2@broker.lan",
    ],
)
def test_a_password_that_was_not_recognised_is_not_repeated_either(url: str) -> None:
    with pytest.raises(BrokerError) as caught:
        parse_broker_url(url)
    assert "hun" not in str(caught.value)
    assert "ter2" not in str(caught.value)


def test_a_dialect_has_a_port_of_our_own_and_stands_in_the_address_that_is_shown() -> None:
    broker = parse_broker_url("mqtt+udp://broker.lan?dialect=published&port=4000")
    assert (broker.dialect, broker.local_port, broker.port) == ("published", 4000, 1883)
    assert parse_broker_url("mqtt+udp://broker.lan?dialect=published").local_port == 18830
    assert broker.address == "mqtt+udp://broker.lan:1883?dialect=published"


def test_an_empty_password_is_refused_too() -> None:
    with pytest.raises(BrokerError, match="password_file"):
        parse_broker_url("mqtt://user:@broker.lan")


@given(st.text(max_size=40))
def test_whatever_is_written_is_an_address_or_a_sentence(text: str) -> None:
    broker = None
    with contextlib.suppress(BrokerError):
        broker = parse_broker_url(text)
    assert broker is None or (broker.host and broker.password is None)


# -- the rest of the configuration -----------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    broker: str = "mqtts://kitchen-1@broker.lan"
    mqtt_version: str = "5"
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    certificate_key_file: str = ""
    client_id: str = ""
    keepalive_s: int = 15
    connect_timeout_s: float = 5.0
    timestamps: str = "auto"


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("hunter2\nsecond line\n")
    file.chmod(0o640)
    return file


def test_the_configuration_says_how_to_reach_the_broker(password: Path) -> None:
    keys = Keys(
        broker="mqtt://kitchen-1@broker.lan:2000",
        mqtt_version="3.1.1",
        password_file=str(password),
        keepalive_s=30,
        connect_timeout_s=2.0,
        timestamps="user",
    )
    assert broker_from(keys) == Broker(
        host="broker.lan",
        port=2000,
        version="3.1.1",
        username="kitchen-1",
        password="hunter2",
        keepalive_s=30,
        connect_timeout_s=2.0,
        kernel_stamps="user",
    )


def test_a_user_name_of_its_own_wins_over_that_in_the_address() -> None:
    keys = Keys(broker="mqtt://one@broker.lan", username="other")
    assert broker_from(keys).username == "other"


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o601, 0o777])
def test_a_password_file_that_others_can_open_is_refused(password: Path, mode: int) -> None:
    password.chmod(mode)
    with pytest.raises(BrokerError, match=f"run chmod o= {password}"):
        broker_from(Keys(password_file=str(password)))


@pytest.mark.parametrize("content", [b"", b"\nhunter2\n", b"x" * 5000])
def test_a_password_of_no_sensible_length_is_refused(password: Path, content: bytes) -> None:
    password.write_bytes(content)
    with pytest.raises(BrokerError, match="not a password of 1 to 4096 characters"):
        broker_from(Keys(password_file=str(password)))


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "no text"])
def test_a_password_file_that_cannot_be_read_is_named(
    password: Path, content: bytes | None
) -> None:
    password.unlink()
    if content is not None:
        password.write_bytes(content)
        password.chmod(0o600)
    with pytest.raises(BrokerError, match=f"the password file {password} cannot be read"):
        broker_from(Keys(password_file=str(password)))


@pytest.mark.parametrize("key", ["ca_file", "certificate_file"])
def test_a_file_for_tls_that_is_missing_is_named(key: str) -> None:
    with pytest.raises(BrokerError, match=r"the file /nowhere/ca\.pem does not exist"):
        broker_from(replace(Keys(), **{key: "/nowhere/ca.pem"}))


@pytest.mark.parametrize("key", ["ca_file", "certificate_file"])
@pytest.mark.parametrize(
    "url", ["mqtt://broker.lan", "ws://broker.lan", "mqtt+udp://b.lan", "unix:///run/b.sock"]
)
def test_files_for_tls_are_refused_where_there_would_be_none(
    password: Path, key: str, url: str
) -> None:
    with pytest.raises(BrokerError, match=r"without TLS.*write mqtts:// or wss://"):
        broker_from(replace(Keys(broker=url), **{key: str(password)}))


def test_a_password_without_a_user_name_is_refused(password: Path) -> None:
    with pytest.raises(BrokerError, match="password_file is given without a user name"):
        broker_from(Keys(broker="mqtt://broker.lan", password_file=str(password)))


def test_a_private_key_without_its_certificate_is_refused(password: Path) -> None:
    with pytest.raises(BrokerError, match="without certificate_file"):
        broker_from(Keys(certificate_key_file=str(password)))


def test_over_udp_mqtt_311_is_spoken_whatever_the_version_says() -> None:
    broker = broker_from(Keys(broker="mqtt+udp://broker.lan", mqtt_version="5"))
    assert broker.version == "3.1.1"


def test_an_account_is_refused_where_there_are_none(password: Path) -> None:
    for account in ({"username": "pi"}, {"password_file": str(password)}):
        with pytest.raises(BrokerError, match="by UDP, where there are no accounts"):
            broker_from(replace(Keys(broker="mqtt+udp://broker.lan"), **account))
