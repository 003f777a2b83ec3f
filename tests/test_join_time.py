"""Time through nodes: whatever brokers and servers leave out, the interval holds the truth."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest
from joined import JOIN, Site, joined
from rig import FLEET, Client, Rig, Wire, client_lines, fleet_lines
from test_residence_end_to_end import OurBroker, logged, uses

from demo.local_broker import Mosquitto, program
from mqtick.protocol.clocks import VirtualClock, read_kernel_time

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(program("mosquitto") is None, reason=Mosquitto.missing),
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]
LINK_S = 0.02
TRUSTING = "trust_broker = true", "trust_broker_residence = true"


class LongWire(Wire):
    """One on which everything is under way for a while."""

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := source.recv(65536):
                time.sleep(LINK_S)
                sink.sendall(octets)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class ElsewhereBroker(OurBroker):
    """`mqtick-broker` in a fleet with other topics."""

    prefix = "plant/time"


def programs(
    rig: Rig, server_url: str, client_url: str, *settings: str, prefix: str = "mqtick"
) -> tuple[Client, Path]:
    """A server and a client with keys; `settings` of the client's estimator; and its sample log."""
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
    """Whether each interval of these kinds of samples holds the truth."""
    kernel, clock = read_kernel_time(10), VirtualClock(client.clock)
    for samples in logged(log, *kinds):
        for row in samples.values():
            raw_ns = clock.monotonic_raw_ns(row["local_ns"])
            truth_ns = raw_ns + kernel.realtime_ns - kernel.raw_ns - row["local_ns"]
            assert row["lower_ns"] <= truth_ns <= row["upper_ns"], row


@pytest.mark.parametrize("settings", [(), TRUSTING], ids=["trusts nobody", "trusts the broker"])
@pytest.mark.parametrize("kind", [Mosquitto, OurBroker])
def test_within_a_site_the_node_states_how_long_messages_were_there(
    kind: type[Mosquitto], settings: tuple[str, ...], tmp_path: Path, rig: Rig
) -> None:
    with joined(tmp_path, [kind]) as (site,):
        client, log = programs(rig, site.url, site.url, *settings)
        uses(client, "residence")
        client.wait_for(lambda _: client.samples("residence", "used") > 24, "some bursts", 120.0)
        assert client.is_right(), client.look()
        is_true_in_all(client, log, "two-way", "echo", "residence")


@pytest.mark.parametrize("kind", [Mosquitto, OurBroker, ElsewhereBroker])
def test_across_sites_the_way_between_them_is_in_the_interval(
    kind: type[Mosquitto], tmp_path: Path, rig: Rig
) -> None:
    prefix = getattr(kind, "prefix", "mqtick")
    lines = f'time_filters = ["{prefix}/#"]'
    with joined(tmp_path, [kind], lines) as (near,):
        wire = LongWire(near.port)
        rig.on_close(wire.close)
        (tmp_path / "far").mkdir()
        broker = kind(tmp_path / "far")
        broker.start()
        rig.on_close(broker.stop)
        far = Site(tmp_path / "far", broker, neighbours=[wire.url], lines=lines)
        far.start()
        try:
            client, log = programs(rig, near.url, far.url, *TRUSTING, prefix=prefix)
            client.wait_for(
                lambda _: log.exists() and len(logged(log, "residence")[0]) > 12, "some", 120.0
            )
            is_true_in_all(client, log, "two-way", "echo", "residence")
            assert client.is_right(), client.look()
            assert client.samples("residence", "used") > 0
            assert not any(logged(log, "echo"))
        finally:
            far.stop()
