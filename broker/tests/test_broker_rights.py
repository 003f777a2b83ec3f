"""What clients of `mqtick-broker` may do, and how much: rights that are taken away, and limits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.conformance.client import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBLISH,
    PUBREC,
    V3,
    V5,
    Client,
    Will,
)
from broker.conformance.launch import password_line
from broker.tests.harness.brokers import Launch

pytestmark = pytest.mark.broker
NOT_AUTHORIZED, IDENTIFIER, PROTOCOL = 0x87, 0x85, 0x82
QUOTA, NO_RETAIN, MALFORMED = 0x97, 0x9A, 0x81
KEEP_ALIVE, TAKEN_OVER = 0x8D, 0x8E
KEPT = [("session_expiry", 3600)]


class House:
    """A broker with users whose password is their name, unless another one is said."""

    def __init__(self, launch: Launch, folder: Path, limits: str = "", access: str = "") -> None:
        self.passwords, self.rules = folder / "passwd", folder / "acl"
        self.users("ann", "bob", "cleo")
        self.may("ann", "bob", "cleo")
        self.broker = launch(
            f'password_file = "{self.passwords}"\nacl_file = "{self.rules}"\n{access}\n{limits}'
        )

    def users(self, *names: str, **others: str) -> None:
        """Write the password file."""
        known = {name: name for name in names} | others
        lines = (password_line(name, password.encode()) for name, password in known.items())
        self.passwords.write_text("".join(lines))

    def may(self, *names: str, **others: str) -> None:
        """Write the access list: all topics, or what is said."""
        all_topics = dict.fromkeys(names, "topic readwrite #")
        rules = (all_topics | others).items()
        self.rules.write_text("".join(f"user {name}\n{rule}\n" for name, rule in rules))

    def client(self, user: str, name: str = "", *, version: int = V5, **options: object) -> Client:
        """A connected client of a user."""
        client = self.broker.raw(name or f"{user}-1", version)
        client.connect(username=user, password=user.encode(), **options)
        return client


def test_who_is_removed_or_has_another_password_is_disconnected(
    launch: Launch, tmp_path: Path
) -> None:
    house = House(launch, tmp_path)
    ann, bob, cleo = map(house.client, ("ann", "bob", "cleo"))
    house.users("ann", bob="new")
    house.broker.read_again()
    assert [bob.refused(), cleo.refused()] == [NOT_AUTHORIZED, NOT_AUTHORIZED]
    ann.subscribe("still")
    ann.publish("still", b"here")
    assert ann.message().payload == b"here"


def test_what_waits_is_not_for_who_may_not_read_it_any_more(launch: Launch, tmp_path: Path) -> None:
    """It is queued, or was sent and not acknowledged before the connection ended."""
    house = House(launch, tmp_path)
    away = house.client("bob", "away", clean=False, properties=KEPT)
    slow = house.client("bob", "slow", clean=False, properties=[*KEPT, ("receive_maximum", 1)])
    for client in (away, slow):
        client.subscribe(("q/#", 1))
    away.vanish()
    ann = house.client("ann")
    for topic in ("q/secret", "q/secret/too", "q/open"):
        ann.publish(topic, b"x", qos=1)
    first = slow.expect(PUBLISH)
    assert first.topic == b"q/secret", "it has this one already"
    house.may("ann", bob="topic deny q/secret/#\ntopic readwrite q/#")
    house.broker.read_again()
    slow.send(slow.encode.ack(PUBACK, first.packet_id))
    assert [one.topic for one in slow.settle()] == [b"q/open"]
    slow.vanish()
    for name in ("away", "slow"):
        again = house.client("bob", name, clean=False, properties=KEPT)
        assert again.connack.session_present
        assert [one.topic for one in again.settle()] == [b"q/open"]


def test_what_is_retained_of_who_may_not_publish_it_any_more_is_forgotten(
    launch: Launch, tmp_path: Path
) -> None:
    house = House(launch, tmp_path)
    ann, bob = house.client("ann"), house.client("bob")
    ann.publish("r/ann", b"x", qos=1, retain=True)
    bob.publish("r/bob", b"x", qos=1, retain=True)
    house.may("ann", bob="topic read #")
    house.broker.read_again()
    bob.subscribe("r/#")
    assert [one.topic for one in bob.settle()] == [b"r/ann"]


def test_a_session_is_its_users_until_that_user_is_gone(launch: Launch, tmp_path: Path) -> None:
    house = House(launch, tmp_path)
    ann = house.client("ann", "mine", clean=False, properties=KEPT)
    ann.subscribe(("q", 1))
    for version, refusal in ((V5, IDENTIFIER), (V3, 2)):
        assert house.client("bob", "mine", version=version).connack.reason == refusal
    ann.vanish()
    house.client("bob", "other").publish("q", b"x", qos=1)
    assert house.client("bob", "mine").connack.reason == IDENTIFIER
    ann = house.client("ann", "mine", clean=False, properties=KEPT)
    assert ann.message().payload == b"x"
    ann.vanish()
    house.users("bob")
    house.broker.read_again()
    bob = house.client("bob", "mine", clean=False, properties=KEPT)
    assert (bob.connack.reason, bob.connack.session_present) == (0, False)


def test_where_identifiers_are_shared_whoever_has_one_ends_the_session(
    launch: Launch, tmp_path: Path
) -> None:
    house = House(launch, tmp_path, access="shared_identifiers = true")
    ann = house.client("ann", "mine", clean=False, properties=KEPT)
    ann.subscribe(("secret", 1))
    ann.vanish()
    house.client("ann", "other").publish("secret", b"x", qos=1)
    bob = house.client("bob", "mine", clean=False, properties=KEPT)
    assert not bob.connack.session_present
    assert bob.settle() == [], "what waits for one is not for another one"
    house.client("ann", "mine")
    assert bob.refused() == TAKEN_OVER


def test_what_is_acknowledged_is_retained_and_the_brokers_own_topics_take_no_place(
    launch: Launch,
) -> None:
    broker = launch("[limits]\nretained_messages = 20")
    client, old = broker.client(), broker.raw("old", V3)
    reasons = [client.publish(f"r/{n}", b"x", qos=1, retain=True).reason for n in range(30)]
    assert reasons == [0x10] * 20 + [QUOTA] * 10
    assert client.publish("r/0", b"y", qos=2, retain=True) is not None
    old.connect()
    old.send(old.encode.publish("r/x", b"x", qos=1, packet_id=1, retain=True))
    old.ended()
    late = broker.client()
    late.subscribe("r/#")
    assert len(late.settle()) == 20


def test_an_account_leaves_as_many_places_for_retained_messages_as_it_takes(
    launch: Launch, tmp_path: Path
) -> None:
    house = House(launch, tmp_path, "[limits]\nretained_messages = 8")

    def kept(user: str) -> int:
        client = house.client(user, f"{user}-{time.monotonic()}")
        sent = [client.publish(f"{user}/{n}", b"x", qos=1, retain=True) for n in range(9)]
        return sum(one.reason < 0x80 for one in sent)

    assert [kept("ann"), kept("bob"), kept("cleo")] == [4, 2, 1]


def test_where_nothing_may_be_retained_clients_are_told(launch: Launch) -> None:
    broker = launch("[limits]\nretained_messages = 0")
    client = broker.client()
    assert client.connack.get("retain_available") == 0
    client.send(client.encode.publish("r", b"x", retain=True))
    assert client.refused() == NO_RETAIN
    raw = broker.raw()
    assert raw.connect(will=Will("w", b"x", retain=True)).reason == NO_RETAIN


def test_wills_leave_half_of_the_memory_to_others(launch: Launch) -> None:
    broker = launch("[limits]\nmemory = 8000000\npacket = 200000\nqueue = 200000")
    reasons, crowd = [], []
    for _ in range(200):
        crowd.append(broker.raw())
        reasons.append(crowd[-1].connect(will=Will("w", bytes(60_000))).reason)
    assert set(reasons) == {0, QUOTA}
    other = broker.client(will=Will("w", b"small"))
    other.subscribe("a")
    assert other.publish("a", bytes(100_000), qos=1).reason == 0


@pytest.mark.parametrize("how", ["disconnect", "vanish", "again", "unsubscribe"])
def test_another_member_gets_what_one_that_goes_has_not_acknowledged(
    launch: Launch, how: str
) -> None:
    """[MQTT-4.8.2-4], -5 and -6; who unsubscribes keeps what it was sent."""
    broker = launch()
    goes = broker.client(properties=[("receive_maximum", 2)])
    stays, sender = broker.client(), broker.client()
    for member in (goes, stays):
        member.subscribe(("$share/group/s", 1))
    payloads = {b"%d" % number for number in range(20)}
    for payload in sorted(payloads):
        sender.publish("s", payload, qos=1)
    sent = {goes.expect(PUBLISH).payload for _ in range(2)}
    if how == "again":
        broker.client(goes.id)
    elif how == "unsubscribe":
        goes.unsubscribe("$share/group/s")
        payloads -= sent
    else:
        getattr(goes, how)()
    found = set()
    while found != payloads:
        found.add(stays.message().payload)


def test_a_filter_of_which_nothing_may_be_read_is_denied(launch: Launch, tmp_path: Path) -> None:
    house = House(launch, tmp_path)
    house.may(bob="topic read a/+/c")
    house.broker.read_again()
    bob = house.client("bob")
    granted = bob.subscribe("a/#", "+/x/c", "$share/g/a/b/c", "b", "$share/g/b/#").reasons
    assert granted == [2, 2, 2, NOT_AUTHORIZED, NOT_AUTHORIZED]


def test_a_connect_of_mqtt_5_that_cannot_be_read_is_told_why(launch: Launch) -> None:
    raw = launch().raw()
    raw.send(raw.encode.connect("c", flags=0x03))
    assert raw.expect(CONNACK).reason == MALFORMED


def test_mqtt_3_1_hears_nothing_of_its_session(launch: Launch) -> None:
    broker = launch()
    for _ in range(2):
        client = broker.raw("old", V3)
        answer = client.connect(clean=False, protocol=b"MQIsdp", level=3)
        assert (answer.reason, answer.session_present) == (0, False)
        client.vanish()


def test_an_acknowledgement_of_another_qos_ends_the_connection(launch: Launch) -> None:
    client = launch().client()
    client.subscribe(("a", 1))
    client.publish("a", b"x", qos=1)
    client.send(client.encode.ack(PUBREC, client.expect(PUBLISH).packet_id))
    assert client.refused() == PROTOCOL


@pytest.mark.slow
@pytest.mark.alone
def test_a_keep_alive_ends_within_a_second_after_its_one_and_a_half_times(launch: Launch) -> None:
    broker = launch()
    for keep_alive in (1, 2, 3):
        client = broker.client(keep_alive=keep_alive)
        began_s = time.monotonic()
        assert client.expect(DISCONNECT).reason == KEEP_ALIVE
        late_s = time.monotonic() - began_s - 1.5 * keep_alive
        assert -0.1 < late_s < 1.2, keep_alive
