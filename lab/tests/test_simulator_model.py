"""The simulated oscilloscope's physics: it shows what there was, as an instrument sees it."""

from __future__ import annotations

import math
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator import EdgeFeed, Model, Physics
from mqtick.pins.memory import PinRecord, encode_record

NOW_NS = 400 * 86_400 * 10**9 + 123  # an uptime at which floats of nanoseconds hold no fractions


class Bench:
    """A model with a clock that the test moves."""

    def __init__(self, **physics: object) -> None:
        self.now_ns = NOW_NS
        self.model = Model(
            EdgeFeed(), {1: 1, 2: 2}, Physics(**{"noise_v": 0.0, **physics}), lambda: self.now_ns
        )
        for channel in (1, 2):
            source = self.model.inputs[channel]
            source.on, source.offset_v = True, 1.65
        self.model.before = 0.1

    def edge(self, line: int, after_ns: int, level: bool = True) -> None:
        self.model.feed.add(line, NOW_NS + after_ns, level)

    def record(self) -> None:
        """Arm, and come back long afterwards."""
        self.model.start(single=True)
        self.now_ns += 10**9
        assert self.model.poll() is State.STOPPED

    def volts(self, channel: int = 1) -> np.ndarray:
        codes = self.model.codes(channel, self.model.frames[0]).astype(float)
        scale = self.model.volts_per_code(channel)
        return (codes - self.model.middle_code) * scale + self.model.inputs[channel].offset_v

    def times_s(self) -> np.ndarray:
        frame = self.model.frames[0]
        return frame.start_s + np.arange(frame.points) * frame.interval_s

    def crossing_s(self, channel: int, level_v: float = 1.65) -> float:
        volts, times_s = self.volts(channel), self.times_s()
        above = volts >= level_v
        at = int(np.flatnonzero(above[1:] != above[:-1])[0])
        share = (level_v - volts[at]) / (volts[at + 1] - volts[at])
        return float(times_s[at] + share * (times_s[at + 1] - times_s[at]))


def test_the_rise_time_is_the_one_that_was_asked_for() -> None:
    bench = Bench(rise_s=200e-9, bits=16)
    bench.edge(1, 500_000)
    bench.record()
    took_s = bench.crossing_s(1, 0.9 * 3.3) - bench.crossing_s(1, 0.1 * 3.3)
    assert took_s == pytest.approx(200e-9, rel=0.01)


@given(
    apart_ns=st.integers(-50_000, 500_000),
    skew_ns=st.floats(0, 1000),
    ppm=st.floats(-100, 100),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20)
def test_an_edge_is_where_time_base_and_cable_put_it(
    apart_ns: int, skew_ns: float, ppm: float, seed: int
) -> None:
    bench = Bench(rise_s=20e-9, bits=16, ppm=ppm, skew_s={2: skew_ns / 1e9}, seed=seed)
    bench.edge(1, 500_000)
    bench.edge(2, 500_000 + apart_ns)
    bench.record()
    wanted_s = (apart_ns + skew_ns) * (1 + ppm * 1e-6) / 1e9
    assert bench.crossing_s(2) - bench.crossing_s(1) == pytest.approx(wanted_s, abs=0.1e-9)
    assert bench.crossing_s(1) == pytest.approx(0.0, abs=0.1e-9)  # the trigger is instant 0


def test_deskew_takes_the_cable_away() -> None:
    bench = Bench(rise_s=20e-9, bits=16, skew_s={2: 35e-9})
    bench.model.inputs[2].deskew_s = 35e-9
    bench.edge(1, 500_000)
    bench.edge(2, 500_000)
    bench.record()
    assert bench.crossing_s(2) == pytest.approx(0.0, abs=0.1e-9)


@pytest.mark.parametrize("level_v", [0.4, 1.65, 2.9])
def test_the_trigger_is_where_the_edge_passes_its_level(level_v: float) -> None:
    bench = Bench(rise_s=300e-9, bits=16)
    bench.model.trigger_level_v = level_v
    bench.edge(1, 500_000)
    bench.record()
    assert bench.crossing_s(1, level_v) == pytest.approx(0.0, abs=0.2e-9)


def test_the_sample_clock_stands_at_any_phase_to_the_trigger() -> None:
    phases = []
    for seed in range(50):
        bench = Bench(seed=seed)
        bench.edge(1, 500_000)
        bench.record()
        frame = bench.model.frames[0]
        phases.append(-frame.start_s / frame.interval_s % 1.0)
    assert max(phases) > 0.8
    assert min(phases) < 0.2


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_the_converter_has_its_bits_and_no_more(bits: int) -> None:
    bench = Bench(bits=bits, noise_v=1.0)
    bench.edge(1, 500_000)
    bench.record()
    codes = bench.model.codes(1, bench.model.frames[0])
    assert codes.min() >= 0
    assert codes.max() < 1 << bits
    assert len(np.unique(codes)) > 0.3 * min(1 << bits, 2000)


def test_noise_has_its_standard_deviation_and_is_the_same_when_read_again() -> None:
    bench = Bench(bits=16, noise_v=0.05)
    bench.edge(1, 500_000)
    bench.record()
    volts = bench.volts(2)
    assert np.std(volts) == pytest.approx(0.05, rel=0.02)
    np.testing.assert_array_equal(volts, bench.volts(2))


def test_what_is_beyond_the_screen_is_clipped() -> None:
    bench = Bench()
    bench.model.inputs[1].volts_per_division = 0.1
    bench.edge(1, 500_000)
    bench.record()
    codes = bench.model.codes(1, bench.model.frames[0])
    assert (codes.min(), codes.max()) == (0, 255)
    assert len(np.unique(codes)) <= 3  # and at most one sample on its way


def test_alternating_coupling_shows_the_change_only_and_ground_nothing() -> None:
    bench = Bench(bits=16)
    for channel, coupling in ((1, "AC"), (2, "GND")):
        bench.model.inputs[channel].coupling = coupling
        bench.model.inputs[channel].offset_v = 0.0
    bench.model.trigger_level_v, bench.model.trigger_slope = -1.65, "falling"
    bench.edge(1, -(10**9))
    bench.edge(2, 500_000)
    bench.edge(1, 500_000, level=False)
    bench.record()
    assert bench.volts(1)[0] == pytest.approx(0.0, abs=1e-3)
    assert bench.volts(1)[-1] == pytest.approx(-3.3, abs=1e-3)
    assert bench.crossing_s(1, -1.65) == pytest.approx(0.0, abs=0.1e-9)
    assert np.ptp(bench.volts(2)) == 0


def test_a_pulse_shorter_than_the_rise_time_is_a_runt() -> None:
    bench = Bench(rise_s=200e-9)
    bench.model.trigger_level_v = 0.3
    bench.edge(1, 500_000)
    bench.edge(1, 500_050, level=False)
    bench.record()
    assert 0.2 < bench.volts(1).max() < 1.6
    assert bench.volts(1)[-1] == pytest.approx(0.0, abs=0.05)


@given(span_s=st.floats(1e-7, 10.0), depth=st.integers(100, 1_000_000))
def test_rate_and_memory_fit_the_span(span_s: float, depth: int) -> None:
    model = Model(EdgeFeed(), {})
    model.depth, model.span_s = depth, span_s
    assert model.points <= depth
    assert model.rate_hz <= model.physics.max_rate_hz
    assert float(f"{model.rate_hz:.0e}") == pytest.approx(model.rate_hz, rel=0.26)
    if model.rate_hz < model.physics.max_rate_hz:
        assert model.points > 0.35 * depth


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("span_s", 0.0),
        ("span_s", -1.0),
        ("span_s", math.nan),
        ("span_s", math.inf),
        ("depth", 0),
        ("depth", 10**12),
        ("segments", 0),
        ("segments", 10**9),
    ],
)
def test_settings_that_no_instrument_has_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"span|memory|segments"):
        setattr(Model(EdgeFeed(), {}), name, value)


@pytest.mark.parametrize(
    ("name", "value"), [("volts_per_division", 0.0), ("probe", -1.0), ("offset_v", math.nan)]
)
def test_inputs_that_no_instrument_has_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        setattr(Model(EdgeFeed(), {}).inputs[1], name, value)


def test_the_states_of_an_acquisition_follow_one_another() -> None:
    bench = Bench()
    assert bench.model.poll() is State.STOPPED
    bench.model.start(single=True)
    assert bench.model.poll() is State.PREPARING  # the part before the trigger fills
    bench.now_ns += 200_000
    assert bench.model.poll() is State.ARMED
    bench.edge(1, 300_000)
    bench.now_ns += 200_000
    assert bench.model.poll() is State.TRIGGERED
    bench.now_ns += 20_000_000
    assert bench.model.poll() is State.STOPPED
    assert len(bench.model.frames) == 1


def test_an_edge_before_it_is_armed_triggers_nothing() -> None:
    bench = Bench()
    bench.model.start(single=True)
    bench.edge(1, 50_000)
    bench.now_ns += 10**8
    assert bench.model.poll() is State.ARMED


def test_a_trigger_that_fails_does_so_for_one_acquisition() -> None:
    bench = Bench()
    fails = iter([True, False])
    bench.model.fails_to_trigger = lambda: next(fails)
    bench.edge(1, 500_000)
    bench.model.start(single=True)
    bench.now_ns += 10**9
    assert bench.model.poll() is State.ARMED
    bench.edge(1, 10**9 + 500_000)
    bench.record()
    assert len(bench.model.frames) == 1


def wait_until(condition) -> None:
    end_s = time.monotonic() + 30
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.001)
    assert condition()


def test_records_of_other_programs_arrive_however_many_come_at_once(tmp_path: Path) -> None:
    feed = EdgeFeed()
    feed.listen(tmp_path / "pins.sock")
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.connect(str(tmp_path / "pins.sock"))
    sender.send(b"no record")
    for index in range(500):
        sender.send(encode_record(PinRecord(1000 + index, 7, index % 2 == 0)))
    wait_until(lambda: len(feed.between(7, 0, 1e9)[1]) == 500)
    assert feed.refused == 1
    feed.close()
    assert not (tmp_path / "pins.sock").exists()
    sender.close()


def test_a_path_that_is_somebody_elses_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("years of work")
    with pytest.raises(OSError, match="not a socket"):
        EdgeFeed().listen(file)
    assert file.read_text() == "years of work"
    first = EdgeFeed()
    first.listen(tmp_path / "pins.sock")
    with pytest.raises(OSError, match="another program"):
        EdgeFeed().listen(tmp_path / "pins.sock")
    first.close()


def test_a_socket_that_a_dead_program_left_behind_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(tmp_path / "pins.sock"))
    left.close()
    feed = EdgeFeed()
    feed.listen(tmp_path / "pins.sock")
    feed.close()


def test_edges_that_come_out_of_order_are_put_in_order() -> None:
    feed = EdgeFeed()
    for time_ns, level in ((30, True), (10, True), (20, False)):
        feed.add(1, time_ns, level)
    assert feed.between(1, 10, 30) == (True, [(20, False), (30, True)])
    assert feed.between(1, 0, 5) == (False, [])
