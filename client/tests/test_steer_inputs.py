"""What reaches chronyd of all that is measured: one datagram a burst, with the right sign."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from samples import exchange

from mqtick.client.config import ChronyKeys
from mqtick.client.discipline import Discipline
from mqtick.client.estimate import Estimate, State
from mqtick.client.estimator import Estimator
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Reason, Sample, SampleVerdict
from mqtick.mqtt.loop import Loop

MS, US, SECOND = 1_000_000, 1_000, 1_000_000_000
BURST_NS = 50 * MS
BROADCASTS_NS = 200 * MS
SOCK_SAMPLE = struct.Struct("@qqdiiii")  # LP64, refclock_sock.c


class Datagram(NamedTuple):
    """A struct sock_sample."""

    realtime_ns: int
    offset_s: float
    pulse: int
    leap: int
    magic: int


class Knowing(Estimator):
    """An estimator that knows these limits, where it has no samples of its own."""

    limits: tuple[int | None, int | None] | None = None
    """None: they are half a millisecond around the sample that was taken last."""
    around_ns = 0

    def at(self, local_ns: int) -> Estimate:
        told = super().at(local_ns)
        if told.lower_ns is not None:
            return told
        around = self.around_ns - MS // 2, self.around_ns + MS // 2
        lower_ns, upper_ns = around if self.limits is None else self.limits
        state = State.UNSYNCHRONISED if lower_ns is None else State.SYNCHRONISED
        return replace(told, state=state, lower_ns=lower_ns, upper_ns=upper_ns)


class FakeTrack:
    """As much of a track as the discipline asks for."""

    def __init__(self, number: int | None = 0) -> None:
        self.number = number
        self.wants_exchange = False
        self.leap = 1  # of the last message, whoever sent it: not the sample's
        self.estimator = Knowing()


class Rig:
    """A discipline with sockets where chronyd would have its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = Loop()
        self.keys = ChronyKeys(socket=str(folder / "mqtick{server}.sock"), check_interval_s=0.0)
        self.discipline = Discipline(
            self.keys,
            self.loop,
            interval_ns=SECOND,
            burst_ns=BURST_NS,
            broadcasts_ns=BROADCASTS_NS,
            clock_changes=self.clock_changes,
        )
        self.is_set, self.changes = False, 0
        self.sockets: dict[str, socket.socket] = {}
        self._sequence = itertools.count()

    def clock_changes(self, look: bool) -> int:
        """How often a test has set CLOCK_REALTIME, as far as the client has noticed."""
        if look and self.is_set:
            self.is_set, self.changes = False, self.changes + 1
        return self.changes

    def listen(self, name: str = "mqtick0") -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(self.folder / f"{name}.sock"))
        sock.setblocking(False)
        self.sockets[name] = sock

    def unlisten(self) -> None:
        self.sockets["mqtick0"].close()
        (self.folder / "mqtick0.sock").unlink()

    def run(self, duration_ns: int = BURST_NS + 30 * MS) -> None:
        end_ns = time.monotonic_ns() + duration_ns
        while time.monotonic_ns() < end_ns:
            self.loop.turn(0.01)

    def received(self, name: str = "mqtick0") -> list[Datagram]:
        found = []
        while True:
            try:
                data = self.sockets[name].recv(100)
            except BlockingIOError:
                return found
            seconds, microseconds, offset_s, pulse, leap, _, magic = SOCK_SAMPLE.unpack(data)
            at_ns = seconds * SECOND + microseconds * US
            found.append(Datagram(at_ns, offset_s, pulse, leap, magic))

    def sent(self, name: str = "mqtick0") -> Any:
        """Let the burst end; returns the offsets that chronyd got of it, s."""
        self.run()
        return pytest.approx([datagram.offset_s for datagram in self.received(name)])

    def status(self) -> Any:
        return self.discipline.status()["0"]

    def take(self, offset_ns: int, delay_ns: int = 100 * US, **more: Any) -> WallSample:
        """Give the discipline a sample that arrived now, after a look at whether the clock was set.

        `is_set`: it is set right after that look.
        """
        self.clock_changes(True)
        self.is_set = more.pop("is_set", False)
        track, verdict = (
            more.pop("track", None) or FakeTrack(),
            more.pop("verdict", SampleVerdict.USED),
        )
        realtime_ns = more.pop("realtime_ns", time.time_ns())
        time_minus_raw_ns = more.pop("time_minus_raw_ns", 0)
        track.estimator.around_ns = offset_ns
        sample = Sample(
            more.pop("kind", Kind.ECHO),
            more.pop("local_ns", None) or time.monotonic_ns(),
            offset_ns,
            offset_ns - delay_ns,
            offset_ns + delay_ns,
            delay_ns,
            sequence=next(self._sequence),
            verdict=verdict,
            **more,
        )
        wall = WallSample(sample, time_minus_raw_ns, realtime_ns)
        self.discipline.on_sample(track, wall)
        return wall

    def close(self) -> None:
        self.discipline.close()
        for sock in self.sockets.values():
            sock.close()
        self.loop.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.listen()
    yield made
    made.close()


def test_of_a_burst_exactly_one_datagram_goes_the_one_with_the_narrowest_bracket(rig: Rig) -> None:
    for offset_ns, delay_ns in ((700 * US, 90 * US), (500 * US, 20 * US), (900 * US, 40 * US)):
        rig.take(offset_ns, delay_ns)
    assert rig.received() == [], "the burst is not over"
    rig.run()
    (datagram,) = rig.received()
    assert datagram.offset_s == pytest.approx(500e-6)
    assert datagram.magic == 0x534F434B
    assert datagram.pulse == 0


def test_the_next_burst_sends_the_next_datagram(rig: Rig) -> None:
    for offset_ns in (100 * US, 200 * US):
        rig.take(offset_ns)
        rig.take(offset_ns, 200 * US)
        assert [offset_ns / SECOND] == rig.sent()


def test_a_better_kind_wins_over_a_lesser_delay(rig: Rig) -> None:
    rig.take(300 * US, 5 * US, kind=Kind.TWO_WAY)
    rig.take(400 * US, 50 * US, kind=Kind.ECHO)
    assert rig.sent() == [400e-6]


@pytest.mark.parametrize("offset_ns", [3 * MS, -3 * MS])
def test_the_sign_is_reference_minus_system_clock(rig: Rig, offset_ns: int) -> None:
    """The sample is relative to the raw timeline; chronyd wants it relative to CLOCK_REALTIME."""
    raw_behind_ns = 1_700_000_000 * SECOND
    rig.take(offset_ns + raw_behind_ns, time_minus_raw_ns=raw_behind_ns)
    assert [offset_ns / SECOND] == rig.sent()


def test_the_time_stamp_is_the_system_clock_at_the_arrival(rig: Rig) -> None:
    arrived_ns = time.time_ns() - 20 * MS
    rig.take(1 * MS, realtime_ns=arrived_ns)
    rig.run()
    (datagram,) = rig.received()
    assert 0 <= arrived_ns - datagram.realtime_ns < US


@pytest.mark.parametrize(
    "sample",
    [
        {"verdict": SampleVerdict.REFUSED, "reason": Reason.CONTRADICTS},
        {"verdict": SampleVerdict.REFUSED, "reason": Reason.ECHO_ORDER},
        {"verdict": SampleVerdict.KEPT, "reason": Reason.BETTER_KIND, "kind": Kind.TWO_WAY},
        {"verdict": SampleVerdict.KEPT, "reason": Reason.PATH_UNKNOWN, "kind": Kind.ONE_WAY},
        {"leap": 3},
    ],
    ids=["contradicts", "echo-order", "better-kind", "path-unknown", "unsynchronised"],
)
def test_what_is_refused_or_second_best_never_reaches_chronyd(
    rig: Rig, sample: dict[str, Any]
) -> None:
    rig.take(1 * MS, **sample)
    rig.run(BROADCASTS_NS + 30 * MS)
    assert rig.received() == []
    assert rig.discipline.status() == {}


@pytest.mark.parametrize("leap", [0, 1, 2])
def test_the_leap_second_of_the_very_sample_is_passed_on(rig: Rig, leap: int) -> None:
    rig.take(1 * MS, leap=leap)
    rig.run()
    assert [datagram.leap for datagram in rig.received()] == [leap]


@pytest.mark.parametrize(("offset_ns", "sent_ns"), [(9 * MS, 600 * US), (-9 * MS, -400 * US)])
def test_what_lies_outside_the_guaranteed_interval_is_moved_to_its_end(
    rig: Rig, offset_ns: int, sent_ns: int
) -> None:
    """An exchange that was held up on one way is wide enough to agree, and its middle far off."""
    track = FakeTrack()
    track.estimator.limits = SECOND - 400 * US, SECOND + 600 * US
    rig.take(offset_ns + SECOND, 20 * MS, track=track, time_minus_raw_ns=SECOND)
    assert [sent_ns / SECOND] == rig.sent()


def test_what_the_client_has_forgotten_since_is_not_sent(rig: Rig) -> None:
    track = FakeTrack()
    rig.take(1 * MS, track=track)
    track.estimator.limits = None, None
    assert rig.sent() == []
    assert rig.status()["withheld"] == {"unsynchronised": 1}
    assert rig.status()["says"] == "nothing is sent: no sample was accepted yet"


def test_nothing_is_sent_while_the_client_itself_says_that_it_does_not_know(rig: Rig) -> None:
    """The state of the estimator decides, for instance when messages are held up by 0.4 s."""
    track = FakeTrack()
    held = rig.take(453 * MS, 450 * MS, kind=Kind.TWO_WAY, track=track)
    track.estimator.add(replace(held.sample, verdict=SampleVerdict.PENDING))
    assert rig.sent() == []
    assert rig.status()["withheld"] == {"unsynchronised": 1}
    assert (
        "interval is 450.0 ms, more than estimator.unsynchronised_bound_us (50 ms)"
        in (rig.status()["says"])
    )
    rig.discipline.tick()
    assert not track.wants_exchange, "no more requests would help"


def test_a_sample_goes_to_the_narrowest_reference_clock_that_covers_its_bound(rig: Rig) -> None:
    """chronyd takes half of a reference clock's delay as the greatest error."""
    names = {"mqtick0": 2, "mqtick0.20ms": 20, "mqtick0.100ms": 100, "mqtick0.1000ms": 1000}
    rig.unlisten()
    for name in names:
        rig.listen(name)
    track = FakeTrack()
    for bound_ns, to in (
        *((MS, "mqtick0"), (MS + US, "mqtick0.20ms"), (50 * MS, "mqtick0.100ms")),
        *((SECOND // 2, "mqtick0.1000ms"), (MS // 2, "mqtick0"), (SECOND, None)),
    ):
        track.estimator.limits = -bound_ns, bound_ns
        rig.take(0, track=track)
        rig.run()
        assert {name for name in names if rig.received(name)} == ({to} if to else set())
        if to:
            assert rig.status()["delay_ns"] == names[to] * MS
    assert "the bound is 1.000 s, more than chronyd is told (0.5 s)" in rig.status()["says"]


def test_a_bound_that_goes_to_and_fro_makes_no_reference_clock_new_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqtick.client.discipline._START_SPACING_NS", 0)
    monkeypatch.setattr("mqtick.client.discipline._START_NS", 0)
    rig.listen("mqtick0.20ms")
    track = FakeTrack()
    for bound_ns in (MS, 2 * MS, MS, 2 * MS):
        track.estimator.limits = -bound_ns, bound_ns
        rig.take(0, track=track)
        rig.run()
        rig.discipline.tick()
        assert not track.wants_exchange


def test_the_bound_is_covered_until_the_next_sample(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one exchange, the interval grows by 200 ppm: 0.1 ms in the first wait, then 0.26 ms."""
    monkeypatch.setattr("mqtick.client.discipline._START_NS", 0)
    rig.listen("mqtick0.20ms")
    for times, delay_ns in ((1, 2 * MS), (2, 20 * MS)):  # it is new only once
        track = FakeTrack()
        wall = rig.take(0, 800 * US, kind=Kind.TWO_WAY, track=track)
        track.estimator.add(replace(wall.sample, verdict=SampleVerdict.PENDING))
        rig.run()
        assert (times, rig.status()["delay_ns"]) == (times, delay_ns)


def test_the_root_distance_of_the_server_has_to_be_covered_too(rig: Rig) -> None:
    track = FakeTrack()
    near = exchange(0, 0, US, Kind.TWO_WAY)
    track.estimator.add(replace(near, root_distance_ns=20 * MS))
    rig.take(0, track=track, local_ns=near.local_ns + MS)
    rig.run()
    assert rig.status()["delay_ns"] == 100 * MS


def test_a_clock_that_stays_grossly_wrong_beside_chronyd_is_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.take(100 * SECOND)
    rig.run()
    assert rig.status()["clock_offset_ns"] == 100 * SECOND
    assert rig.status()["clock_says"] == "", "chronyd may still step it"
    monkeypatch.setattr("mqtick.client.discipline._START_NS", 0)
    assert "100.0 s behind the time, and chronyd does not step it" in rig.status()["clock_says"]
    assert "at least 1200 s; to set it now: chronyc makestep" in rig.status()["clock_says"]
    rig.take(MS)
    rig.run()
    assert rig.status()["clock_says"] == ""


def test_what_exchanges_contradict_since_is_not_sent(rig: Rig) -> None:
    track = FakeTrack()
    track.estimator.add(exchange(0, MS, kind=Kind.TWO_WAY))
    rig.take(1 * MS, track=track)
    for at_s in (1, 2):
        track.estimator.add(exchange(at_s, SECOND, kind=Kind.TWO_WAY))
    assert rig.sent() == []


def test_each_server_has_a_reference_clock_of_its_own(rig: Rig) -> None:
    rig.listen("mqtick7")
    rig.take(1 * MS, track=FakeTrack(None))  # one without a number takes the first
    rig.take(2 * MS, track=FakeTrack(7))
    assert rig.sent() == [1e-3]
    assert rig.sent("mqtick7") == [2e-3]
    assert sorted(rig.discipline.status()) == ["0", "7"]


def test_a_sample_that_is_not_newer_than_the_last_is_not_sent(rig: Rig) -> None:
    """chronyd wants strictly rising time stamps."""
    now_ns = time.monotonic_ns()
    for local_ns in (now_ns, now_ns - 1 * MS, now_ns):
        rig.take(1 * MS, local_ns=local_ns)
        rig.run()
    assert len(rig.received()) == 1
    assert rig.status()["withheld"] == {"not-newer": 2}


def test_samples_flow_again_after_the_clock_was_set_back(rig: Rig) -> None:
    rig.take(-3600 * SECOND, realtime_ns=time.time_ns() + 3600 * SECOND)
    assert rig.sent() == [-3600]
    rig.is_set = True  # by chronyd, which steps the clock back
    for _ in range(2):
        rig.take(0)
        assert rig.sent() == [0]


def test_a_burst_that_was_measured_before_a_step_of_the_clock_is_not_sent(rig: Rig) -> None:
    rig.take(1 * MS)
    rig.is_set = True
    assert rig.sent() == []
    assert rig.status()["withheld"] == {"clock-stepped": 1}
    rig.take(1 * MS)
    assert rig.sent() == [1e-3]


def test_the_clock_is_not_set_unseen_before_the_burst_begins_nor_before_it_is_sent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.take(1 * MS, is_set=True)
    assert rig.sent() == []
    growth_ns = rig.discipline._growth_ns

    def while_the_clock_is_set(*about: Any) -> int:
        rig.is_set = True
        return growth_ns(*about)

    monkeypatch.setattr(rig.discipline, "_growth_ns", while_the_clock_is_set)
    rig.take(1 * MS)
    assert rig.sent() == []
    assert rig.status()["withheld"] == {"clock-stepped": 2}


def test_a_missing_socket_is_counted_explained_and_used_as_soon_as_it_is_there(rig: Rig) -> None:
    rig.unlisten()
    rig.take(1 * MS)
    rig.run()
    assert rig.status()["sent"] == {"missing": 1}
    assert "is missing: chronyd is not running" in rig.status()["says"]
    rig.listen()
    rig.take(1 * MS)
    assert rig.sent() == [1e-3]
    assert rig.status()["sent"] == {"sent": 1, "missing": 1}
    assert "is missing" not in rig.status()["says"]


def broadcast(rig: Rig, track: FakeTrack, at_ns: int, lower_ns: int) -> WallSample:
    sample = Sample(Kind.ONE_WAY, at_ns, lower_ns, lower_ns, None, sequence=at_ns)
    judged = track.estimator.add(sample)
    track.estimator.around_ns = lower_ns
    wall = WallSample(judged, 0, time.time_ns())
    rig.discipline.on_sample(track, wall)  # type: ignore[arg-type]
    return wall


def test_where_only_broadcasts_are_heard_the_best_of_several_seconds_goes(rig: Rig) -> None:
    track, covers = FakeTrack(), "mqtick0.100ms"  # what is assumed of their path
    rig.listen(covers)
    for second in range(6):
        broadcast(rig, track, second * SECOND, 1 * MS)
    rig.run()
    assert rig.received(covers) == [], "broadcasts are collected for longer than a burst"
    rig.run(BROADCASTS_NS)
    assert len(rig.received(covers)) == 1


def test_broadcasts_are_not_collected_until_chronyd_would_find_them_too_old(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drops what is older than two polls, 8 s, without a word."""
    planned: list[int] = []
    monkeypatch.setattr(rig.loop, "call_later", lambda wait_ns, _call: planned.append(wait_ns))
    patient = Discipline(
        *(rig.keys, rig.loop),
        interval_ns=SECOND,
        burst_ns=BURST_NS,
        broadcasts_ns=8 * SECOND,
        clock_changes=rig.clock_changes,
    )
    rig.discipline = patient
    track = FakeTrack()
    for second in range(6):
        broadcast(rig, track, second * SECOND, 1 * MS)
    assert planned == [6 * SECOND]


def test_a_new_chronyd_is_fed_more_often_until_it_knows_the_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = FakeTrack()

    def asks() -> bool:
        track.wants_exchange = False
        rig.discipline.tick()
        return track.wants_exchange

    rig.take(1 * MS, track=track)
    assert not asks(), "a burst is on its way"
    rig.run()
    assert not asks(), "it has just got a sample"
    monkeypatch.setattr("mqtick.client.discipline._START_SPACING_NS", 0)
    assert asks()
    monkeypatch.setattr("mqtick.client.discipline._START_NS", 0)
    assert not asks(), "it has been fed for long enough"

    rig.unlisten()
    assert not asks(), "nobody is there"
    rig.listen()
    assert asks(), "it is another chronyd"


def test_beside_exchanges_broadcasts_do_not_steer(rig: Rig) -> None:
    track = FakeTrack()
    track.estimator.add(exchange(0, MS, US, Kind.TWO_WAY))
    for second in range(1, 4):
        broadcast(rig, track, second * SECOND, 1 * MS - 200 * US)
    rig.run(BROADCASTS_NS + 30 * MS)
    assert rig.received() == []


def test_a_check_that_comes_back_after_the_end_does_no_harm(rig: Rig) -> None:
    rig.take(1 * MS)
    rig.run()
    rig.loop.close()
    rig.discipline._check()
    rig.loop = Loop()


def test_a_server_that_is_only_heard_steers_nothing_while_one_that_was_asked_is_known(
    rig: Rig,
) -> None:
    near, far = FakeTrack(0), FakeTrack(1)
    rig.listen("mqtick1.100ms")

    def hear() -> Any:
        for _ in range(4):
            wall = rig.take(MS, kind=Kind.ONE_WAY, track=far)
            far.estimator.add(replace(wall.sample, verdict=SampleVerdict.PENDING))
        assert far.estimator.at(time.monotonic_ns()).assumed
        rig.take(MS, kind=Kind.ONE_WAY, track=far)
        rig.run(BROADCASTS_NS + 30 * MS)
        return len(rig.received("mqtick1.100ms"))

    assert hear() == 1, "there is no other time"
    wall = rig.take(0, kind=Kind.TWO_WAY, track=near)
    near.estimator.add(replace(wall.sample, verdict=SampleVerdict.PENDING))
    assert hear() == 0
