from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from analysis.tests.figure_parts import misplaced, texts_of
from analysis.tests.report_samples import (
    PATHOLOGICAL,
    clock_result,
    compare_results,
    latency_result,
    mixed_result,
    skew_result,
)
from mqtick.analysis.clocks.summary import Holdover
from mqtick.analysis.report import style
from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.numbers import told
from mqtick.analysis.report.style import drawing
from mqtick.analysis.report.svg import svg_of
from mqtick.analysis.results.result import Result

WIDE, PHONE = 7.6, 3.7

pytestmark = pytest.mark.filterwarnings("error")

ODD: Final = ("a b", "a/b", "../$x_1$", "<&>", "line\nbreak\x1b", "ラズパイ", "n" * 90)


def _odd_clock() -> Result:
    """Return a clock of whose samples some have no bound, and gaps beyond its samples."""
    result = clock_result(60, gap=None)
    clock = result.clocks[0]
    lower, upper = clock.errors.lower_ns, clock.errors.upper_ns
    assert lower is not None
    assert upper is not None
    lower, upper = lower.copy(), upper.copy()
    lower[::3], upper[::4] = -np.inf, np.inf
    errors = replace(clock.errors, lower_ns=lower, upper_ns=upper)
    gaps = (Holdover(-5.0, 900.0, 1.0), Holdover(2.0, 3.0, 0.0))
    return replace(result, clocks=(replace(clock, errors=errors, holdovers=gaps),))


def _odd_shots() -> Result:
    """Return shots without an edge in the example, with holes in pairs and traces."""
    result = skew_result(5, nodes=("publisher", *ODD))
    example, pairs = result.measurement.example, result.pairs
    assert example is not None
    assert pairs is not None
    traces = dict(example.traces)
    traces["a b"] = (np.array([0.0, np.nan, 2.0]), np.array([1.0, 1.0, np.nan]))
    traces["a/b"] = (np.array([]), np.array([]))
    marks = {name: mark for name, mark in example.edges.items() if name != "<&>"}
    example = replace(example, traces=traces, edges=marks)
    median = pairs.median_us.copy()
    median[0, :], median[2, 1] = np.nan, np.nan
    measurement = replace(result.measurement, example=example)
    return replace(result, measurement=measurement, pairs=replace(pairs, median_us=median))


SAMPLES: Final[dict[str, Callable[[], list[Result]]]] = {
    **{name: lambda make=make: [make()] for name, make in PATHOLOGICAL.items()},  # type: ignore[misc]
    "usual": lambda: [mixed_result()],
    "latency": lambda: [latency_result()],
    "odd names": lambda: [clock_result(40, gap=None, clocks=ODD[-4:])],
    "odd shots": lambda: [_odd_shots()],
    "odd clock": lambda: [_odd_clock()],
    "odd titles": lambda: [skew_result(5, title=title) for title in ODD[-4:]],
    "compared": compare_results,
    "compared clocks": lambda: [clock_result(title="one"), clock_result(title="two", seed=3)],
    "compared with itself": lambda: [skew_result(title="same"), skew_result(title="same")],
    "seven compared": lambda: [skew_result(title=f"Broker {i}", seed=i) for i in range(7)],
    "compared with nothing": lambda: [skew_result(), PATHOLOGICAL["nothing captured"]()],
    "compared in two units": lambda: [
        PATHOLOGICAL["nanoseconds"](),
        PATHOLOGICAL["enormous spread"](),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("name", SAMPLES)
def test_whatever_was_measured_its_figures_can_be_read(name: str, width: float) -> None:
    for picture in pictures_of(SAMPLES[name]()):
        figure = picture.draw(width)
        assert figure.get_size_inches()[0] == width
        with drawing():
            assert not misplaced(figure), picture.name
        if width == WIDE:
            assert svg_of(figure, picture.alt).startswith("<svg")


def test_no_label_of_a_usual_run_lies_on_another_on_a_phone() -> None:
    for picture in pictures_of([skew_result(latency=False)]):
        assert not misplaced(picture.draw(PHONE)), picture.name


def test_a_run_has_the_figures_for_which_it_has_data() -> None:
    assert [picture.name for picture in pictures_of([skew_result()])] == [
        "growth-skew",
        "ecdf-skew",
        "over-time-skew",
        "growth-latency",
        "ecdf-latency",
        "over-time-latency",
        "waveforms",
        "pairs",
    ]


def test_a_clock_has_figures_of_its_own() -> None:
    assert [picture.name for picture in pictures_of([clock_result()])] == [
        "clock-time-rpi1",
        "clock-spread-rpi1",
        "ecdf-clock-rpi1",
        "stability-rpi1",
        "holdover-rpi1",
    ]


def test_with_one_n_the_distribution_comes_first() -> None:
    assert pictures_of([latency_result()])[0].name == "ecdf-latency"


def test_several_runs_are_shown_on_one_another_and_not_one_by_one() -> None:
    pictures = pictures_of(compare_results())
    assert {picture.name for picture in pictures} == {
        f"compare-{kind}-{quantity}"
        for kind in ("growth", "ecdf", "b")
        for quantity in ("skew", "latency")
    }
    told = " ".join(texts_of(pictures[0].draw(WIDE))).replace("\n", " ")
    assert "Mosquitto 2.0" in told
    assert "Hardware broker" in told


def test_where_nothing_was_captured_there_is_no_figure() -> None:
    assert pictures_of([PATHOLOGICAL["nothing captured"]()]) == []
    assert pictures_of([]) == []


def test_one_shot_has_no_figure_over_time() -> None:
    names = [picture.name for picture in pictures_of([PATHOLOGICAL["one shot"]()])]
    assert "over-time-skew" not in names
    assert "ecdf-skew" in names


def test_shots_without_instants_are_shown_over_their_numbers() -> None:
    picture = next(
        p for p in pictures_of([PATHOLOGICAL["no instants"]()]) if p.name == "over-time-skew"
    )
    assert picture.title == "Skew over shot number"
    assert "shot number" in texts_of(picture.draw(PHONE))


@pytest.mark.slow
@pytest.mark.parametrize("simulated", [True, False])
def test_simulated_is_written_in_every_figure_of_a_simulated_run(simulated: bool) -> None:
    results = [skew_result(simulated=simulated), clock_result(400, simulated=simulated)]
    for result in results:
        for picture in pictures_of([result]):
            told = [text.get_text() for text in picture.draw(PHONE).texts]
            assert ("SIMULATED" in told) is simulated, picture.name


@pytest.mark.slow
def test_one_simulated_run_of_two_marks_the_comparison_and_is_named() -> None:
    pictures = pictures_of([skew_result(title="Desk", simulated=False), skew_result(title="Model")])
    for picture in pictures:
        told = " ".join(texts_of(picture.draw(WIDE))).replace("\n", " ")
        assert "SIMULATED: Model" in told, picture.name
        assert "SIMULATED: Desk" not in told


def test_growth_shows_published_points_the_line_and_the_limit() -> None:
    picture = pictures_of([skew_result()])[0]
    told = " ".join(texts_of(picture.draw(WIDE))).replace("\n", " ")
    assert "published, software broker" in told
    assert "published, hardware broker" in told
    assert "limit 52\N{NO-BREAK SPACE}µs" in told
    assert "per\N{NO-BREAK SPACE}subscriber" in told


def test_a_limit_of_a_mean_is_no_band_of_single_values() -> None:
    result = skew_result()
    assert {verdict.limit.statistic for verdict in result.verdicts} == {"mean"}
    pictures = {picture.name: picture for picture in pictures_of([result])}
    for name in ("ecdf-skew", "over-time-skew"):
        assert not any("limit" in text for text in texts_of(pictures[name].draw(WIDE))), name


def test_a_limit_of_a_quantile_is_drawn_on_the_values() -> None:
    result = skew_result()
    verdicts = [
        replace(each, limit=replace(each.limit, statistic="p99")) for each in result.verdicts
    ]
    result = replace(result, verdicts=tuple(verdicts))
    picture = next(each for each in pictures_of([result]) if each.name == "ecdf-skew")
    assert any("p99 limit" in text for text in texts_of(picture.draw(WIDE)))


def test_a_phone_shows_the_interval_of_a_drift_too() -> None:
    pictures = [each for each in pictures_of([skew_result()]) if "over-time" in each.name]
    assert pictures
    for picture in pictures:
        told = " ".join(texts_of(picture.draw(PHONE))).replace("\n", " ")
        assert re.search(r"drift \S+\s\S+ \(\S+ to \S+\) over the run", told), picture.name


def test_distributions_are_compared_at_the_largest_n_that_all_have() -> None:
    results = [skew_result(4, (2, 50)), skew_result(4, (2, 10)), skew_result(4, (2, 100))]
    titles = [each.title for each in pictures_of(results) if "ecdf-skew" in each.name]
    assert titles == ["Distribution of skew at N = 2"]
    apart = [skew_result(4, (10,)), skew_result(4, (2,))]
    assert not any("ecdf-skew" in each.name for each in pictures_of(apart))


@pytest.mark.slow
def test_figures_say_their_units() -> None:
    for result in (skew_result(), clock_result(400)):
        for picture in pictures_of([result]):
            told = " ".join(texts_of(picture.draw(WIDE)))
            assert re.search(r"\b(µs|ns|ms)\b", told), picture.name


def test_pictures_are_told_in_words_too() -> None:
    for result in (mixed_result(), latency_result()):
        pictures = pictures_of([result])
        assert len({picture.name for picture in pictures}) == len(pictures)
        for picture in pictures:
            assert picture.title
            assert picture.caption.endswith(".")
            assert picture.alt.endswith(".")
            assert "nan" not in picture.alt


@pytest.mark.slow
def test_twenty_thousand_shots_are_an_image_within_the_figure_and_few_are_not() -> None:
    def drawn(result: Result) -> str:
        pictures = {picture.name: picture for picture in pictures_of([result])}
        return svg_of(pictures["over-time-skew"].draw(WIDE))

    many = drawn(PATHOLOGICAL["many shots"]())
    assert "<image" in many
    assert len(many) < 400_000
    assert "<image" not in drawn(skew_result())


def test_a_picture_can_be_a_file_whatever_a_node_is_called() -> None:
    pictures = pictures_of([clock_result(20, gap=None, clocks=("../a", "..-a", "a", "é µ"))])
    names = [picture.name for picture in pictures]
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+", name) for name in names)
    assert len({name.lower() for name in names}) == len(names)


def test_a_drawn_figure_leaves_no_settings_behind() -> None:
    before = dict(mpl.rcParams)
    pictures_of([latency_result()])[0].draw(PHONE)
    assert dict(mpl.rcParams) == before


def test_the_mean_of_skew_is_that_of_its_size_as_its_line_and_limit_are() -> None:
    result = PATHOLOGICAL["both signs"]()
    growth = next(each for each in pictures_of([result]) if each.name == "growth-skew")
    mean = result.quantities[0].rows[0].absolute
    assert mean is not None
    assert growth.alt == f"Mean |skew|: {told(mean.mean)} at 2 subscribers."


@pytest.mark.parametrize("font", ["serif", "sans"])
@pytest.mark.parametrize("width", [88, 120, 180])
@pytest.mark.parametrize("name", ["clock", "skew", "clocks beside one another"])
def test_in_a_column_of_a_paper_lines_differ_without_their_colours(
    name: str, width: int, font: str
) -> None:
    results = {
        "clock": [clock_result()],
        "skew": [skew_result(nodes=("publisher", "rpi1", "rpi2", "rpi3", "rpi4", "rpi5"))],
        "clocks beside one another": [clock_result(), clock_result(clocks=("rpi2", "rpi3"))],
    }[name]
    for picture in pictures_of(results):
        with style.for_paper(font):
            figure = picture.draw(width / 25.4)
            assert misplaced(figure) == []
        assert all(text.get_fontsize() >= 6 for text in figure.findobj(Text))
        looks: dict[tuple[object, ...], str] = {}
        for axes in figure.axes:
            for line in axes.get_lines():
                label = str(line.get_label())
                if not label.startswith("_"):
                    # as Matplotlib keeps them: no two lines are dashed alike and marked alike
                    look = (line.get_marker(), repr(line._dash_pattern))  # type: ignore[attr-defined]
                    assert looks.setdefault(look, label) == label, (picture.name, label)
