"""How the benchmarks measure, and that what they say is what they measured."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_stamps import ends

from bench import harness
from bench.arrival import matched, stated_ns
from bench.cost import peak_mb
from bench.disciplined import Look, placed
from bench.harness import RESULTS, Ratio, Report, Row, cpu_ns, options, quantile
from bench.readme import pages, table
from bench.sniffer import Heard, Sniffer
from bench.steered import Taken, taken
from mqtick.mqtt.packets import encode_publish
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.precise import Leap, Time

MS = 1_000_000

# -- reports ---------------------------------------------------------------------------------------

ROW_KEYS = {"quantity", "unit", "who", "n", "median", "p5", "p95", "p99", "max", "simulated"}
RATIO_KEYS = {"quantity", "ours", "peer", "ratio", "goal", "met"}


def test_the_pages_show_what_the_results_files_say() -> None:
    stale = [page for page, text in pages().items() if page.read_text() != text]
    assert stale == [], "run: python -m bench.readme"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_a_results_file_has_what_reports_read(file: Path) -> None:
    content = json.loads(file.read_text())
    assert content["name"] == file.stem
    assert all(content[name] for name in ("commit", "machine", "rows"))
    assert all(set(row) == ROW_KEYS for row in content["rows"])
    assert all(set(ratio) == RATIO_KEYS for ratio in content["ratios"])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_row_is_ordered(values: list[float]) -> None:
    row = Row.of("x", "us", "ours", values, digits=12)
    assert row.p5 <= row.median <= row.p95 <= row.p99 <= row.max
    assert row.n == len(values)
    assert row.max == pytest.approx(max(values))


def test_a_goal_is_met_up_to_itself() -> None:
    assert Ratio.of("x", 1, 2, 0.5).met is True
    assert Ratio.of("x", 1.1, 2, 0.5).met is False
    assert Ratio.of("x", 1, 2, None).met is None


def test_a_quantile_is_a_value_that_was_measured() -> None:
    assert [quantile([1, 2, 3, 4], share) for share in (0, 0.25, 0.5, 0.99, 1)] == [1, 2, 3, 4, 4]


def test_nothing_measured_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="nothing was measured for ours; the run is useless"):
        Row.of("delay", "us", "ours", [])


def test_a_peer_of_zero_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="nothing can be compared"):
        Ratio.of("delay", 1.0, 0.0, None)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "bench/results")
    (tmp_path / "bench").mkdir()
    made = Report("delays")
    made.rows.append(Row.of("delay | one way", "us", "ours", [1, 2, 3], simulated=True))
    made.rows.append(Row.of("memory", "MB", "ours", [7.5]))
    made.ratios.append(Ratio.of("delay: ours / theirs", 2.0, 8.0, 0.5))
    made.finish()
    return made


def test_a_report_is_a_file_and_a_table(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((tmp_path / "bench/results/delays.json").read_text())
    assert content["name"] == "delays"
    assert [row["median"] for row in content["rows"]] == [2, 7.5]
    assert content["ratios"] == [
        {
            "quantity": "delay: ours / theirs",
            "ours": 2.0,
            "peer": 8.0,
            "ratio": 0.25,
            "goal": 0.5,
            "met": True,
        }
    ]
    report.finish()
    assert (
        "delay: ours / theirs: 2.0 / 8.0 = 0.25, goal at most 0.5 (met)" in capsys.readouterr().out
    )


def test_what_is_kept_of_the_results_file_comes_first(report: Report) -> None:
    again = Report(report.name)
    again.add("memory", "MB", "ours", [8.5])
    again.keep(lambda quantity: quantity != "memory")
    assert [(one.quantity, one.median) for one in again.rows] == [
        ("delay | one way", 2),
        ("memory", 8.5),
    ]
    assert again.ratios == report.ratios


@pytest.mark.usefixtures("report")
def test_the_page_says_what_was_simulated_and_gives_few_values_no_spread(tmp_path: Path) -> None:
    lines = table(json.loads((tmp_path / "bench/results/delays.json").read_text())).splitlines()
    assert r"| delay \| one way (simulated) | ours | us | 3 | 2 |  |  |  | 3 |" in lines
    assert "| memory | ours | MB | 1 | 7.5 |  |  |  |  |" in lines
    assert "| delay: ours / theirs | 2.0 | 8.0 | 0.25 | 0.5 | yes |" in lines


def test_what_the_command_line_says_comes_before_what_short_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["time_error", "--short", "--clients", "5"])
    args = options(None, {"clients": "2,10", "seconds": 120.0}, clients="600", seconds=600.0)
    assert (args.clients, args.seconds) == ("5", 120.0)


# -- arrival ---------------------------------------------------------------------------------------


def test_an_edge_belongs_to_the_arrival_before_it() -> None:
    arrivals = [(0, -200_000), (50 * MS, 49 * MS), (100 * MS, 99 * MS)]
    edges = [60_000, 50 * MS + 70_000, 100 * MS + 80_000]
    assert matched(arrivals, edges) == [(60, 260), (70, 1070), (80, 1080)]


def test_an_arrival_without_an_edge_has_no_pair() -> None:
    arrivals = [(0, 0), (50 * MS, 50 * MS), (100 * MS, 100 * MS)]
    assert matched(arrivals, [100 * MS + 80_000]) == [(80, 80)]


def test_an_edge_without_an_arrival_has_no_pair() -> None:
    edges = [-5 * MS, 60_000, 20 * MS, 50 * MS + 70_000]
    assert matched([(0, 0), (50 * MS, 50 * MS)], edges) == [(60, 60), (70, 70)]


@given(st.lists(st.integers(1, 10_000_000), max_size=50))
def test_as_many_pairs_as_messages_where_each_had_its_edge(delays_ns: list[int]) -> None:
    arrivals = [(place * 50 * MS, place * 50 * MS - 1) for place in range(len(delays_ns))]
    edges = [received + delay for (received, _), delay in zip(arrivals, delays_ns, strict=True)]
    assert [pair[0] for pair in matched(arrivals, edges)] == [delay / 1e3 for delay in delays_ns]


@pytest.mark.parametrize("properties", [None, b""], ids=["MQTT 3.1.1", "MQTT 5"])
def test_the_stated_time_is_read_from_a_segment(properties: bytes | None) -> None:
    message = Time(0, 7, 1_800_000_000_123_456_789, None, 0, 1, Leap.NONE, StampSource.NONE, 3)
    segment = encode_publish(b"mqtick/t/0", message.body() + bytes(8), properties)
    assert stated_ns(segment) == 1_800_000_000_123_456_789
    assert stated_ns(encode_publish(b"mqtick/r/0/bench", bytes(32), properties)) is None


@pytest.fixture
def sniffer() -> Iterator[Sniffer]:
    try:
        made = Sniffer()
    except PermissionError:
        pytest.skip("no right to a packet socket: run as root")
    yield made
    made.close()


def test_what_the_sniffer_sees_is_what_the_receiver_was_sent(sniffer: Sniffer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as one, listener.accept()[0] as other:
            before_ns = time.time_ns()
            other.sendall(b"to the client")
            assert one.recv(100) == b"to the client"
            after_ns = time.time_ns()
            one.sendall(b"to the server")
            assert other.recv(100) == b"to the server"
    seen = [segment for segment in sniffer.read() if segment.ports[0] == port]
    assert [segment.data for segment in seen] == [b"to the client"] * 2
    assert [segment.outgoing for segment in seen] == [True, False]
    assert before_ns <= seen[0].realtime_ns <= seen[1].realtime_ns <= after_ns


def test_a_message_has_passed_with_the_segment_of_its_last_octet() -> None:
    def segment(at_ns: int, offset: int, data: bytes) -> Heard:
        return Heard(at_ns, False, (1, 2), (2**32 - 3 + offset) % 2**32, data)

    # The second message is cut, its end is sent again, and comes before what follows.
    heard = [
        segment(1, 0, b"..<aa><b"),
        segment(2, 8, b"b>"),
        segment(4, 10, b"<cc><dd>"),
        segment(3, 8, b"b><cc>"),
    ]
    assert ends(heard, b"<", 4) == [1, 2, 4, 4]
    with pytest.raises(RuntimeError, match="lost segments"):
        ends([heard[0], heard[2]], b"<", 4)


# -- cost ------------------------------------------------------------------------------------------


def test_the_processor_time_of_a_process_is_its_own() -> None:
    before_ns = time.process_time_ns()
    used_ns = cpu_ns(os.getpid())
    assert before_ns <= used_ns <= time.process_time_ns()


def test_the_peak_memory_never_falls() -> None:
    before_mb = peak_mb(os.getpid())
    ballast = bytes(50_000_000).replace(b"\0", b"x")
    grown_mb = peak_mb(os.getpid())
    assert grown_mb >= max(before_mb, len(ballast) / 1e6)
    del ballast
    assert peak_mb(os.getpid()) == pytest.approx(grown_mb, rel=0.01)


# -- the clock that chronyd steers -----------------------------------------------------------------

REFCLOCKS_LOG = """\
==============================================================================
   Date (UTC) Time         Refid  DP L P  Raw offset   Cooked offset      Disp.
==============================================================================
2026-11-22 15:29:05.000250 MQT0    0 N 0  1.234567e-06  1.200000e-06  1.000e-05
2026-11-22 15:29:06.500000 MQT0    - N -       -       1.200000e-06  1.000e-05
2026-11-22 15:29:07.000000 NMEA    0 N 0  5.000000e-01  5.000000e-01  1.000e-05
"""


def test_of_chronyds_log_only_the_samples_that_it_was_given_count() -> None:
    assert list(taken(REFCLOCKS_LOG)) == [Taken(1_795_361_345_000_250_000, 1235)]


def test_a_sample_is_judged_by_the_clock_as_it_was_then() -> None:
    looks = [Look(at * MS, (5_000 + at) * MS, 700) for at in (0, 100, 200)]
    # The clock was 700 ns ahead, so a right sample says that the reference is behind.
    samples = [Taken(5_090 * MS, -700), Taken(5_200 * MS, -500)]
    assert list(placed(looks, samples)) == [(90 * MS, 0), (200 * MS, 200)]


@pytest.mark.parametrize(
    ("clock_ns", "stated", "truth_is_outside", "clock_is_outside"),
    [
        (10, (5, -20, 20), False, False),
        (30, (5, -20, 20), False, True),
        (10, (5, 1, 20), True, False),
        (10, None, True, True),
    ],
)
def test_outside_is_what_the_stated_interval_excludes(
    clock_ns: int,
    stated: tuple[int, int, int] | None,
    truth_is_outside: bool,
    clock_is_outside: bool,
) -> None:
    look = Look(0, 0, clock_ns, stated)
    assert (look.truth_is_outside, look.clock_is_outside) == (truth_is_outside, clock_is_outside)
    assert look.truth_is_outside_assumed == truth_is_outside, "nothing narrower is assumed"
    assert look._replace(assumed=(1, 9)).truth_is_outside_assumed
    assert not look._replace(assumed=(-9, 9)).truth_is_outside_assumed
