"""The page says the answer first, hides nothing, and runs nothing that came from outside."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.tests.report_hostile import ODD, hostile_result
from analysis.tests.report_samples import (
    PATHOLOGICAL,
    clock_result,
    compare_results,
    latency_result,
    mixed_result,
    skew_result,
)
from mqtick.analysis.report.as_json import as_json
from mqtick.analysis.report.as_text import as_text
from mqtick.analysis.report.headline import headlines_of
from mqtick.analysis.report.numbers import in_words, interval_of, number, printed, value_of
from mqtick.analysis.report.page import Drawn, page_of
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.drift import Drift
from mqtick.analysis.statistics.estimate import Estimate
from mqtick.analysis.statistics.limit import duration

SVG = '<svg role="img" aria-label="a line"></svg>'
PICTURES = [Drawn("Skew over N", "The means.", SVG, SVG), Drawn("Shots", "All.", SVG, SVG)]
EMPTY = {"meta", "br", "img", "link", "input", "hr"}


class Outline(HTMLParser):
    """What a page is made of; AssertionError where its elements are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def said(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


def outline(*results: Result, command: str = "mqtick-report runs/today") -> Outline:
    return Outline(page_of(results, PICTURES, command))


def test_sentence_three_numbers_verdicts_and_figure_come_before_everything_else() -> None:
    page = page_of([skew_result()], PICTURES)
    places = [
        page.index(part)
        for part in ('class="answer"', 'class="numbers"', 'class="verdicts"', "<figure", "<table")
    ]
    assert places == sorted(places)


def test_the_three_numbers_of_skew_are_mean_tail_and_the_brokers_figure_of_merit() -> None:
    numbers = headlines_of([skew_result(400, (2, 100))])[0].numbers
    assert [each.label.replace("\xa0", " ") for each in numbers] == [
        "mean |skew| at N = 100",
        "p99 |skew| at N = 100",
        "skew for each further subscriber",
    ]
    assert [each.unit for each in numbers] == ["µs", "µs", "µs/subscriber"]
    assert all(" to " in each.interval for each in numbers)
    assert numbers[0].state == "fails"


def test_the_three_numbers_of_clocks_are_those_of_the_worst_one() -> None:
    headline = headlines_of([clock_result(clocks=("good", "bad"))])[0]
    assert [each.label for each in headline.numbers] == [
        "constant part of bad",
        "spread of bad",
        "max|TE| of bad",
    ]
    assert "The worst of 2 clocks, bad," in headline.sentence


def test_a_limit_of_p99_is_no_verdict_on_the_maximum() -> None:
    assert headlines_of([clock_result()])[0].numbers[2].state == ""


def test_brokers_are_compared_at_the_largest_n_that_both_have() -> None:
    labels = [headline.numbers[0].label for headline in headlines_of(compare_results())]
    assert all(label.endswith("100") for label in labels)


def test_with_too_few_shots_for_p99_it_is_p95() -> None:
    result = PATHOLOGICAL["two shots"]()
    assert headlines_of([result])[0].numbers[1].label.startswith("p95")


def test_a_simulated_run_says_so_first_and_a_real_one_never() -> None:
    assert "<title>SIMULATED: " in page_of([skew_result()], PICTURES)
    assert "SIMULATED" not in page_of([latency_result()], PICTURES)


def test_a_title_that_speaks_of_simulation_itself_is_no_label() -> None:
    assert "<title>SIMULATED: simulated bench" in page_of(
        [skew_result(title="simulated bench")], PICTURES
    )


def test_of_simulated_and_real_side_by_side_each_says_what_it_is() -> None:
    page = outline(skew_result(simulated=True), skew_result(simulated=False, title="Real")).said
    assert "SIMULATED: Mosquitto on the simulated bench beside Real" in page


def test_what_was_left_out_is_said_on_the_first_screen_and_listed_below() -> None:
    result = skew_result(missed=3)
    measurement = replace(result.measurement, damaged=["shot 7 is half a file; it is left out."])
    page = page_of([replace(result, measurement=measurement)], PICTURES)
    first = page[: page.index("<figure")]
    assert "Shots missed: 3 of 163. Files or shots left out as damaged: 1." in first
    assert "shot 7 is half a file" in page
    assert "no edge of last in its window" in page


def test_every_verdict_is_in_the_table_with_its_sentence() -> None:
    result = skew_result()
    said = outline(result).said
    sentences = [printed(verdict.sentence).replace("\xa0", " ") for verdict in result.verdicts]
    assert all(sentence in said for sentence in sentences)
    assert " us " not in said


def test_every_table_has_a_caption_and_a_box_of_its_own_to_scroll_in() -> None:
    found = outline(mixed_result())
    tables = [place for place, (tag, _) in enumerate(found.elements) if tag == "table"]
    assert len(tables) > 8
    for place in tables:
        box, attributes = found.elements[place - 1]
        assert (box, attributes["class"], attributes["tabindex"]) == ("div", "scroll", "0")
        caption, own = found.elements[place + 1]
        assert caption == "caption"
        assert own["id"] == attributes["aria-labelledby"]


def test_headings_go_down_one_level_at_a_time_and_no_name_is_there_twice() -> None:
    for results in ([mixed_result()], compare_results()):
        found = outline(*results)
        levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        names = [own["id"] for _, own in found.elements if "id" in own]
        assert len(names) == len(set(names))
        links = {str(own["href"])[1:] for tag, own in found.elements if tag == "a"}
        assert links <= set(names)


def test_the_page_has_its_language_its_width_and_a_policy_that_lets_nothing_in() -> None:
    found = outline(skew_result())
    tags = dict(found.elements)
    assert tags["html"]["lang"] == "en"
    metas = [own for tag, own in found.elements if tag == "meta"]
    assert any(own.get("name") == "viewport" for own in metas)
    assert any("default-src 'none'" in str(own.get("content")) for own in metas)
    assert not {"script", "link", "iframe", "object"} & set(tags)


def test_hostile_text_stays_text() -> None:
    page = page_of([hostile_result()], PICTURES, "<script>'\"")
    tags = {tag for tag, _ in Outline(page).elements}
    assert not tags & {"script", "img"}
    assert "\x1b" not in page
    assert "\x00" not in page
    assert "\u202e" not in page
    page.encode()


@pytest.mark.parametrize("name", ODD)
def test_no_result_is_too_odd_for_a_page(name: str) -> None:
    page = outline(PATHOLOGICAL[name]()).said
    assert not re.search(r"\b(nan|inf|None)\b", page.replace("None of", ""))


def test_where_nothing_was_captured_the_page_says_that() -> None:
    said = outline(PATHOLOGICAL["nothing captured"]()).said
    assert re.search(
        r"None of 5 shots could be used, mostly because: no edge of last[^.]*\. ", said
    )


def test_the_command_that_made_it_is_there_to_be_copied() -> None:
    assert "<pre>mqtick-report runs/today</pre>" in page_of(
        [skew_result()], PICTURES, "mqtick-report runs/today"
    )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (18.7, 21.1, "18.7 to 21.1"),
        (130.0, None, "above 130"),
        (None, 7.5, "below 7.5"),
        (1.747, None, "above 1.7"),
        (None, -0.01234, "below −0.012"),
        (1289.0, None, "above 1,200"),
    ],
)
def test_an_interval_of_which_one_end_is_unknown_says_so(
    low: float | None, high: float | None, said: str
) -> None:
    assert interval_of(Estimate(20.0, low, high)) == said


def test_what_nothing_bounds_on_one_side_has_fewer_digits() -> None:
    bounded = Estimate(1998.4, 1747.2, 2244.1)
    unbounded = Estimate(1998.4, 1747.2, None)
    assert (value_of(bounded), interval_of(bounded)) == ("1,998", "1,747 to 2,244")
    assert (value_of(unbounded), interval_of(unbounded)) == ("2,000", "above 1,700")
    assert value_of(unbounded, 1e-3) == "2.0"
    near = Estimate(10.2163, 10.1987, None)
    assert (value_of(near), interval_of(near)) == ("10.22", "above 10.19")
    assert value_of(Estimate(20.0, 20.0, None)) == "20.00"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1404.2, "1,404"),
        (-0.05678, "−0.05678"),
        (1.5e-12, "1.5·10⁻¹²"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_are_written_as_people_read_them(value: float, said: str) -> None:
    assert number(value) == said


@given(st.floats(-1e9, 1e9))
def test_a_number_that_is_shown_is_the_number_to_a_thousandth(value: float) -> None:
    text = number(value).replace("−", "-").replace(",", "")
    found = re.fullmatch("(-?)([0-9.]*?)(?:·?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", text)
    assert found is not None
    exponent = (found[3] or "0").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    shown = float(f"{found[1]}{found[2] or 1}e{exponent}")
    assert shown == pytest.approx(value, rel=6e-3 if found[3] else 6e-4, abs=1e-300)


@given(st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6))
def test_a_value_has_the_same_unit_and_digits_as_in_a_verdict(value: float) -> None:
    said = in_words(value).replace(",", "").replace("−", "-").replace("µ", "u").split()
    told = duration(value).split()
    assert said[1] == told[1]
    assert "·" in said[0] or float(said[0]) == float(told[0])


def test_microseconds_have_their_sign_and_stay_with_their_number() -> None:
    assert printed("above 1.2 us; 50 us/div; skew.p99<100us") == (
        "above 1.2\xa0µs; 50\xa0µs/div; skew.p99<100us"
    )


def test_many_missed_shots_are_told_beside_the_answer_and_marked_in_the_table() -> None:
    few, many = skew_result(40, (2,), missed=2), skew_result(20, (2,), missed=2)
    assert "missed" not in headlines_of([few])[0].numbers[0].note
    assert "2 of 22 shots were missed" in headlines_of([many])[0].numbers[0].note
    marked = '<td class="warns">2<small>9 %</small></td>'
    assert marked in page_of([many], PICTURES)
    assert "warns" not in page_of([few], PICTURES).partition("</style>")[2]


def test_drift_is_told_over_the_run_and_of_a_long_one_for_each_hour() -> None:
    def told(seconds: float) -> str:
        result = latency_result(seconds=np.linspace(0, seconds, 60))
        rate = 36_000 / seconds
        drift = Drift(Estimate(rate, rate * 2 / 3, rate * 4 / 3), 10.0, significant=True)
        quantity = replace(result.quantities[0], drift=drift)
        said = outline(replace(result, quantities=(quantity,))).said
        return said.partition("Drift of latency: ")[2]

    assert told(25.0).startswith("10.0 µs (95 % interval 6.7 to 13.3) over the run.")
    assert told(7200.0).startswith("5.00 µs (95 % interval 3.33 to 6.67) over an hour.")


def test_what_was_assumed_of_the_instrument_is_said_as_such() -> None:
    result = skew_result()
    said = outline(result).said
    assert "deskew was taken as exact (assumed)" in said
    assert "25 ppm (assumed)" in said
    known = replace(result.measurement, channel_uncertainty_fs=2_000_000, timebase_ppm=1.5)
    said = outline(replace(result, measurement=known)).said
    assert "2 ns between two channels after deskew" in said
    assert "1.5 ppm." in said


def test_every_channel_says_how_its_edges_were_found() -> None:
    result = skew_result(n=3, subscribers=(2,), missed=0)
    shots = [
        replace(
            shot,
            edges={
                name: replace(mark, quality="fitted", samples_in_rise=4.0)
                for name, mark in shot.edges.items()
                if (name, shot.number) != ("rpi2", 2)
            },
        )
        for shot in result.measurement.shots
    ]
    said = outline(replace(result, measurement=replace(result.measurement, shots=shots))).said
    assert "rpi1 3 3 0 0 4 ns largest 4 ns 4 0 0 0" in said
    assert "rpi2 2 2 0 0 4 ns largest 4 ns 4 0 0 1" in said


def test_how_a_clocks_samples_had_to_be_treated_is_said_everywhere() -> None:
    result = clock_result(n=60)
    told = replace(result.clocks[0], notes=("The clock did not converge.",))
    result = replace(result, clocks=(told,))
    assert "rpi1: The clock did not converge." in page_of([result], PICTURES)
    assert "rpi1: The clock did not converge." in as_text([result])
    (clock,) = as_json([result])["results"][0]["clocks"]
    assert clock["notes"] == ["The clock did not converge."]
