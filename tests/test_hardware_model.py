"""The broker's RTL behind its two doors: a file of datagrams, and a real UDP socket.

`make test-rtl` builds the program that they need; `make test` leaves them out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from demo.hardware import Rtl, model_running
from demo.local_programs import wait_until
from mqtick.lab.hardware.copies import PUBLISHER, measure, subscriber, subscriptions
from mqtick.lab.hardware.datagrams import CYCLE_FS, Datagram, frame_octets, publish, subscribe
from mqtick.lab.hardware.program import ModelError, find_model, run_batch
from mqtick.protocol.precise import TRAILER_OCTETS

pytestmark = pytest.mark.rtl

TOPIC = "mqtick/t/0"
NOT_KNOWN = -(2**31)
PROGRAM, HARDWARE = 1, 3
PROOF = bytes.fromhex("3010000624") + b"proof"


@pytest.fixture(scope="module")
def model() -> Path:
    return find_model()


def trailer(octets: bytes) -> tuple[float, int, int, int]:
    """Residence in ns, correction in ns, copy, source."""
    residence, correction, rest = struct.unpack(">QiI", octets[-TRAILER_OCTETS:])
    return residence / 65536, correction, rest >> 8, rest & 255


# ---- the file of datagrams ----------------------------------------------------------------------


def test_each_subscriber_gets_one_copy_in_the_order_of_subscription(model: Path) -> None:
    # measure() refuses anything else.
    assert len(measure(model, 20, 3, link_gbps=10, prefix="mqtick", seed=1)) == 3


def test_the_residence_stated_is_the_one_of_the_cycles(model: Path) -> None:
    for one in measure(model, 10, 3, link_gbps=10, prefix="mqtick", seed=1, version=2):
        for copy in one.copies:
            residence_ns, _, _, source = trailer(copy.octets)
            stayed_ns = (copy.cycle - one.message.cycle) * CYCLE_FS / 1e6
            assert residence_ns == pytest.approx(stayed_ns, abs=0.001)
            assert source == HARDWARE


def test_copies_are_numbered_and_the_first_has_no_correction(model: Path) -> None:
    shots = measure(model, 2, 3, link_gbps=10, prefix="mqtick", seed=1, version=2)
    seen = [trailer(one.copies[0].octets)[1:3] for one in shots]
    assert seen == [(NOT_KNOWN, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("gbps", [1, 10])
def test_copies_leave_in_the_wires_time(model: Path, gbps: int) -> None:
    (one,) = measure(model, 50, 1, link_gbps=gbps, prefix="mqtick", seed=1)
    wire_ns = frame_octets(len(one.message.octets)) * 8 / gbps * 49
    assert one.spread * CYCLE_FS / 1e6 == pytest.approx(wire_ns, abs=2 * CYCLE_FS / 1e6)


def test_a_link_that_is_always_ready_gets_a_word_in_every_cycle(model: Path) -> None:
    (one,) = measure(model, 50, 1, link_gbps=0, prefix="mqtick", seed=1)
    words = -(-len(one.message.octets) // 8)
    assert {later.cycle - earlier.cycle for earlier, later in pairwise(one.copies)} == {words}


def test_nobody_is_subscribed_who_does_not_answer_the_challenge(model: Path) -> None:
    come, at = subscriptions({"10.1.0.1:5": TOPIC})
    message = Datagram(at, PUBLISHER, publish(TOPIC, b"x"))
    sent = run_batch(model, [*come, message], link_gbps=10, prove=False)
    assert [each.octets[:10] for each in sent] == [PROOF, PROOF]


def test_the_same_file_gives_the_same_cycles(model: Path) -> None:
    come, at = subscriptions({"10.1.0.1:5": TOPIC, "10.1.0.2:5": "#"})
    batch = [*come, Datagram(at, PUBLISHER, publish(TOPIC, b"x"))]
    assert run_batch(model, batch, link_gbps=10) == run_batch(model, batch, link_gbps=10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5 10.0.0.1:5", "Line 1 of .* is not CYCLE ADDRESS OCTETS"),
        ("-5 10.0.0.1:5 00", "does not begin with a cycle"),
        ("9999999999999999999999 10.0.0.1:5 00", "does not begin with a cycle"),
        ("7 10.0.0.1:5 00\n6 10.0.0.1:5 00", "Line 2 of .* is earlier than the line before"),
        ("7 10.0.0.1 00", "has no address"),
        ("7 10.0.0.1:65536 00", "has no address"),
        ("7 10.0.0.1:5 0", "not pairs of hexadecimal digits"),
        ("7 10.0.0.1:5 0g", "not pairs of hexadecimal digits"),
        ("7 10.0.0.1:5 " + "00" * 2001, "more than 2000 octets"),
        ("\0\0\0", "is not CYCLE ADDRESS OCTETS"),
    ],
)
def test_a_bad_line_is_named(model: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "in").write_text(text + "\n")
    done = _batch(model, str(tmp_path / "in"), str(tmp_path / "out"))
    assert done.returncode == 1
    assert re.search(said, done.stderr)


def _batch(model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([model, "batch", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["in"],
        ["in", "out", "more"],
        ["in", "out", "--link-gbps", "3"],
        ["in", "out", "--queue"],
        ["in", "out", "--settle", "18446744073709551615"],
    ],
)
def test_wrong_use_prints_the_usage(model: Path, words: list[str]) -> None:
    done = _batch(model, *words)
    assert done.returncode == 2
    assert "usage: mqtick-broker-model" in done.stderr


def test_a_file_is_not_written_over_while_it_is_read(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_text("0 10.0.0.1:5 30\n")
    done = _batch(model, str(file), f"{tmp_path}/./in")
    assert done.returncode == 2
    assert "the same file" in done.stderr
    assert file.read_text() == "0 10.0.0.1:5 30\n"


def test_a_file_that_is_not_there_is_named(model: Path, tmp_path: Path) -> None:
    done = _batch(model, str(tmp_path / "none"), str(tmp_path / "out"))
    assert done.returncode == 1
    assert "none cannot be read" in done.stderr


def test_datagrams_of_any_octets_do_not_stop_the_next(model: Path) -> None:
    come, at = subscriptions({"10.1.0.1:5": TOPIC})
    rubbish = [bytes([i % 256, i // 256]) + bytes(i * 7 % 1470) for i in range(512)]
    for octets in rubbish:
        come.append(Datagram(at, "10.9.9.9:9", octets))
        at += 200
    good = publish(TOPIC, b"still here")
    sent = run_batch(model, [*come, Datagram(at + 50_000, PUBLISHER, good)], link_gbps=10)
    assert sent[-1] == Datagram(sent[-1].cycle, "10.1.0.1:5", good)


def test_a_flood_of_subscribers_that_prove_nothing_takes_no_place(model: Path) -> None:
    ask = Datagram(0, "10.0.0.9:5", subscribe(1, TOPIC))
    (challenge,) = run_batch(model, [ask], link_gbps=10, prove=False)
    come = [ask, replace(challenge, cycle=20_000), replace(ask, cycle=40_000)]
    # Faster than strangers are served: what the queue has no room for is lost.
    flood, apart = 100_000, 40
    come += [
        Datagram(60_000 + apart * number, subscriber(number), subscribe(1, "#"))
        for number in range(1, flood + 1)
    ]
    message = Datagram(100_000 + apart * flood, PUBLISHER, publish(TOPIC, b"for one"))
    sent = run_batch(model, [*come, message], link_gbps=10, prove=False)
    others = [each for each in sent if each.peer != ask.peer]
    assert len({each.peer for each in others}) > flood // 4
    assert all(each.octets.startswith(PROOF) for each in others)
    assert [each.peer for each in sent if each.octets == message.octets] == [ask.peer]


def test_a_model_that_fails_is_quoted(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no address"):
        run_batch(model, [Datagram(0, "nobody", b"x")], link_gbps=10)


# ---- the socket ---------------------------------------------------------------------------------


@pytest.fixture
def rtl(tmp_path: Path) -> Iterator[Rtl]:
    with model_running(tmp_path) as running:
        yield running


@contextlib.contextmanager
def peer(rtl: Rtl) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("127.0.0.1", rtl.port))
        one.settimeout(20.0)
        yield one


def subscribed(one: socket.socket, topic: str) -> None:
    """Subscribe, proving the address."""
    one.send(subscribe(1, topic))
    challenge = one.recv(2000)
    assert challenge.startswith(PROOF)
    one.send(challenge)
    one.send(subscribe(1, topic))
    assert one.recv(2000).hex() == "9003000100"


def test_the_socket_serves_real_programs(rtl: Rtl) -> None:
    with peer(rtl) as subscriber, peer(rtl) as publisher:
        subscribed(subscriber, TOPIC)
        publisher.send(publish(TOPIC, b"hello"))
        assert subscriber.recv(2000) == publish(TOPIC, b"hello")


def test_residence_through_the_socket_is_of_the_hosts_stamps(rtl: Rtl) -> None:
    message = publish(TOPIC, b"\x21" + bytes(47))
    with peer(rtl) as subscriber, peer(rtl) as publisher:
        subscribed(subscriber, TOPIC)
        seen = []
        for _ in range(3):
            publisher.send(message)
            seen.append(trailer(subscriber.recv(2000)))
    residences, corrections, copies, sources = zip(*seen, strict=True)
    # A real program took longer than the design's 200 ns, and less than this test.
    assert all(1_000 < each < 20e9 for each in residences)
    assert corrections[0] == NOT_KNOWN
    assert all(0 <= each < 10**9 for each in corrections[1:])
    assert copies == (1, 2, 3)
    assert set(sources) == {PROGRAM}


def test_a_datagram_longer_than_a_frame_is_dropped_and_counted(rtl: Rtl, tmp_path: Path) -> None:
    with peer(rtl) as subscriber, peer(rtl) as publisher:
        subscribed(subscriber, TOPIC)
        publisher.send(bytes(1473))
        publisher.send(b"")
        publisher.send(publish(TOPIC, b"next"))
        assert subscriber.recv(2000) == publish(TOPIC, b"next")
    status = tmp_path / "model.json"
    wait_until(lambda: json.loads(status.read_text())["oversized"] == 1, "the status counts it")
    said = json.loads(status.read_text())
    assert said["simulated"] is True
    assert said["slower_than_hardware"] > 1


def test_a_port_that_nobody_could_know_is_refused(model: Path) -> None:
    call = [model, "live", "--listen", "127.0.0.1:0"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--listen cannot be 127.0.0.1:0" in done.stderr


def test_a_status_takes_the_place_of_no_device(model: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    call = [model, "live", "--listen", "127.0.0.1:1", "--status", str(pipe)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert pipe.is_fifo()


def test_a_status_that_can_no_longer_be_written_does_not_end_the_broker(
    rtl: Rtl, tmp_path: Path
) -> None:
    with peer(rtl) as subscriber, peer(rtl) as publisher:
        subscribed(subscriber, TOPIC)
        (tmp_path / "model.json").unlink()
        (tmp_path / "model.json").mkdir()
        wait_until((tmp_path / "model.json.part").exists, "it is written and finds no place")
        publisher.send(publish(TOPIC, b"next"))
        assert subscriber.recv(2000) == publish(TOPIC, b"next")


def test_an_address_in_use_is_a_sentence(model: Path, rtl: Rtl) -> None:
    call = [model, "live", "--listen", f"127.0.0.1:{rtl.port}"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Nothing can listen on 127.0.0.1" in done.stderr
