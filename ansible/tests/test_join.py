"""Sites with a broker each become one: role join.

h1 has the fleet's Mosquitto; h2 and h3 have brokers that somebody else runs. At first the node of
h2 stands alone, without TLS; then both nodes get a certificate; then h3 joins the inventory.
"""

from __future__ import annotations

import json
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import RELEASE, Fleet, broker_package, snapshot, wheelhouse
from hosts import Host, Rig
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from playbook import PROJECT, needs_hosts, write_inventory

from demo.local_programs import wait_until

pytestmark = needs_hosts
TAGS = ("--tags", "broker,join,monitoring")
# The fleet's broker has taken the port that the node is to have.
NOT_MOVED = ("-e", "broker_port=1883")
LONGER = '{"join_settings": {"absence_s": 31}}'
BROKER = """\
[[listener]]
address = "127.0.0.1:1884"
[access]
anonymous = true
"""
# On the monitoring host.
ASK_EACH_TARGET = """
import json, urllib.request
for entry in json.load(open("/etc/prometheus/mqtick/targets.json")):
    if entry["labels"]["program"] == "join":
        page = urllib.request.urlopen(f"http://{entry['targets'][0]}/metrics", timeout=5).read()
        print(entry["labels"]["instance"], *(line for line in page.decode().splitlines()
              if line.startswith("mqtick_join_nodes ")))
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    package, folder = broker_package(), tmp_path_factory.mktemp("user")
    with Rig("join", 84, ["h1", "h2", "h3"], RELEASE) as rig:
        fleet = Fleet(folder, rig)
        has_sites(fleet, package, "h2")
        fleet.install_collection()
        fleet.use_wheelhouse(wheelhouse(RELEASE))
        for name in ("h2", "h3"):
            run_broker(rig.host(name))
        yield fleet


def has_sites(fleet: Fleet, package: Path, *others: str) -> None:
    """Write the inventory: h1 and these are sites."""
    groups = {
        "mqtick_broker": {"h1": {"broker_port": 1884, "broker_bind_address": "127.0.0.1"}},
        "mqtick_join": {"h1": {}, **{name: {"join_broker_user": ""} for name in others}},
        "mqtick_timeservers": {"h1": {"timeserver_number": 0}},
        "mqtick_monitoring": {"h1": {}},
    }
    write_inventory(
        fleet.folder,
        fleet.rig,
        groups,
        fleet_offline=True,
        fleet_tls=False,
        fleet_broker_url="mqtt://h1",
        broker_accounts={"plant": ["readwrite plant/#"]},
        broker_package=str(package),
        # It is big; what it reads is written all the same.
        monitoring_prometheus=False,
    )


def run_broker(host: Host) -> None:
    """Run a broker that the fleet knows nothing of: it comes with no package."""
    with (PROJECT / "build/broker/amd64/usr/bin/mqtick-broker").open("rb") as program:
        copy = host.ssh("install -m 755 /dev/stdin /opt/broker", user="root")
        subprocess.run(copy, stdin=program, check=True)
    host.run(f"cat >/opt/broker.toml <<'END'\n{BROKER}END")
    host.run("systemd-run --quiet --unit=broker /opt/broker --config /opt/broker.toml")


class Client:
    """A client of a site, which knows its node only."""

    def __init__(self, host: Host, ca: Path, name: str = "", password: str = "") -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.mqtt = mqtt.Client(CallbackAPIVersion.VERSION2)
        if name:
            self.mqtt.username_pw_set(name, password)
        self.connections = 0
        self.mqtt.on_connect = self._connected
        self.mqtt.on_message = lambda _, __, message: self.heard.append(
            (message.topic, message.payload)
        )
        self.mqtt.tls_set(str(ca))
        self.mqtt.connect(host.address, 8883)
        self.mqtt.loop_start()

    def _connected(self, *_: object) -> None:
        self.connections += 1
        self.mqtt.subscribe("plant/#")

    def tells(self, other: Client, topic: str) -> bool:
        """Whether what it publishes comes to the other one."""
        self.mqtt.publish(topic, "21.5")
        return (topic, b"21.5") in other.heard


def certificate(fleet: Fleet) -> tuple[Path, tuple[str, str]]:
    """Make a certificate of both nodes, which signs itself; how a playbook is told of it."""
    made, key = fleet.folder / "nodes.pem", fleet.folder / "nodes.key"
    # Nodes know each other by the inventory's names, the clients here by address.
    names = ",".join(f"DNS:{host.name},IP:{host.address}" for host in fleet.hosts)
    command = ["openssl", "req", "-x509", "-nodes", "-subj", "/CN=nodes", "-days", "30"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE"]
    subprocess.run([*command, "-keyout", key, "-out", made], check=True, capture_output=True)
    settings = {"certificate_file": made, "certificate_key_file": key, "ca_file": made}
    words = {f"join_{name}": str(value) for name, value in settings.items()}
    return made, ("-e", json.dumps({**words, "join_certificate_name": "nodes"}))


def pid(host: Host) -> str:
    return host.run("systemctl show --value -p MainPID mqtick-join").strip()


def password(fleet: Fleet, name: str) -> str:
    lines = (fleet.folder / "secrets/passwords").read_text().splitlines()
    return dict(line.split() for line in lines)[name]


def test_sites_are_joined_by_the_inventory_one_comes_later_and_all_part_again(fleet: Fleet) -> None:
    h1, h2, h3 = fleet.hosts
    before = {host.name: snapshot(host) for host in fleet.hosts}

    fleet.play("site", "--tags", "join", "--check")
    assert {host.name: snapshot(host) for host in fleet.hosts} == before

    # a broker in the way: its host is left as it is, the other one is set up
    refused = fleet.refused("site", *TAGS, *NOT_MOVED)
    assert "Port 1883 of h1 is taken by mosquitto" in refused.sentences
    assert refused.recap["h2"]["failed"] == 0, refused.said
    assert pid(h2) != "0"

    # the broker moves, and the node takes its place; nodes and clients speak TLS
    ca, tls = certificate(fleet)
    fleet.play("site", *TAGS, *tls)
    # What the fleet's access list gives nobody does not go to other sites: h2's broker takes all.
    one = Client(h1, ca, "plant", password(fleet, "plant"))
    other, nobody = Client(h2, ca, "plant", "any"), Client(h2, ca)
    wait_until(lambda: one.tells(other, "plant/a"), "h2 hears what is published at h1")
    wait_until(lambda: other.tells(one, "plant/b"), "h1 hears what is published at h2")
    wait_until(lambda: nobody.tells(other, "plant/c"), "h2 hears what nobody may publish elsewhere")
    wait_until(lambda: other.tells(one, "plant/d"), "h1 still hears what is published at h2")
    assert "plant/c" not in {topic for topic, _ in one.heard}

    assert "mqtts://h1:8883" in h2.run("mqtick-join status")

    again = fleet.play("site", *TAGS, *tls)
    assert {host: counts["changed"] for host, counts in again.recap.items()} == {"h1": 0, "h2": 0}

    # what the node does not take is not placed, and it runs on
    running = pid(h1)
    settings = '{"join_settings": {"absence_s": -3}}'
    wrong = fleet.refused("site", "--tags", "join", "--limit", "h1", *tls, "-e", settings)
    assert "/etc/mqtick/join.toml was not put in place" in wrong.sentences
    assert pid(h1) == running

    # certificates are renewed, and neighbours are others: nobody is started anew, or loses a client
    ca, _ = certificate(fleet)
    listed = json.dumps({"join_settings": {"neighbours": {"certificate_names": ["nodes", "h9"]}}})
    nodes = {host.name: pid(host) for host in (h1, h2)}
    fleet.play("site", "--tags", "join", *tls, "-e", listed)
    assert {host.name: pid(host) for host in (h1, h2)} == nodes
    assert ssl.get_server_certificate((h1.address, 8883)).strip() == ca.read_text().strip()
    wait_until(lambda: one.tells(other, "plant/renewed"), "h2 hears what is published at h1")
    assert {client.connections for client in (one, other, nobody)} == {1}

    # a third site, at the end of the group: nobody else is started anew, or loses a connection
    nodes = {host.name: pid(host) for host in (h1, h2)}
    has_sites(fleet, broker_package(), "h2", "h3")
    added = fleet.play("site", *TAGS, *tls, "-e", listed)
    assert {host.name: pid(host) for host in (h1, h2)} == nodes
    assert added.recap["h2"]["changed"] == 0
    running = pid(h3)
    third = Client(h3, ca, "plant", "any")
    wait_until(lambda: one.tells(third, "plant/e"), "h3 hears what is published at h1")
    wait_until(lambda: third.tells(other, "plant/f"), "h2 hears what is published at h3")
    assert one.connections == 1
    assert h1.run("mqtick-join topology").count("h3") == 2  # in the tree, and the loop is cut

    # Prometheus is told of all three, and hears them
    asked = h1.run(f"python3 -c {shlex.quote(ASK_EACH_TARGET)}").splitlines()
    assert asked == [f"{name} mqtick_join_nodes 3" for name in ("h1", "h2", "h3")]

    # what a node cannot change as it runs starts it anew
    fleet.play("site", "--tags", "join", "--limit", "h3", *tls, "-e", LONGER)
    assert pid(h3) != running
    wait_until(lambda: third.connections == 2, "clients come back")

    for client in (one, other, nobody, third):
        client.mqtt.disconnect()
    fleet.play("remove", "-e", "remove_confirm=yes")
    for host in fleet.hosts:
        assert snapshot(host) ^ before[host.name] == set(), host.name
