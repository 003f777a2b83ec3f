"""Server, broker, client and real chronyd (-x: it steers nothing): what the client hands over.

The client's clock is virtual and off by a known amount; chronyd has to say that very amount.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from chronyd_rig import ChronydRig
from rig import MS, US, Client, Rig, wait_until

from mqtick.protocol.clocks import VirtualClockSettings
from mqtick.service import Leap

pytestmark = [pytest.mark.needs("mosquitto", "chronyd"), pytest.mark.slow]


@pytest.fixture
def chronyd() -> Iterator[ChronydRig]:
    with ChronydRig() as rig:
        yield rig


def lines(chronyd: ChronydRig, servers: str, *flags: str) -> list[str]:
    """What `mqtick-client chrony-config` tells chronyd; by default with a poll to wait for."""
    command = [sys.executable, "-m", "mqtick.client.cli", "chrony-config", "--servers", servers]
    command += [*(flags or ("--poll", "1")), "--run-folder", str(chronyd.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def steered(rig: Rig, chronyd: ChronydRig, url: str, offset_ns: int, *flags: str) -> Client:
    """A client that hands chronyd its measurements; its clock is ahead by this."""
    return rig.client(
        url,
        "c1",
        *flags,
        *("--discipline", "chrony", "--chrony-check-interval-s", "1"),
        *("--chrony-socket", f"{chronyd.folder}/chrony.mqtick{{server}}.sock"),
        *("--chrony-host", chronyd.command_socket),
        clock=VirtualClockSettings.starting_now(offset_ns=offset_ns),
    )


def is_told(chronyd: ChronydRig, offset_ns: int) -> bool:
    """Whether chronyd is synchronised and says that the clock is off by about this."""
    tracking = chronyd.tracking()
    said_ns = tracking.offset_reference_minus_local_ns
    return tracking.leap is Leap.NORMAL and abs(said_ns - offset_ns) < 300 * US


@pytest.mark.parametrize("ahead_ns", [-3 * MS, 40 * MS])
def test_chronyd_selects_the_server_and_says_by_how_much_the_clock_is_off(
    rig: Rig, chronyd: ChronydRig, ahead_ns: int
) -> None:
    broker = rig.broker()
    rig.server(broker.url).wait_ready()
    chronyd.start(*lines(chronyd, "0"))
    client = steered(rig, chronyd, broker.url, ahead_ns)
    chronyd.wait_until(lambda: is_told(chronyd, -ahead_ns), 20)
    assert chronyd.source("MQT0").state == "*"
    assert chronyd.tracking().stratum == 2  # behind a server of stratum 1
    # Eight polls in a row; on a busy machine one may come before enough samples.
    chronyd.wait_until(lambda: chronyd.source("MQT0").reach == 0o377, 120)
    said = client.wait_for(
        lambda values: (
            feed if "takes the samples" in (feed := values["chrony"]["0"])["says"] else None
        ),
        "the client has verified that its samples arrive",
    )
    assert said["sent"].keys() == {"sent"}


def test_a_new_chronyd_need_not_wait_for_three_bursts(rig: Rig, chronyd: ChronydRig) -> None:
    """With the lines as they are printed, and a burst every 16 s: while it is new it gets more."""
    broker = rig.broker()
    rig.server(broker.url).wait_ready()
    chronyd.start(*lines(chronyd, "0", "--stratum", "1"))
    steered(rig, chronyd, broker.url, -3 * MS, "--exchange-interval-s", "16")
    chronyd.wait_until(lambda: chronyd.tracking().name == "MQT0", 25)
    chronyd.stop()
    chronyd.start()
    chronyd.wait_until(lambda: chronyd.tracking().name == "MQT0", 25)


def test_a_restart_of_chronyd_and_one_of_the_broker_are_survived(
    rig: Rig, chronyd: ChronydRig
) -> None:
    broker = rig.broker()
    rig.server(broker.url).wait_ready()
    chronyd.start(*lines(chronyd, "0"))
    client = steered(rig, chronyd, broker.url, -3 * MS)
    chronyd.wait_until(lambda: is_told(chronyd, 3 * MS), 20)

    chronyd.kill()  # its socket stays behind and refuses
    client.wait_for(
        lambda values: "nobody listens" in values["chrony"]["0"]["says"], "the client says so"
    )
    assert client.is_right()
    chronyd.start()
    chronyd.wait_until(lambda: is_told(chronyd, 3 * MS), 20)

    broker.stop()
    chronyd.wait_until(lambda: not chronyd.source("MQT0").reach & 0b111, 15)
    assert chronyd.tracking().offset_reference_minus_local_ns == pytest.approx(3 * MS, abs=MS)
    broker.start()
    chronyd.wait_until(lambda: chronyd.source("MQT0").reach & 0b111 == 0b111, 30)
    chronyd.wait_until(lambda: is_told(chronyd, 3 * MS), 20)
    client.wait_for(
        lambda values: "takes the samples" in values["chrony"]["0"]["says"],
        "the client has verified that its samples arrive",
    )
    assert client.is_right(within_ns=300 * US)


def test_each_server_is_a_reference_clock_and_chronyds_majority_decides(
    rig: Rig, chronyd: ChronydRig
) -> None:
    broker = rig.broker()
    for number in (0, 1):
        rig.server(broker.url, number=number).wait_ready()
    rig.server(broker.url, "--virtual-clock", "offset_s=0.05", number=12).wait_ready()
    chronyd.start(*lines(chronyd, "0,1,12"))
    client = steered(rig, chronyd, broker.url, -3 * MS)
    states = {
        name: lambda name=name: chronyd.source(name).state for name in ("MQT0", "MQT1", "MQ12")
    }
    chronyd.wait_until(lambda: states["MQ12"]() == "x", 30)  # two against one
    chronyd.wait_until(lambda: is_told(chronyd, 3 * MS), 20)
    chronyd.wait_until(
        lambda: sorted((states["MQT0"](), states["MQT1"]())) in (["*", "+"], ["*", "-"]), 30
    )
    wait_until(lambda: len(client.status()["chrony"]) == 3, "there are three feeds")
