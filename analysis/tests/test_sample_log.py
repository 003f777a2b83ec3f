"""The sample log of a client: what is taken of it, and that nothing in it does harm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.tests.known import known
from analysis.tests.sample_lines import EPOCH, REAL, SECOND, only, sample, written
from mqtick.analysis.clocks.sample_log import open_sample_log, recognises
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Sample, SampleVerdict
from mqtick.client.sample_log import SampleLog


def test_a_line_of_a_real_client_is_recognised_and_read(tmp_path: Path) -> None:
    assert recognises(REAL.encode())
    found = only(written(tmp_path, REAL.encode() + b"\n"))
    assert found.error_ns.tolist() == [1005.0]
    assert (found.seconds.tolist(), found.started_ns) == ([0.0], 1795208084297411627 + 1005)
    assert (known(found.lower_ns).tolist(), known(found.upper_ns).tolist()) == ([-17393], [14725])
    assert (found.name, found.source) == ("node 1", "samples of the client")


def test_what_the_client_writes_is_what_is_read(tmp_path: Path) -> None:
    taken = Sample(Kind.ECHO, 7_000, 905, 900, None, 30, verdict=SampleVerdict.USED)
    wall = WallSample(taken, -100, EPOCH)
    path = tmp_path / "log"
    log = SampleLog(str(path))
    log.write(SimpleNamespace(number=0), wall)  # type: ignore[arg-type]
    log.close()
    assert recognises(path.read_bytes())
    found = only(path)
    assert found.error_ns.tolist() == [wall.offset_ns] == [1005]
    assert found.started_ns == EPOCH + 1005
    assert known(found.lower_ns).tolist() == [1000]
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
    found = open_sample_log(path).errors
    assert [each.name for each in found] == ["node 1, server 0", "node 1, server 3"]
    assert [each.error_ns.tolist() for each in found] == [[2.0], [1.0, 3.0]]


def test_a_bound_that_nothing_guarantees_is_none(tmp_path: Path) -> None:
    one_way = sample(0, 1, kind="one-way", upper_ns=None)
    found = only(written(tmp_path, one_way, sample(16, 2, kind="one-way", upper_ns=None)))
    assert found.upper_ns is None
    assert found.lower_ns is not None
    log = open_sample_log(written(tmp_path, one_way, sample(16, 2)))
    assert np.isnan(known(log.errors[0].upper_ns)).tolist() == [True, False]
    assert "several kinds, which differ in accuracy: 1 echo, 1 one-way" in log.notes[0]


def test_a_step_of_the_clock_does_not_bend_the_time_axis(tmp_path: Path) -> None:
    log = open_sample_log(
        written(tmp_path, sample(0, 3 * SECOND), sample(16, 3 * SECOND), sample(32, 0))
    )
    assert log.errors[0].seconds.tolist() == [0.0, 16.0, 32.0]
    assert "the system clock was stepped once, by up to 3 s" in log.notes[0]


def test_a_restart_of_the_machine_is_bridged_by_the_reference(tmp_path: Path) -> None:
    later = sample(5000, 2)
    later["local_ns"] = 12 * SECOND
    log = open_sample_log(written(tmp_path, sample(0, 1), later))
    assert log.errors[0].seconds.tolist() == [0.0, 5000.0]
    assert "the local timeline restarted once" in log.notes[0]


def test_samples_out_of_order_are_put_in_order_and_told(tmp_path: Path) -> None:
    log = open_sample_log(
        written(tmp_path, sample(100, 3), sample(50, 2), sample(0, 1), sample(50, 9))
    )
    assert log.errors[0].seconds.tolist() == [0.0, 50.0, 100.0]
    assert log.errors[0].error_ns.tolist() == [1.0, 2.0, 3.0]
    assert "1 of them that share an instant with another were left out" in " ".join(log.notes)


def test_a_last_line_that_is_cut_off_is_left_out_and_told(tmp_path: Path) -> None:
    log = open_sample_log(written(tmp_path, sample(0, 1), sample(16, 2), REAL.encode()[:100]))
    assert log.errors[0].error_ns.tolist() == [1.0, 2.0]
    assert log.damaged == ["node 1.jsonl: the last line, 3, is cut off and was left out."]
