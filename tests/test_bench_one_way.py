"""The fleet of the one-way benchmark, simulated, behind a few lines instead of the RTL."""

from __future__ import annotations

import random
import statistics
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from bench import one_way_world
from bench.one_way import FOR_EXACT_STAMPS, stamp_noise_ns
from bench.one_way_client import Client, Clocks, Found
from bench.one_way_world import KEYS, SECOND, START_NS, TREE, Life, Plan, World, asking_times
from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.lab.hardware.copies import PUBLISHER
from mqtick.lab.hardware.crossing import Copy, Message
from mqtick.protocol.precise import Time, decode

NS = 1_000_000
"""In femtoseconds."""
HARDWARE = 3
PLAN = Plan(clients=3, seconds=150, exchanges_s=60.0)


def broker(
    _model: Path,
    filters: Mapping[str, str | Sequence[str]],
    messages: Sequence[Message],
    *,
    link_gbps: int,
) -> list[list[Copy]]:
    """Keep each message for up to a millisecond, another time for each copy, and say so."""
    assert link_gbps == 10
    draw, counts, found = random.Random(1), Counter[str](), []
    names = {each[2].rpartition("/")[2]: peer for peer, each in filters.items() if each[2:]}
    clients = [peer for peer in filters if peer != PUBLISHER]
    for message in messages:
        topic = message.octets[4 : 4 + message.octets[3]].decode("ascii", "replace")
        to = clients
        if message.copies == 1:
            to = [PUBLISHER if "/q/" in topic else names[topic.rpartition("/")[2]]]
        copies = []
        for peer in to:
            kept_ns, octets = draw.randrange(1_000_000), message.octets
            if message.filled:
                counts[peer] += 1
                tail = counts[peer] << 8 | HARDWARE
                octets = octets[:-16] + struct.pack(">QiI", kept_ns << 16, 0, tail)
            copies.append(Copy(message.at_fs + kept_ns * NS, peer, octets))
        found.append(copies)
    return found


@pytest.fixture(scope="module")
def lives() -> list[Life]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_way_world, "cross", broker)
        return World(PLAN).run(Path("none"))


def lived(
    lives: Sequence[Life], settings: EstimatorSettings, noise_ns: Sequence[int] = ()
) -> list[Found]:
    clients = []
    for number, life in enumerate(lives, start=1):
        client = Client(number, life, Clocks(noise_ns=noise_ns), settings, compares=True)
        client.live(PLAN.seconds, (30, 60), (120, 149))
        assert set(client.refused) <= {"before-exchange"}
        clients.append(client.found)
    return clients


def median_ns(errors: Sequence[Sequence[int]]) -> float:
    return statistics.median(abs(error) for each in errors for error in each)


def test_every_client_hears_every_message_and_has_all_its_exchanges(lives: list[Life]) -> None:
    for life in lives:
        messages = [decode(heard.payload) for heard in life.heard]
        assert [one.sequence for one in messages] == list(range(1, PLAN.seconds))
        # Bursts after about 2, 6, 14, 30 and 46 s follow the first.
        assert 12 + 4 * 4 <= len(life.exchanges) <= 12 + 4 * 6


def test_each_time_message_corrects_the_one_before(lives: list[Life]) -> None:
    for before, after in pairwise(lives[0].heard):
        KEYS.broadcast().verify(before.payload, TREE.time(0))
        one, other = decode(before.payload), decode(after.payload)
        assert isinstance(one, Time)
        assert isinstance(other, Time)
        assert other.previous_correction_ns is not None
        left_ns = one.transmit_ns - START_NS + other.previous_correction_ns
        assert 0 < before.at_ns - left_ns < 2_000_000


def test_clients_ask_clear_of_the_time_message() -> None:
    times = list(asking_times(random.Random(3), 120 * SECOND))
    after_the_first_burst = [at for at in times if at - times[0] > SECOND]
    assert len(after_the_first_burst) > 20
    assert all(150_000_000 <= at % SECOND <= 950_000_000 for at in after_the_first_burst)


def test_what_the_broker_keeps_a_message_for_costs_nothing(lives: list[Life]) -> None:
    found = lived(lives, FOR_EXACT_STAMPS)
    assert median_ns([one.listening.errors for one in found]) < 50
    assert median_ns([one.without.errors for one in found]) > 5_000
    assert not any(one.outside or one.outside_assumed for one in found)


def test_links_take_as_long_there_as_back(lives: list[Life]) -> None:
    """A request that is shorter than its reply would make each exchange wrong to the same side."""
    found = lived(lives, FOR_EXACT_STAMPS)
    assert abs(statistics.median(error for one in found for error in one.asking.errors)) < 60


def test_late_stamps_cost_accuracy_and_not_the_interval(lives: list[Life]) -> None:
    draw = random.Random(5)
    noise_ns = [round(draw.expovariate(1 / 2_000)) for _ in range(500)]
    found = lived(lives, EstimatorSettings(), noise_ns)
    assert 20 < median_ns([one.listening.errors for one in found]) < 3_000
    assert not any(one.outside for one in found)


def test_the_noise_of_stamps_is_a_delay() -> None:
    found = stamp_noise_ns(5)
    if not found:
        pytest.skip("no kernel stamps here")
    assert min(found) >= 0
