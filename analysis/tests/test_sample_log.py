"""The sample log of a client: what is taken of it, and that nothing in it does harm."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtick.analysis.capture import CaptureError
from mqtick.analysis.clocks.sample_log import open_sample_log, read_sample_log, recognises
from mqtick.analysis.clocks.sample_track import Sample as Sampled
from mqtick.analysis.clocks.sample_track import Track
from mqtick.analysis.measurement import TimeErrors
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Sample, Verdict
from mqtick.client.sample_log import SampleLog

SECOND = 1_000_000_000
EPOCH = 1_795_208_084 * SECOND

# A line of client/README.md: what a real client wrote.
REAL = (
    '{"server": 0, "kind": "echo", "sequence": 572030733, "generation": 42, '
    '"realtime_ns": 1795208084297411627, "local_ns": 7361283990747, "offset_ns": 1005, '
    '"lower_ns": -17393, "upper_ns": 14725, "delay_ns": 17440, "verdict": "used", '
    '"reason": "selected", "authenticated": true, "stamps": {"first_echo": '
    '{"ns": 1795208084297403858, "source": "kernel"}, "arrival": {"ns": 7361283990747, '
    '"source": "kernel"}, "last_echo": {"ns": 1795208084297421298, "source": "kernel"}}}'
)


def sample(at_s: float, offset_ns: int = 0, **changed: Any) -> dict[str, Any]:
    at_ns = round(at_s * SECOND)
    return {
        "server": 0,
        "kind": "echo",
        "realtime_ns": EPOCH + at_ns - offset_ns,
        "local_ns": 77 * SECOND + at_ns,
        "offset_ns": offset_ns,
        "lower_ns": offset_ns - 20_000,
        "upper_ns": offset_ns + 20_000,
        "delay_ns": 17_000,
        "verdict": "used",
        "reason": "selected",
        **changed,
    }


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "node 1.jsonl"
    path.write_bytes(
        b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
    )
    return path


def only(path: Path) -> TimeErrors:
    (found,) = read_sample_log(path)
    return found


def test_a_line_of_a_real_client_is_recognised_and_read(tmp_path: Path) -> None:
    assert recognises(REAL.encode())
    found = only(written(tmp_path, REAL.encode() + b"\n"))
    assert found.error_ns.tolist() == [1005.0]
    assert (found.seconds.tolist(), found.started_ns) == ([0.0], 1795208084297411627 + 1005)
    assert found.lower_ns is not None
    assert found.upper_ns is not None
    assert (found.lower_ns.tolist(), found.upper_ns.tolist()) == ([-17393.0], [14725.0])
    assert (found.name, found.source) == ("node 1", "samples of the client")


def test_what_the_client_writes_is_what_is_read(tmp_path: Path) -> None:
    taken = Sample(Kind.ECHO, 7_000, 905, 900, None, 30, verdict=Verdict.USED)
    wall = WallSample(taken, -100, EPOCH)
    path = tmp_path / "log"
    log = SampleLog(str(path))
    log.write(SimpleNamespace(number=0), wall)  # type: ignore[arg-type]
    log.close()
    assert recognises(path.read_bytes())
    found = only(path)
    assert found.error_ns.tolist() == [wall.offset_ns] == [1005]
    assert found.started_ns == EPOCH + 1005
    assert found.lower_ns is not None
    assert found.lower_ns.tolist() == [1000]
    assert found.upper_ns is None


def test_positive_means_behind_as_everywhere(tmp_path: Path) -> None:
    assert only(written(tmp_path, sample(0, 5), sample(16, -7))).error_ns.tolist() == [5.0, -7.0]


def test_only_used_samples_count_and_the_others_are_told(tmp_path: Path) -> None:
    log = open_sample_log(
        written(
            tmp_path,
            sample(0, 1),
            sample(1, 999, verdict="kept", reason="better-kind"),
            sample(2, 999, verdict="refused", reason="stale"),
            sample(16, 2),
        )
    )
    assert log.errors[0].error_ns.tolist() == [1.0, 2.0]
    assert log.notes == [
        "2 of 4 samples of node 1.jsonl were used; the others are left out: "
        "1 kept (better-kind), 1 refused (stale)."
    ]
    assert log.counts["refused", "stale"] == 1


def test_of_a_burst_the_best_sample_is_taken(tmp_path: Path) -> None:
    log = open_sample_log(
        written(
            tmp_path,
            sample(0.00, 1, kind="two-way", delay_ns=1),
            sample(0.06, 2, delay_ns=30_000),
            sample(0.12, 3, delay_ns=10_000),
            sample(0.18, 4, delay_ns=20_000),
            sample(16.0, 5),
        )
    )
    assert log.errors[0].error_ns.tolist() == [3.0, 5.0]
    assert log.errors[0].seconds == pytest.approx([0.0, 15.88])
    assert log.notes[0].startswith("node 1: 5 used samples in 2 bursts. Of each burst the best")


def test_samples_without_a_pause_are_no_endless_burst(tmp_path: Path) -> None:
    found = only(written(tmp_path, *(sample(n / 10, n) for n in range(101))))
    assert found.seconds.size == 6


def test_every_server_has_its_own_time_errors(tmp_path: Path) -> None:
    path = written(tmp_path, sample(0, 1, server=3), sample(1, 2), sample(16, 3, server=3))
    found = read_sample_log(path)
    assert [each.name for each in found] == ["node 1, server 0", "node 1, server 3"]
    assert [each.error_ns.tolist() for each in found] == [[2.0], [1.0, 3.0]]


def test_a_bound_that_nothing_guarantees_is_none(tmp_path: Path) -> None:
    one_way = sample(0, 1, kind="one-way", upper_ns=None)
    found = only(written(tmp_path, one_way, sample(16, 2, kind="one-way", upper_ns=None)))
    assert found.upper_ns is None
    assert found.lower_ns is not None
    log = open_sample_log(written(tmp_path, one_way, sample(16, 2)))
    upper_ns = log.errors[0].upper_ns
    assert upper_ns is not None
    assert np.isnan(upper_ns).tolist() == [True, False]
    assert "several kinds, which differ in accuracy: 1 echo, 1 one-way" in log.notes[0]


def test_a_step_of_the_clock_does_not_bend_the_time_axis(tmp_path: Path) -> None:
    log = open_sample_log(
        written(tmp_path, sample(0, 3 * SECOND), sample(16, 3 * SECOND), sample(32, 0))
    )
    assert log.errors[0].seconds.tolist() == [0.0, 16.0, 32.0]
    assert "the system clock was stepped 1 times, by up to 3 s" in log.notes[0]


def test_a_restart_of_the_machine_is_bridged_by_the_reference(tmp_path: Path) -> None:
    later = sample(5000, 2)
    later["local_ns"] = 12 * SECOND
    log = open_sample_log(written(tmp_path, sample(0, 1), later))
    assert log.errors[0].seconds.tolist() == [0.0, 5000.0]
    assert "the local timeline began anew 1 times" in log.notes[0]


def test_samples_out_of_order_are_put_in_order_and_told(tmp_path: Path) -> None:
    log = open_sample_log(
        written(tmp_path, sample(100, 3), sample(50, 2), sample(0, 1), sample(50, 9))
    )
    assert log.errors[0].seconds.tolist() == [0.0, 50.0, 100.0]
    assert log.errors[0].error_ns.tolist() == [1.0, 2.0, 3.0]
    assert "1 of them left out that share an instant" in " ".join(log.notes)


def test_a_last_line_that_is_cut_off_is_left_out_and_told(tmp_path: Path) -> None:
    log = open_sample_log(written(tmp_path, sample(0, 1), sample(16, 2), REAL.encode()[:100]))
    assert log.errors[0].error_ns.tolist() == [1.0, 2.0]
    assert log.damaged == ["node 1.jsonl: the last line, 3, is cut off and left out."]


def hostile() -> list[tuple[bytes, str]]:
    def with_(**changed: Any) -> bytes:
        return json.dumps(sample(1, **changed)).encode() + b"\n"

    missing = sample(1)
    del missing["offset_ns"]
    return [
        (b"no json\n", "line 2: it is not JSON"),
        (b"\xff\xfe{}\n", "line 2: it is not UTF-8"),
        (b"[" * 60_000 + b"\n", "line 2: it is n"),
        (b"[1, 2]\n", "line 2: it is no object"),
        (b"{}\n", "line 2: server is missing"),
        (json.dumps(missing).encode() + b"\n", "line 2: offset_ns is missing"),
        (with_(delay_ns=float("nan")), "line 2: delay_ns is no whole number"),
        (with_(delay_ns=1e300), "line 2: delay_ns is no whole number"),
        (with_(server=True), "line 2: server is no whole number"),
        (with_(delay_ns=1 << 62), "line 2: delay_ns is beyond"),
        (with_(local_ns=-(10**4000)), "line 2: local_ns is beyond"),
        (b'{"server": ' + b"9" * 5000 + b"}\n", "line 2: it is not JSON"),
        (with_(lower_ns="1"), "line 2: lower_ns is no whole number"),
        (with_(verdict=None), "line 2: verdict is no word"),
        (with_(kind="x" * 41), "line 2: kind is no word"),
        (with_(reason="\x1b[2J"), "line 2: reason is no word"),
        (b'{"a": "' + b"x" * 200_000 + b'"}\n', "line 2: longer than 65536 octets"),
        (b"\0" * 1000 + b"\n", "line 2: it is not JSON"),
    ]


@pytest.mark.parametrize(("line", "sentence"), hostile())
def test_a_line_that_is_no_sample_is_left_out_and_told(
    tmp_path: Path, line: bytes, sentence: str
) -> None:
    log = open_sample_log(written(tmp_path, sample(0, 1), line, sample(16, 2)))
    assert log.errors[0].error_ns.tolist() == [1.0, 2.0]
    assert len(log.damaged) == 1
    assert "1 of 3 lines are no samples and left out" in log.damaged[0]
    assert sentence in log.damaged[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"time,volts\n0,1\n", "line 1: it is not JSON"),
        (b"\x1f\x8b\x08\x00", "line 1: it is not UTF-8"),
    ],
)
def test_a_file_without_a_sample_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence):
        open_sample_log(written(tmp_path, content))


def test_a_log_whose_samples_were_all_refused_says_why(tmp_path: Path) -> None:
    lines = [sample(n, verdict="refused", reason="server-unsynchronised") for n in range(3)]
    with pytest.raises(CaptureError, match=r"3 refused \(server-unsynchronised\)"):
        open_sample_log(written(tmp_path, *lines))


def test_a_folder_or_nothing_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(CaptureError):
            open_sample_log(path)


def test_numbers_at_the_limits_do_no_harm(tmp_path: Path) -> None:
    most = (1 << 62) - 1
    lines = [
        sample(0, 1),
        sample(1) | {"realtime_ns": most, "offset_ns": most, "local_ns": -most},
        sample(2) | {"realtime_ns": -most, "offset_ns": -most, "local_ns": most},
        sample(3) | {"realtime_ns": most, "offset_ns": -most, "lower_ns": -most},
    ]
    log = open_sample_log(written(tmp_path, *lines))
    assert np.all(np.diff(log.errors[0].seconds) > 0)
    with pytest.raises(CaptureError, match="no sample can be placed in time"):
        open_sample_log(written(tmp_path, lines[1]))


def test_endless_words_and_servers_do_not_fill_the_memory(tmp_path: Path) -> None:
    words = [sample(n, verdict=f"v{n}", reason=f"r{n}", kind=f"k{n}") for n in range(200)]
    assert len(open_sample_log(written(tmp_path, sample(999), *words)).counts) == 51
    servers = [sample(0, server=n) for n in range(1001)]
    with pytest.raises(CaptureError, match="more than 1000 servers"):
        open_sample_log(written(tmp_path, *servers))


@given(st.binary(max_size=300))
@settings(max_examples=50)
def test_recognising_never_raises(head: bytes) -> None:
    recognises(head)
    recognises(REAL.encode()[: len(head)] + head)


def test_other_files_are_not_recognised() -> None:
    for head in (b"", b"{}", b'{"name": "run"}', b"Time,CH1\n1,2\n", b"\0" * 64):
        assert not recognises(head)


@given(st.integers(0, len(REAL) - 1), st.integers(0, 255))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_wrong_octet_ends_in_a_reading_or_a_sentence(
    tmp_path: Path, place: int, octet: int
) -> None:
    line = bytearray(REAL.encode() + b"\n")
    line[place] = octet
    with contextlib.suppress(CaptureError):
        open_sample_log(written(tmp_path, bytes(line)))


ANY_NS = st.integers(-(1 << 62) + 1, (1 << 62) - 1) | st.integers(-(10**10), 10**10)


@given(st.lists(st.tuples(ANY_NS, ANY_NS, ANY_NS, ANY_NS), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_a_log_says_time_increases_and_every_sample_is_accounted_for(
    rows: list[tuple[int, int, int, int]],
) -> None:
    track = Track()
    for realtime_ns, local_ns, offset_ns, delay_ns in rows:
        track.add(
            Sampled(0, "echo", "used", "", realtime_ns, local_ns, offset_ns, None, 5, delay_ns)
        )
    found, notes = track.finish("node")
    if found is None:
        assert "samples are left out" in " ".join(notes)
        return
    assert np.all(np.diff(found.seconds) > 0)
    assert found.seconds[0] == 0
    assert found.seconds.size == found.error_ns.size <= len(rows)
    assert set(found.error_ns) <= {float(row[2]) for row in rows}
