"""The broker's doctor: each pattern is found by its numbers, and nothing else is."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import Mock

import pytest

from mqtick.lab.brokers import probes
from mqtick.lab.brokers.findings import examine, verdict
from mqtick.lab.brokers.measured import Measured, Probe
from mqtick.lab.brokers.patterns import fan_out, find_flush, find_steps
from mqtick.lab.cli import main
from mqtick.mqtt.link import Link
from mqtick.mqtt.loop import Loop
from mqtick.service.check import Check

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
START = 1_800_000_000 * SECOND
SUBSCRIBERS = 10


def instants(count: int, seed: int = 1) -> list[int]:
    """When probes leave: at random, 1 to 100 ms apart."""
    chance, now, made = random.Random(seed), START, []
    for _ in range(count):
        now += chance.choice((chance.randint(1 * MS, 3 * MS), chance.randint(50 * MS, 100 * MS)))
        made.append(now)
    return made


def quick(chance: random.Random) -> int:
    """A delay through a broker in good health, on a machine that is not."""
    return int(chance.lognormvariate(0, 0.5) * 80 * US) + (chance.random() < 0.02) * 3 * MS


def good_probes(delay: Callable[[int, random.Random], int] | None = None) -> tuple[Probe, ...]:
    chance, made = random.Random(2), []
    for sent in instants(100):
        first = sent + (delay(sent, chance) if delay else quick(chance))
        made.append(Probe(sent, {n: first + n * 3 * US for n in range(SUBSCRIBERS)}))
    return tuple(made)


def measured(**changes: object) -> Measured:
    """A good broker, but for the changes."""
    good = Measured(
        Link("mqtt://broker:1883"),
        topic="mqtick/d/0011a/p",
        filters=("mqtick/d/0011a/p",) * 8 + ("mqtick/d/0011a/+", "mqtick/d/0011a/#"),
        probes=good_probes(),
        pairs_ns=((80 * US, 60 * US),) * 12,
        sequence=tuple(range(40)),
        sequence_sent=40,
        retained=True,
        payload_octets=131_072,
        payload_tried=131_072,
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def findings(**changes: object) -> dict[str, Check]:
    """What is not OK, by name."""
    return {one.name: one for one in examine(measured(**changes)) if one.result != "OK"}


# -- patterns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [40, 80, 200])
def test_delays_with_a_mass_at_a_timer_are_steps(step_ms: int) -> None:
    chance = random.Random(3)
    delays = [quick(chance) + (chance.random() < 0.1) * step_ms * MS for _ in range(200)]
    steps = find_steps(delays)
    assert steps.found
    assert steps.by_step[step_ms] == sum(delay >= step_ms * MS for delay in delays)


def test_delays_of_every_length_are_no_steps() -> None:
    chance = random.Random(4)
    assert not find_steps([chance.randint(0, 300 * MS) for _ in range(500)]).found
    assert not find_steps([quick(chance) for _ in range(500)]).found
    assert not find_steps([]).found


@pytest.mark.parametrize("period_ms", [10, 40, 100, 333, 1000])
def test_a_timer_that_flushes_is_found_with_its_period(period_ms: int) -> None:
    period, chance = period_ms * MS, random.Random(5)
    sent = instants(150)
    arrived = [(one // period + 1) * period + 137 * US + quick(chance) // 4 for one in sent]
    flush = find_flush(list(zip(sent, arrived, strict=True)))
    assert flush.found
    assert flush.period_ns == pytest.approx(period, rel=0.005)


@pytest.mark.parametrize("seed", range(12))
def test_arrivals_without_a_beat_have_none(seed: int) -> None:
    chance, sent = random.Random(seed), instants(60, seed)
    for late in (
        lambda: quick(chance),
        lambda: quick(chance) + chance.choice((0, 0, 40 * MS, 80 * MS)),
        lambda: chance.randint(0, 120 * MS),
        lambda: 25 * MS + quick(chance),
    ):
        assert not find_flush([(one, one + late()) for one in sent]).found


def test_our_own_beat_is_not_the_brokers() -> None:
    chance = random.Random(6)
    sent = [START + n * 100 * MS for n in range(60)]
    assert not find_flush([(one, one + chance.randint(0, 8 * MS)) for one in sent]).found


def test_few_arrivals_say_nothing() -> None:
    assert not find_flush([(one, (one // SECOND + 1) * SECOND) for one in instants(19)]).found
    assert fan_out([]) is None
    assert fan_out([[START]]) is None


def test_the_cost_of_one_more_subscriber_is_the_slope() -> None:
    found = fan_out([[START + n * 4 * US for n in range(SUBSCRIBERS)]] * 20)
    assert found is not None
    assert found.is_kept
    assert found.orders == 1
    assert (found.spread_ns, found.slope_ns) == (36 * US, pytest.approx(4 * US))


def test_a_random_order_of_subscribers_is_not_that_of_subscription() -> None:
    chance = random.Random(7)
    found = fan_out([chance.sample(range(0, 40 * US, 4 * US), SUBSCRIBERS) for _ in range(50)])
    assert found is not None
    assert not found.is_kept
    assert found.orders > 40
    assert found.slope_ns == pytest.approx(4 * US)


def test_messages_that_came_together_say_nothing_of_the_order() -> None:
    def probe(at: int) -> Probe:
        return Probe(START + at, {n: START + at + n * 3 * US for n in range(SUBSCRIBERS)})

    probes = [probe(at) for at in (0, 50 * MS, 50 * MS + 20 * US, 90 * MS)]
    lost = Probe(START + 60 * MS)
    assert list(measured(probes=(*probes[:3], lost, probes[3])).alone()) == [probes[0], probes[3]]


# -- what is said of them --------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_good_broker() -> None:
    checks = list(examine(measured()))
    assert [one.line() for one in checks if one.result != "OK"] == []
    assert verdict(checks) == (True, "good")


@pytest.mark.parametrize(
    ("name", "result", "changes", "says"),
    [
        (
            "TCP_NODELAY",
            "FAIL",
            {"pairs_ns": ((80 * US, 40 * MS),) * 10},
            "held back by 40 ms in 10 of 10 pairs",
        ),
        (
            "delayed acknowledgements",
            "FAIL",
            {"probes": good_probes(lambda _s, c: quick(c) + c.choice((0, 0, 0, 40)) * MS)},
            "by about 40 ms",
        ),
        (
            "flushing",
            "FAIL",
            {"probes": good_probes(lambda s, _c: 200 * MS - s % (200 * MS))},
            "every 200 ms",
        ),
        ("late messages", "WARN", {"probes": good_probes(lambda _s, c: c.randint(0, 35) * MS)}, ""),
        ("order of messages", "FAIL", {"sequence": (0, 2, 1, 3)}, "1 of 4"),
        ("retained messages", "WARN", {"retained": False}, "not kept"),
        ("topics with a dot", "WARN", {"dotted": False}, "not carried"),
        ("payload", "WARN", {"payload_octets": 32}, "at most 32"),
        ("MQTT 5", "WARN", {"link": Link("", error_5="Unsupported")}, "Unsupported"),
        ("subscriptions", "FAIL", {"refused": ("mqtick/d/0011a/#",)}, "mqtick/d/0011a/#"),
        ("connection", "FAIL", {"error": "lost"}, "lost"),
        ("connection", "WARN", {"link": Link("", kernel_stamps=False)}, "by the program"),
    ],
)
def test_each_fault_is_named_and_no_other(
    name: str, result: str, changes: dict[str, object], says: str
) -> None:
    found = findings(**changes)
    assert list(found) == [name]
    assert found[name].result == result
    assert says in found[name].value
    assert found[name].expectation
    assert found[name].remedy


def test_lost_messages_are_counted_where_they_were_lost() -> None:
    probes = list(good_probes())
    probes[3], probes[7] = Probe(probes[3].sent_ns), Probe(probes[7].sent_ns)
    del probes[9].arrived_ns[4]
    found = findings(probes=tuple(probes))
    assert list(found) == ["messages"]
    assert found["messages"].value == "21 of 1000 lost, 2 of 100 at every subscriber"


def test_a_filter_that_stays_deaf_is_named() -> None:
    probes = good_probes()
    for probe in probes:
        del probe.arrived_ns[9]
    found = findings(probes=probes)
    assert list(found) == ["subscriptions"]
    assert "mqtick/d/0011a/# was granted, but nothing arrived" in found["subscriptions"].value


def test_what_never_comes_back_points_at_the_access_list() -> None:
    found = findings(probes=(Probe(START),))
    assert list(found) == ["messages"]
    assert "let this user publish to and read mqtick/d/#" in found["messages"].remedy


def test_the_verdict_counts_faults_before_remarks() -> None:
    checks = list(examine(measured(sequence=(1, 0), retained=False)))
    assert verdict(checks) == (False, "1 fault: order of messages")
    remarks = list(examine(measured(retained=False)))
    assert verdict(remarks) == (True, "good, but note: retained messages")


# -- the command line ------------------------------------------------------------------------------


def test_a_broker_that_is_not_there_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        assert main(["doctor", f"mqtt://127.0.0.1:{sock.getsockname()[1]}"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL connection: cannot connect to mqtt://127.0.0.1:")
    assert "-> is the broker up" in out
    assert out.endswith("verdict: 1 fault: connection\n")


def test_a_finding_can_be_read_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{sock.getsockname()[1]}"
        assert main(["doctor", url, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["good"]
    assert [one["name"] for one in said["checks"]] == ["connection"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["http://x"], "has the scheme 'http'"),
        (["mqtt://u:p@x"], "holds a password"),
        (["mqtt://x", "--prefix", "a/#"], "--prefix 'a/#' is not a topic prefix"),
        (["mqtt://x", "--ca-file", __file__], "reached without TLS"),
        (["mqtts://x", "--ca-file", __file__], "TLS cannot be set up"),
    ],
)
def test_wrong_use_is_said(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_late_copy_of_what_was_tried_before_is_not_what_is_tried_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "_ANSWER_S", 0.01)
    probing, peer = Mock(loop=Loop()), Mock(arrivals=[])
    peer.connection.publish_unstamped = lambda *_: peer.arrivals.append(Mock(payload=b"small"))
    assert not probes._Examination._carries(probing, [peer, peer], "topic", b"a larger one")
    assert peer.arrivals
    probing.loop.close()


@pytest.mark.parametrize("seconds", ["1", "nan", "many"])
def test_a_time_that_cannot_be_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "mqtt://x", "--seconds", seconds])
    assert ended.value.code == 2
    assert "--seconds" in capsys.readouterr().err
