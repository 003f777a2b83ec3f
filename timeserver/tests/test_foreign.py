"""The formats of others, octet by octet as their own programs write and read them.

K26 is github westlab/1451DEMO2026 (which cites IEEE 1451.1.6-2025), K21 is github
westlab/IES-TCSTD-Plugfest; the payloads here are written by hand as theirs are.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from stage import Stage, arrival

from mqtick.mqtt.properties import decode_properties, encode_properties
from mqtick.protocol.precise import Leap
from mqtick.timeserver.config import Settings
from mqtick.timeserver.foreign import ForeignFormats
from mqtick.timeserver.reference import Reference

REQUEST, SYN = "_1451.1.6/RRS/REQ", "_1451.1.6/BRSU/SYN"
ALL = ("precise", "1451.1.6", "draft-2021")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?")


class Server(Stage):
    def __init__(self, *, version_5: bool = True, **keys: Any):
        super().__init__()
        self.leading = True
        self.connection.version_5 = version_5
        settings = Settings(**{"name": "hall/clock", "formats": ALL, **keys})
        self.formats = ForeignFormats(self, settings, self.limit, lambda: self.leading)

    def ask(
        self, topic: str, payload: bytes, properties: bytes = b"", *, retain: bool = False
    ) -> int:
        """Let a request arrive 150 us ago; returns its kernel stamp."""
        came = arrival(topic, payload, properties=properties, retain=retain)
        self.formats.on_request(came)
        return came.stamp.realtime_ns


@pytest.fixture
def server() -> Server:
    return Server()


def seconds(text: str) -> int:
    """Read `%.9f` seconds as ns."""
    whole, fraction = text.split(".")
    assert len(fraction) == 9
    return int(whole) * 10**9 + int(fraction)


# -- 1451.1.6 as K26 speaks it ---------------------------------------------------------------------


def test_the_time_is_published_as_unix_seconds_with_nine_decimals(server: Server) -> None:
    before_ns = time.time_ns()
    server.formats.publish()
    topic, payload, properties = server.published[0]
    assert (topic, properties) == (SYN, b"")
    assert re.fullmatch(rb"\d{10}\.\d{9}", payload)
    assert before_ns <= seconds(payload.decode()) <= time.time_ns()


def test_a_request_is_answered_as_their_client_reads_it(server: Server) -> None:
    received_ns = server.ask(REQUEST, b"PTTEST/app0,1781234567.123457")
    topic, payload, _ = server.published[0]
    assert topic == "_1451.1.6/RRS/PTTEST/app0/RES"
    t1, t2, t3, name = payload.decode().split(",")
    assert (t1, name) == ("1781234567.123457", "hall/clock")
    assert seconds(t2) == received_ns
    assert received_ns < seconds(t3) <= time.time_ns()


@pytest.mark.parametrize("payload", [b"PTTEST/app0", b"PTTEST/app0,"])
def test_a_request_without_t1_is_answered_with_an_empty_column(
    server: Server, payload: bytes
) -> None:
    server.ask(REQUEST, payload)
    assert server.published[0][1].startswith(b",")
    assert server.published[0][1].count(b",") == 3


@pytest.mark.parametrize("payload", [b"", b",1781234567.123457", b"\n"])
def test_a_request_that_names_nobody_is_answered_to_client(server: Server, payload: bytes) -> None:
    server.ask(REQUEST, payload)
    assert server.published[0][0] == "_1451.1.6/RRS/client/RES"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"a/+,1", "name"),
        (b"a/#,1", "name"),
        (b"a\x00b,1", "name"),
        (b"x" * 65 + b",1", "name"),
        (b"a,\x01", "t1"),
        (b"a," + b"1" * 33, "t1"),
        (b"\xff\xfe", "encoding"),
        (b"x" * 300, "length"),
    ],
)
def test_what_cannot_be_answered_safely_is_counted(
    server: Server, payload: bytes, reason: str
) -> None:
    server.ask(REQUEST, payload)
    assert server.published == []
    assert server.refused == {reason: 1}


# -- the draft of 2021 as K21 speaks it ------------------------------------------------------------


def user(properties: bytes) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = decode_properties(properties).UserProperty
    return found


def test_syn_carries_the_time_as_a_user_property(server: Server) -> None:
    before_ns = time.time_ns()
    server.formats.publish()
    topic, payload, properties = server.published[1]
    assert (topic, payload) == ("location/TIME/SYN", b"SYN")
    ((name, value),) = user(properties)
    assert name == "timestamp"
    assert ISO.fullmatch(value)
    stated = datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    assert before_ns / 1e9 - 1e-5 <= stated <= time.time()


def test_srq_is_answered_with_srs(server: Server) -> None:
    asked = [("T1", "2026-06-12T12:22:47.123456")]
    received_ns = server.ask("location/TIME/SRQ", b"SRQ", encode_properties(asked))
    topic, payload, properties = server.published[0]
    assert (topic, payload) == ("location/TIME/SRS", b"SRS")
    found = user(properties)
    assert [name for name, _ in found] == ["T1", "t2", "t3"]
    assert found[0] == asked[0]
    t2, t3 = (datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for _, text in found[1:])
    assert abs(t2 - received_ns / 1e9) < 2e-6
    assert t2 <= t3 <= time.time()


def test_the_location_is_configurable() -> None:
    server = Server(draft_location="hall/7")
    assert server.formats.topics() == [REQUEST, "hall/7/TIME/SRQ"]
    server.formats.publish()
    assert server.published[1][0] == "hall/7/TIME/SYN"


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (encode_properties([("T1", "a"), ("T1", "b")]), "properties"),
        (encode_properties([("x", "y")] * 17), "properties"),
        (encode_properties([("T1", "x" * 41)]), "t1"),
        (b"\x26\x00", "properties"),
    ],
    ids=["twice", "many", "long", "malformed"],
)
def test_a_bad_srq_is_counted(server: Server, properties: bytes, reason: str) -> None:
    server.ask("location/TIME/SRQ", b"SRQ", properties)
    assert server.published == []
    assert server.refused == {reason: 1}


def test_mqtt_3_has_no_user_properties_and_so_no_draft() -> None:
    server = Server(version_5=False)
    assert server.formats.topics() == [REQUEST]
    server.formats.publish()
    assert [topic for topic, _, _ in server.published] == [SYN]
    server.ask(REQUEST, b"a,1")
    assert server.published[1][2] == b""


# -- Response Topic and Correlation Data -----------------------------------------------------------


def test_a_reply_goes_where_it_is_wanted_and_carries_the_correlation_data(server: Server) -> None:
    wanted = encode_properties(response_topic="answers/app0", correlation_data=b"\x00\x07")
    server.ask(REQUEST, b"PTTEST/app0,1", wanted)
    topic, _, properties = server.published[0]
    assert topic == "answers/app0"
    assert decode_properties(properties).CorrelationData == b"\x00\x07"
    assert not hasattr(decode_properties(properties), "ResponseTopic")


def test_the_draft_can_do_so_too(server: Server) -> None:
    wanted = encode_properties([("T1", "x")], response_topic="a", correlation_data=b"7")
    server.ask("location/TIME/SRQ", b"SRQ", wanted)
    topic, _, properties = server.published[0]
    assert topic == "a"
    assert decode_properties(properties).CorrelationData == b"7"
    assert user(properties)[0] == ("T1", "x")


@pytest.mark.parametrize(
    "topic",
    [
        "answers/+",
        "answers/#",
        "",
        "x" * 129,
        "$SYS/broker/uptime",
        "$share/group/x",
        "mqtick/t/0",
        "mqtick/r/0/kitchen",
        "mqtick/s/0",
        SYN,
        REQUEST,
        "location/TIME/SYN",
        "location/TIME/SRQ",
        "answers/\x07",
    ],
)
def test_a_reply_is_sent_to_no_topic_that_carries_time_or_is_none(
    server: Server, topic: str
) -> None:
    server.ask(REQUEST, b"PTTEST/app0,1", encode_properties(response_topic=topic))
    assert server.published == []
    assert server.refused == {"response-topic": 1}


def test_malformed_properties_are_counted(server: Server) -> None:
    server.ask(REQUEST, b"PTTEST/app0,1", b"\x08\x00")
    assert server.refused == {"properties": 1}


# -- who is answered -------------------------------------------------------------------------------


def test_who_does_not_lead_or_know_the_time_says_nothing(server: Server) -> None:
    server.leading = False
    server.ask(REQUEST, b"PTTEST/app0,1")
    server.ask("location/TIME/SRQ", b"SRQ", encode_properties([("T1", "x")]))
    assert server.published == []
    assert server.refused == {"not-leading": 2}


def test_a_retained_request_is_not_answered(server: Server) -> None:
    server.ask(REQUEST, b"PTTEST/app0,1", retain=True)
    assert server.refused == {"retained": 1}


@pytest.mark.parametrize("name", ["clock_is_set", "stamps_are_doubtful"])
def test_a_request_that_may_have_been_stamped_before_the_clock_was_set_is_not_answered(
    server: Server, name: str
) -> None:
    setattr(server, name, True)
    server.ask(REQUEST, b"PTTEST/app0,1")
    assert server.published == []
    assert server.refused == {"clock-changed": 1}


def test_a_client_that_asks_too_often_is_counted(server: Server) -> None:
    for _ in range(45):
        server.ask(REQUEST, b"PTTEST/app0,1")
    assert len(server.published) == 40
    assert server.refused == {"rate": 5}
    server.ask(REQUEST, b"PTTEST/app1,1")
    assert len(server.published) == 41


def test_a_fleet_of_draft_clients_shares_the_total_not_one_clients_rate(server: Server) -> None:
    for _ in range(200):
        server.ask("location/TIME/SRQ", b"SRQ", encode_properties([("T1", "x")]))
    assert len(server.published) == 200


def test_formats_that_are_off_are_off() -> None:
    server = Server(formats=("precise",))
    assert server.formats.topics() == []
    server.formats.publish()
    server.ask(REQUEST, b"PTTEST/app0,1")
    assert server.published == []
    assert server.refused == {"topic": 1}


def test_while_the_broker_takes_nothing_it_is_counted(server: Server) -> None:
    server.takes_data = False
    server.ask(REQUEST, b"PTTEST/app0,1")
    assert server.refused == {"not-sent": 1}


@pytest.mark.parametrize("keys", [{"name": "hall/+"}, {"draft_location": "a/#"}], ids=str)
def test_a_name_that_cannot_stand_in_a_topic_is_refused_at_the_start(keys: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="wildcard"):
        Server(**keys)


def test_a_clock_that_is_not_trusted_is_said_once_to_keep_these_formats_silent(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for synchronised in (True, False, False, True, False):
        server.reference = Reference(synchronised, 1, 0, Leap.NONE, "chronyd does not answer.")
        server.formats.say_if_silent()
        assert bool(server.formats.silent) == (not synchronised)
    assert caplog.text.count("not served: 1451.1.6, draft-2021: ") == 2
    assert "chronyd does not answer." in caplog.text
    assert Server(formats=("precise",)).formats.silent == ""
