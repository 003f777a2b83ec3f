"""Output: toggles, pulses, polarity, brackets, and what it does when a line fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.pins import (
    COMPLETE_US,
    LatencyClass,
    Output,
    PinError,
    PinSettings,
    monotonic_raw_ns,
)


class SteppingClock:
    """Advances by 1000 ns at each reading."""

    def __init__(self) -> None:
        self.time_ns = 0

    def __call__(self) -> int:
        self.time_ns += 1000
        return self.time_ns


class ScriptedLine:
    """Records what it is asked for; fails as often as told."""

    name = "scripted line"
    latency_class = LatencyClass.SIMULATED

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.calls: list[tuple[int, bool]] = []
        self.closed = 0
        self.failures = 0

    def set(self, level: bool) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the wire is cut")
        self.calls.append((self.clock(), level))

    def close(self) -> None:
        self.closed += 1

    @property
    def levels(self) -> list[bool]:
        return [level for _, level in self.calls]


class SelfPulsingLine(ScriptedLine):
    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.pulses: list[bool] = []

    def pulse(self, level: bool) -> None:
        self.pulses.append(level)


def make(settings: PinSettings) -> tuple[Output, ScriptedLine]:
    clock = SteppingClock()
    line = ScriptedLine(clock)
    return Output(line, settings, clock), line


def test_toggling_alternates_and_needs_no_release() -> None:
    output, line = make(PinSettings(mode="toggle"))
    edges = [output.fire() for _ in range(4)]
    output.release()
    assert [edge.level for edge in edges] == line.levels == [True, False, True, False]
    assert output.release_after_ns == 0
    assert all(edge.made for edge in edges)


def test_active_low_toggling_begins_with_a_falling_edge() -> None:
    output, line = make(PinSettings(mode="toggle", active_low=True))
    assert output.level is True
    assert output.fire().level is False
    assert line.levels == [False]


@given(st.lists(st.sampled_from(["fire", "release"]), max_size=30), st.booleans(), st.booleans())
def test_every_edge_lies_within_its_bracket(
    acts: list[str], active_low: bool, pulsing: bool
) -> None:
    mode = "pulse" if pulsing else "toggle"
    output, line = make(PinSettings(mode=mode, width_us=101, active_low=active_low))  # type: ignore[arg-type]
    for act in acts:
        if act == "release":
            output.release()
            continue
        before = len(line.calls)
        still_active = pulsing and output.level is not active_low
        edge = output.fire()
        assert edge.made is not still_active
        if edge.made:
            time_ns, level = line.calls[before]
            assert edge.before_ns < time_ns < edge.after_ns
            assert edge.level is level is output.level


def test_the_real_clock_is_monotonic_raw() -> None:
    before_ns = monotonic_raw_ns()
    line = ScriptedLine(monotonic_raw_ns)
    edge = Output(line, PinSettings()).fire()
    assert before_ns <= edge.before_ns <= line.calls[0][0] <= edge.after_ns <= monotonic_raw_ns()


@pytest.mark.parametrize("active_low", [False, True])
def test_a_long_pulse_is_ended_by_the_caller(active_low: bool) -> None:
    output, line = make(PinSettings(mode="pulse", width_us=101, active_low=active_low))
    assert output.release_after_ns == 101_000
    edge = output.fire()
    assert line.levels == [edge.level] == [not active_low]
    output.release()
    output.release()
    assert line.levels == [not active_low, active_low]
    assert output.errors == 0


def test_a_short_pulse_is_ended_by_fire_and_is_not_too_short() -> None:
    output, line = make(PinSettings(mode="pulse", width_us=COMPLETE_US))
    edge = output.fire()
    (rise_ns, rise), (fall_ns, fall) = line.calls
    assert (rise, fall) == (True, False)
    assert rise_ns < edge.after_ns
    assert fall_ns >= edge.after_ns + COMPLETE_US * 1000
    assert output.release_after_ns == 0
    assert output.level is False


@pytest.mark.parametrize(
    ("settings", "pulses"),
    [
        (PinSettings(mode="pulse", width_us=COMPLETE_US), [True]),
        (PinSettings(mode="pulse", width_us=COMPLETE_US + 1), []),
        (PinSettings(mode="toggle"), []),
    ],
)
def test_a_line_that_times_pulses_itself_is_asked_for_short_ones_only(
    settings: PinSettings, pulses: list[bool]
) -> None:
    clock = SteppingClock()
    line = SelfPulsingLine(clock)
    output = Output(line, settings, clock)
    edge = output.fire()
    assert edge.made
    assert edge.level is True
    assert (line.pulses, line.levels) == (pulses, [] if pulses else [True])
    assert (output.release_after_ns == 0) == (settings.width_us == COMPLETE_US)


def test_a_failed_edge_is_counted_and_tried_again_to_the_same_level() -> None:
    output, line = make(PinSettings(mode="toggle"))
    line.failures = 1
    failed = output.fire()
    assert not failed.made
    assert failed.after_ns == 0
    assert failed.before_ns > 0
    assert output.errors == 1
    assert output.last_error == "the wire is cut"
    assert output.fire().level is True
    assert output.errors == 1


def test_a_pulse_that_failed_is_still_ended_since_the_line_may_be_active() -> None:
    for width_us in (COMPLETE_US, COMPLETE_US + 1):
        output, line = make(PinSettings(mode="pulse", width_us=width_us))
        line.failures = 1
        assert not output.fire().made
        if output.release_after_ns:
            output.release()
        assert line.levels == [False]
        assert output.fire().made


def test_a_pulse_during_a_pulse_makes_no_edge_and_the_next_one_works() -> None:
    output, line = make(PinSettings(mode="pulse", width_us=200))
    assert output.fire().made
    assert not output.fire().made
    assert output.errors == 1
    assert "still active" in output.last_error
    assert output.fire().made
    assert line.levels == [True, False, True]


def test_a_release_that_failed_can_be_tried_again() -> None:
    output, line = make(PinSettings(mode="pulse", width_us=200))
    output.fire()
    line.failures = 1
    output.release()
    assert output.errors == 1
    output.release()
    assert line.levels == [True, False]


@pytest.mark.parametrize("active_low", [False, True])
def test_closing_leaves_the_line_inactive_and_makes_no_more_edges(active_low: bool) -> None:
    output, line = make(PinSettings(active_low=active_low))
    with output:
        output.fire()
    output.close()
    assert line.levels[-1] is active_low
    assert line.closed == 1
    calls = len(line.calls)
    assert not output.fire().made
    assert "closed" in output.last_error
    assert len(line.calls) == calls


def test_closing_survives_a_line_that_fails() -> None:
    output, line = make(PinSettings())
    line.failures = 1
    output.close()
    assert output.errors == 1
    assert line.closed == 1


def test_a_rehearsal_sets_the_level_the_line_has() -> None:
    output, line = make(PinSettings())
    output.rehearse()
    output.fire()
    output.rehearse()
    assert line.levels == [False, True, True]
    assert output.fire().level is False


def test_a_rehearsal_of_a_pulse_is_none() -> None:
    clock = SteppingClock()
    line = SelfPulsingLine(clock)
    output = Output(line, PinSettings(mode="pulse", active_low=True), clock)
    output.rehearse()
    assert line.levels == [True]
    assert line.pulses == []


def test_during_a_pulse_after_closing_and_with_a_daemon_nothing_is_rehearsed() -> None:
    output, line = make(PinSettings(mode="pulse", width_us=200))
    output.fire()
    output.rehearse()
    output.close()
    output.rehearse()
    assert line.levels == [True, False]
    clock = SteppingClock()
    slow = ScriptedLine(clock)
    slow.latency_class = LatencyClass.DAEMON
    Output(slow, PinSettings(), clock).rehearse()
    assert slow.levels == []


def test_a_rehearsal_that_fails_is_no_error_since_the_edge_will_be_one() -> None:
    output, line = make(PinSettings())
    line.failures = 2
    output.rehearse()
    assert output.errors == 0
    assert not output.fire().made
    assert output.errors == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"line": -1}, "line is -1, outside the limits 0 to 1023"),
        ({"line": 1024}, "line is 1024, outside"),
        ({"line": "17"}, "line is '17', outside"),
        ({"line": True}, "line is True, outside"),
        ({"width_us": 0}, "width_us is 0, outside the limits 1 to 500000 us"),
        ({"width_us": -5}, "width_us is -5, outside"),
        ({"width_us": 500_001}, "width_us is 500001, outside"),
        ({"width_us": 1.5}, "width_us is 1.5, outside"),
        ({"mode": "pulses"}, "mode is 'pulses'.*did you mean pulse"),
        ({"mode": "x"}, "mode is 'x'.*choose toggle or pulse"),
        ({"port": 0}, "port is 0, outside the limits 1 to 65535"),
        ({"timeout_ms": 0}, "timeout_ms is 0, outside"),
        ({"ring_edges": 0}, "ring_edges is 0, outside"),
    ],
)
def test_settings_of_no_use_are_refused_with_a_sentence(
    wrong: dict[str, object], sentence: str
) -> None:
    with pytest.raises(PinError, match=sentence):
        PinSettings(**wrong)  # type: ignore[arg-type]


def test_all_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(PinError, match=r"line is 5000.*width_us is 0.*mode is 'no'"):
        PinSettings(line=5000, width_us=0, mode="no")  # type: ignore[arg-type]
