"""TLS to a real Mosquitto: whom we believe, and what about a host that does not know the time."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqtick.mqtt.broker import BrokerError
from mqtick.mqtt.session import lacks_extensions
from mqtick.mqtt.stamps import Source
from mqtick.mqtt.tls import NO_CHECK_TIME, certificate_dates_error, client_context

sys.path.insert(0, str(Path(__file__).parent))
from live import Mosquitto, Node, authority, certificate, free_port, program, running

DAY = 86_400.0
TOPIC = "mqtick/l/0"
OPERATIONS = Path(__file__).parents[2] / "docs/operations.md"

needs_mosquitto = pytest.mark.skipif(
    program("mosquitto") is None, reason="mosquitto is not installed"
)


class House:
    """One Mosquitto with a listener for each certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}
        lines = []
        authority(folder, "lax-authority", extensions=())
        for name, made in {
            "good": {},
            "other": {"names": "DNS:other.lan"},
            "expired": {"days": (-20, -10)},
            "future": {"days": (10, 20)},
            "lax": {"signed_by": "lax-authority"},
            "private": {},
        }.items():
            pem, key = certificate(folder, name, **made)  # type: ignore[arg-type]
            self.ports[name] = free_port()
            lines += [
                f"listener {self.ports[name]} 127.0.0.1",
                f"cafile {folder}/authority.pem\ncertfile {pem}\nkeyfile {key}",
            ]
        lines.append("require_certificate true")  # the last listener: private
        certificate(folder, "stranger", signed_by="strangers")
        certificate(folder, "kitchen")
        self.broker = Mosquitto(folder, "\n".join(lines))

    def url(self, name: str) -> str:
        return f"mqtts://127.0.0.1:{self.ports[name]}"

    def node(self, name: str, *, authority: str = "authority", **options: Any) -> Node:
        return Node(self.url(name), ca_file=f"{self.folder}/{authority}.pem", **options)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("tls"))
    with running(made.broker):
        yield made


pytestmark = needs_mosquitto


# -- whom we believe -------------------------------------------------------------------------------


def test_a_broker_that_our_authority_vouches_for_is_believed(house: House) -> None:
    with house.node("good") as node:
        assert node.up().subscribed(TOPIC)
        sent = node.connection.publish(TOPIC, b"x")
        node.until(lambda: node.arrivals)
        node.connection.collect_stamps()
        assert sent is not None
        assert (sent.stamp.source, node.arrivals[0].stamp.source) == (Source.KERNEL, Source.KERNEL)


def test_a_broker_with_another_name_is_refused(house: House) -> None:
    with house.node("other") as node:
        assert "certificate is not valid for '127.0.0.1'" in node.error()
        assert node.connection.connects == 0


def test_a_broker_of_an_unknown_authority_is_refused(house: House) -> None:
    with house.node("good", authority="strangers") as node:
        assert "certificate verify failed" in node.error()
        assert node.connection.connects == 0


def test_the_systems_authorities_do_not_vouch_for_ours(house: House) -> None:
    with Node(house.url("good")) as node:
        assert "certificate verify failed" in node.error()


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

    monkeypatch.setattr("mqtick.mqtt.session.client_context", strict)


@pytest.mark.usefixtures("as_python_3_13_does")
def test_an_authority_that_lacks_a_key_usage_is_refused_and_the_reason_is_named(
    house: House,
) -> None:
    with house.node("lax", authority="lax-authority") as node:
        said = node.error()
        assert "CA cert does not include key usage extension" in said
        assert "Python 3.13 and newer refuse" in said
        assert "docs/operations.md" in said
        assert lacks_extensions(node.connection.last_cause)
        assert node.connection.connects == 0


@pytest.mark.usefixtures("as_python_3_13_does")
def test_a_complete_authority_is_believed_by_every_python(house: House) -> None:
    with house.node("good") as node:
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


def test_an_expired_certificate_is_refused_and_the_clock_is_named(house: House) -> None:
    with house.node("expired") as node:
        said = node.error()
        assert "certificate has expired" in said
        assert f"this machine's clock says {time.strftime('%Y-%m-%dT', time.gmtime())}" in said


def test_a_certificate_of_the_future_is_refused(house: House) -> None:
    with house.node("future") as node:
        assert "certificate is not yet valid" in node.error()


@pytest.mark.parametrize("name", ["expired", "future"])
def test_a_host_that_does_not_know_the_time_is_let_in_first(house: House, name: str) -> None:
    with house.node(name, check_dates=False) as node:
        assert node.up().subscribed(TOPIC)


@pytest.mark.parametrize("name", ["other", "strangers"])
def test_names_and_authorities_are_checked_all_the_same(house: House, name: str) -> None:
    served = name if name == "other" else "good"
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
    with house.node("good", check_dates=False) as node:
        node.up()
        assert node.connection.certificate_dates_error(time.time() + 60) is None
        assert node.connection.connected


def test_a_certificate_whose_authority_has_expired_is_not_enough(house: House) -> None:
    with house.node("good", check_dates=False) as node:
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
