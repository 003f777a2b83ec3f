"""`mqtick-join` and hostile clients, brokers, neighbours and crowds."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.conformance.client import PUBACK, PUBLISH, V3, V5, Client, Encoder, Will
from broker.tests.harness.events import until
from broker.tests.harness.servers import Server
from broker.tests.harness.sites import (
    MARKS,
    Site,
    hello,
    row_of,
    running_site,
    settled,
    wanted,
    works,
)
from demo.local_broker import Mosquitto, free_port, running
from tests.rig import Authority

pytestmark = MARKS


def test_a_client_does_not_get_the_sessions_of_the_node_at_its_broker(pair: list[Site]) -> None:
    for version, reason in ((V5, 0x85), (V3, 2)):
        for clean in (True, False):
            thief = Client(("127.0.0.1", pair[1].port), version, f"mqtick-join-{pair[1].name}-0")
            assert thief.connect(clean=clean).reason == reason
    works(*pair)
    assert "away" not in pair[1].log.read_text()


@pytest.mark.parametrize(
    ("client_id", "reason", "why"),
    [
        (hello(version=1, rest="subscriptions/bad"), 0x84, "version"),
        (hello(rest="publications/bad"), 0x87, "algorithm"),
        (hello(node="xyz"), 0x84, "malformed"),
        (hello(index="3/2", rest="subscriptions/bad"), 0x84, "malformed"),
        ("mqtick-join/4", 0x84, "malformed"),
    ],
)
def test_a_neighbour_that_cannot_be_one_is_told_why(
    pair: list[Site], client_id: str, reason: int, why: str
) -> None:
    stranger = Client(("127.0.0.1", pair[0].port), V5, client_id)
    answer = stranger.connect()
    assert answer.reason == reason
    assert why in answer.get("reason_string").decode()
    stranger.ended()
    assert pair[0].now("refused_neighbours") == 1
    works(*pair)


def test_a_crowd_of_strangers_is_counted_one_by_one_and_named_once_in_a_while(
    pair: list[Site],
) -> None:
    for _ in range(40):
        stranger = Client(("127.0.0.1", pair[0].port), V5, hello(node="xyz"))
        assert stranger.connect().reason == 0x84
        stranger.close()
    assert pair[0].now("refused_neighbours") == 40
    assert pair[0].log.read_text().count("is turned away") < 20


def test_a_first_packet_may_be_as_long_as_a_will_needs_and_no_longer(pair: list[Site]) -> None:
    will = Will("will", bytes(65535))
    longest = pair[0].client("c" * 1000, will=will, username="u" * 65535, password=b"p" * 65535)
    longest.disconnect()
    with socket.create_connection(("127.0.0.1", pair[0].port)) as one:
        one.settimeout(30)
        one.sendall(b"\x10\xff\xff\xff\x07")  # a CONNECT of 16 MiB begins
        assert one.recv(1) == b""
    until(lambda: pair[0].now("refused_packets") == 1, "it is counted")


def test_a_message_longer_than_the_other_node_takes_is_dropped_and_the_link_stays(
    tmp_path: Path,
) -> None:
    with row_of(tmp_path, {}, {"tables": "[limits]\npacket = 1024\n"}) as sites:
        settled(*sites)
        wide, narrow = sites
        reader = narrow.client("reader")
        reader.subscribe(("t", 2))
        settled(*sites)
        writer = wide.client("writer")
        for _ in range(7):
            writer.publish("t", bytes(300_000), qos=1)
        writer.publish("t", bytes(300_000), qos=0)
        writer.publish("t", b"short", qos=2)
        assert reader.message().payload == b"short"
        assert wide.now("dropped_too_long") == 8
        until(lambda: wide.now("unconfirmed") == 0, "nobody waits for them")
        assert 'a message on "t" is dropped: it has 300' in wide.log.read_text()
        for site in sites:
            assert "away" not in site.log.read_text()
        assert narrow.client("writer").publish("t", b"back", qos=1) is not None


def test_a_neighbour_that_makes_up_nodes_and_news_of_us_changes_nothing_for_others(
    pair: list[Site],
) -> None:
    stranger = Client(("127.0.0.1", pair[0].port), V5, hello(rest="subscriptions/bad"))
    assert stranger.connect().reason == 0
    own = pair[0].topology()["this"]
    for number in range(3000):
        state = b"%x 1 made-up-%d" % (number + 5000, number)
        stranger.send(stranger.encode.publish("$mqtick-join/topology", state))
    lie = f"{own} fffffff0 liar".encode()
    stranger.send(stranger.encode.publish("$mqtick-join/topology", lie))
    stranger.close()
    until(lambda: pair[0].now("neighbours") == 1, "it is gone")
    works(*pair)


def test_who_does_not_know_the_secret_is_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of all nodes\n")
    (tmp_path / "other").write_text("another one\n")
    secrets = [tmp_path / name for name in ("secret", "secret", "other")]
    each = ({"tables": f'[neighbours]\nsecret_file = "{secret}"'} for secret in secrets)
    with row_of(tmp_path, *each) as sites:
        settled(*sites[:2])
        sites[2].says("it shows neither the certificate nor the secret")
        assert sites[2].now("nodes") == 1
        works(sites[0], sites[1])


@pytest.mark.needs("openssl")
def test_nodes_with_certificates_take_each_other_and_nobody_else_for_neighbours(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    first, *others = (free_port() for _ in range(3))
    each = []
    for name, port in (("site-a", first), *zip(("site-b", "stranger"), others, strict=True)):
        certificate, key = authority.issue(name)
        own = f'certificate = "{certificate}"\nkey = "{key}"\n'
        listener = (
            f'[[listener]]\naddress = "127.0.0.1:{port}"\n'
            f'[listener.tls]\n{own}client_ca = "{authority.certificate}"\n'
        )
        tables = (
            f'[neighbours]\nca_file = "{authority.certificate}"\n{own}'
            'certificate_names = ["site-a", "site-b"]\n'
        )
        urls = [] if port == first else [f"mqtts://127.0.0.1:{first}"]
        each.append({"neighbours": urls, "tables": tables, "listener": listener})
    with row_of(tmp_path, *each) as sites:
        settled(*sites[:2])
        works(*sites[:2])
        sites[2].says("it shows neither the certificate nor the secret")
        # Nor over a port without TLS.
        said = Client(
            ("127.0.0.1", sites[0].port), V5, hello(rest="subscriptions/site-b")
        ).connect()
        assert said.reason == 0x87


def test_a_broker_with_tls_is_spoken_to_in_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = free_port()
    broker = Mosquitto(tmp_path, authority.listener(port))
    url, ca_file = f"mqtts://127.0.0.1:{port}", f'ca_file = "{authority.certificate}"'
    tables = f"{ca_file}\n[neighbours]"
    with running_site(tmp_path / "site", broker, url=url, tables=tables) as site:
        settled(site)
        client = site.client("both")
        client.subscribe("t")
        client.publish("t", b"x" * 100_000, qos=2)
        assert client.message().payload == b"x" * 100_000


def test_a_node_checks_what_comes_from_elsewhere_by_who_published_it(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("user alice\ntopic readwrite #\n")
    with row_of(tmp_path, {}, {"tables": f'[access]\nacl_file = "{rules}"\n'}) as sites:
        settled(*sites)
        reader = sites[1].client("reader")
        reader.subscribe("t")
        settled(*sites)
        for user, text in (("mallory", b"no"), (None, b"no"), ("alice", b"yes")):
            sites[0].client(f"writer-{user}", username=user).publish("t", text, qos=1)
        assert reader.message().payload == b"yes"
        assert sites[1].now("denied_access") == 2
        # And what its own clients may say to others.
        other = sites[0].client("other")
        other.subscribe("u")
        settled(*sites)
        for user, text in (("mallory", b"no"), ("alice", b"yes")):
            sites[1].client(f"own-{user}", username=user).publish("u", text, qos=1)
        assert other.message().payload == b"yes"


def test_a_node_that_is_told_to_join_itself_or_nobody_says_so_and_works(tmp_path: Path) -> None:
    broker, nobody = Mosquitto(tmp_path), free_port()
    urls = [f"mqtt://127.0.0.1:{nobody}", "mqtt://no.such.invalid", broker.url]
    with running_site(tmp_path, broker, neighbours=urls) as site:
        assert site.ask("add", site.url).returncode == 0
        site.says("that is this node itself")
        site.says(f"mqtt://127.0.0.1:{nobody}: away")
        unknown = "mqtt://no.such.invalid:1883: "
        site.says(unknown)
        until(lambda: f"{unknown}away: " in site.ask("status").stdout, "it says why")
        site.says("it is a broker, not mqtick-join")
        client = site.client("both")
        client.subscribe("t")
        client.publish("t", b"", qos=1)
        assert client.message().topic == b"t"
        assert site.now("nodes") == 1
        assert site.log.read_text().count(unknown) == 1, "it is said once"


def test_two_nodes_with_one_name_are_told_so_and_work(tmp_path: Path) -> None:
    with (
        running_site(tmp_path / "0/same") as here,
        running_site(tmp_path / "1/same", neighbours=[here.url]) as there,
    ):
        settled(here, there)
        there.says('is also called "same"')
        works(here, there)


class Fake(Server):
    """A broker that accepts connections and answers each of them with the same octets."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer

    def serve(self, one: socket.socket) -> None:
        one.recv(4096)
        one.sendall(self.answer)
        one.shutdown(socket.SHUT_WR)
        while one.recv(4096):
            pass


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x20",
        b"\x20\x7f" + b"\0" * 127,
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\x20\x03\0\0\0\xff\xff\xff\xff\x7f",
    ],
)
def test_a_broker_that_talks_nonsense_ends_its_clients_connections_only(
    tmp_path: Path, answer: bytes
) -> None:
    with running_site(tmp_path, Fake(answer)) as site:
        for version in (V3, V5):
            client = Client(("127.0.0.1", site.port), version, "client")
            client.send(client.encode.connect("client"))
            client.socket.settimeout(30)
            while client.socket.recv(4096):
                pass
        until(lambda: site.now("clients") == 0, "they are gone")


def test_what_a_stranger_answers_writes_no_line_of_its_own_into_the_log(tmp_path: Path) -> None:
    why = b"no\n<3>forged\x1b[2J"
    properties = b"\x1f" + len(why).to_bytes(2, "big") + why
    body = b"\0\x87" + bytes([len(properties)]) + properties
    stranger = Fake(bytes([0x20, len(body)]) + body)
    with running(stranger), running_site(tmp_path / "site", neighbours=[stranger.url]) as site:
        site.says("it refuses this node: no <3>forged [2J")
        until(lambda: "no <3>forged [2J\n" in site.ask("status").stdout, "in one line")


@pytest.mark.slow
def test_a_node_without_free_files_says_so_once_in_a_while_and_goes_on_once_it_has_some(
    tmp_path: Path,
) -> None:
    with running_site(tmp_path / "site") as site, contextlib.ExitStack() as open_ones:
        until(lambda: site.status()["broker_connected"], "it has its broker")
        assert site.process is not None
        usual = resource.prlimit(site.process.pid, resource.RLIMIT_NOFILE)
        few = held(site)[0] + 2
        resource.prlimit(site.process.pid, resource.RLIMIT_NOFILE, (few, usual[1]))
        for _ in range(10):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", site.port)))
        site.says("no connection can be accepted: Too many open files")
        time.sleep(1)
        resource.prlimit(site.process.pid, resource.RLIMIT_NOFILE, usual)
        until(lambda: site.status()["counts"]["connections_accepted"] >= 10, "it goes on")
        assert site.log.read_text().count("no connection can be accepted") < 5


@pytest.mark.slow
def test_a_hundred_thousand_subscriptions_are_told_and_withdrawn(pair: list[Site]) -> None:
    here, there = pair
    reader = there.client("reader")
    total, each = 100_000, 500
    for first in range(0, total, each):
        filters = [(f"some/{number}/+", 0) for number in range(first, first + each)]
        reader.subscribe(*filters)
    until(lambda: here.now("filters_known") == total, "all are told")
    writer = here.client("writer")
    writer.publish("some/99999/x", b"found", qos=1)
    assert reader.message().payload == b"found"
    reader.subscribe(("some/#", 0))
    wanted(here, total + 1)
    reader.subscribe(("some/new/+", 0))
    other = there.client("other")
    reader.close()
    until(lambda: there.now("clients") == 1, "it is gone")
    other.publish("other", b"", qos=1)
    assert there.now("subscriptions") > 0, "others go on while its subscriptions end"
    wanted(there, 0)
    wanted(here, 0)
    works(*pair)


def held(site: Site) -> tuple[int, int]:
    """How many file descriptors and octets of memory the node uses."""
    assert site.process is not None
    own = Path(f"/proc/{site.process.pid}")
    pages = int((own / "statm").read_text().split()[1])
    return len(list((own / "fd").iterdir())), pages * resource.getpagesize()


def crowd(site: Site, clients: int, turns: int, per_second: int) -> int:
    """Clients that connect again and again. Returns how often they were accepted.

    Each time they subscribe to a new topic. Half the times they leave without a DISCONNECT.
    """
    taken = [0] * clients
    begin = time.monotonic()

    def one_client(number: int) -> None:
        encode = Encoder(V3)
        for turn in range(turns):
            due = begin + (turn * clients + number) / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            client = Client(("127.0.0.1", site.port), V3, f"c{number}")
            taken[number] += client.connect().reason == 0
            client.subscribe((f"c/{number}/{turn}", 0))
            if turn % 2:
                client.send(encode.disconnect())
            client.close()

    threads = [threading.Thread(target=one_client, args=(number,)) for number in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sum(taken)


@pytest.mark.slow
def test_clients_that_connect_a_thousand_times_a_second_are_all_served_and_leave_nothing(
    pair: list[Site],
) -> None:
    here, there = pair
    steady = [site.client("steady") for site in pair]
    for reader in steady:
        reader.subscribe(("steady", 1))
    settled(*pair)
    writer, sent, read = here.client("writer"), 0, 0
    files, memory = held(here)[0], []
    for turns in (100, 300, 300):  # the first ones fill what is kept for use
        with ThreadPoolExecutor(1) as beside:
            came = beside.submit(crowd, here, 10, turns, 1000)
            while not came.done():
                sent += 1
                writer.publish("steady", b"%d" % sent, qos=1)
            assert came.result() == 10 * turns, "all were taken"
        for number in range(read + 1, sent + 1):
            assert [reader.message().payload for reader in steady] == [b"%d" % number] * 2
        read = sent
        until(lambda: here.now("clients") == 2, "all are gone")
        wanted(here, 1)
        wanted(there, 1)
        until(lambda: held(here)[0] == files, "no file is left open")
        memory.append(held(here)[1])
    assert memory[2] - memory[1] < 1 << 20, f"memory: {memory}"
    print(memory)
    works(*pair)


def test_a_neighbour_that_hangs_costs_messages_of_qos_0_and_holds_back_publishers_above(
    tmp_path: Path,
) -> None:
    lines = 'reliability = "broker"'
    patient = {"lines": lines, "keep_alive_s": 60, "tables": "[limits]\nqueue = 1000000\n"}
    with row_of(tmp_path, patient, {"lines": lines}) as (here, there):
        settled(here, there)
        reader = there.client("reader")
        reader.subscribe("t")
        settled(here, there)
        assert there.process is not None
        there.process.send_signal(signal.SIGSTOP)
        try:
            writer = here.client("writer")
            for _ in range(200):
                writer.send(writer.encode.publish("t", bytes(100_000)))
            writer.settle()
            until(lambda: here.now("dropped_neighbour") > 0, "some are dropped")
            surely = here.client("surely")
            sent = 0
            surely.socket.settimeout(3)
            with contextlib.suppress(TimeoutError):
                while sent < 20000:
                    octets = surely.encode.publish("t", bytes(2000), qos=1, packet_id=sent + 1)
                    surely.socket.sendall(octets)
                    sent += 1
            assert sent < 20000, "it was held back"
            assert here.now("unconfirmed") <= 4097
            local = here.client("local")
            local.subscribe("local")
            local.publish("local", b"", qos=1)
            assert local.message().kind == PUBLISH
        finally:
            there.process.send_signal(signal.SIGCONT)
        surely.socket.settimeout(30)
        assert {surely.receive().kind for _ in range(sent)} == {PUBACK}, "it goes on"
        until(lambda: here.now("unconfirmed") == 0, "all is confirmed")
