"""TLS to a real Mosquitto: whom we believe, and what about a host that does not know the time."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from live import House, Node, certificate, house

from mqtick.mqtt.broker import BrokerError
from mqtick.mqtt.causes import Cause
from mqtick.mqtt.stamps import StampSource
from mqtick.mqtt.tls import NO_CHECK_TIME, certificate_dates_error, client_context

__all__ = ["house"]  # a fixture

DAY = 86_400.0
TOPIC = "mqtick/l/0"
OPERATIONS = Path(__file__).parents[2] / "docs/operations.md"


pytestmark = pytest.mark.needs("mosquitto")


# -- whom we believe -------------------------------------------------------------------------------


def test_a_broker_that_our_authority_vouches_for_is_believed(house: House) -> None:
    with house.node("mqtts") as node:
        assert node.up().subscribed(TOPIC)
        sent = node.connection.publish(TOPIC, b"x")
        node.until(lambda: node.arrivals)
        node.connection.collect_stamps()
        assert sent is not None
        assert (sent.stamp.source, node.arrivals[0].stamp.source) == (
            StampSource.KERNEL,
            StampSource.KERNEL,
        )


@pytest.mark.parametrize(
    ("name", "authority", "says", "cause"),
    [
        ("other", "authority", "certificate is not valid for '127.0.0.1'", Cause.NAME),
        ("mqtts", "strangers", "certificate verify failed", Cause.AUTHORITY),
        ("mqtts", "", "certificate verify failed", Cause.AUTHORITY),  # the system's do not vouch
        ("future", "authority", "certificate is not yet valid", Cause.DATES),
        ("expired", "authority", "certificate has expired", Cause.DATES),
    ],
)
def test_a_broker_that_cannot_prove_who_it_is_is_refused(
    house: House, name: str, authority: str, says: str, cause: Cause
) -> None:
    with house.node(name, authority=authority) as node:
        said = node.error()
        assert says in said
        assert node.connection.last_cause is cause
        assert node.connection.connects == 0
    day = time.strftime("%Y-%m-%dT", time.gmtime())
    assert (f"this machine's clock says {day}" in said) is (cause is Cause.DATES)


def test_a_broker_that_asks_for_a_certificate_gets_ours(house: House) -> None:
    own = {"certificate_file": f"{house.folder}/kitchen.pem"}
    with house.node("private", key_file=f"{house.folder}/kitchen.key", **own) as node:
        node.up()
    with house.node("private") as node:
        node.error()
        assert node.connection.connects == 0


@pytest.fixture
def as_python_3_13_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(**options: Any) -> ssl.SSLContext:
        context = client_context(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr("mqtick.mqtt.paho_client.client_context", strict)


@pytest.mark.usefixtures("as_python_3_13_does")
def test_an_authority_that_lacks_a_key_usage_is_refused_and_the_reason_is_named(
    house: House,
) -> None:
    with house.node("lax", authority="lax-authority") as node:
        said = node.error()
        assert "CA cert does not include key usage extension" in said
        assert "Python 3.13 and newer refuse" in said
        assert "docs/operations.md" in said
        assert node.connection.last_cause is Cause.EXTENSIONS
        assert node.connection.connects == 0


@pytest.mark.usefixtures("as_python_3_13_does")
def test_a_complete_authority_is_believed_by_every_python(house: House) -> None:
    with house.node("mqtts") as node:
        node.up()


def test_the_commands_in_operations_make_what_every_python_takes(tmp_path: Path) -> None:
    section = re.search(
        r"^### An authority of your own$.*?^## ", OPERATIONS.read_text(), re.M | re.S
    )
    assert section
    check, make = re.findall(r"^```sh\n(.*?)^```", section[0], re.M | re.S)
    done = subprocess.run(
        ["sh", "-ec", make + check], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "broker.pem: OK\n", done.stderr


@pytest.mark.parametrize("what", ["ca_file", "certificate_file"])
def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path, what: str) -> None:
    file = tmp_path / "no.pem"
    file.write_text("hello")
    with pytest.raises(BrokerError, match=rf"TLS cannot be set up with {file}: .*PEM files"):
        Node("mqtts://127.0.0.1", **{what: str(file)})


def test_tls_is_1_2_or_newer_and_verifies() -> None:
    context = client_context(ca_file=None)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert not context.verify_flags & NO_CHECK_TIME


# -- dates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["expired", "future"])
def test_a_host_that_does_not_know_the_time_is_let_in_first(house: House, name: str) -> None:
    with house.node(name, check_dates=False) as node:
        assert node.up().subscribed(TOPIC)


@pytest.mark.parametrize("name", ["other", "strangers"])
def test_names_and_authorities_are_checked_all_the_same(house: House, name: str) -> None:
    served = name if name == "other" else "mqtts"
    authority = name if name == "strangers" else "authority"
    with house.node(served, authority=authority, check_dates=False) as node:
        assert "certificate verify failed" in node.error()


def test_once_the_time_is_known_an_expired_certificate_ends_the_connection(house: House) -> None:
    with house.node("expired", check_dates=False) as node:
        error = node.up().connection.certificate_dates_error(time.time())
        assert error is not None
        assert error.startswith("the broker's certificate expired at ")
        assert error.endswith("renew the certificate, or find out who sent the time.")
        node.connection.drop(error)
        node.until(lambda: "certificate has expired" in node.connection.last_error)
        assert node.connection.connects == 1


def test_once_the_time_is_known_a_certificate_that_is_valid_stays(house: House) -> None:
    with house.node("mqtts", check_dates=False) as node:
        node.up()
        assert node.connection.certificate_dates_error(time.time() + 60) is None
        assert node.connection.connected


def test_a_certificate_whose_authority_has_expired_is_not_enough(house: House) -> None:
    with house.node("mqtts", check_dates=False) as node:
        node.up()
        assert "certificate" in (
            node.connection.certificate_dates_error(time.time() + 365 * DAY) or ""
        )


def test_without_tls_there_are_no_dates() -> None:
    with Node("mqtt://127.0.0.1:1", check_dates=False) as node:
        assert node.connection.certificate_dates_error(0.0) is None


# -- dates, without a broker -----------------------------------------------------------------------


def paper(name: str, issuer: str, before: int, after: int) -> dict[str, object]:
    """Make what `ssl` says of a certificate; dates are days of June 2026."""
    return {
        "subject": ((("commonName", name),),),
        "issuer": ((("commonName", issuer),),),
        "notBefore": f"Jun {before:2d} 12:00:00 2026 GMT",
        "notAfter": f"Jun {after:2d} 12:00:00 2026 GMT",
    }


def june(day: int) -> float:
    return float(ssl.cert_time_to_seconds(f"Jun {day:2d} 12:00:01 2026 GMT"))


BROKER = paper("broker", "ours", 1, 20)


@pytest.mark.parametrize(
    ("authorities", "fault"),
    [
        ([], None),
        ([paper("ours", "ours", 1, 20)], None),
        ([paper("ours", "ours", 1, 5)], "the broker's authority expired at 2026-06-05T12:00:00Z"),
        ([paper("ours", "ours", 12, 20)], "the broker's authority is not valid before 2026-06-12"),
        # a rotation: the old one lies beside the new one
        ([paper("ours", "ours", 1, 5), paper("ours", "ours", 4, 20)], None),
        # somebody else's authority in the same file does not matter
        ([paper("ours", "ours", 1, 20), paper("theirs", "theirs", 1, 5)], None),
        # somebody in between signed: one of them must be valid
        ([paper("root", "root", 1, 5), paper("other", "other", 1, 20)], None),
        ([paper("root", "root", 1, 5), paper("other", "other", 1, 6)], "authority expired"),
    ],
)
def test_the_authority_that_signed_has_to_be_valid_too(
    authorities: list[dict[str, object]], fault: str | None
) -> None:
    said = certificate_dates_error(BROKER, authorities, june(10))
    assert said is None if fault is None else fault in (said or "")


def test_a_certificate_is_valid_from_its_first_second_to_its_last() -> None:
    assert certificate_dates_error(BROKER, [], june(1) - 2) is not None
    assert certificate_dates_error(BROKER, [], june(1) - 1) is None
    assert certificate_dates_error(BROKER, [], june(20) - 1) is None
    assert certificate_dates_error(BROKER, [], june(20)) is not None


def test_the_name_of_the_broker_is_in_the_handshake(tmp_path: Path) -> None:
    """Cloud brokers find out by it which customer is meant."""
    pem, key = certificate(tmp_path, "broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mqtts://localhost:{server.getsockname()[1]}"

        def shake() -> None:
            context.wrap_socket(server.accept()[0], server_side=True).close()

        thread = threading.Thread(target=shake)
        thread.start()
        with Node(url, ca_file=f"{tmp_path}/authority.pem") as node:
            node.until(lambda: names)
            thread.join()
    assert names[0] == "localhost"


# -- files that are exchanged ----------------------------------------------------------------------


def test_files_that_cannot_be_read_while_it_runs_do_not_end_the_program(
    house: House, tmp_path: Path
) -> None:
    """A certificate is renewed, and at that moment the broker hangs up, or dates are checked."""
    authority = tmp_path / "authority.pem"
    authority.write_bytes((house.folder / "authority.pem").read_bytes())
    with Node(house.urls["expired"], ca_file=str(authority), check_dates=False) as node:
        connection = node.up().connection
        authority.write_text("half of a")
        assert connection.certificate_dates_error(time.time()) is not None
        connection._lost("it hung up", Cause.HUNG_UP)
        assert (connection.version_5, connection.error_5) == (True, "")
        node.until(lambda: "expired" in connection.last_error)
