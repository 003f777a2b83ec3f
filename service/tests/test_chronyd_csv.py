from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.chronyd_csv import (
    ChronydError,
    ChronyVersion,
    Leap,
    parse_sources,
    parse_tracking,
    parse_version,
)

# Lines of chronyc 4.3: a SOCK reference clock that was given +3 ms; before and after its samples.
SYNCHRONISED = (
    "4D515430,MQT0,3,1795201930.427168752,0.003000000,0.000000000,0.000000000,-0.000,0.000,0.000,"
    "0.002000000,0.000011794,1.0,Normal"
)
NOT_SYNCHRONISED = (
    "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,"
    "1.000000000,0.0,Not synchronised"
)
SOURCES = (
    "#,*,MQT0,2,0,17,1,-0.000000000,0.000000000,0.001010000\n"
    "#,?,MQT1,0,-2,0,4294967295,0.000000000,0.000000000,0.000000000\n"
)
# The example of chronyc(1) of chrony 4.3 as CSV: there "slow", "+0.000001632", "3.225 ppm slow".
MANUAL = (
    "CB00710F,203.0.113.15,3,1483228800.000000000,0.000006523,-0.000006747,0.000035822,-3.225,"
    "-0.000,0.129,0.013639022,0.001100737,64.2,Normal"
)


def test_a_line_of_a_synchronised_chronyd() -> None:
    tracking = parse_tracking(SYNCHRONISED + "\n")
    assert (tracking.refid, tracking.name, tracking.stratum) == ("4D515430", "MQT0", 3)
    assert tracking.reference_time_ns == 1_795_201_930_427_168_752
    assert tracking.leap is Leap.NORMAL
    assert (tracking.root_delay_ns, tracking.root_dispersion_ns) == (2_000_000, 11_794)
    assert tracking.update_interval_s == 1.0


def test_a_line_of_a_chronyd_without_a_source() -> None:
    tracking = parse_tracking(NOT_SYNCHRONISED)
    assert (tracking.refid, tracking.name, tracking.stratum) == ("00000000", "", 0)
    assert tracking.reference_time_ns is None
    assert tracking.leap is Leap.UNSYNCHRONISED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        # "System time : 0.000006523 seconds slow of NTP time"
        ("offset_reference_minus_local_ns", 6_523),
        # "Last offset : -0.000006747 seconds": the local clock was behind; chrony says ahead.
        ("last_offset_reference_minus_local_ns", 6_747),
        # "Frequency : 3.225 ppm slow"
        ("frequency_reference_minus_local_ppm", 3.225),
    ],
)
def test_slow_is_positive(field: str, value: float) -> None:
    assert getattr(parse_tracking(MANUAL), field) == value


def test_root_distance_is_offset_plus_dispersion_plus_half_the_delay() -> None:
    # |0.000006523| + 0.001100737 + 0.013639022 / 2
    assert parse_tracking(MANUAL).root_distance_ns == 7_926_771
    behind = parse_tracking(MANUAL.replace(",0.000006523", ",-0.000006523"))
    assert behind.root_distance_ns == 7_926_771
    odd = parse_tracking(MANUAL.replace("0.013639022", "0.013639023"))
    assert odd.root_distance_ns == 7_926_772, "a bound is rounded up"


@pytest.mark.parametrize(
    ("text", "leap"), [("Insert second", Leap.INSERT), ("Delete second", Leap.DELETE)]
)
def test_leap_seconds(text: str, leap: Leap) -> None:
    assert parse_tracking(MANUAL.replace("Normal", text)).leap is leap


def test_the_numbers_of_leap_are_those_of_ntp() -> None:
    assert [int(leap) for leap in Leap] == [0, 1, 2, 3]


def test_sources() -> None:
    selected, silent = parse_sources(SOURCES)
    assert (selected.mode, selected.state, selected.name) == ("#", "*", "MQT0")
    assert (selected.stratum, selected.poll, selected.reach) == (2, 0, 0o17)
    assert (selected.last_rx_s, selected.error_ns) == (1, 1_010_000)
    assert selected.state_meaning == "selected: the clock follows it"
    assert (silent.poll, silent.reach, silent.last_rx_s) == (-2, 0, None)


def test_offsets_of_sources_are_turned_because_chrony_says_ahead() -> None:
    (source,) = parse_sources("^,+,192.0.2.1,1,6,377,23,0.000000250,-0.001000000,0.0005\n")
    assert source.adjusted_offset_reference_minus_local_ns == -250
    assert source.measured_offset_reference_minus_local_ns == 1_000_000


def test_no_sources_are_no_error() -> None:
    assert parse_sources("") == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("chronyd (chrony) version 4.3 (+CMDMON +NTP -DEBUG)", (4, 3, 0)),
        ("chronyc (chrony) version 4.6.1 (+READLINE)", (4, 6, 1)),
        ("chronyd (chrony) version 4.8-52-g8f2db83 (+CMDMON)", (4, 8, 0)),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_versions_compare_as_numbers() -> None:
    assert parse_version("version 4.10") > ChronyVersion(4, 6, 1) > (4, 6)
    assert [str(ChronyVersion(4, 6, 1)), str(ChronyVersion(4, 3))] == ["4.6.1", "4.3"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "506 Cannot talk to daemon",
        SYNCHRONISED.replace("0.003000000", "nan"),
        SYNCHRONISED.replace("0.003000000", "inf"),
        SYNCHRONISED.replace("0.003000000", "1e300"),
        SYNCHRONISED.replace("0.002000000", "-0.002"),
        SYNCHRONISED.replace(",3,", ",17,"),
        SYNCHRONISED.replace(",3,", ",-1,"),
        SYNCHRONISED.replace("Normal", "normal"),
        SYNCHRONISED.replace("4D515430", "MQT0"),
        SYNCHRONISED.rpartition(",")[0],
        SYNCHRONISED.replace("MQT0", "A,B"),
    ],
)
def test_a_tracking_line_with_anything_wrong_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ChronydError, match=r"the answer of chronyc -c tracking was not understood"):
        parse_tracking(text)


@pytest.mark.parametrize(
    "line",
    [
        "#,*,MQT0,2,0,17,1,0,0",
        "#,!,MQT0,2,0,17,1,0,0,0",
        "%,*,MQT0,2,0,17,1,0,0,0",
        "#,*,MQT0,2,0,400,1,0,0,0",
        "#,*,MQT0,2,0,18,1,0,0,0",  # 8 is no octal digit
        "#,*,MQT0,2,0,17,4294967296,0,0,0",
        "#,*,MQT0,2,0,17,1,0,0,-1",
        "#,*,MQT0,2," + "9" * 5000 + ",17,1,0,0,0",
    ],
)
def test_a_sources_line_with_anything_wrong_is_refused_with_a_sentence(line: str) -> None:
    with pytest.raises(ChronydError, match=r"sources was not understood .* is this chrony 4\.0"):
        parse_sources(line)


def outcome(parse: object, text: str) -> str:
    try:
        parse(text)  # type: ignore[operator]
    except ChronydError as error:
        return error.reason
    return "understood"


@given(st.text(max_size=200))
def test_no_text_raises_anything_but_a_chronyd_error(text: str) -> None:
    assert outcome(parse_tracking, text) == "not-understood"
    assert outcome(parse_sources, text) in {"not-understood", "understood"}
    assert outcome(parse_version, text) in {"not-understood", "understood"}


FIELD = st.one_of(
    st.text(st.characters(exclude_characters=","), max_size=12),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["4D515430", "Normal", "#", "*", "377", "-0.0", "1e5", "٣", "1_0"]),
)


@pytest.mark.parametrize(
    ("parse", "line"), [(parse_tracking, MANUAL), (parse_sources, SOURCES.splitlines()[0])]
)
@given(st.integers(0, 9), FIELD)
def test_a_line_with_one_field_changed_is_understood_or_refused(
    parse: object, line: str, place: int, text: str
) -> None:
    fields = line.split(",")
    fields[place] = text
    assert outcome(parse, ",".join(fields)) in {"not-understood", "understood"}
