"""What a shot's waveforms say, and every reason why they may be unusable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.recording.judge import judge
from mqtick.recording.layout import Layout, LayoutError, Trigger, layout_of
from mqtick.recording.look import look_at_all
from mqtick.recording.shot import Shot
from mqtick.recording.waveform import Waveform
from recording.tests.wave_parts import (
    CHANNELS,
    INTERVAL_FS,
    POINTS,
    PPS_LAYOUT,
    SKEW_LAYOUT,
    START_FS,
    US,
    channel,
    record_of,
    wave,
)


def judged(layout: Layout, waves: dict[str, Waveform]) -> Shot:
    (shot,) = judge(layout, look_at_all(layout, waves))
    return shot


PUBLISHED = {"pub": wave(0), "near": wave(50), "far": wave(80)}


def test_latency_and_skew_come_from_the_leading_edges() -> None:
    found = judged(SKEW_LAYOUT, {"pub": wave(0, 100), "near": wave(50, 150), "far": wave(80, 180)})
    assert found.reason == ""
    assert found.latency_fs == pytest.approx(50 * US, abs=US)
    assert found.skew_fs == pytest.approx(30 * US, abs=US)
    assert found.edges_found == {"pub": 2, "near": 2, "far": 2}


def test_an_edge_says_how_far_it_may_be_off_and_how_many_edges_were_like_it() -> None:
    waves = {"pub": wave(0, 100), "near": wave(50, 150, 250, 350), "far": wave(80)}
    edges = judged(SKEW_LAYOUT, waves).edges
    assert {name: edge.found for name, edge in edges.items()} == {"pub": 1, "near": 2, "far": 1}
    assert all(0 < edge.uncertainty_fs <= INTERVAL_FS for edge in edges.values())
    assert all(edge.rising and not edge.clipped for edge in edges.values())
    assert all(edge.quality and edge.samples_in_rise > 0 for edge in edges.values())


def test_a_short_pulse_that_is_cut_off_is_marked_as_clipped() -> None:
    waves = PUBLISHED | {"far": wave(80, 84, high=250)}
    codes = np.minimum(np.asarray(waves["far"].codes, int) + 20, 255).astype(np.uint8)
    cut = replace(waves["far"], codes=codes, volts_per_code=0.02)
    found = judged(SKEW_LAYOUT, waves | {"far": cut})
    assert found.reason == ""
    assert found.edges["far"].clipped


def test_a_pin_that_toggles_may_fall_where_either_direction_triggers() -> None:
    waves = {"pub": wave(0), "near": wave(50, level=True), "far": wave(80)}
    toggling = replace(SKEW_LAYOUT, triggers={"scope": Trigger("pub", "either")})
    assert judged(toggling, waves).skew_fs == pytest.approx(30 * US, abs=US)


def test_the_end_of_an_old_pulse_is_no_answer() -> None:
    waves = PUBLISHED | {"near": wave(2, level=True)}
    found = judged(SKEW_LAYOUT, waves)
    assert "near (input 2, pin arrival of client:first) has none that belongs" in found.reason
    assert "falling at 2." in found.reason
    assert found.latency_fs is None
    assert set(found.edges) == {"pub", "far"}


@pytest.mark.parametrize("start_us", [-500, -8_000])
def test_an_answer_to_an_earlier_event_is_not_taken(start_us: int) -> None:
    """However long the record is: the answer that is nearer to the event counts."""

    def at(*edges_us: float) -> Waveform:
        codes = np.full(40_000, 120, np.uint8)
        for number, edge_us in enumerate(edges_us):
            codes[round((edge_us - start_us) * 4) :] = 120 if number % 2 else 200
        return Waveform(codes, 0.04, 120, INTERVAL_FS, start_us * US)

    waves = {"pub": at(0, 50), "near": at(-300, -200, 80, 180), "far": at(90, 190)}
    found = judged(SKEW_LAYOUT, waves)
    assert found.latency_fs == pytest.approx(80 * US, abs=US)


def test_a_shot_of_no_use_keeps_the_edges_that_it_has() -> None:
    cut = judged(SKEW_LAYOUT, PUBLISHED | {"far": wave(80, high=255)})
    assert {name: edge.clipped for name, edge in cut.edges.items()} == {
        "pub": False,
        "near": False,
        "far": True,
    }
    assert set(judged(SKEW_LAYOUT, PUBLISHED | {"far": wave()}).edges) == {"pub", "near"}
    assert set(judged(SKEW_LAYOUT, PUBLISHED | {"pub": wave()}).edges) == {"near", "far"}
    assert set(judged(SKEW_LAYOUT, PUBLISHED | {"pub": wave(300)}).edges) == {"near", "far"}
    assert judged(SKEW_LAYOUT, {}).reason


def test_a_level_cut_flat_below_the_codes_limits_is_marked_too() -> None:
    random = np.random.default_rng(5)
    codes = np.asarray(wave(80).codes, float) * 100 + random.normal(0, 40, POINTS)
    flat = np.minimum(np.rint(codes), 19_850).astype(np.uint16)
    waves = PUBLISHED | {"far": Waveform(flat, 0.0004, 12_000, INTERVAL_FS, START_FS)}
    found = judged(SKEW_LAYOUT, waves)
    assert found.reason == ""
    assert {name for name, edge in found.edges.items() if edge.clipped} == {"far"}


def test_a_subscriber_may_be_faster_than_the_publishers_own_pin() -> None:
    waves = {"pub": wave(0, 100), "near": wave(-40, 60), "far": wave(10, 110)}
    assert judged(SKEW_LAYOUT, waves).latency_fs == pytest.approx(-40 * US, abs=US)


def test_the_end_of_an_earlier_pulse_is_not_the_edge() -> None:
    waves = {"pub": wave(0, 100), "near": wave(-90, 50, 150, level=True), "far": wave(80, 180)}
    assert judged(SKEW_LAYOUT, waves).latency_fs == pytest.approx(50 * US, abs=US)


@settings(max_examples=25)
@given(st.integers(-5000, 5000), st.integers(-20_000, 20_000))
def test_cable_delays_are_taken_off(publisher_ns: int, last_ns: int) -> None:
    longer = dict(CHANNELS)
    longer["pub"] = channel(1, "server:0", "time", delay_us=publisher_ns / 1e3)
    longer["far"] = channel(3, "client:last", delay_us=last_ns / 1e3)
    plain = judged(SKEW_LAYOUT, PUBLISHED)
    found = judged(replace(SKEW_LAYOUT, channels=longer), PUBLISHED)
    assert found.latency_fs == (plain.latency_fs or 0) + publisher_ns * 10**6
    assert found.skew_fs == (plain.skew_fs or 0) - last_ns * 10**6


@pytest.mark.parametrize(
    ("waves", "said"),
    [
        ({"pub": wave(300)}, "triggered by something other than the edge of pub"),
        ({"pub": wave(0, level=True)}, "has no rising edge"),
        ({"pub": wave()}, "Fewer edges than channels: pub (input 1, pin time of server:0)"),
        ({"far": wave()}, "Fewer edges than channels: far (input 3, pin arrival of client:last)"),
        ({"far": wave(80, high=255)}, "far (input 3, pin arrival of client:last) is clipped"),
        ({"near": wave(80, low=0)}, "near (input 2, pin arrival of client:first) is clipped"),
    ],
)
def test_each_fault_has_its_sentence(waves: dict[str, Waveform], said: str) -> None:
    found = judged(SKEW_LAYOUT, PUBLISHED | waves)
    assert said in found.reason
    assert found.latency_fs is None
    assert found.skew_fs is None


def test_a_record_that_is_missing_is_said_and_one_that_nobody_knows_is_left() -> None:
    waves = {"pub": wave(0), "near": wave(50), "stranger": wave(60)}
    assert "no record of far (input 3" in judged(SKEW_LAYOUT, waves).reason
    assert judged(SKEW_LAYOUT, PUBLISHED | {"stranger": wave(60)}).reason == ""


def test_a_channel_without_a_part_may_be_silent() -> None:
    more = replace(SKEW_LAYOUT, channels={**CHANNELS, "other": channel(4, "client:third")})
    found = judged(more, PUBLISHED | {"other": wave()})
    assert found.reason == ""
    assert found.edges_found["other"] == 0


def test_one_bit_of_a_logic_analyser_cannot_be_clipped() -> None:
    def bit(at: int) -> Waveform:
        codes = np.zeros(POINTS, np.uint8)
        codes[at:] = 1
        return Waveform(codes, 3.3, 0.0, INTERVAL_FS, START_FS)

    found = judged(SKEW_LAYOUT, {"pub": bit(400), "near": bit(600), "far": bit(680)})
    assert found.reason == ""
    assert found.skew_fs == pytest.approx(20 * US, abs=US)


def test_two_instruments_compare_by_the_edge_that_triggered_both() -> None:
    channels = {
        "pub": CHANNELS["pub"],
        "near": CHANNELS["near"],
        "pub2": channel(1, "server:0", "time", "right"),
        "far": channel(2, "client:last", instrument="right"),
    }
    triggers = {"scope": Trigger("pub", "rising"), "right": Trigger("pub2", "rising")}
    two = replace(SKEW_LAYOUT, channels=channels, triggers=triggers)
    waves = {"pub": wave(0), "near": wave(50), "pub2": wave(5), "far": wave(85)}
    found = judged(two, waves)
    assert found.reason == ""
    assert found.skew_fs == pytest.approx(30 * US, abs=US)
    alone = judged(SKEW_LAYOUT, {"pub": wave(0), "near": wave(50), "far": wave(80)}).edges
    for name, trigger in (("near", "pub"), ("far", "pub2")):
        stated_fs = found.edges[name].uncertainty_fs
        assert stated_fs > found.edges[trigger].uncertainty_fs
    trigger_fs = found.edges["pub"].uncertainty_fs
    assert found.edges["near"].uncertainty_fs == alone["near"].uncertainty_fs + trigger_fs


def test_clocks_compare_with_the_reference_by_the_nearest_edge_alike() -> None:
    waves = {"ref": wave(0, 100), "early": wave(-30, 70), "late": wave(60, 160)}
    assert judged(PPS_LAYOUT, waves).clock_fs == {
        "early": pytest.approx(-30 * US, abs=US),
        "late": pytest.approx(60 * US, abs=US),
    }


@pytest.mark.parametrize("layout", [SKEW_LAYOUT, PPS_LAYOUT])
def test_a_layout_is_read_from_run_json(layout: Layout) -> None:
    assert layout_of(record_of(layout)) == layout


@pytest.mark.parametrize(
    "wrong",
    [
        {"channels": {}},
        {"channels": None},
        {"channels": {"pub": {}}},
        {"settings": {}},
        {"settings": []},
        {"order": {"publisher": "nobody"}},
        {"order": None},
        {"kind": "clock", "order": {}},
    ],
)
def test_a_record_that_does_not_say_what_is_wired_to_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(LayoutError):
        layout_of(record_of(SKEW_LAYOUT, **wrong))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_that_is_none_is_refused(scale: float) -> None:
    wrong = {"pub": replace(CHANNELS["pub"], volts_per_division=scale)}
    with pytest.raises(LayoutError):
        layout_of(record_of(replace(SKEW_LAYOUT, channels=CHANNELS | wrong)))


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=60), min_size=3, max_size=3),
    st.sampled_from(["u1", "i1", "<u2", ">i2"]),
    st.sampled_from([1, INTERVAL_FS, 10**21]),
    st.integers(-(10**21), 10**21),
    st.sampled_from([SKEW_LAYOUT, PPS_LAYOUT]),
    st.sampled_from(["rising", "falling", "either"]),
)
def test_whatever_the_waveforms_are_there_is_a_finding(
    data: list[bytes], dtype: str, interval_fs: int, start_fs: int, layout: Layout, slope: str
) -> None:
    waves = {
        name: Waveform(
            np.frombuffer(each[: len(each) // 2 * 2], dtype), 0.1, 0.0, interval_fs, start_fs
        )
        for name, each in zip(layout.channels, data, strict=True)
    }
    triggered = {"scope": replace(layout.triggers["scope"], slope=slope)}
    found = judged(replace(layout, triggers=triggered), waves)
    assert bool(found.reason) or set(found.edges) == set(layout.channels)
    assert set(found.edges_found) == set(layout.channels)


def test_a_publisher_that_is_late_with_its_own_pin_makes_the_latency_negative() -> None:
    waves = {"pub": wave(500, 600), "near": wave(50, 150), "far": wave(80, 180)}
    trigger_at = {
        name: replace(each, start_fs=each.start_fs - 500 * US) for name, each in waves.items()
    }
    assert "near" in judged(SKEW_LAYOUT, trigger_at).reason
    found = judged(replace(SKEW_LAYOUT, interval_fs=US * 10**5), trigger_at)
    assert found.latency_fs == pytest.approx(-450 * US, abs=US)
    assert found.skew_fs == pytest.approx(30 * US, abs=US)
