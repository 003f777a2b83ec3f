"""`mqtick-join status|topology|add|remove`: what they answer, used rightly or wrongly."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.conformance.client import V5, Client
from broker.tests.harness.events import until
from broker.tests.harness.sites import JOIN, MARKS, Site, joined, running_site, settled
from demo.local_broker import Mosquitto

pytestmark = MARKS


def run(*words: str) -> tuple[int, str]:
    """The exit code, and what was printed on stderr; nothing may be printed on stdout."""
    done = subprocess.run([str(JOIN), *words], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "set it to the address of the broker (--broker)"),
        ("stat", '"stat" is no command; see --help'),
        ("status site-a", '"status site-a" is no command'),
        ("add", "name the neighbour"),
        ("remove", "name the neighbour"),
        ("add a b", '"add a b" is no command'),
        ("add http://site-b", '"http://site-b" is no address'),
        ("add site-b:99999", '"site-b:99999" is no address'),
        ("add site-b --json", "--json can only be used with status and topology"),
        ("--json", "--json can only be used with status and topology"),
        ("status --broker b", "asks a node that runs"),
        ("topology --lines", "asks a node that runs"),
        ("status --check-config", "asks a node that runs"),
        ("status --config /none.toml", "/none.toml: cannot be read"),
        ("status --jsn", "invalid option '--jsn'"),
        ("--broker b --listen here", '--listen "here" is no address with a port'),
        ("--broker b --name two\nlines", 'name: is "two\\nlines"'),
        ("--broker b --algorithm best", "--algorithm can be subscriptions or publications"),
        ("--broker b --reliability some", "--reliability can be broker or all"),
        ("--control", "missing argument"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_a_sentence(words: str, said: str) -> None:
    code, found = run(*words.split(" ")) if words else run()
    assert code == 2
    assert said in found
    assert found.count("\n") == 1


def test_a_configuration_whose_certificate_is_not_there_is_not_good(tmp_path: Path) -> None:
    config = tmp_path / "join.toml"
    config.write_text(
        '[broker]\nurl = "mqtt://b"\n[[listener]]\naddress = "127.0.0.1:0"\n'
        f'[listener.tls]\ncertificate = "{tmp_path}/none.pem"\nkey = "{tmp_path}/none.key"\n'
    )
    code, said = run("--check-config", "--config", str(config))
    assert code == 2
    assert f"{tmp_path}/none.pem" in said


def test_a_port_alone_stands_for_all_addresses(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [str(JOIN), "--broker", "127.0.0.1:1", "--listen", ":0", "--control"]
    with log.open("wb") as stderr:
        node = subprocess.Popen([*command, str(tmp_path / "control")], stderr=stderr)
    try:
        until(lambda: "listens on 0.0.0.0:" in log.read_text(), "it listens")
    finally:
        node.terminate()
        assert node.wait() == 0


def test_without_a_node_the_error_names_the_socket_that_was_tried(tmp_path: Path) -> None:
    code, said = run("status", "--control", str(tmp_path / "nobody"))
    assert code == 1
    assert f"{tmp_path}/nobody" in said
    assert "Is mqtick-join running" in said


@pytest.fixture
def star(tmp_path: Path) -> Iterator[list[Site]]:
    """Four sites: the second one has a link to each of the others."""
    with (
        joined(tmp_path, [Mosquitto] * 3) as sites,
        running_site(tmp_path / "site-d", neighbours=[sites[1].url]) as last,
    ):
        settled(*sites, last)
        yield [*sites, last]


def test_the_tree_is_drawn_from_the_node_that_is_asked(star: list[Site]) -> None:
    first, middle, *_ = star
    seen = "site-a (this node)\n`-- site-b\n    |-- site-c\n    `-- site-d\n"
    assert first.ask("topology").stdout == seen
    seen = "site-b (this node)\n|-- site-a\n|-- site-c\n`-- site-d\n"
    assert middle.ask("topology").stdout == seen
    names = {node["id"]: node["name"] for node in middle.topology()["nodes"]}
    pairs = {tuple(sorted(names[one] for one in pair)) for pair in middle.topology()["tree"]}
    assert pairs == {("site-a", "site-b"), ("site-b", "site-c"), ("site-b", "site-d")}


def test_a_neighbour_that_was_removed_is_named_and_stays_away_until_the_next_add(
    star: list[Site],
) -> None:
    _, middle, _, last = star
    assert middle.ask("remove", "site-d").returncode == 0
    assert middle.ask("topology").stdout == "site-b (this node)\n|-- site-a\n`-- site-c\n"
    last.says("it refuses this node: site-d was removed at this node and not added again")
    assert "removed site-d: refused until the next `add`\n" in middle.ask("status").stdout
    until(lambda: last.now("neighbours_away") == 1, "it counts the neighbour")
    assert last.now("refused_packets") == 0, "a refusal is not malformed"
    assert middle.ask("add", last.url).stdout == "connecting; see status\n"
    settled(*star)
    assert "removed" not in middle.ask("status").stdout


def test_status_says_what_each_number_means_and_leaves_out_what_never_happened(
    star: list[Site],
) -> None:
    first, middle, *_ = star
    first.client("writer").publish("t", b"")
    until(lambda: first.now("client_messages_received") == 1, "it is counted")
    said = first.ask("status").stdout.splitlines()
    assert said[0].startswith("node site-a (subscription flooding, version ")
    assert said[1] == f"broker {first.broker.url}: connected"
    assert said[2].startswith("neighbour site-b at ")
    (line,) = (line for line in said if line.startswith("client_messages_received "))
    assert line.split(maxsplit=2)[1:] == ["1", "Messages that clients published."]
    assert not any(line.startswith("expired") for line in said)
    assert "expired" in first.status()["counts"]  # programs get them all
    # The address of a broker was given instead of a node's.
    assert middle.ask("add", first.broker.url).returncode == 0
    no_node = "it is a broker, not mqtick-join: use the address of the node before it"
    until(lambda: no_node in middle.ask("status").stdout, "it says so")


def test_a_configuration_says_where_to_ask(star: list[Site]) -> None:
    command = [str(JOIN), "status", "--config", str(star[0].config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("node site-a ")


def test_of_a_name_with_several_addresses_the_one_that_answers_is_used(tmp_path: Path) -> None:
    # On Debian localhost is ::1, too; these listen only on 127.0.0.1.
    with contextlib.ExitStack() as open_ones:
        sites: list[Site] = []
        for name in ("site-a", "site-b"):
            (tmp_path / name).mkdir()
            broker = Mosquitto(tmp_path / name)
            urls = [one.url.replace("127.0.0.1", "localhost") for one in (broker, *sites)]
            site = running_site(tmp_path / name, broker, url=urls[0], neighbours=urls[1:])
            sites.append(open_ones.enter_context(site))
        settled(*sites)
        for number in range(8):
            client = Client(("127.0.0.1", sites[0].port), V5, f"client-{number}")
            assert client.connect().reason == 0
        # Nor is the broker taken for one of MQTT 3.1.1 after a look at the wrong address.
        reader = sites[1].client("reader")
        reader.subscribe("t")
        settled(*sites)
        writer = sites[0].client("writer")
        for number in range(4):  # over each of the sessions at the broker
            writer.publish(f"t{number}"[:1], b"", properties=[("content_type", b"text")])
            assert ("content_type", b"text") in reader.message().properties
