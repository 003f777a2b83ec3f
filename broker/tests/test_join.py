"""`mqtick-join`: clients of several sites see one broker, whatever happens to nodes and brokers."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from broker.conformance.client import PUBREC, V3, V5, Client, Will
from broker.tests.harness.events import until
from broker.tests.harness.sites import (
    JOIN,
    MARKS,
    Site,
    joined,
    row_of,
    running_site,
    settled,
    wanted,
)
from demo.local_broker import Mosquitto, running

pytestmark = MARKS
ROLE = JOIN.parents[4] / "ansible/roles/monitoring"
MONITORING = ROLE / "templates/rules.yml.j2", ROLE / "files/dashboard.json"


def subscribed(*clients: tuple[Client, str], sites: list[Site]) -> None:
    """Subscribe, and wait until all sites know."""
    for client, topic in clients:
        client.subscribe(topic)
    settled(*sites)


@pytest.mark.parametrize("version", [V3, V5])
def test_a_message_of_any_qos_reaches_subscribers_of_all_sites_once(
    row: list[Site], version: int
) -> None:
    readers = [site.client(f"reader-{site.name}", version) for site in row]
    subscribed(*((reader, "t/#") for reader in readers), sites=row)
    writer = row[0].client("writer", version)
    for qos in (0, 1, 2):
        writer.publish("t/x", b"%d" % qos, qos=qos)
    writer.publish("t/x", b"last", qos=2)
    for reader in readers:
        found = [reader.message() for _ in range(4)]
        assert sorted(one.payload for one in found) == [b"0", b"1", b"2", b"last"]
        assert {one.payload: one.qos for one in found}[b"1"] == 1
        assert reader.settle() == []


def test_properties_of_mqtt_5_and_aliases_reach_the_other_site(pair: list[Site]) -> None:
    reader = pair[1].client("reader")
    subscribed((reader, "t"), sites=pair)
    writer = pair[0].client("writer")
    kept = [("content_type", b"text"), ("user", (b"a", b"b")), ("response_topic", b"r")]
    writer.publish("t", b"1", properties=[("topic_alias", 1), *kept])
    writer.publish("", b"2", properties=[("topic_alias", 1)])
    first, second = reader.message(), reader.message()
    assert [first.get(name) for name, _ in kept] == [value for _, value in kept]
    assert (second.payload, second.topic) == (b"2", b"t")


def test_only_what_is_wanted_goes_to_the_other_site(pair: list[Site]) -> None:
    reader = pair[1].client("reader")
    subscribed((reader, "wanted/#"), sites=pair)
    writer = pair[0].client("writer")
    writer.publish("unwanted", b"", qos=1)
    writer.publish("$other", b"", qos=1)
    writer.publish("wanted", b"", qos=1)
    assert reader.message().topic == b"wanted"
    assert pair[0].now("messages_began") == 1
    reader.unsubscribe("wanted/#")
    wanted(pair[0], 0)
    writer.publish("wanted", b"", qos=1)
    assert pair[0].now("messages_began") == 1


def test_a_filter_that_another_one_covers_is_not_told_and_is_told_once_that_one_goes(
    pair: list[Site],
) -> None:
    reader = pair[1].client("reader")
    subscribed((reader, "a/#"), (reader, "a/b"), (reader, "a/+"), sites=pair)
    assert pair[0].now("filters_known") == 1
    assert pair[1].status()["neighbours"][0]["filters_told"] == 1
    reader.unsubscribe("a/#")
    until(lambda: pair[1].status()["neighbours"][0]["filters_told"] == 1, "a/+ alone is told")
    wanted(pair[0], 1)
    pair[0].client("writer").publish("a/b", b"still", qos=1)
    assert reader.message().payload == b"still"


def test_a_will_is_published_at_all_sites_when_a_connection_ends_badly_only(
    row: list[Site],
) -> None:
    reader = row[2].client("reader")
    subscribed((reader, "will"), sites=row)
    for version in (V3, V5):
        good = row[0].client("good", version, will=Will("will", b"good"))
        good.disconnect()
        bad = row[0].client("bad", version, will=Will("will", b"bad", qos=1))
        bad.vanish()
        assert reader.message().payload == b"bad"
    delayed = Will("will", b"delayed", properties=[("will_delay", 1)])
    row[0].client("late", will=delayed, properties=[("session_expiry", 60)]).vanish()
    assert reader.message().payload == b"delayed"


def test_a_delayed_will_is_published_at_all_sites_once_a_new_session_replaces_the_old_one(
    pair: list[Site],
) -> None:
    here, there = pair
    reader = there.client("reader")
    subscribed((reader, "will"), sites=pair)
    kept = [("session_expiry", 600)]
    for payload, is_gone in ((b"gone", True), (b"still there", False)):
        will = Will("will", payload, properties=[("will_delay", 500)])
        first = here.client("client", will=will, properties=kept)
        if is_gone:
            first.vanish()
            until(lambda: here.now("clients") == 0, "it is noticed")
        here.client("client", clean=True).disconnect()
        assert reader.message().payload == payload
    for payload in (b"not", b"this one"):
        will = Will("will", payload, properties=[("will_delay", 500 if payload == b"not" else 0)])
        here.client("client", clean=False, will=will, properties=kept)
    here.client("client", clean=False, properties=kept)
    assert reader.message().payload == b"this one"


def test_what_the_broker_refuses_goes_nowhere_and_its_identifier_is_free_again(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic read #\ntopic readwrite good\n")
    kind = functools.partial(Mosquitto, lines=f"acl_file {rules}\n")
    with row_of(tmp_path, {"kind": kind}, {}) as sites:
        settled(*sites)
        reader = sites[1].client("reader")
        subscribed((reader, "#"), sites=sites)
        writer = sites[0].client("writer")
        refused = writer.publish("bad", b"bad", qos=1)
        assert refused is not None
        assert refused.reason == 0x87
        bad = writer.encode.publish("bad", b"bad", qos=2, packet_id=7)
        writer.send(bad)
        assert writer.expect(PUBREC).reason == 0x87
        writer.send(writer.encode.publish("good", b"good", qos=2, packet_id=7))
        assert [one.payload for one in reader.until(b"good")] == []
        assert sites[0].now("messages_began") == 1


def test_a_session_that_is_kept_gets_what_was_published_elsewhere_while_it_was_away(
    tmp_path: Path,
) -> None:
    with joined(tmp_path, [Mosquitto] * 2, f'state = "{tmp_path}/kept"') as (here, there):
        reader = there.client("reader", V3, clean=False)
        subscribed((reader, "t"), sites=[here, there])
        reader.disconnect()
        writer = here.client("writer")
        writer.publish("t", b"while away", qos=1)
        until((tmp_path / "kept").exists, "the session is on disk")
        there.kill()
        writer.publish("t", b"while the node was away", qos=1)
        there.start()
        settled(here, there)
        writer.publish("t", b"after", qos=1)
        until(lambda: here.now("unconfirmed") == 0, "all is confirmed")
        again = there.client("reader", V3, clean=False)
        assert again.connack.session_present
        missing = {b"while away", b"while the node was away", b"after"}
        while missing:  # what was not confirmed when the node died may come twice
            missing.discard(again.message().payload)


def test_sessions_that_could_not_be_written_are_written_once_they_can_be(tmp_path: Path) -> None:
    kept = tmp_path / "missing" / "kept"
    with running_site(tmp_path / "site", lines=f'state = "{kept}"') as site:
        until(lambda: site.status()["broker_connected"], "it has its broker")
        site.client("reader", V3, clean=False).subscribe("t")
        site.says(f"{kept}: No such file or directory (os error 2); until it can be written")
        kept.parent.mkdir()
        until(kept.exists, "it is written")
        assert kept.read_text().endswith(" reader\n\tt\n")


def test_a_broker_that_dies_and_returns_gets_what_was_published_elsewhere(
    pair: list[Site],
) -> None:
    here, there = pair
    reader = there.client("reader")
    subscribed((reader, "t"), sites=pair)
    there.broker.stop()
    reader.ended()
    until(lambda: not there.status()["broker_connected"], "it is noticed")
    refused = Client(("127.0.0.1", there.port), V5, "too early")
    assert refused.connect().reason == 0x88
    there.broker.start()
    settled(*pair)
    reader = there.client("reader")
    subscribed((reader, "t"), sites=pair)
    here.client("writer").publish("t", b"again", qos=1)
    assert reader.message().payload == b"again"


def test_a_node_that_dies_is_gone_round_and_loops_deliver_once(tmp_path: Path) -> None:
    with joined(tmp_path, [Mosquitto] * 3) as row:
        assert row[0].ask("add", row[2].url).returncode == 0
        until(lambda: len(row[0].topology()["unused"]) == 1, "the loop is cut")
        reader = row[2].client("reader")
        subscribed((reader, "t"), sites=row)
        writer = row[0].client("writer")
        writer.publish("t", b"by the middle", qos=1)
        assert [one.payload for one in reader.until(b"by the middle")] == []
        assert "not used: site-a - site-c" in row[0].ask("topology").stdout
        row[1].kill()
        until(lambda: row[0].now("nodes") == 2, "the new way")
        for number in range(20):
            writer.publish("t", b"%d" % number, qos=1)
        assert {reader.message().payload for _ in range(20)} == {b"%d" % n for n in range(20)}
        row[1].start()
        settled(*row)
        assert reader.settle() == []


def test_nodes_that_name_each_other_in_a_ring_deliver_once(tmp_path: Path) -> None:
    with contextlib.ExitStack() as open_ones:
        ring: list[Site] = []
        for name in ("site-a", "site-b", "site-c"):
            folder = tmp_path / name
            folder.mkdir()
            ring.append(Site(folder, open_ones.enter_context(running(Mosquitto(folder)))))
        for site, next_one in zip(ring, [*ring[1:], ring[0]], strict=True):
            text = site.config.read_text()
            site.config.write_text(text.replace("urls = []", f'urls = ["{next_one.url}"]'))
            site.start()
            open_ones.callback(site.stop)
        settled(*ring)
        until(lambda: all(site.now("neighbours") == 2 for site in ring), "each has both")
        until(lambda: all(len(site.topology()["unused"]) == 1 for site in ring), "the loop is cut")
        readers = [site.client(f"reader-{site.name}") for site in ring]
        subscribed(*((reader, "t") for reader in readers), sites=ring)
        for site in ring:
            site.client("writer").publish("t", site.name.encode(), qos=1)
        for reader in readers:
            found = {reader.message().payload for _ in ring}
            assert found == {site.name.encode() for site in ring}
            assert reader.settle() == []


def test_nodes_that_name_each_other_deliver_once_too(pair: list[Site]) -> None:
    here, there = pair
    assert here.ask("add", there.url).returncode == 0
    until(lambda: here.now("neighbours") == 2, "there are two links")
    reader = there.client("reader")
    subscribed((reader, "t"), sites=pair)
    here.client("writer").publish("t", b"once", qos=1)
    assert [one.payload for one in reader.until(b"once")] == []
    assert reader.settle() == []


@pytest.mark.parametrize(("prefix", "other"), [("mqtick", "plant"), ("plant/time", "mqtick")])
def test_no_broker_behind_states_the_residence_of_a_time_message_from_elsewhere(
    prefix: str, other: str, tmp_path: Path
) -> None:
    lines = "residence = false\n"
    if prefix != "mqtick":
        lines += f'time_filters = ["{prefix}/#"]'
    with joined(tmp_path, [Mosquitto] * 2, lines) as pair:
        reader = pair[1].client("reader")
        subscribed((reader, "#"), sites=pair)
        will = Will(f"{prefix}/will", time_message := bytes([0x20]) + bytes(40))
        writer = pair[0].client("writer", will=will)
        writer.publish(f"{other}/0", time_message)
        assert reader.message().payload == time_message
        unstated = time_message[:-16] + bytes(8) + b"\x80" + bytes(7)
        writer.publish(f"{prefix}/0", time_message)
        assert reader.message().payload == unstated
        writer.vanish()
        assert reader.message().payload == unstated


def test_neighbours_come_and_go_while_nodes_run(tmp_path: Path) -> None:
    with row_of(tmp_path, {}, {"neighbours": ()}) as (here, there):
        settled(here)
        settled(there)
        reader = there.client("reader")
        reader.subscribe("t")
        said = here.ask("add", f"127.0.0.1:{there.port}")
        assert (said.stdout, said.returncode) == ("connecting; see status\n", 0)
        assert here.ask("add", f"127.0.0.1:{there.port}").returncode == 1
        settled(here, there)
        writer = here.client("writer")
        writer.publish("t", b"joined", qos=1)
        assert reader.message().payload == b"joined"
        assert here.ask("remove", f"127.0.0.1:{there.port}").returncode == 0
        until(lambda: there.now("nodes") == 1 and here.now("filters_known") == 0, "they part")
        assert here.ask("remove", "nobody").returncode == 1
        assert here.ask("nonsense").returncode == 2


def test_metrics_are_served_and_a_line_is_printed_for_each_second_with_messages(
    tmp_path: Path,
) -> None:
    tables = '[metrics]\naddress = "127.0.0.1:0"'
    with running_site(tmp_path, tables=tables, options=["--lines"]) as site:
        site.says("metrics are at ")
        settled(site)
        where = site.log.read_text().partition("metrics are at ")[2].split()[0]

        def shown() -> str:
            return str(urllib.request.urlopen(where).read().decode())

        client = site.client("both")
        # The page and the line are made at the same moment.
        until(lambda: "\nmqtick_join_clients 1\n" in shown(), "a second without a message")
        client.subscribe("t")
        client.publish("t", b"", qos=1)

        def lines() -> list[tuple[str, str]]:
            said = site.log.read_text()
            return re.findall("^messages: (.*) from clients, (.*) to clients", said, re.MULTILINE)

        # Both may be of one second, or not.
        until(lambda: sum(int(n) for line in lines() for n in line) == 2, "the message is told")
        assert ("0", "0") not in lines()
        page = shown()
        assert "mqtick_join_client_messages_received_total 1\n" in page
        asked = "".join(file.read_text() for file in MONITORING)
        assert not re.search(r"mqtick_join_\w+{", asked), "they have no labels"
        watched = re.findall(r"mqtick_join_\w+", asked)
        assert {"mqtick_join_nodes", "mqtick_join_neighbours_away"} <= set(watched)
        for name in watched:
            assert f"\n{name} " in page


@pytest.mark.slow
def test_a_node_with_nothing_to_do_sleeps_and_answers_at_once(pair: list[Site]) -> None:
    site = pair[0]
    assert site.process is not None
    status = Path(f"/proc/{site.process.pid}/status")

    def slept() -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith("vol"))
        return int(line.split()[1])

    site.status()  # and whoever asked is gone
    before, seconds = slept(), 3
    time.sleep(seconds)
    woken = (slept() - before) / seconds
    assert woken < 15, "a tick, and pings of its neighbour and broker"
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(site.control))
        slow.sendall(b"topo")
        assert site.status()["name"] == site.name
        slow.sendall(b"logy\n")
        slow.settimeout(30)
        assert site.name.encode() in slow.recv(4096)


def test_a_client_that_publishes_and_leaves_at_once_has_published(pair: list[Site]) -> None:
    here, there = pair
    reader = there.client("reader")
    local = here.client("local")
    subscribed((reader, "t"), (local, "t"), sites=pair)
    for number in range(50):
        client = Client(("127.0.0.1", here.port), V3, f"quick-{number}")
        encode = client.encode
        # All at once: it does not wait for the CONNACK.
        client.send(
            encode.connect(client.id), encode.publish("t", b"%d" % number), encode.disconnect()
        )
        client.socket.shutdown(socket.SHUT_WR)
        client.ended()
        client.close()
        for one in (reader, local):
            assert one.message().payload == b"%d" % number
