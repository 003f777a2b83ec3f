"""Value change dumps: what is read, exactly, and what is refused with a sentence."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.analysis.readers import vcd
from mqtick.analysis.readers.vcd import VcdError, read_vcd, read_vcd_header
from mqtick.recording.capture import CaptureError
from mqtick.recording.edges import Edge
from mqtick.recording.transitions import Transitions

HEAD = (
    "$date today $end $timescale 1 ns $end $scope module top $end "
    '$var wire 1 ! D0 $end $var wire 1 " D1 $end $upscope $end $enddefinitions $end\n'
)

# IEEE 1364-2005, 18.2.4, abbreviated: vectors, a real, $dumpvars, $dumpoff, $dumpon, $comment.
STANDARD = """
$date June 26, 1989 10:05:41 $end
$version VERILOG-SIMULATOR 1.0a $end
$timescale 1 ns $end
$scope module top $end
$scope module m1 $end
$var trireg 1 *@ net1 $end
$var trireg 1 *# net2 $end
$var trireg 1 *$ net3 $end
$upscope $end
$scope task t1 $end
$var reg 32 (k accumulator[31:0] $end
$var integer 32 {2 index $end
$var real 64 r temperature $end
$upscope $end
$upscope $end
$enddefinitions $end
$comment Note: $dumpvars was executed at time '#500'. All initial values are dumped at this time.
$end
#500
$dumpvars
x*@
x*#
x*$
bx (k
bx {2
r0.5 r
$end
#505
0*@
1*#
1*$
b10zx1110x11100 (k
b1111000101z01x {2
#510
0*$
#520
1*$
#530
0*$
bz (k
#535
$dumpall 0*@ 1*# 0*$
bz (k
b1111000101z01x {2
$end
#540
1*$
#1000
$dumpoff
x*@
x*#
x*$
$end
#2000
$dumpon
z*@
1*#
0*$
$end
#2010
1*$
"""


def read(text: str) -> dict[str, Transitions]:
    return read_vcd(io.BytesIO(text.encode("latin-1")))


def refused(text: str) -> str:
    with pytest.raises(VcdError) as error:
        read(text)
    return str(error.value)


def test_the_standards_example_gives_its_changes() -> None:
    signals = read(STANDARD)
    assert list(signals) == ["top.m1.net1", "top.m1.net2", "top.m1.net3"]
    net3 = signals["top.m1.net3"]
    assert net3.name == "net3"
    assert net3.initial == -1
    ns = 10**6
    assert [at // ns for at in net3.instants_fs()] == [505, 510, 520, 530, 540, 1000, 2000, 2010]
    assert net3.levels.tolist() == [1, 0, 1, 0, 1, -1, 0, 1]
    # 505 came from unknown, 1000 went there and 2000 came back: none of them is an edge.
    assert net3.edges(trigger_fs=505 * ns) == [
        Edge(5 * ns, False),
        Edge(15 * ns, True),
        Edge(25 * ns, False),
        Edge(35 * ns, True),
        Edge(1505 * ns, True),
    ]


def test_the_first_value_at_time_zero_is_the_initial_level_and_no_edge() -> None:
    d0 = read(HEAD + '#0 $dumpvars 1! 0" $end #7 0!')["top.D0"]
    assert d0.initial == 1
    assert d0.edges() == [Edge(7_000_000, False)]


def test_a_signal_that_is_never_set_is_unknown() -> None:
    d1 = read(HEAD + "#0 1!")["top.D1"]
    assert (d1.initial, d1.edges()) == (-1, [])


def test_of_several_values_at_one_time_the_last_holds() -> None:
    d0 = read(HEAD + "#0 0! #5 1! 0! #9 1! 0! 1!")["top.D0"]
    assert d0.edges() == [Edge(9_000_000, True)]


def test_a_scalar_may_be_written_as_a_vector_of_one_bit() -> None:
    assert read(HEAD + "#0 b0 ! #4 b1 !")["top.D0"].edges() == [Edge(4_000_000, True)]


def test_signals_with_one_code_share_their_changes() -> None:
    text = HEAD.replace("$upscope", "$var wire 1 ! alias $end $upscope")
    signals = read(text + "#0 0! #3 1!")
    assert signals["top.alias"].edges() == signals["top.D0"].edges() == [Edge(3_000_000, True)]


@pytest.mark.parametrize(
    ("timescale", "fs"),
    [("1s", 10**15), ("10 ms", 10**13), ("100us", 10**11), ("1 ps", 1000), ("100 fs", 100)],
)
def test_timescales(timescale: str, fs: int) -> None:
    text = HEAD.replace("1 ns", timescale) + "#0 0! #2 1!"
    assert read(text)["top.D0"].edges() == [Edge(2 * fs, True)]


def test_a_net_that_is_declared_twice_is_one_signal_unless_its_values_differ() -> None:
    twice = HEAD.replace('" D1', '" D0')
    assert [*read(twice + '#0 0! 0" #5 1! 1"')] == ["top.D0"]
    both = read(twice + '#0 0! 0" #5 1! #6 1"')
    assert {path: each.instants_fs() for path, each in both.items()} == {
        "top.D0": [5_000_000],
        "top.D0 (2)": [6_000_000],
    }
    assert both["top.D0 (2)"].name == "D0 (2)"


def test_the_weak_levels_of_vhdl_count_and_its_unknown_ones_do_not() -> None:
    found = read(HEAD + '#0 U! u" #1000 0! L" #2000 1! #2500 H" #3000 W! -"')
    assert [(e.instant_fs, e.rising) for each in found.values() for e in each.edges()] == [
        (2000 * 10**6, True),
        (2500 * 10**6, True),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "before $enddefinitions"),
        ("\x00\xff\x80PK\x03\x04", "not a value change dump"),
        ("$date today", "ends within $date"),
        (HEAD.replace("$timescale 1 ns $end", ""), "no $timescale"),
        (HEAD.replace("1 ns", "3 ns"), "must be 1, 10 or 100"),
        (HEAD.replace("1 ns", ""), "must be 1, 10 or 100"),
        ("$upscope $end", "did not enter"),
        (HEAD.replace("wire 1 ! D0", "wire 1 !"), "incomplete"),
        (HEAD + "#5 0! #4 1!", "goes back from #5 to #4"),
        (HEAD + "#5 0%", "'%', which the file does not declare"),
        (HEAD + "#5 b01 %", "'%', which the file does not declare"),
        (HEAD + "#5 0", "'', which the file does not declare"),
        (HEAD + "#-5 0!", "not a whole number"),
        (HEAD + "#9999999999999999999", "beyond 64 bits"),
        (HEAD + "#" + "9" * 5000, "not a whole number"),
        (HEAD + "#5 b2 !", "not one that a scalar can have"),
        (HEAD + "#5 r1.5 !", "not one that a scalar can have"),
        (HEAD + "#5 goodbye", "not part of a value change dump"),
        (HEAD + "#5 $comment for ever", "ends within $comment"),
        (HEAD + "0" * 200_000, "without a space"),
    ],
)
def test_what_is_no_dump_is_refused_with_a_sentence(text: str, says: str) -> None:
    assert says in refused(text)


def test_an_enormous_dump_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = HEAD + " ".join(f"#{n} {n % 2}!" for n in range(200))
    monkeypatch.setattr(vcd, "MAX_CHANGES", 200)
    assert len(read(text)["top.D0"].edges()) == 199
    monkeypatch.setattr(vcd, "MAX_CHANGES", 100)
    assert "more than 100 changes" in refused(text)


def test_the_header_is_read_without_the_values(tmp_path: Path) -> None:
    path = tmp_path / "a.vcd"
    path.write_text(HEAD.replace("$timescale", "$version a  b $end $comment c $end $timescale"))
    header = read_vcd_header(path)
    assert (header.version, header.comments, header.timescale_fs) == ("a b", "c", 10**6)


def test_octets_at_random_raise_nothing_else() -> None:
    chance = random.Random(7)
    body = (HEAD + "#0 0! #3 1! b1 ! $comment x $end #9 0!").encode()
    for _ in range(500):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with contextlib.suppress(VcdError):
            read_vcd(io.BytesIO(bytes(damaged[: chance.randint(1, len(damaged))])))


@given(
    changes=st.lists(
        st.tuples(st.integers(1, 10**6), st.sampled_from("01xz"), st.sampled_from('!"'))
    ),
    timescale=st.sampled_from([(1, "fs"), (10, "ps"), (100, "ns")]),
    line_end=st.sampled_from(["\n", "\r\n", " "]),
)
def test_what_was_written_is_read(
    changes: list[tuple[int, str, str]], timescale: tuple[int, str], line_end: str
) -> None:
    number, unit = timescale
    step_fs = number * {"fs": 1, "ps": 10**3, "ns": 10**6}[unit]
    levels = {"0": 0, "1": 1, "x": -1, "z": -1}
    lines = ["#0", "0!", '0"']
    now, expected, level = 0, {"!": [], '"': []}, {"!": 0, '"': 0}
    for after, value, code in changes:
        now += after
        lines += [f"#{now}", value + code]
        if levels[value] != level[code]:
            level[code] = levels[value]
            expected[code].append((now * step_fs, level[code]))
    text = HEAD.replace("1 ns", f"{number} {unit}") + line_end.join(lines)
    signals = read(text)
    for code, path in (("!", "top.D0"), ('"', "top.D1")):
        found = signals[path]
        assert found.initial == 0
        assert list(zip(found.instants_fs(), found.levels, strict=True)) == expected[code]


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot be read"):
        read_vcd(tmp_path / "none.vcd")
