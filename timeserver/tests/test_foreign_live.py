"""Nodes of others with our server, and our client with a server of others, over a real Mosquitto.

The others are written by hand with paho-mqtt alone, as github westlab/1451DEMO2026 (1451.1.6 text)
and westlab/IES-TCSTD-Plugfest (draft of 2021) write and read their payloads.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_rig import ALL_FORMATS, Message, PlainNode, Served

from demo.local_broker import Mosquitto, running
from mqtick.client.agent import Agent
from mqtick.client.config import Settings
from mqtick.mqtt.broker import parse_broker_url
from mqtick.mqtt.loop import Loop
from mqtick.protocol.auth import Keyring
from mqtick.protocol.clocks import SystemClock, VirtualClock, VirtualClockSettings

pytestmark = pytest.mark.needs("mosquitto")

SYN, REQUEST = "_1451.1.6/BRSU/SYN", "_1451.1.6/RRS/REQ"
AHEAD_S = 120.0
RIGHT_S = 0.05
"""How well two programs on one busy machine, with stamps of their own, have to agree."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running(Mosquitto(tmp_path_factory.mktemp("b"))) as made:
        yield made


@pytest.fixture(scope="module")
def served(broker: Mosquitto) -> Iterator[Served]:
    """Our server, two minutes ahead, once it leads."""
    clock = VirtualClock(VirtualClockSettings.starting_now(offset_ns=120 * 10**9))
    settings = {"prefix": "foreign", "interval_s": 0.2, "formats": ALL_FORMATS}
    with Served(broker.url, clock=clock, **settings) as made:
        made.until(made.server.leads)
        yield made


# -- a node of others follows our server -----------------------------------------------------------


@pytest.mark.slow
def test_their_node_follows_our_broadcast(broker: Mosquitto, served: Served) -> None:
    with PlainNode(broker.port, SYN) as node:
        served.until(lambda: len(node.on(SYN)) >= 5)
    offsets = [float(one.payload.decode("ascii")) - one.arrived_s for one in node.on(SYN)]
    assert abs(max(offsets) - AHEAD_S) < RIGHT_S
    assert all(re.fullmatch(rb"\d{10}\.\d{9}", one.payload) for one in node.on(SYN))
    assert all(one.qos == 0 and not one.retain for one in node.on(SYN))


def test_their_node_asks_our_server_for_its_offset(broker: Mosquitto, served: Served) -> None:
    answers = "_1451.1.6/RRS/PTTEST/app0/RES"
    with PlainNode(broker.port, answers) as node:
        node.say(REQUEST, f"PTTEST/app0,{time.time():.6f}")
        served.until(lambda: node.on(answers))
    answer = node.on(answers)[0]
    t1, t2, t3, name = answer.payload.decode("ascii").split(",")
    t4 = answer.arrived_s
    offset = ((float(t2) - float(t1)) + (float(t3) - t4)) / 2
    delay = (t4 - float(t1)) - (float(t3) - float(t2))
    assert abs(offset - AHEAD_S) < RIGHT_S
    assert 0 < delay < 1
    assert name == "hall/clock"


def local(text: str) -> float:
    """Read an `isoformat()` of theirs; our server writes UTC."""
    return datetime.datetime.fromisoformat(text + "+00:00").timestamp()


def test_their_draft_node_follows_our_broadcast(broker: Mosquitto, served: Served) -> None:
    with PlainNode(broker.port, "location/TIME/SYN", version_5=True) as node:
        served.until(lambda: len(node.messages) >= 5)
    assert all(one.payload == b"SYN" for one in node.messages)
    offsets = [local(dict(one.user)["timestamp"]) - one.arrived_s for one in node.messages]
    assert abs(max(offsets) - AHEAD_S) < RIGHT_S


def test_their_draft_node_asks_our_server_for_its_offset(broker: Mosquitto, served: Served) -> None:
    t1_text = datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat()
    with PlainNode(broker.port, "location/TIME/SRS", version_5=True) as node:
        node.say("location/TIME/SRQ", "SRQ", [("T1", t1_text)])
        served.until(lambda: node.messages)
    answer = node.messages[0]
    said = dict(answer.user)
    assert (answer.payload, said["T1"]) == (b"SRS", t1_text)
    t1, t2, t3 = (local(said[name]) for name in ("T1", "t2", "t3"))
    offset = ((t2 - t1) - (answer.arrived_s - t3)) / 2
    assert abs(offset - AHEAD_S) < RIGHT_S


# -- our client follows a server of others ---------------------------------------------------------

THEIR_OFFSET_S = -7.5
JAPAN_S = 9 * 3600


def their_time() -> float:
    return time.time() + THEIR_OFFSET_S


def text_server(node: PlainNode) -> Callable[[], None]:
    """NCAP.py: BR-Sync, and answers to RR-Sync with t1 as it came."""

    def answer(message: Message) -> None:
        t2 = their_time()
        client, _, t1 = message.payload.decode().partition(",")
        node.say(f"_1451.1.6/RRS/{client}/RES", f"{t1},{t2:.9f},{their_time():.9f},PTTEST/ncap0")

    node.on_message = answer
    return lambda: node.say(SYN, f"{their_time():.9f}")


def draft_server(node: PlainNode) -> Callable[[], None]:
    """The primary of 2021, in Japan: naive local time."""

    def now() -> str:
        zone = datetime.timezone(datetime.timedelta(seconds=JAPAN_S))
        return datetime.datetime.fromtimestamp(their_time(), zone).replace(tzinfo=None).isoformat()

    def answer(message: Message) -> None:
        t2 = now()
        said = [("T1", dict(message.user)["T1"]), ("t2", t2), ("t3", now())]
        node.say("location/TIME/SRS", "SRS", said)

    node.on_message = answer
    return lambda: node.say("location/TIME/SYN", "SYN", [("timestamp", now())])


@pytest.mark.parametrize("format_", ["1451.1.6", "draft-2021"])
def test_our_client_follows_a_server_of_others(tmp_path: Path, format_: str) -> None:
    draft = format_ == "draft-2021"
    topic = "location/TIME/SRQ" if draft else REQUEST
    with (
        running(Mosquitto(tmp_path)) as own,
        PlainNode(own.port, topic, version_5=draft) as node,
    ):
        speak = draft_server(node) if draft else text_server(node)
        loop = Loop()
        settings: Any = Settings(
            broker=own.url, format=format_, draft_utc_offset_s=JAPAN_S if draft else 0
        )
        agent = Agent(
            settings, loop, parse_broker_url(own.url), SystemClock(), Keyring(), "kitchen"
        )
        agent.start()
        end = time.monotonic() + 10
        best = None
        while time.monotonic() < end:
            speak()
            agent.tick()
            pause = time.monotonic() + 0.1
            while time.monotonic() < pause:
                loop.turn(0.02)
            best = agent.best()
            asked = agent.foreign is not None and agent.foreign.last_delay_ns is not None
            if best is not None and asked and best[1].upper_ns is not None:
                break
        agent.close()
        loop.close()
    assert best is not None, dict(agent.refused)
    # Our client counts on CLOCK_MONOTONIC_RAW; this is its offset against the host's clock.
    offset_ns = (best[1].offset_ns or 0) - SystemClock().time_minus_raw_ns()
    assert abs(offset_ns / 1e9 - THEIR_OFFSET_S) < RIGHT_S
    assert agent.refused["format"] == 0
