from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.analysis.report.figures.scales import axis_scale
from mqtick.analysis.report.numbers import short
from mqtick.analysis.report.style import (
    GRID,
    INKS,
    PAPER,
    shortened,
    wrapped,
)

pytestmark = pytest.mark.filterwarnings("error")


def _contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ink", [ink for ink in INKS if ink not in (GRID, PAPER)])
def test_every_ink_can_be_read_on_light_and_on_dark_paper(ink: tuple[str, str, str]) -> None:
    assert _contrast(ink[1], PAPER.light) >= 4.5
    assert _contrast(ink[2], PAPER.dark) >= 4.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0627, "0.0627"),
        (340.0, "340"),
        (-12.5, "−12.5"),
        (12_500.0, "12,500"),
        (1e7, "10⁷"),
        (-3.2e-9, "−3.2·10⁻⁹"),
        (float("nan"), "–"),
        (9.9996e-6, "10⁻⁵"),
        (99.96, "100"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float, text: str) -> None:
    assert short(value) == text


@given(st.lists(st.floats(-1e12, 1e12) | st.just(float("nan")), max_size=20))
def test_every_scale_holds_its_values(values: list[float]) -> None:
    for options in ({}, {"log_ratio": 1.5}, {"from_zero": True}, {"log_ratio": float("inf")}):
        scale = axis_scale(values, **options)  # type: ignore[arg-type]
        assert np.isfinite([scale.low, scale.high]).all()
        assert scale.low < scale.high
        assert scale.kind != "log" or scale.low > 0
        known = [value for value in values if np.isfinite(value)]
        spare = 1e-12 * max(map(abs, known), default=0.0) + 1e-30
        assert all(scale.low - spare <= value <= scale.high + spare for value in known)


@given(st.text(max_size=60), st.floats(0.5, 7.0), st.integers(1, 3))
def test_text_is_cut_to_its_width_and_lines(text: str, width: float, lines: int) -> None:
    found = wrapped(text, width, lines).split("\n")
    assert len(found) <= lines
    for line in (*found, shortened(text, width)):
        assert len(line) <= max(width / 0.08, 4)
        assert line.replace("\N{NO-BREAK SPACE}", " ").isprintable()


def test_a_name_that_is_too_long_keeps_its_end() -> None:
    assert shortened("raspberry-pi-in-rack-23", 1.0) == "raspbe…ck-23"
