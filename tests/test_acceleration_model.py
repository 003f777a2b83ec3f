"""The queueing model that bench/accelerate.py draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.acceleration_model import PUBLISHED_M, draw, service_rate, wait_s


def test_all_accelerated_a_message_waits_at_two_stations_instead_of_four() -> None:
    assert wait_s(1, 0.0, PUBLISHED_M) == pytest.approx(4 / PUBLISHED_M, rel=1e-3)
    assert wait_s(1, 1.0, PUBLISHED_M) == pytest.approx(2 / PUBLISHED_M, rel=1e-3)


def test_a_station_that_gets_more_than_it_serves_has_no_wait() -> None:
    assert wait_s(PUBLISHED_M, 1.0, PUBLISHED_M) is None
    assert wait_s(PUBLISHED_M - 1, 1.0, PUBLISHED_M) is not None


def test_the_service_rate_is_found_from_a_wait() -> None:
    wait = wait_s(1000, 0.0, 30_000.0)
    assert wait is not None
    assert service_rate(wait * 1e6, 1000) == pytest.approx(30_000, rel=1e-6)


def test_the_figure_is_drawn_from_few_points(tmp_path: Path) -> None:
    file = tmp_path / "figure.png"
    measured = {0.0: {1000: [200.0, 220.0]}, 1.0: {1000: [20.0], 5000: [21.0]}}
    named = {0.0: "without", 1.0: "accelerated"}
    m = draw(file, measured, named, {"accelerated": (90.0, 150.0)})
    assert 4 / m * 1e6 == pytest.approx(220, rel=0.1)
    assert file.read_bytes().startswith(b"\x89PNG")
