"""Masks of standards: their values, and what is said by them."""

from __future__ import annotations

import numpy as np
import pytest

from mqtick.analysis.clocks.masks import MASKS, MAXIMUM, Mask, MaskVerdict, mask_verdicts
from mqtick.analysis.clocks.stability import Deviation, tdev


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


def test_pieces_meet_where_one_ends_and_the_next_begins() -> None:
    for each in MASKS:
        for begin_s, _, _ in each.pieces[1:]:
            before, after = each.at([begin_s, begin_s * (1 + 1e-9)])
            assert after == pytest.approx(before, rel=0.06), (each.name, each.measure)


def test_every_mask_names_its_document() -> None:
    assert all(each.source.startswith("ITU-T G.8") for each in MASKS)
    assert len({(each.name, each.measure) for each in MASKS}) == len(MASKS)


def test_outside_its_range_a_mask_says_nothing() -> None:
    assert np.isnan(mask("G.811 PRC", "TDEV").at([0.1, 10_001])).all()


def deviation(name: str, tau_s: list[float], value: list[float]) -> Deviation:
    return Deviation(name, np.array(tau_s), np.array(value))


def only(found: tuple[MaskVerdict, ...]) -> MaskVerdict:
    (verdict,) = found
    return verdict


def test_the_worst_tau_decides() -> None:
    chosen = mask("G.8272 PRTC-A", "MTIE")
    good = deviation("MTIE", [1, 10, 1000], [20.0, 27.0, 99.0])
    assert mask_verdicts([good], None, [chosen], samples=2000) == (
        MaskVerdict("G.8272 PRTC-A", "MTIE", True, 0.99, 1000.0, chosen.source),
    )
    bad = deviation("MTIE", [1, 10, 1000], [20.0, 55.5, 120.0])
    assert mask_verdicts([bad], None, [chosen], samples=2000) == (
        MaskVerdict("G.8272 PRTC-A", "MTIE", False, 2.0, 10.0, chosen.source),
    )


def test_without_a_common_tau_nothing_is_decided() -> None:
    chosen = mask("G.811 PRC", "TDEV")
    found = mask_verdicts([deviation("TDEV", [0.01], [1.0])], None, [chosen], samples=100)
    assert found == (MaskVerdict("G.811 PRC", "TDEV", None, None, None, chosen.source),)


def test_the_largest_error_is_judged_without_a_tau() -> None:
    found = {each.mask: each for each in mask_verdicts([], 50.0, samples=100)}
    assert found["G.8272 PRTC-A"].holds
    assert not found["G.8272 PRTC-B"].holds
    assert found["G.8272 PRTC-B"].worst_ratio == pytest.approx(50 / 40)
    assert all(each.worst_tau_s is None for each in found.values())
    assert mask_verdicts([], None, samples=100) == ()


def test_a_clock_exactly_on_the_line_holds() -> None:
    assert only(mask_verdicts([], 100.0, [mask("G.8272 PRTC-A", MAXIMUM)], samples=59)).holds


def test_too_few_samples_keep_no_mask_but_one_breaks_it() -> None:
    chosen = [mask("G.8272 PRTC-A", MAXIMUM)]
    assert only(mask_verdicts([], 1.0, chosen, samples=58)).holds is None
    assert only(mask_verdicts([], 101.0, chosen, samples=1)).holds is False


@pytest.mark.parametrize(
    ("measure", "inside_ns", "beyond_ns", "amplified"),
    [(MAXIMUM, 90.0, 110.0, 1), ("MTIE", 15.0, 35.0, 2), ("TDEV", 1.0, 5.0, 1.64)],
)
def test_what_the_measurements_uncertainty_leaves_open_is_not_told(
    measure: str, inside_ns: float, beyond_ns: float, amplified: float
) -> None:
    chosen = mask("G.8272 PRTC-A", measure)
    limit_ns = float(chosen.at(1.0))

    def holds(value_ns: float, uncertainty_ns: float) -> bool | None:
        given = [] if measure == MAXIMUM else [deviation(measure, [1], [value_ns])]
        most_ns = value_ns if measure == MAXIMUM else None
        found = mask_verdicts(given, most_ns, [chosen], samples=99, uncertainty_ns=uncertainty_ns)
        return only(found).holds

    for value_ns, known in ((inside_ns, True), (beyond_ns, False)):
        room_ns = abs(limit_ns - value_ns) / amplified
        assert holds(value_ns, 0.9 * room_ns) is known
        assert holds(value_ns, 1.1 * room_ns) is None
        assert holds(value_ns, np.inf) is None


def test_an_error_of_every_sample_adds_no_more_to_tdev_than_is_allowed_for() -> None:
    """The worst errors of one size alternate: then every second difference is four of them."""
    x = np.tile([1.0, -1.0], 50)
    (found,) = tdev([x], 1.0, [1]).value
    assert found == pytest.approx(4 / np.sqrt(6))
