"""The PDF says what the page says, on A4, and is the same every time."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from analysis.tests.report_hostile import hostile_result
from analysis.tests.report_samples import compare_results, latency_result, skew_result
from mqtick.analysis.report.lettering import lines_of
from mqtick.analysis.report.paper import ROOM
from mqtick.analysis.report.pdf import PrintedPicture, pdf_of
from mqtick.analysis.report.style import drawing, text_inches
from mqtick.analysis.results.result import Result

A4 = re.compile(rb"/MediaBox \[ ?0 0 (595\.\d+|595) (841\.\d+|842|841) ?\]")


def picture() -> PrintedPicture:
    figure = Figure(figsize=(ROOM, 3.0))
    figure.add_axes((0.1, 0.1, 0.8, 0.8)).plot([1, 2, 3])
    return "Skew over N", "The means.", figure


def pages_in(octets: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", octets))


@pytest.mark.slow
def test_every_page_is_a4_and_nothing_says_when_it_was_made() -> None:
    octets = pdf_of([latency_result()], [picture()])
    assert octets.startswith(b"%PDF-")
    assert pages_in(octets) == len(A4.findall(octets)) >= 2
    assert b"CreationDate" not in octets


@pytest.mark.slow
def test_figures_are_lines_not_dots() -> None:
    assert b"/Subtype /Image" not in pdf_of([latency_result()], [picture()])


@pytest.mark.slow
def test_hostile_text_does_no_harm() -> None:
    octets = pdf_of([hostile_result()], [picture(), picture()], "$\\frac{")
    assert octets.rstrip().endswith(b"%%EOF")


@pytest.mark.slow
def test_a_long_table_goes_on_on_the_next_page_with_its_head() -> None:
    result = skew_result(3, tuple(range(2, 82)))
    words = words_of([result])
    assert words.count("Growth of skew with N") == 1
    assert all(re.search(rf"(?m)^\s*{n}\s", words) for n in range(2, 82))


@pytest.mark.slow
def test_the_first_page_has_the_answer_and_the_last_the_command() -> None:
    words = words_of(compare_results())
    first, last = words.split("\f")[0], words.split("\f")[-2]
    assert "SIMULATED: Mosquitto 2.0 beside Hardware broker" in first
    assert first.count("Of 100 subscribers, the first and the last to subscribe get a message") == 2
    assert "mqtick-report compare a b" in last
    count = words.count("\f")
    assert f"1 of {count}" in first
    assert f"{count} of {count}" in last


@pytest.mark.slow
def test_no_word_is_cut_off_at_the_edge_of_the_paper() -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (Debian: apt install poppler-utils)")
    result = hostile_result()
    boxes = run_pdftotext(pdf_of([result], [picture()], "x" * 400), "-bbox")
    found = re.findall(r'xMin="([\d.-]+)" yMin="([\d.-]+)" xMax="([\d.]+)" yMax="([\d.]+)"', boxes)
    assert len(found) > 300
    for left, top, right, bottom in found:
        assert float(left) >= 30
        assert float(top) >= 30
        assert float(right) <= 595 - 30
        assert float(bottom) <= 842 - 10


def words_of(results: list[Result]) -> str:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (Debian: apt install poppler-utils)")
    return run_pdftotext(pdf_of(results, [picture()], "mqtick-report compare a b"), "-layout")


def run_pdftotext(octets: bytes, how: str) -> str:
    command = [str(shutil.which("pdftotext")), how, "-", "-"]
    done = subprocess.run(command, input=octets, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().replace("\xa0", " ")


@settings(max_examples=20)
@given(st.text(st.characters(codec="latin-1"), max_size=60), st.floats(0.5, 7.0))
def test_lines_hold_every_sign_and_are_no_wider_than_the_room(text: str, width: float) -> None:
    with drawing():
        lines = lines_of(text, width, 8.0)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    assert all(text_inches(line, 8.0) <= width or len(line) <= 1 for line in lines)
