"""Files saved by hand: whose edge is whose, what is left out, and what a user is told."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqtick.analysis.captures import groups as capture_groups
from mqtick.analysis.captures.from_captures import measurement_from_captures
from mqtick.analysis.captures.look import look_at
from mqtick.analysis.captures.naming import NamingError
from mqtick.analysis.captures.options import CaptureOptions
from mqtick.analysis.clocks.pps import time_errors_of
from mqtick.analysis.measurement import CAPTURED, MISSED, Measurement, Shot
from mqtick.recording.capture import Capture, CaptureError, CaptureFile, Signal
from mqtick.recording.transitions import Transitions
from recording.tests.wave_parts import US, wave

THREE = {"publisher": "1", "first": "2", "last": "3"}
S = 10**15

Saved = Mapping[str, Sequence[Capture | str]]


def levels(*changes_us: float, name: str = "D0", initial: int = 0) -> Transitions:
    """Make a digital signal that changes its level at each of these instants."""
    instants = np.array([round(each * US) for each in changes_us], np.int64)
    after = (np.arange(instants.size) + 1 + initial) % 2
    return Transitions(name, initial, instants, after.astype(np.int8), 4_000_000)


def pulses(*edges_us: float, width_us: float = 100) -> Transitions:
    """Make a digital signal with a pulse at each of these instants."""
    return levels(*(at for edge in edges_us for at in (edge, edge + width_us)))


def shot(**signals: Signal) -> Capture:
    """Make a triggered capture."""
    return Capture(signals)


def record(*signals: Signal, started_ns: int | None = None) -> Capture:
    """Make a long record of a logic analyser, with lines D0, D1, ..."""
    named = {f"D{number}": signal for number, signal in enumerate(signals)}
    return Capture(named, triggered=False, started_ns=started_ns)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measurement]:
    """Read files of which it is said what they hold; a text in place of a capture is an error."""

    def of(saved: Saved, instrument: str = "", format: str = "Fake", **options: Any) -> Measurement:
        def opened(path: Path) -> CaptureFile:
            def captures() -> Iterator[Capture]:
                for each in saved[str(path)]:
                    if isinstance(each, str):
                        raise CaptureError(each)
                    yield each

            return CaptureFile(path, format, instrument, captures)

        monkeypatch.setattr(capture_groups, "open_capture", opened)
        return measurement_from_captures([Path(name) for name in saved], CaptureOptions(**options))

    return of


Read = Callable[..., Measurement]


def skews_us(measurement: Measurement) -> list[float | None]:
    return [None if s.skew_fs is None else s.skew_fs / US for s in measurement.shots]


def latencies_us(measurement: Measurement) -> list[float | None]:
    return [None if s.latency_fs is None else s.latency_fs / US for s in measurement.shots]


def three(late_us: float = 80) -> Capture:
    return shot(CH1=wave(0, 100), CH2=wave(50, 150), CH3=wave(late_us, 180))


# ---- captures of an oscilloscope


def test_each_capture_is_a_shot(read: Read) -> None:
    found = read({"a.csv": [three(80)], "b.csv": [three(90), three(95)]}, channels=THREE)
    assert skews_us(found) == [pytest.approx(each, abs=0.5) for each in (30, 40, 45)]
    assert latencies_us(found) == [pytest.approx(50, abs=0.5)] * 3
    assert (found.kind, found.nodes) == ("skew", ("publisher", "first", "last"))
    assert [each.source for each in found.shots] == ["a.csv", "b.csv", "b.csv #2"]
    assert [each.number for each in found.shots] == [1, 2, 3]
    assert not found.simulated


def test_marks_count_from_the_publishers_edge(read: Read) -> None:
    late = shot(CH1=wave(20, 120), CH2=wave(70, 170, 270), CH3=wave(90))
    marks = read({"a": [late]}, channels=THREE).shots[0].edges
    assert marks["publisher"].instant_fs == 0
    assert marks["first"].instant_fs == pytest.approx(50 * US, abs=US)
    assert marks["first"].found == 2
    assert marks["last"].uncertainty_fs > 0


def test_two_channels_make_a_latency(read: Read) -> None:
    two = shot(CH1=wave(0), CH2=wave(-40))
    found = read({"a": [two]}, channels={"publisher": "CH1", "first": "ch 2"})
    assert (found.kind, found.last) == ("latency", "")
    assert latencies_us(found) == [pytest.approx(-40, abs=0.5)]
    assert skews_us(found) == [None]


def test_without_a_publisher_there_is_a_skew_and_no_latency(read: Read) -> None:
    two = shot(CH1=wave(0), CH2=wave(-40))
    found = read({"a": [two]}, channels={"first": "1", "last": "2"})
    assert (found.kind, found.reference) == ("skew", "")
    assert skews_us(found) == [pytest.approx(-40, abs=0.5)]
    assert latencies_us(found) == [None]
    assert "no latency" in found.notes[0]


def test_channels_that_are_called_by_their_part_need_not_be_named(read: Read) -> None:
    named = shot(Publisher=wave(0), First=wave(50), last=wave(80))
    assert skews_us(read({"a": [named]})) == [pytest.approx(30, abs=0.5)]


def test_other_names_are_taken_in_their_order_and_that_is_said(read: Read) -> None:
    found = read({"a": [three()]}, channels={"publisher": "1", "pi4": "2", "pi5": "3"})
    assert (found.first, found.last) == ("pi4", "pi5")
    assert "pi4 is taken as the first subscriber, and pi5 as the last one" in found.notes[0]


def test_cable_delays_are_taken_off(read: Read) -> None:
    delays = {"publisher": 2 * US, "last": 5 * US}
    found = read({"a": [three()]}, channels=THREE, cable_delay_fs=delays)
    plain = read({"a": [three()]}, channels=THREE)
    assert (found.shots[0].latency_fs or 0) - (plain.shots[0].latency_fs or 0) == 2 * US
    assert (found.shots[0].skew_fs or 0) - (plain.shots[0].skew_fs or 0) == -5 * US


def test_captures_may_differ_in_length_and_interval(read: Read) -> None:
    short = wave(50)
    short = replace(short, codes=short.codes[:1200])
    coarse = wave(80)
    coarse = replace(coarse, codes=coarse.codes[::4], interval_fs=4 * coarse.interval_fs)
    mixed = shot(CH1=wave(0), CH2=short, CH3=coarse)
    assert skews_us(read({"a": [mixed]}, channels=THREE)) == [pytest.approx(30, abs=2)]


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ({"CH3": wave()}, "last has none. The waveform is flat"),
        ({"CH1": wave()}, "publisher has no edge. The waveform is flat"),
        ({"CH1": wave(0, level=True)}, "publisher has no rising edge"),
        ({"CH2": wave(level=True)}, "first has none."),
    ],
)
def test_a_missing_edge_is_a_missed_shot_with_its_reason(
    read: Read, channel: dict[str, Signal], said: str
) -> None:
    found = read({"a": [Capture({**three().signals, **channel})], "b": [three()]}, channels=THREE)
    assert [each.outcome for each in found.shots] == [MISSED, CAPTURED]
    assert said in found.shots[0].reason


def test_edges_of_the_publisher_away_from_the_trigger_are_said(read: Read) -> None:
    many = shot(CH1=wave(0, 100, 300, 400), CH2=wave(50, 150, 350), CH3=wave(80, 180, 380))
    found = read({"a": [many]}, channels=THREE)
    assert skews_us(found) == [pytest.approx(30, abs=0.5)]
    assert [each.found for each in found.shots[0].edges.values()] == [1, 1, 1]
    assert "more than one such edge of publisher" in " ".join(found.notes)


def test_a_falling_edge_may_be_the_event(read: Read) -> None:
    down = {
        f"CH{number}": wave(at, at + 100, level=True)
        for number, at in enumerate((0, 50, 80), start=1)
    }
    found = read({"a": [Capture(down)]}, channels=THREE, edge="falling")
    assert skews_us(found) == [pytest.approx(30, abs=0.5)]


# ---- which files belong together


def test_files_of_one_channel_each_are_one_shot(read: Read) -> None:
    saved = {
        f"T000{number}CH{channel}.ISF": [shot(**{f"CH{channel}": wave(at)})]
        for number, late in ((1, 80), (2, 95))
        for channel, at in ((1, 0), (2, 50), (3, late))
    }
    found = read(saved, channels=THREE)
    assert skews_us(found) == [pytest.approx(30, abs=0.5), pytest.approx(45, abs=0.5)]
    assert found.shots[1].source == "T0002CH1.ISF"


def test_a_channel_that_its_file_does_not_name_has_the_number_of_the_file(read: Read) -> None:
    saved = {
        f"C{channel}Trace00001.trc": [shot(Trace=wave(at))]
        for channel, at in ((1, 0), (2, 50), (3, 80))
    }
    assert skews_us(read(saved, channels=THREE)) == [pytest.approx(30, abs=0.5)]


def test_files_that_hold_all_channels_are_shots_of_their_own(read: Read) -> None:
    found = read({"skew_c1.csv": [three(80)], "skew_c2.csv": [three(90)]}, channels=THREE)
    assert len(found.shots) == 2


def test_a_channel_that_cannot_be_opened_takes_its_capture_with_it(tmp_path: Path) -> None:
    for name in ("T1CH1.csv", "T1CH2.csv"):
        (tmp_path / name).write_text("Time (s),CH1\n0,0\n1e-6,0\n2e-6,3\n3e-6,3\n")
    (tmp_path / "T1CH2.csv").write_bytes(b"")
    with pytest.raises(CaptureError) as error:
        measurement_from_captures(sorted(tmp_path.iterdir()), CaptureOptions(channels=THREE))
    assert "T1CH2.csv is empty" in str(error.value)
    assert "left out with it" in str(error.value)


def test_words_that_end_like_a_channel_are_none(read: Read) -> None:
    found = read({f"search{n}.csv": [three()] for n in (1, 2)}, channels=THREE)
    assert len(found.shots) == 2
    groups = capture_groups.group_files([Path(f"search{n}.csv") for n in (1, 2)])
    assert [len(each.files) for each in groups] == [1, 1]


def test_one_channel_that_was_saved_less_often_is_said(read: Read) -> None:
    saved = {
        "runCH1.bin": [shot(CH1=wave(0))] * 3,
        "runCH2.bin": [shot(CH2=wave(50))] * 2,
    }
    found = read(saved, channels={"publisher": "1", "first": "2"})
    assert len(found.shots) == 2
    assert "after number 2 are left out" in found.damaged[0]


def test_files_are_read_in_the_order_in_which_people_count(read: Read) -> None:
    found = read({f"shot {n}.csv": [three()] for n in (10, 9, 1)}, channels=THREE)
    assert [each.source for each in found.shots] == ["shot 1.csv", "shot 9.csv", "shot 10.csv"]


def test_shots_that_know_when_they_were_taken_are_in_that_order(read: Read) -> None:
    at = {"a": 3 * 10**18, "b": 10**18, "c": 2 * 10**18}
    saved = {name: [replace(three(), started_ns=ns)] for name, ns in at.items()}
    found = read(saved, channels=THREE)
    assert [(each.number, each.source) for each in found.shots] == [(1, "b"), (2, "c"), (3, "a")]


def test_the_number_of_subscribers_comes_from_the_files_names(read: Read) -> None:
    saved = {name: [three()] for name in ("n2/a.csv", "n2/b.csv", "n100.csv")}
    options = [("n100*", 100), ("n2/*", 2), ("other*", 7)]
    found = read(saved, channels=THREE, subscribers=options)
    assert sorted(each.subscribers for each in found.shots) == [2, 2, 100]
    assert "'other*'" in " ".join(found.notes)


# ---- long records


def test_every_edge_of_the_publisher_is_an_event_of_a_long_record(read: Read) -> None:
    second = 1e6
    publisher = pulses(*(second * n for n in (1, 2, 3)))
    first = pulses(*(second * n + 300 for n in (1, 2, 3)))
    last = pulses(second + 340, second * 3 + 350)
    found = read({"a.sr": [record(publisher, first, last)]}, channels=THREE | _lines())
    assert latencies_us(found) == [300, None, 300]
    assert skews_us(found) == [40, None, 50]
    assert [each.outcome for each in found.shots] == [CAPTURED, MISSED, CAPTURED]
    assert found.shots[0].edges["last"].uncertainty_fs == 4_000_000
    assert "last has none that belongs to the one of publisher" in found.shots[1].reason


def _lines() -> dict[str, str]:
    return {"publisher": "D0", "first": "D1", "last": "D2"}


def test_a_late_answer_belongs_to_the_event_before_it(read: Read) -> None:
    publisher, first = pulses(0, 1000, 2000), pulses(900, 1940, 2010)
    found = read({"a": [record(publisher, first)]}, channels={"publisher": "0", "first": "1"})
    assert latencies_us(found) == [900, 940, 10]


def test_an_answer_may_come_a_little_before_the_publishers_own_edge(read: Read) -> None:
    publisher, first = pulses(0, 10_000, 20_000), pulses(-40, 9_970, 19_990)
    found = read({"a": [record(publisher, first)]}, channels={"publisher": "0", "first": "1"})
    assert latencies_us(found) == [-40, -30, -10]


def test_a_doubled_edge_is_counted(read: Read) -> None:
    publisher, first = pulses(0, 10_000), pulses(300, 700, 10_300)
    found = read({"a": [record(publisher, first)]}, channels={"publisher": "0", "first": "1"})
    assert [each.edges["first"].found for each in found.shots] == [2, 1]


def test_pins_that_toggle_are_compared_edge_by_edge(read: Read) -> None:
    publisher, first = levels(0, 10_000, 20_000), levels(300, 10_310, 20_320, initial=1)
    saved = {"a": [record(publisher, first)]}
    channels = {"publisher": "0", "first": "1"}
    assert latencies_us(read(saved, channels=channels, edge="both")) == [300, 310, 320]


def test_answers_half_way_between_two_events_are_doubted(read: Read) -> None:
    publisher = levels(*(10_000 * n for n in range(8)))
    first = levels(*(10_000 * n + 300 for n in range(8)), initial=1)
    found = read({"a": [record(publisher, first)]}, channels={"publisher": "0", "first": "1"})
    assert "--edge both" in " ".join(found.notes)


def test_clocks_compare_by_the_nearest_edge_before_or_after(read: Read) -> None:
    second = 1e6
    reference = pulses(*(second * n for n in (1, 2, 3, 4)))
    early = pulses(*(second * n - 20 for n in (1, 2, 4)))
    late = pulses(*(second * n + 30 * n for n in (1, 2, 3, 4)))
    channels = {"reference": "0", "early": "1", "late": "2"}
    found = read({"a": [record(reference, early, late)]}, channels=channels, kind="clock")
    assert [each.name for each in found.time_errors] == ["early", "late"]
    assert found.time_errors[0].error_ns.tolist() == [-20_000] * 3
    assert found.time_errors[0].seconds.tolist() == [0, 1, 3]
    assert found.time_errors[1].error_ns.tolist() == [30_000, 60_000, 90_000, 120_000]
    assert found.shots[2].clock_fs == {"late": 90 * US}


def test_records_of_which_nobody_knows_when_they_began_are_laid_one_after_another(
    tmp_path: Path, read: Read
) -> None:
    def saved(shift_us: float) -> list[Capture]:
        seconds = [1e6 * n for n in range(50)]
        return [record(pulses(*seconds), pulses(*(at + shift_us for at in seconds)))]

    files = {str(tmp_path / name): saved(us) for name, us in (("a.vcd", 20), ("b.vcd", 30))}
    for path in files:
        Path(path).touch()
        os.utime(path, (1, 1))
    found = read(files, channels={"reference": "0", "pi": "1"}, kind="clock")
    (errors,) = found.time_errors
    assert errors.seconds.tolist() == list(range(100))
    assert errors.error_ns.tolist() == [20_000] * 50 + [30_000] * 50
    assert errors.started_ns is None
    assert [each.started_ns for each in found.shots] == [None] * 100
    assert "placed one after another in the order of their names" in " ".join(found.notes)


def test_errors_at_the_same_time_as_another_one_are_counted() -> None:
    shots = [Shot(n, 0, CAPTURED, "", 5, clock_fs={"pi": n * 10**6}) for n in (1, 2, 3)]
    (errors,) = time_errors_of(("pi",), shots, [0.0, 0.0, 1.0], 5)
    assert errors.error_ns.tolist() == [2, 3]
    assert errors.source == "pps edges (1 at the time of another one left out)"


def test_captures_taken_in_the_same_second_are_not_put_into_one_instant(read: Read) -> None:
    two = Capture({"CH1": wave(0), "CH2": wave(30)}, started_ns=10**18)
    found = read({name: [two] for name in "abc"}, channels={"reference": "1", "pi": "2"},
                 kind="clock")  # fmt: skip
    assert found.time_errors[0].seconds.tolist() == [0, 1, 2]


def test_clocks_of_captures_without_a_time_are_said_to_be(read: Read) -> None:
    saved = {name: [shot(CH1=wave(0), CH2=wave(30))] for name in "abc"}
    found = read(saved, channels={"reference": "1", "pi": "2"}, kind="clock")
    assert found.time_errors[0].seconds.tolist() == [0, 1, 2]
    assert "do not say exactly when they were taken" in " ".join(found.notes)


# ---- what cannot be read, and what a user is told


def test_what_cannot_be_read_is_listed_while_something_can(read: Read) -> None:
    saved: Saved = {"bad.csv": ["bad.csv is empty."], "good.csv": [three(), "good.csv is cut."]}
    found = read(saved, channels=THREE)
    assert len(found.shots) == 1
    assert found.damaged == ["bad.csv is empty.", "good.csv is cut."]


def test_where_nothing_can_be_read_that_is_the_error(read: Read) -> None:
    with pytest.raises(CaptureError, match=r"a is empty.\nand 1 more files"):
        read({"a": ["a is empty."], "b": ["b is empty."]}, channels=THREE)


def test_channels_that_nobody_named_are_said(read: Read) -> None:
    more = Capture({**three().signals, "CH4": wave(), "MATH": wave()})
    found = read({"a": [more]}, channels=THREE)
    assert "left out: CH4, MATH" in found.notes[0]


def test_without_names_the_error_has_the_channels_and_the_whole_command(read: Read) -> None:
    late_first = shot(CH1=wave(80), CH2=wave(0, 100), CH3=wave(50), CH4=wave())
    with pytest.raises(CaptureError) as error:
        read({"my captures/shot 1.csv": [late_first]})
    text = str(error.value)
    assert "CH2  2 edges, the first one rising at" in text
    assert "CH4  no edge. The waveform is flat" in text
    command = next(line for line in text.splitlines() if "--channels publisher" in line)
    assert shlex.split(command) == [
        "mqtick-report",
        "my captures/shot 1.csv",
        "--channels",
        "publisher=2,first=3,last=1",
    ]


def test_a_wrong_name_is_answered_by_the_names_there_are(read: Read) -> None:
    with pytest.raises(CaptureError) as error:
        read({"a.csv": [three()]}, channels=THREE | {"last": "7"})
    assert "There is no channel '7' (wanted for last); there is: CH1, CH2, CH3." in str(error.value)
    assert "--channels publisher=1,first=2,last=3" in str(error.value)


def test_a_file_without_one_of_the_channels_is_left_out(read: Read) -> None:
    found = read({"a": [three()], "b": [shot(CH1=wave(0))]}, channels=THREE)
    assert len(found.shots) == 1
    assert found.damaged[0].startswith("b: there is no channel '2'")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"channels": {"publisher": "1"}}, "Only one channel is named"),
        ({"channels": {"publisher": "1", "first": "2"}, "kind": "skew"}, "only first is named"),
        ({"channels": {"first": "1", "last": "2"}, "kind": "latency"}, "the publisher's edge"),
        ({"channels": {"publisher": "1", "last": "2"}}, "only one subscriber, last, so it cannot"),
        ({"channels": THREE | {"last": "CH2"}}, "Channel CH2 is given for first and for last"),
        ({"channels": THREE, "cable_delay_fs": {"lst": 5}}, "cable delay is given for 'lst'"),
    ],
)
def test_options_that_cannot_be_are_refused(read: Read, options: dict[str, Any], said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        read({"a": [three()]}, **options)


def test_columns_that_are_called_publisher_and_last_are_answered_with_a_sentence(
    read: Read,
) -> None:
    with pytest.raises(NamingError, match="Call it first"):
        read({"a.csv": [shot(publisher=wave(0), last=wave(40))]})


def test_the_command_repeats_what_made_the_edges_be_seen(read: Read) -> None:
    small = {
        name: replace(each, volts_per_code=each.volts_per_code / 11)
        for name, each in (("CH1", wave(0)), ("CH2", wave(50)))
    }
    with pytest.raises(NamingError, match=r"below 0\.5 V count with a smaller --minimum-v"):
        read({"a.csv": [shot(**small)]})
    with pytest.raises(NamingError) as error:
        read({"a.csv": [shot(**small)]}, minimum_v=0.1, cable_delay_fs={"first": 5_500_000})
    command = "--channels publisher=1,first=2 --minimum-v 0.1 --cable-delay first=5.5"
    assert command in str(error.value)


def test_a_time_base_that_a_file_rounds_enters_the_uncertainty(read: Read) -> None:
    coarse = replace(three(), timebase_ppm=400.0)
    assert read({"a": [three()]}, channels=THREE).timebase_ppm == 25
    assert read({"a": [three()], "b": [coarse]}, channels=THREE).timebase_ppm == 400
    assert read({"b": [coarse]}, channels=THREE, timebase_ppm=500).timebase_ppm == 500
    ch1, ch2 = ({name: three().signals[name]} for name in ("CH1", "CH2"))
    parts = {"x1.csv": [Capture(ch1, timebase_ppm=90)], "x2.csv": [Capture(ch2, timebase_ppm=30)]}
    files = {name.replace("x", "CH"): of for name, of in parts.items()}
    found = read(files, channels={"publisher": "1", "first": "2"})
    assert (len(found.shots), found.timebase_ppm) == (1, 90)


def test_no_proposal_is_made_where_there_is_nothing_to_compare(read: Read) -> None:
    with pytest.raises(CaptureError, match="only one with edges"):
        read({"a": [shot(CH1=wave(0), CH2=wave())]})


def test_who_names_one_channel_of_several_files_is_told_to_name_the_others(read: Read) -> None:
    with pytest.raises(CaptureError, match="name all of them: files whose names differ only in"):
        read({"T0001CH1.ISF": [shot(CH1=wave(0))]})


def test_a_proposal_for_many_files_has_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my captures"
    folder.mkdir()
    paths = [folder / f"{number}.csv" for number in range(20)]
    for path in paths:
        path.touch()

    def opened(path: Path) -> CaptureFile:
        return CaptureFile(path, "Fake", "", lambda: iter([three()]))

    monkeypatch.setattr(capture_groups, "open_capture", opened)
    assert f"mqtick-report '{folder}'/*.csv --channels" in look_at(paths).text
    assert "0.csv" in look_at(paths[:5]).text


# ---- what is kept


def test_a_simulated_device_is_called_simulated(read: Read) -> None:
    saved = {"a": [three()]}
    assert read(saved, channels=THREE, format="sigrok session", instrument="Demo device").simulated
    assert read(saved, channels=THREE, simulated=True).simulated
    assert not read(saved, channels=THREE, instrument="demo").simulated


def test_the_example_is_the_shot_nearest_to_the_medians(read: Read) -> None:
    found = read({f"{n}": [three(late)] for n, late in enumerate((60, 80, 81))}, channels=THREE)
    assert found.example is not None
    assert found.example.number == 2
    us, volts = found.example.traces["last"]
    assert us[0] < 0 < us[-1]
    assert float(np.interp(90, us, volts)) == pytest.approx(3.2, abs=0.1)
    assert float(np.interp(70, us, volts)) == pytest.approx(0, abs=0.1)


def test_of_a_long_record_the_example_has_what_is_around_the_event(read: Read) -> None:
    publisher = pulses(*(1e6 * n for n in range(100)))
    first = pulses(*(1e6 * n + 300 for n in range(100)))
    found = read({"a": [record(publisher, first)]}, channels={"publisher": "0", "first": "1"})
    assert found.example is not None
    us, _ = found.example.traces["first"]
    assert -1000 < us[0] < 300 < us[-1] < 2000


def test_what_was_measured_with_what_is_kept(read: Read) -> None:
    found = read({"a": [three()], "b": [three()]}, channels=THREE, instrument="RIGOL DS1054Z")
    said = dict(found.provenance)
    assert said["Files"] == "2: a to b"
    assert said["Instrument"] == "RIGOL DS1054Z"
    assert said["Channels"] == "publisher = 1, first = 2, last = 3"
    assert found.title == "a and 1 more"
