"""Time through nodes: whatever is lost or late, the interval contains the true time."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from broker.tests.harness.sites import MARKS, Site, joined, running_site
from broker.tests.harness.timing import ElsewhereBroker, LongWire, TimeBroker, logged, uses
from demo.local_broker import Mosquitto
from mqtick.protocol.clocks import VirtualClock, read_kernel_time
from tests.rig import FLEET, Client, Rig, client_lines, fleet_lines

pytestmark = [*MARKS, pytest.mark.slow, pytest.mark.timeout(400)]
TRUSTING = "trust_broker = true", "trust_broker_residence = true"


def programs(
    rig: Rig, server_url: str, client_url: str, *settings: str, prefix: str = "mqtick"
) -> tuple[Client, Path]:
    """A server and a client with keys. `settings`: of its estimator. Returns the client and
    its sample log."""
    keys = rig.keys(*fleet_lines(FLEET)), rig.keys(*client_lines("c1", FLEET))
    folder = rig.new_folder("settings")
    common, config, log = folder / "server.toml", folder / "client.toml", folder / "samples"
    common.write_text(f'prefix = "{prefix}"\n')
    rig.server(server_url, "--config", str(common), "--keys-file", keys[0]).wait_ready()
    estimator = "".join(f"{line}\n" for line in settings)
    config.write_text(f"{common.read_text()}[estimator]\n{estimator}")
    more = ("--config", str(config), "--sample-log", str(log), "--keys-file", keys[1])
    return rig.client(client_url, "c1", *more), log


def is_true_in_all(client: Client, log: Path, *kinds: str) -> None:
    """Check that each interval of these kinds of samples contains the true time."""
    kernel, clock = read_kernel_time(10), VirtualClock(client.clock)
    for samples in logged(log, *kinds):
        for row in samples.values():
            raw_ns = clock.monotonic_raw_ns(row["local_ns"])
            truth_ns = raw_ns + kernel.realtime_ns - kernel.raw_ns - row["local_ns"]
            assert row["lower_ns"] <= truth_ns <= row["upper_ns"], row


def says_when_replies_left(log: Path) -> bool:
    """Whether the newest exchanges have kernel stamps of when the server's replies left."""
    samples = list(logged(log, "two-way")[0].values())[-3:]
    sources = [row["stamps"]["t3"]["source"] for row in samples]
    return sources == ["kernel"] * 3


@pytest.mark.parametrize("settings", [(), TRUSTING], ids=["trusts nobody", "trusts the broker"])
@pytest.mark.parametrize("kind", [Mosquitto, TimeBroker])
def test_within_a_site_the_node_states_how_long_messages_were_there(
    kind: type[Mosquitto], settings: tuple[str, ...], tmp_path: Path, rig: Rig
) -> None:
    with joined(tmp_path, [kind]) as (site,):
        client, log = programs(rig, site.url, site.url, *settings)
        uses(client, "residence")
        client.wait_for(lambda _: client.samples("residence", "used") > 24, "some bursts", 120.0)
        assert client.is_right(), client.look()
        is_true_in_all(client, log, "two-way", "echo", "residence")


@pytest.mark.parametrize("kind", [Mosquitto, TimeBroker, ElsewhereBroker])
def test_across_sites_the_way_between_them_is_in_the_interval(
    kind: type[Mosquitto], tmp_path: Path, rig: Rig
) -> None:
    prefix = getattr(kind, "prefix", "mqtick")
    lines = f'time_filters = ["{prefix}/#"]'
    with joined(tmp_path, [kind], lines) as (near,):
        wire = LongWire(near.port)
        rig.on_close(wire.close)
        (tmp_path / "far").mkdir()
        behind = kind(tmp_path / "far")
        options = {"neighbours": [wire.url], "lines": lines}
        with running_site(tmp_path / "far", behind, **options) as far:
            client, log = programs(rig, near.url, far.url, *TRUSTING, prefix=prefix)
            client.wait_for(
                lambda _: log.exists() and len(logged(log, "residence")[0]) > 12, "some", 120.0
            )
            # No echo comes; after some that are missing the server is asked for follow-ups.
            client.wait_for(lambda _: says_when_replies_left(log), "a follow-up", 120.0)
            is_true_in_all(client, log, "two-way", "echo", "residence")
            assert client.is_right(), client.look()
            assert client.samples("residence", "used") > 0
            assert not any(logged(log, "echo"))


def troubled(sites: list[Site], wires: list[LongWire], is_over: threading.Event) -> None:
    """Cut links, suspend nodes, and kill the middle node."""
    chance = random.Random(15)
    while not is_over.wait(chance.random()):
        match chance.randrange(6):
            case 0 | 1:
                chance.choice(wires).cut()
            case 2 | 3 | 4:
                process = chance.choice(sites).process
                assert process is not None
                process.send_signal(signal.SIGSTOP)
                time.sleep(chance.random() / 10)
                process.send_signal(signal.SIGCONT)
            case _:
                sites[1].kill()
                sites[1].start()


def test_whatever_happens_on_two_ways_and_beside_them_the_interval_holds_the_truth(
    tmp_path: Path, rig: Rig
) -> None:
    """Three sites in a ring of long links; a bridge takes messages past the nodes."""
    sites: list[Site] = []
    wires: list[LongWire] = []
    with contextlib.ExitStack() as open_ones:
        for number in range(3):
            folder = tmp_path / f"site-{number}"
            folder.mkdir()
            bridge = ""
            if number == 2:  # a longer way than the nodes', unless one of them is gone
                half = LongWire(sites[0].broker.port)
                whole = LongWire(half.port)
                open_ones.callback(half.close)
                open_ones.callback(whole.close)
                bridge = f"connection b\naddress 127.0.0.1:{whole.port}\ntopic mqtick/# both 0"
            more = [LongWire(site.port) for site in sites]
            for wire in more:
                open_ones.callback(wire.close)
            near = [wire.url for wire in more]
            site = running_site(folder, Mosquitto(folder, bridge), neighbours=near)
            sites.append(open_ones.enter_context(site))
            wires += more
        client, log = programs(rig, sites[0].url, sites[2].url, *TRUSTING, "use_echo = false")
        client.wait_synchronised(90.0)
        is_over = threading.Event()
        trouble = threading.Thread(target=troubled, args=(sites, wires, is_over))
        trouble.start()
        try:
            stated = len(logged(log, "residence")[0])
            client.wait_for(
                lambda _: len(logged(log, "residence")[0]) > stated + 30, "some samples", 200.0
            )
        finally:
            is_over.set()
            trouble.join()
        is_true_in_all(client, log, "two-way", "residence")
        assert client.is_right(), client.look()
