"""Attacks on running programs: somebody on the broker forges, records and replays.

The attackers are plain MQTT clients. The time must not move, and what was refused must be counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from rig import (
    FLEET,
    MODULES,
    MS,
    NEXT_FLEET,
    SECOND,
    US,
    Authority,
    Client,
    Rig,
    Server,
    client_lines,
    fleet_lines,
    password_file,
    wait_until,
)

from demo.local_broker import free_port
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keys, derive_broadcast_key, derive_client_key
from mqtick.protocol.clocks import VirtualClock, VirtualClockSettings
from mqtick.protocol.precise import TAG_OCTETS, FollowUp, Leap, Reply, Request, Time

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.slow]

HOUR = 3600 * SECOND
NO_KEYS = Keys()


class Attacker:
    """Somebody with an account at the broker, who hears everything and may publish everything."""

    def __init__(self, url: str) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.on_message: Callable[[str, bytes], None] = lambda _topic, _payload: None
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", int(url.rpartition(":")[2]))
        self._client.subscribe("mqtick/#")
        self._client.loop_start()

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.heard.append((message.topic, message.payload))
        self.on_message(message.topic, message.payload)

    def say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish."""
        self._client.publish(topic, payload, retain=retain)

    def of(self, topic: str) -> list[bytes]:
        """What was heard on a topic."""
        return [payload for its, payload in list(self.heard) if its == topic]

    def close(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def attackers() -> Iterator[Callable[[str], Attacker]]:
    with ExitStack() as stack:

        def attack(url: str) -> Attacker:
            attacker = Attacker(url)
            stack.callback(attacker.close)
            return attacker

        yield attack


Attackers = Callable[[str], Attacker]


def secured_server(rig: Rig, url: str, *arguments: str, number: int = 0) -> Server:
    keys = rig.keys(*fleet_lines(FLEET))
    server = rig.server(url, "--keys-file", keys, *arguments, number=number)
    server.wait_ready()
    return server


def secured_client(rig: Rig, url: str, name: str = "c1", *arguments: str) -> Client:
    keys = rig.keys(*client_lines(name, FLEET))
    return rig.client(url, name, "--keys-file", keys, *arguments)


def secured(rig: Rig, *server_arguments: str) -> tuple[str, Client]:
    """Start a server with keys and a client that has synchronised to it; return the broker too."""
    url = rig.broker().url
    secured_server(rig, url, *server_arguments)
    client = secured_client(rig, url)
    client.wait_synchronised()
    return url, client


def heard(attacker: Attacker) -> bytes:
    """Return the last broadcast that an attacker hears."""
    return wait_until(lambda: attacker.of("mqtick/t/0"), "a broadcast is heard")[-1]


def an_hour_ahead(last: bytes, steps: int, *, server: int = 0) -> bytes:
    """The body of the time message that would come after `last`, an hour wrong."""
    message = Time.decode(last)
    return Time(
        server,
        (message.sequence + steps) % 2**32,
        message.transmit_ns + HOUR + steps * SECOND,
        0,
        0,
        1,
        Leap.NONE,
        StampSource.KERNEL,
        message.generation,
    ).body()


def stays_right(client: Client, seconds: float = 1.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert client.is_right(within_ns=MS), client.look()
        time.sleep(0.05)


# ---- broadcasts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "reason"),
    [(NO_KEYS, "unsigned"), (Keys((derive_broadcast_key(NEXT_FLEET),)), "tag")],
    ids=["unsigned", "wrong key"],
)
def test_a_forged_broadcast_is_refused_and_counted(
    rig: Rig, attackers: Attackers, key: Keys, reason: str
) -> None:
    url, client = secured(rig)
    attacker = attackers(url)
    last = heard(attacker)
    for steps in range(1, 31):
        attacker.say("mqtick/t/0", key.sign(an_hour_ahead(last, steps), "mqtick/t/0"))
    client.wait_for(lambda _: client.refused(reason) == 30, "all of them are refused")
    stays_right(client)
    assert client.status()["state"] == "synchronised"


def test_a_recorded_broadcast_is_refused_and_counted(rig: Rig, attackers: Attackers) -> None:
    broker = rig.broker()
    secured_server(rig, broker.url, "--interval-s", "0.1")
    attacker = attackers(broker.url)
    client = secured_client(rig, broker.url)
    client.wait_synchronised()
    recorded = wait_until(lambda: attacker.of("mqtick/t/0")[:10], "broadcasts are heard")
    for payload in recorded:
        attacker.say("mqtick/t/0", payload)
        attacker.say("mqtick/t/1", payload)  # of another server: its tag covers the topic
    client.wait_for(
        lambda _: client.refused("replayed") >= len(recorded), "all of them are refused"
    )
    assert client.refused("server") == len(recorded)
    assert not client.row(1)
    stays_right(client)


def test_a_broadcast_of_an_hour_ahead_moves_nothing_even_with_the_right_key(
    rig: Rig, attackers: Attackers
) -> None:
    # A client that was broken into has the broadcast key, and sends what is ahead of the server.
    broker = rig.broker()
    secured_server(rig, broker.url)
    client = secured_client(rig, broker.url, "c1", "--time-tolerance-s", "7200")
    client.wait_synchronised()
    attacker = attackers(broker.url)
    key = Keys((derive_broadcast_key(FLEET),))
    last = heard(attacker)
    for steps in range(1, 31):
        attacker.say("mqtick/t/0", key.sign(an_hour_ahead(last, 1000 + steps), "mqtick/t/0"))
        time.sleep(0.02)
    client.wait_for(
        lambda _: client.samples("one-way", "refused") >= 25, "they contradict the exchanges"
    )
    stays_right(client, 2.0)
    assert client.samples("one-way", "used") == 0


def test_nobody_who_reads_the_broker_can_take_over_a_programs_connection(
    rig: Rig, attackers: Attackers
) -> None:
    """He connects by each word that is said there, alone and behind what identifiers begin with."""
    url = rig.broker().url
    attacker = attackers(url)
    server = secured_server(rig, url)
    client = secured_client(rig, url)
    client.wait_synchronised()
    said = "\n".join(topic + "\n" + payload.decode("latin-1") for topic, payload in attacker.heard)
    words = {word for word in re.findall(r"[A-Za-z0-9]+", said) if len(word) > 5}
    assert json.loads(attacker.of("mqtick/s/0")[-1])["instance"] in words
    words |= {word[:6] for word in words}
    starts = ("", "mqtick-", "mqtick-server-0-")
    names = {"mqtick-c1", "mqtick-server-0", *(start + word for start in starts for word in words)}
    taken: list[str] = []
    for name in names:
        thief = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
        thief.on_connect = lambda *_, name=name: taken.append(name)
        thief.connect("127.0.0.1", int(url.rpartition(":")[2]))
        while name not in taken:
            thief.loop()
        thief.disconnect()
    done = server.status()["done"]["times"]
    server.wait_for(lambda values: values["done"]["times"] >= done + 2, "it serves on")
    assert server.status()["connects"] == client.status()["connects"] == 1
    assert client.is_right()


def test_a_retained_broadcast_is_refused(rig: Rig, attackers: Attackers) -> None:
    broker = rig.broker()
    attacker = attackers(broker.url)
    secured_server(rig, broker.url)
    recorded = heard(attacker)
    attacker.say("mqtick/t/0", recorded, retain=True)
    wait_until(lambda: recorded in attacker.of("mqtick/t/0")[1:], "it is retained")
    client = secured_client(rig, broker.url, "c1", "--mqtt-version", "3.1.1")
    client.wait_synchronised()
    assert client.refused("retained") >= 1
    stays_right(client)


# ---- the boot -----------------------------------------------------------------------------------


def test_a_replayed_session_does_not_set_the_time_of_a_client_that_boots(
    rig: Rig, attackers: Attackers
) -> None:
    broker = rig.broker()
    attacker = attackers(broker.url)
    server = secured_server(rig, broker.url, "--interval-s", "0.2")
    first = secured_client(rig, broker.url)
    first.wait_synchronised()
    wait_until(lambda: len(attacker.of("mqtick/f/0/c1")) >= 6, "a session is recorded")
    assert first.stop() == 0
    assert server.stop() == 0
    times, replies, follow_ups = (
        attacker.of(f"mqtick/{topic}") for topic in ("t/0", "r/0/c1", "f/0/c1")
    )

    def answer(topic: str, payload: bytes) -> None:
        """Answer each request with everything that was ever answered, the sequence put right."""
        if topic != "mqtick/q/0/c1":
            return
        sequence = payload[2:6]
        for reply in replies:
            attacker.say("mqtick/r/0/c1", reply)  # as it was recorded
            attacker.say("mqtick/r/0/c1", reply[:2] + sequence + reply[6:])
        for follow_up in follow_ups:
            attacker.say("mqtick/f/0/c1", follow_up[:2] + sequence + follow_up[6:])

    attacker.on_message = answer
    attacker.say("mqtick/s/0", b'{"state": "synchronised"}', retain=True)
    # Without a battery the clock says what it likes: here, ten days before the recording.
    fresh = secured_client(rig, broker.url, "c1")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        for payload in times:
            attacker.say("mqtick/t/0", payload)
            time.sleep(0.05)
    status = fresh.wait_for(lambda values: values, "there is a status")
    assert status["state"] == "unsynchronised"
    assert fresh.row()["samples"] == 0
    assert fresh.refused("before-exchange") > 5
    assert fresh.refused("unasked") > 5
    assert fresh.refused("tag") > 5
    # And the real server sets it right at once.
    attacker.on_message = lambda _topic, _payload: None
    server.start()
    fresh.wait_synchronised()
    stays_right(fresh)


# ---- exchanges ----------------------------------------------------------------------------------


def test_a_client_with_anothers_key_gets_no_answer(rig: Rig) -> None:
    broker = rig.broker()
    server = secured_server(rig, broker.url)
    honest = secured_client(rig, broker.url, "c1")
    honest.wait_synchronised()
    mallory = rig.client(broker.url, "c2", "--keys-file", rig.keys(*client_lines("mallory", FLEET)))
    server.wait_for(lambda _: server.refused("tag") >= 3, "the server refuses its requests")
    mallory.wait_for(lambda values: values["refused"].get("before-exchange"), "it hears the time")
    assert mallory.status()["state"] == "unsynchronised"
    assert mallory.row()["samples"] == 0
    assert honest.refused("tag") == 0
    stays_right(honest)


def test_replies_signed_with_anothers_key_are_refused(rig: Rig, attackers: Attackers) -> None:
    url, client = secured(rig)
    attacker = attackers(url)
    keys = Keys((derive_client_key(FLEET, "mallory"),))
    forged = 0

    def forge(topic: str, payload: bytes) -> None:
        """Answer c1 an hour wrong; sometimes faster than the server, which makes no difference."""
        nonlocal forged
        if topic != "mqtick/q/0/c1":
            return
        request = Request.decode(payload)
        reply = Reply(
            *(0, request.sequence, time.time_ns() + HOUR, 50_000, 0, 1),
            *(Leap.NONE, StampSource.KERNEL, 7),
        )
        follow_up = FollowUp(0, request.sequence, 0, StampSource.KERNEL, 7)
        context = request.nonce
        for where, message in (("r", reply), ("f", follow_up)):
            place = f"mqtick/{where}/0/c1"
            signed = keys.sign(message.body(), place, context)
            attacker.say(place, signed)
            context = signed[-TAG_OCTETS:]
        forged += 1

    attacker.on_message = forge
    client.wait_for(
        lambda _: forged >= 12 and client.refused("tag") + client.refused("unasked") >= 12,
        "the forged replies are refused",
        timeout_s=25.0,
    )
    assert client.refused("tag") > 0
    stays_right(client)
    assert client.samples("two-way", "refused") == 0


def test_a_server_without_the_keys_is_not_followed(rig: Rig) -> None:
    broker = rig.broker()
    secured_server(rig, broker.url)
    stranger = rig.server(broker.url, "--virtual-clock", "offset_s=3600", number=7)
    stranger.wait_ready()
    other = rig.server(
        broker.url,
        *("--virtual-clock", "offset_s=-3600"),
        *("--keys-file", rig.keys(*fleet_lines(NEXT_FLEET))),
        number=8,
    )
    other.wait_ready()
    client = secured_client(rig, broker.url)
    client.wait_synchronised()
    client.wait_for(
        lambda _: client.refused("unsigned") >= 3 and client.refused("tag") >= 3,
        "both are refused",
    )
    values = client.status()
    assert values["servers"][values["chosen"]]["server"] == 0
    assert all(row["samples"] == 0 for row in values["servers"] if row["server"] != 0)
    stays_right(client)


# ---- TLS on a host with a wrong clock -----------------------------------------------------------

IN_2050 = (2_540_000_000 - 1_800_000_000) * SECOND
"""What has to be added to the present to come to the middle of the century."""


def tls_broker(rig: Rig, since: str, until: str) -> tuple[str, str, list[str]]:
    """A broker with a certificate of these dates: its address with and without TLS, and flags."""
    authority = Authority(rig.new_folder("authority"))
    port = free_port()
    broker = rig.broker(authority.listener(port, since, until))
    flags = ["--ca-file", str(authority.certificate)]
    return f"mqtts://127.0.0.1:{port}", broker.url, flags


@pytest.mark.needs("openssl")
def test_dates_that_only_the_wrong_clock_refuses_are_accepted(rig: Rig) -> None:
    # The host's clock is decades behind the time server, as after a boot without a battery.
    tls, plain, flags = tls_broker(rig, "20450101", "20700101")
    served = VirtualClockSettings.starting_now(offset_ns=IN_2050)
    secured_server(rig, plain, "--virtual-clock", served.to_text())
    client = secured_client(rig, tls, "c1", *flags)
    client.reference = VirtualClock(served)
    client.wait_synchronised()
    client.wait_for(lambda _: client.samples("echo", "used") >= 5, "it goes on")
    values = client.status()
    assert values["connects"] == 1
    assert values["last_error"] == ""
    assert abs(values["servers"][0]["offset_ns"]) > IN_2050 - SECOND
    assert client.is_right(within_ns=MS)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    ("since", "until", "fault"),
    [
        ("20000101", "20010101", "expired at 2001-01-01T23:59:59Z"),
        ("20450101", "20700101", "is not valid before 2045-01-01T00:00:00Z"),
    ],
)
def test_dates_that_the_true_time_refuses_end_the_connection_after_the_first_synchronisation(
    rig: Rig, since: str, until: str, fault: str
) -> None:
    tls, plain, flags = tls_broker(rig, since, until)
    secured_server(rig, plain)
    client = secured_client(rig, tls, "c1", *flags)
    values = client.wait_for(
        lambda values: values if fault in values["last_error"] else None, "the dates are checked"
    )
    assert "the connection is closed" in values["last_error"]
    assert values["connects"] == 1  # it was connected, to find out the time
    assert not values["connected"]
    assert values["state"] == "unsynchronised"  # and what was measured is forgotten
    client.wait_for(lambda values: values["attempts"] >= 3, "it tries again")
    assert client.status()["connects"] == 1  # but now the dates are checked at once


@pytest.mark.needs("openssl")
def test_without_keys_nobody_vouches_for_the_time_and_dates_are_checked_at_once(rig: Rig) -> None:
    tls, plain, flags = tls_broker(rig, "20450101", "20700101")
    rig.server(plain).wait_ready()
    client = rig.client(tls, "c1", *flags)
    values = client.wait_for(lambda values: values if values["last_error"] else None, "an error")
    assert "not yet valid" in values["last_error"]
    assert "this machine's clock says" in values["last_error"]
    assert values["connects"] == 0


@pytest.mark.needs("openssl")
def test_a_broker_with_a_certificate_of_somebody_else_is_refused_with_keys_too(rig: Rig) -> None:
    tls, plain, _ = tls_broker(rig, "20200101", "20700101")
    other = Authority(rig.new_folder("other-authority"))
    secured_server(rig, plain)
    client = secured_client(rig, tls, "c1", "--ca-file", str(other.certificate))
    values = client.wait_for(lambda values: values if values["last_error"] else None, "an error")
    assert "certificate verify failed" in values["last_error"]
    assert values["connects"] == 0


# ---- passwords ----------------------------------------------------------------------------------

PASSWORD = "correct horse battery"


@pytest.mark.parametrize("program", ["mqtick-client", "mqtick-timeserver"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MODULES[program], "--broker", f"mqtt://me:{PASSWORD}@localhost"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 2
    assert "password_file" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_a_password_is_seen_nowhere(rig: Rig) -> None:
    folder = rig.new_folder("guard")
    users = {"mqtick-server": PASSWORD, "c1": PASSWORD}
    broker = rig.broker(f"password_file {password_file(folder, users)}\n", anonymous=False)
    secret = rig.secret(PASSWORD)
    account = ["--password-file", secret, "--verbose", "--username"]
    server = rig.server(broker.url, *account, "mqtick-server")
    server.wait_ready()
    client = rig.client(broker.url, "c1", *account, "c1")
    client.wait_synchronised()
    for program in (server, client):
        assert program.process is not None
        place = Path(f"/proc/{program.process.pid}")
        shown = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        assert PASSWORD.encode() not in shown
        assert PASSWORD not in program.log + (program.folder / "status.json").read_text()


@pytest.mark.parametrize("flag", ["--keys-file", "--password-file"])
@pytest.mark.parametrize("program", ["mqtick-client", "mqtick-timeserver"])
def test_a_secret_that_everybody_may_read_is_refused(rig: Rig, program: str, flag: str) -> None:
    file = Path(rig.keys(*client_lines("c1", FLEET)))
    file.chmod(0o644)
    done = subprocess.run(
        [
            *(sys.executable, "-m", MODULES[program], flag, str(file)),
            *("--state-folder", str(rig.folder), "--username", "me"),
        ],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert "open to every user" in done.stderr
    assert "chmod o=" in done.stderr


# ---- too much -----------------------------------------------------------------------------------


def test_ten_thousand_messages_a_second_cost_neither_time_nor_memory(
    rig: Rig, attackers: Attackers
) -> None:
    url, client = secured(rig)
    client.wait_for(lambda _: client.samples("echo", "used") >= 8, "it has settled")
    assert client.process is not None
    statm = Path(f"/proc/{client.process.pid}/statm")
    before = int(statm.read_text().split()[1])
    attacker = attackers(url)
    last = heard(attacker)
    payload = NO_KEYS.sign(an_hour_ahead(last, 1), "mqtick/t/0")
    ended = threading.Event()

    def flood() -> None:
        while not ended.is_set():
            for _ in range(100):
                attacker.say("mqtick/t/0", payload)
            time.sleep(0.01)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        end = time.monotonic() + 6
        while time.monotonic() < end:
            assert client.is_right(), client.look()
            time.sleep(0.2)
    finally:
        ended.set()
        thread.join()
    client.wait_for(lambda _: client.refused("rate") > 5_000, "what is too much is passed over")
    assert (int(statm.read_text().split()[1]) - before) * 4096 < 20_000_000
    used = client.samples("echo", "used")
    client.wait_for(lambda _: client.samples("echo", "used") > used, "exchanges go on")
    assert client.is_right(within_ns=500 * US)
