"""A restart of a publisher's node loses no acknowledged message above QoS 0."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from broker.conformance.client import PUBACK, Client, ClosedError
from broker.tests.harness.events import PATIENCE_S, until
from broker.tests.harness.sites import MARKS, Site, row_of, settled

pytestmark = MARKS
COUNT = 1000  # more than links and sockets hold


@contextlib.contextmanager
def pair_with_reader(
    folder: Path, lines: str = "", tables: str = "", *, state: bool = False
) -> Iterator[tuple[Site, Site, Client]]:
    """Two sites, and a subscriber at the second one."""
    kept = f'state = "{folder}/kept.sessions"\n' if state else ""
    with row_of(folder, {"lines": kept + lines, "tables": tables}, {"lines": lines}) as sites:
        settled(*sites)
        here, there = sites
        reader = there.client("reader")
        reader.subscribe(("t", 1))
        settled(here, there)
        yield here, there, reader


def is_open(site: Site) -> bool:
    """Whether the node accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", site.port)):
        return True
    return False


def paused(site: Site, with_signal: signal.Signals) -> None:
    """Stop a site's broker with SIGSTOP, or let it go on."""
    assert site.broker.process is not None
    site.broker.process.send_signal(with_signal)


def send(writer: Client, what: Iterable[int]) -> None:
    """Publish numbers, without waiting for an answer."""
    say = writer.encode.publish
    writer.send(*(say("t", b"%d" % n, qos=1, packet_id=n + 1) for n in what))


def publish_all(site: Site) -> None:
    """Publish messages that the site's own broker confirms, and the other one does not yet."""
    writer = site.client("writer")
    send(writer, numbers())
    for _ in numbers():
        assert writer.expect(PUBACK).reason < 0x80


def numbers() -> range:
    """The numbers that are published."""
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
        assert f"{COUNT} messages above QoS 0 did not reach all other" in here.log.read_text()
        paused(there, signal.SIGCONT)


def test_with_reliability_all_nothing_is_lost_with_a_node_that_is_killed(tmp_path: Path) -> None:
    """The publisher sends unacknowledged messages again, as usual."""
    with pair_with_reader(tmp_path, 'reliability = "all"') as (here, there, reader):
        missing = set(numbers())
        for turn in range(3):
            writer = here.client("writer")
            for number in sorted(missing)[:100]:
                writer.publish("t", b"%d" % number, qos=1)
                missing.remove(number)
            kills = turn < 2
            if kills:
                paused(there, signal.SIGSTOP)
            send(writer, sorted(missing))
            if kills:
                until(lambda: here.now("unconfirmed") == len(missing), "all is under way")
                here.kill()
            with contextlib.suppress(ClosedError):
                while missing:
                    packet_id = writer.expect(PUBACK).packet_id
                    assert packet_id is not None
                    missing.discard(packet_id - 1)
            if kills:
                paused(there, signal.SIGCONT)
                here.start()
                settled(here, there)
        heard: set[int] = set()
        while len(heard) < COUNT:
            heard.add(int(reader.message().payload))


def test_what_is_published_before_the_neighbour_is_back_waits_for_it(tmp_path: Path) -> None:
    with pair_with_reader(tmp_path, state=True) as (here, there, reader):
        kept = tmp_path / "kept.nodes"
        until(lambda: kept.exists() and kept.read_text() == f"{there.name}\n", "it is written down")
        here.kill()
        here.start()
        writer = here.client("writer")
        for number in range(20):
            writer.publish("t", b"%d" % number, qos=1)
        heard = sorted(int(reader.message().payload) for _ in range(20))
        assert heard == list(range(20)), "those that had to wait may come after later ones"
        writer.publish("t", b"20", qos=1)
        assert reader.message().payload == b"20", "and nothing comes twice"
