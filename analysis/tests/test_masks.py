"""Masks of standards: their values, and what is judged by them."""

from __future__ import annotations

import numpy as np
import pytest

from mqtick.analysis.clocks.deviation import Deviation
from mqtick.analysis.clocks.masks import MASKS, MAXIMUM, Mask, MaskVerdict, judge_masks


def mask(name: str, measure: str) -> Mask:
    return next(each for each in MASKS if (each.name, each.measure) == (name, measure))


@pytest.mark.parametrize(
    ("name", "measure", "tau_s", "limit_ns"),
    [
        ("G.8272 PRTC-A", "MTIE", 1, 25.275),
        ("G.8272 PRTC-A", "MTIE", 273, 100.075),
        ("G.8272 PRTC-A", "MTIE", 100_000, 100),
        ("G.8272 PRTC-A", "TDEV", 100, 3),
        ("G.8272 PRTC-A", "TDEV", 500, 15),
        ("G.8272 PRTC-A", "TDEV", 5000, 30),
        ("G.8272 PRTC-B", "MTIE", 54, 39.85),
        ("G.8272 PRTC-B", "MTIE", 55, 40),
        ("G.8272 PRTC-B", "TDEV", 10, 1),
        ("G.8272 PRTC-B", "TDEV", 300, 3),
        ("G.8272 PRTC-B", "TDEV", 1000, 5),
        ("G.811 PRC", "MTIE", 100, 52.5),
        ("G.811 PRC", "MTIE", 10_000, 390),
        ("G.811 PRC", "TDEV", 300, 9),
        ("G.8272.1 ePRTC", "MTIE", 1, 4),
        ("G.8272.1 ePRTC", "MTIE", 1e6, 30),
        ("G.8272.1 ePRTC", "TDEV", 1000, 1),
    ],
)
def test_a_mask_has_the_values_of_its_standard(
    name: str, measure: str, tau_s: float, limit_ns: float
) -> None:
    assert float(mask(name, measure).at(tau_s)) == pytest.approx(limit_ns, rel=1e-6)


def test_one_percent_tve_by_phase_alone_is_a_hundredth_of_a_radian() -> None:
    for hertz in (50, 60):
        found = float(mask(f"C37.118 at {hertz} Hz", MAXIMUM).at(1.0))
        assert found == pytest.approx(0.01 / (2 * np.pi * hertz) * 1e9, rel=2e-4)


def test_pieces_meet_where_one_ends_and_the_next_begins() -> None:
    for each in MASKS:
        for piece in each.pieces[1:]:
            before, after = each.at([piece.begin_s, piece.begin_s * (1 + 1e-9)])
            assert after == pytest.approx(before, rel=0.06), (each.name, each.measure)


def test_every_mask_names_its_document() -> None:
    assert all(each.source.startswith(("ITU-T G.8", "IEEE C37.118")) for each in MASKS)
    assert len({(each.name, each.measure) for each in MASKS}) == len(MASKS)


def test_outside_its_range_a_mask_says_nothing() -> None:
    assert np.isnan(mask("G.811 PRC", "TDEV").at([0.1, 10_001])).all()


def deviation(name: str, tau_s: list[float], value: list[float]) -> Deviation:
    return Deviation(name, np.array(tau_s), np.array(value))


def test_the_worst_tau_decides() -> None:
    chosen = [mask("G.8272 PRTC-A", "MTIE")]
    good = deviation("MTIE", [1, 10, 1000], [20.0, 27.0, 99.0])
    assert judge_masks([good], masks=chosen) == (
        MaskVerdict("G.8272 PRTC-A", "MTIE", True, 0.99, 1000.0),
    )
    bad = deviation("MTIE", [1, 10, 1000], [20.0, 55.5, 120.0])
    assert judge_masks([bad], masks=chosen) == (
        MaskVerdict("G.8272 PRTC-A", "MTIE", False, 2.0, 10.0),
    )


def test_without_a_common_tau_nothing_is_decided() -> None:
    found = judge_masks([deviation("TDEV", [0.01], [1.0])], masks=[mask("G.811 PRC", "TDEV")])
    assert found == (MaskVerdict("G.811 PRC", "TDEV", None, None, None),)


def test_the_largest_error_is_judged_without_a_tau() -> None:
    found = {each.mask: each for each in judge_masks([], 30_000.0)}
    assert found["C37.118 at 50 Hz"].holds
    assert not found["C37.118 at 60 Hz"].holds
    assert found["C37.118 at 60 Hz"].worst_ratio == pytest.approx(30_000 / 26_530)
    assert all(each.worst_tau_s is None for each in found.values())
    assert judge_masks([]) == ()


def test_a_clock_exactly_on_the_line_holds() -> None:
    found = judge_masks([], 100.0, [mask("G.8272 PRTC-A", MAXIMUM)])
    assert found[0].holds
