"""Sample logs that are damaged or forged: a sentence, a count, and nothing worse."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analysis.tests.sample_lines import REAL, sample, written
from mqtick.analysis.clocks.sample_log import open_sample_log, recognises
from mqtick.analysis.clocks.sample_track import Sample as Sampled
from mqtick.analysis.clocks.sample_track import Track
from mqtick.recording.capture import CaptureError


def hostile() -> list[tuple[bytes, str]]:
    def with_(**changed: Any) -> bytes:
        return json.dumps(sample(1, **changed)).encode() + b"\n"

    missing = sample(1)
    del missing["offset_ns"]
    return [
        (b"no json\n", "line 2: it is not JSON"),
        (b"\xff\xfe{}\n", "line 2: it is not UTF-8"),
        (b"[" * 60_000 + b"\n", "line 2: it is n"),
        (b"[1, 2]\n", "line 2: it is not an object"),
        (b"{}\n", "line 2: server is missing"),
        (json.dumps(missing).encode() + b"\n", "line 2: offset_ns is missing"),
        (with_(delay_ns=float("nan")), "line 2: delay_ns is not a whole number"),
        (with_(delay_ns=1e300), "line 2: delay_ns is not a whole number"),
        (with_(server=True), "line 2: server is not a whole number"),
        (with_(delay_ns=1 << 62), "line 2: delay_ns is beyond"),
        (with_(local_ns=-(10**4000)), "line 2: local_ns is beyond"),
        (b'{"server": ' + b"9" * 5000 + b"}\n", "line 2: it is not JSON"),
        (with_(lower_ns="1"), "line 2: lower_ns is not a whole number"),
        (with_(verdict=None), "line 2: verdict is not a string"),
        (with_(kind="x" * 41), "line 2: kind is not a string"),
        (with_(reason="\x1b[2J"), "line 2: reason is not a string"),
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
    assert "1 of 3 lines are not samples and were left out" in log.damaged[0]
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
    (told,) = open_sample_log(written(tmp_path, sample(999), *words)).notes
    assert told.count(" v") == 49
    assert "151 other" in told
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
@example([(0, 0, 0, 0), (0, 0, -1_999_999_874, 0), (0, 0, 127, 0), (0, 0, -(1 << 59) + 160, 0)])
@settings(max_examples=30)
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
        assert "samples were left out" in " ".join(notes)
        return
    assert np.all(np.diff(found.seconds) > 0)
    assert found.seconds[0] == 0
    assert found.seconds.size == found.error_ns.size <= len(rows)
    assert set(found.error_ns) <= {float(row[2]) for row in rows}
