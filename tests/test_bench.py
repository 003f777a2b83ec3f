"""What the benchmarks say is what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.harness import RESULTS, Ratio, Row
from bench.readme import pages

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
