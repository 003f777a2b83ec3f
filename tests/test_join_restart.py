"""A restart of a publisher's node loses nothing above QoS 0 that was said to be sure."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from joined import JOIN, PATIENCE_S, Site, joined, settled, until

from broker.conformance.client import PUBACK, Client, ClosedError, Packet
from demo.local_broker import Mosquitto, program

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(program("mosquitto") is None, reason=Mosquitto.missing),
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]
COUNT = 1000  # more than links and sockets hold
UNDER_WAY = 50


@contextlib.contextmanager
def pair_with_reader(
    folder: Path, lines: str = "", tables: str = ""
) -> Iterator[tuple[Site, Site, Client]]:
    """Two sites, and a subscriber at the second one."""
    with joined(folder, [Mosquitto] * 2, lines) as (here, there):
        here.config.write_text(f"{here.config.read_text()}\n{tables}\n")
        if tables:
            here.stop()
            here.start()
        reader = there.client("reader")
        reader.subscribe(("t", 1))
        settled(here, there)
        yield here, there, reader


def is_open(site: Site) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", site.port)):
        return True
    return False


def paused(site: Site, with_signal: signal.Signals) -> None:
    """Let a site's broker stand still, or go on."""
    assert site.broker.process is not None
    site.broker.process.send_signal(with_signal)


def publish_all(site: Site) -> None:
    """Publish what the site's own broker confirms and the other one does not yet."""
    writer = site.client("writer")
    writer.send(*(writer.encode.publish("t", b"%d" % n, qos=1, packet_id=n + 1) for n in numbers()))
    for _ in numbers():
        assert writer.expect(PUBACK).reason < 0x80


def numbers() -> range:
    """What is published."""
    return range(COUNT)


def test_a_node_that_is_told_to_end_passes_on_what_it_has_confirmed(tmp_path: Path) -> None:
    limits = f"[limits]\nstop_s = {int(PATIENCE_S)}"
    with pair_with_reader(tmp_path, tables=limits) as (here, there, reader):
        paused(there, signal.SIGSTOP)
        publish_all(here)
        assert here.now("unconfirmed") == COUNT
        assert here.process is not None
        here.process.terminate()
        until(lambda: not is_open(here), "it takes nobody more")
        paused(there, signal.SIGCONT)
        assert [int(reader.message().payload) for _ in numbers()] == list(numbers())
        assert here.process.wait(PATIENCE_S) == 0
        assert "are lost" not in here.log.read_text()


def test_a_node_that_cannot_pass_it_on_says_so_and_ends(tmp_path: Path) -> None:
    with pair_with_reader(tmp_path, tables="[limits]\nstop_s = 1") as (here, there, _):
        paused(there, signal.SIGSTOP)
        publish_all(here)
        here.stop()
        assert f"{COUNT} messages above QoS 0 did not get to all other" in here.log.read_text()
        paused(there, signal.SIGCONT)


def test_with_reliability_all_nothing_is_lost_with_a_node_that_is_killed(tmp_path: Path) -> None:
    """The publisher sends again what it has no acknowledgement of, as publishers do."""
    with pair_with_reader(tmp_path, 'reliability = "all"') as (here, there, reader):
        missing, confirmed = set(numbers()), 0

        def publish() -> Iterator[Packet]:
            writer, to_send, under_way = here.client("writer"), sorted(missing), 0
            while missing:
                while to_send and under_way < UNDER_WAY:
                    number, under_way = to_send.pop(0), under_way + 1
                    say = writer.encode.publish("t", b"%d" % number, qos=1, packet_id=number + 1)
                    writer.send(say)
                yield writer.expect(PUBACK)
                under_way -= 1

        for turn in range(3):
            with contextlib.suppress(ClosedError):
                for count, answer in enumerate(publish()):
                    assert answer.packet_id is not None
                    missing.discard(answer.packet_id - 1)
                    confirmed += 1
                    if count == 200 and turn < 2:
                        here.kill()
            if turn < 2:
                here.start()
                settled(here, there)
        assert confirmed == COUNT
        heard: set[int] = set()
        while len(heard) < COUNT:
            heard.add(int(reader.message().payload))
