"""The same random sessions of clients, at one Mosquitto and at joined brokers of several kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.brokers import Rumqttd
from broker.conformance.client import V3, V5
from broker.tests.harness.sessions import (
    PATIENCE_S,
    Copy,
    Got,
    Habits,
    Play,
    Step,
    differences,
    made,
    smallest,
    version,
)
from broker.tests.harness.sites import JOIN, idle, joined
from demo.local_broker import Amqtt, Mosquitto, MqtickBroker, Nats, program, running

HABITS: dict[type[Mosquitto], Habits] = {
    Mosquitto: Habits(),
    # A copy for each filter is lawful: see Habits.
    MqtickBroker: Habits(each=True),
    # nats-server speaks MQTT 3.1.1 only, and before 2.10 ends a connection at QoS 2.
    # A fault of 2.9: who has unsubscribed from `a/#` goes on to get messages of QoS 0 on `a`.
    Nats: Habits(versions=(V3,), most_qos=1, each=True, stays="/#"),
    # Faults of rumqttd 0.20: copies have the QoS of the subscription, also above the message's;
    # there is no answer to an UNSUBSCRIBE of what was not subscribed; who subscribes again is not
    # sent what is retained; the will of a client that says good-bye and is back at once is
    # published. Its port for MQTT 5 is another one.
    Rumqttd: Habits(
        versions=(V3,), each=True, qos=False, unknown=False, retained=False, wills=False
    ),
    # amqtt speaks MQTT 3.1.1 only. Faults of amqtt 0.12: the same with QoS; clients are sent
    # retained messages when they connect, and a clean session begins with the subscriptions of the
    # former one.
    Amqtt: Habits(versions=(V3,), each=True, qos=False, retained=False, kept=False),
}
"""In what each kind of broker differs from Mosquitto, and why. Everything else has to be equal."""
MISSING_RUMQTTD = "rumqttd is not installed: cargo install rumqttd --version 0.20.0"
needs_join = pytest.mark.skipif(
    not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"
)
needs_mosquitto = pytest.mark.skipif(program("mosquitto") is None, reason=Mosquitto.missing)


def is_there(kind: type[Mosquitto], folder: Path) -> bool:
    """Whether a broker can be started."""
    try:
        with running(kind(folder)):
            return True
    except FileNotFoundError:
        return False


def compare(
    folder: Path, kinds: Sequence[type[Mosquitto]], algorithm: str, seeds: range, steps: int
) -> list[Got]:
    """Play sessions at one Mosquitto and at joined brokers. Returns what came at Mosquitto.

    If a session differs, the failure shows the smallest session that does.
    """
    habits = [HABITS[kind] for kind in kinds]
    clients, taken = 2 * len(kinds), 0
    every: list[Got] = []
    (folder / "alone").mkdir()
    with (
        running(Mosquitto(folder / "alone", "persistence false")) as alone,
        joined(folder, kinds, f'algorithm = "{algorithm}"') as sites,
    ):
        ports = [sites[client % len(sites)].port for client in range(clients)]

        def tried(session: Sequence[Step], patience_s: float) -> tuple[Got, list[str]]:
            nonlocal taken
            taken += 1
            name = f"session{taken}"
            wanted = Play(name, [alone.port] * clients, habits).run(session)
            play = Play(name, ports, habits, lambda: idle(*sites), patience_s)
            try:
                return wanted, differences(session, wanted, play.run(session, wanted), habits)
            except (AssertionError, OSError) as error:
                return wanted, [f"{type(error).__name__}: {error}"]

        for seed in seeds:
            session = made(seed, clients, habits, steps)
            wanted, wrong = tried(session, PATIENCE_S)
            if wrong:
                least = smallest(session, lambda one: bool(tried(one, 3)[1]), 60)
                said = "\n".join(map(str, [*least, *tried(least, 3)[1]]))
                first = "\n".join(wrong[:10])
                pytest.fail(
                    f"seed {seed} at {[kind.name for kind in kinds]} with {algorithm}:\n{first}\n"
                    f"the smallest session that fails, and how it did the last time:\n{said}"
                )
            every.append(wanted)
    return every


@pytest.mark.broker
@needs_join
@pytest.mark.parametrize("kind", HABITS, ids=lambda kind: kind.name)
def test_each_kind_of_broker_can_be_compared(tmp_path: Path, kind: type[Mosquitto]) -> None:
    if not is_there(kind, tmp_path):
        pytest.skip(MISSING_RUMQTTD if kind is Rumqttd else kind.missing)


@pytest.mark.broker
@pytest.mark.slow
@needs_join
@needs_mosquitto
@pytest.mark.parametrize("algorithm", ["subscriptions", "publications"])
def test_five_joined_brokers_of_all_kinds_deliver_what_one_mosquitto_does(
    tmp_path: Path, algorithm: str
) -> None:
    probe = tmp_path / "probe"
    probe.mkdir()
    kinds = [kind for kind in HABITS if is_there(kind, probe)]
    kinds += [Mosquitto, MqtickBroker, Mosquitto][: 5 - len(kinds)]
    first = 0 if algorithm == "subscriptions" else 100
    every = compare(tmp_path, kinds, algorithm, range(first, first + 2), 50)
    assert sum(len(copies) for got in every for copies in got.values()) > 60


@pytest.mark.broker
@pytest.mark.slow
@needs_join
@needs_mosquitto
@pytest.mark.parametrize("algorithm", ["subscriptions", "publications"])
def test_joined_brokers_of_mqtt_5_deliver_all_of_it_as_one_mosquitto_does(
    tmp_path: Path, algorithm: str
) -> None:
    kinds: list[type[Mosquitto]] = [Mosquitto, MqtickBroker, Mosquitto]
    every = compare(tmp_path, kinds, algorithm, range(12), 60)
    copies = [copy for got in every for copies in got.values() for copy in copies]
    count = Counter((copy.qos, copy.retain, bool(copy.properties)) for copy in copies)
    assert set(count) == {(q, r, p) for q in range(3) for r in (True, False) for p in (True, False)}


# -- the comparison itself -------------------------------------------------------------------------


STEPS = [
    Step(0, 0, "publish", "a", qos=1),
    Step(1, 0, "publish", "a", qos=1),
    Step(2, 1, "publish", "a", qos=1),
]
FIRST, SECOND, OTHER = (Copy("a", b"%d" % number, 1, False) for number in range(3))


def wrong(found: list[Copy], wanted: list[Copy], own: Habits | None = None) -> str:
    """Describes what one client got, after the last step."""
    both = {(2, 0): wanted}, {(2, 0): found}
    return "\n".join(differences(STEPS, *both, [own or Habits()]))


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([FIRST], "missing"),
        ([FIRST, SECOND, SECOND], "too much"),
        ([FIRST, replace(SECOND, qos=0)], "too much"),
        ([FIRST, replace(SECOND, retain=True)], "too much"),
        ([FIRST, replace(SECOND, properties=(("user", b""),))], "too much"),
        ([SECOND, FIRST], "in the order"),
    ],
)
def test_whatever_differs_is_found(found: list[Copy], word: str) -> None:
    assert word in wrong(found, [FIRST, SECOND])
    assert not wrong([FIRST, SECOND], [FIRST, SECOND])


def test_publishers_may_come_in_any_order_among_each_other() -> None:
    assert not wrong([OTHER, FIRST, SECOND], [FIRST, SECOND, OTHER])


def test_a_copy_for_each_filter_is_right_where_a_broker_sends_them_and_only_there() -> None:
    one = replace(FIRST, filters=2)
    each = Habits(each=True, versions=(V3,))
    assert not wrong([one, one], [one], each)
    assert "missing" in wrong([one], [one], each)
    assert "too much" in wrong([one, one, one], [one], each)
    assert "too much" in wrong([one, one], [one])


def test_a_session_has_all_of_mqtt_in_it() -> None:
    habits = [Habits(), HABITS[Nats]]
    steps = [step for seed in range(5) for step in made(seed, 4, habits, 100)]
    assert {step.what for step in steps} == {
        "connect",
        "disconnect",
        "vanish",
        "subscribe",
        "unsubscribe",
        "publish",
    }
    assert {step.qos for step in steps if step.client % 2 == 0} == {0, 1, 2}
    assert {step.qos for step in steps if step.client % 2 == 1} == {0, 1}
    assert {version(client, habits) for client in range(4)} == {V3, V5}
    connects = [step for step in steps if step.what == "connect"]
    assert {(one.clean, bool(one.topic), one.retain) for one in connects} >= {
        (clean, True, retain) for clean in (True, False) for retain in (True, False)
    }


def test_a_session_that_fails_is_made_as_small_as_it_can_be() -> None:
    steps = [Step(number, 0, "publish") for number in range(50)]

    def fails(some: Sequence[Step]) -> bool:
        return {7, 31} <= {step.number for step in some}

    assert [step.number for step in smallest(steps, fails, 1000)] == [7, 31]
