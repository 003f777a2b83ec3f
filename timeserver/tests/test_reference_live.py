"""What the server says of its clock, as a real chronyd says it. chronyd never touches the clock."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chronyd_rig import ChronydRig, chronyds
from server_rig import PlainNode, Served

from demo.local_broker import Mosquitto, running
from mqtick.protocol.precise import Leap, Time
from mqtick.service import Leap as ChronydLeap
from mqtick.service import chronyd
from mqtick.timeserver.reference import ReferenceWatch, from_chronyd, unsynchronised
from mqtick.timeserver.served import Look

__all__ = ["chronyds"]  # a fixture

pytestmark = [
    pytest.mark.needs("chronyd"),
    pytest.mark.needs("mosquitto"),
]

SOCK_SAMPLE = struct.Struct("@qqdiiii")  # struct sock_sample of chrony's refclock_sock.c, 64 bits


class RefClock:
    """A reference clock for chronyd: the host's own clock, said to be right."""

    def __init__(self, rig: ChronydRig) -> None:
        self.rig = rig
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        rig.start(
            "refclock SOCK {folder}/ref.sock refid TEST poll -2 filter 1 stratum 3 "
            "precision 1e-6 delay 1e-4",
        )

    def feed(self) -> None:
        now_ns = time.time_ns()
        sample = SOCK_SAMPLE.pack(now_ns // 10**9, now_ns % 10**9 // 1000, 0.0, 0, 0, 0, 0x534F434B)
        self._socket.sendto(sample, f"{self.rig.folder}/ref.sock")

    def until(self, condition: Callable[[], object]) -> None:
        def step() -> object:
            self.feed()
            time.sleep(0.02)
            return condition()

        self.rig.wait_until(step)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def reference(chronyds: Callable[[], ChronydRig]) -> Iterator[RefClock]:
    if struct.calcsize("l") != 8:
        pytest.skip("the sample's layout here is that of 64-bit machines")
    made = RefClock(chronyds())
    yield made
    made.close()


def test_a_chronyd_without_a_source_vouches_for_nothing(
    chronyds: Callable[[], ChronydRig],
) -> None:
    rig = chronyds()
    rig.start("refclock SOCK {folder}/ref.sock refid TEST")
    found = from_chronyd(rig.command_socket)
    assert (found.synchronised, found.stratum, found.leap) == (False, 15, Leap.UNSYNCHRONISED)
    assert found.reason.startswith("chronyd is not synchronised")


def test_a_chronyd_that_is_not_there_vouches_for_nothing() -> None:
    found = from_chronyd("/nowhere/chronyd.sock")
    assert not found.synchronised
    assert "chronyd" in found.reason


@pytest.mark.slow
def test_a_synchronised_chronyd_gives_stratum_leap_and_root_distance(
    tmp_path: Path, reference: RefClock
) -> None:
    command = reference.rig.command_socket
    reference.until(lambda: from_chronyd(command).synchronised)
    with (
        running(Mosquitto(tmp_path)) as own,
        Served(
            own.url,
            trust_system_clock=False,
            chronyd_host=command,
            chronyd_interval_s=0.5,
        ) as served,
        PlainNode(own.port, "mqtick/t/0") as node,
    ):
        served.until(lambda: node.messages)
        message = Time.decode(node.messages[-1].payload)
        tracking = reference.rig.tracking()
        assert (message.stratum, message.leap) == (tracking.stratum, Leap.NONE)
        assert message.stratum == 4  # the reference is of stratum 3
        assert 0.5 < message.root_distance_ns / tracking.root_distance_ns < 2
        assert "chronyd is synchronised to TEST, stratum 4" in served.server.reference.reason

        reference.rig.stop()
        served.until(lambda: Time.decode(node.messages[-1].payload).leap is Leap.UNSYNCHRONISED)


@pytest.mark.parametrize("leap", [Leap.NONE, Leap.INSERT, Leap.DELETE])
def test_a_leap_second_that_chronyd_announces_is_announced(
    reference: RefClock, monkeypatch: pytest.MonkeyPatch, leap: Leap
) -> None:
    # chronyd itself would do so on the last days of June and December only.
    reference.until(lambda: from_chronyd(reference.rig.command_socket).synchronised)
    tracking = replace(reference.rig.tracking(), leap=ChronydLeap(leap))
    monkeypatch.setattr(chronyd, "tracking", lambda **_: tracking)
    assert (from_chronyd().synchronised, from_chronyd().leap) == (True, leap)


def test_an_answer_that_is_too_old_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    good = unsynchronised("any answer")
    watch = ReferenceWatch(4.0, lambda: good, lambda: Look(0, 0, 0))
    watch._ask()
    assert watch.current is good
    clock = time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock() + 63 * 10**9)
    assert watch.current is good
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock() + 65 * 10**9)
    assert watch.current.reason == "chronyd has not answered for more than a minute."


def test_before_chronyd_was_asked_nothing_is_claimed() -> None:
    watch = ReferenceWatch(4.0, lambda: unsynchronised(""), lambda: Look(0, 0, 0))
    assert not watch.current.synchronised
