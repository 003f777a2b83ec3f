"""In Chromium: the page is quiet, asks for nothing, and fits a phone, a screen and paper."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.tests.browser import MISSING, Browser, browser
from analysis.tests.report_hostile import hostile_result
from analysis.tests.report_samples import (
    clock_result,
    compare_results,
    latency_result,
    mixed_result,
    skew_result,
)
from mqtick.analysis.report.page import page_of
from mqtick.analysis.report.pdf import print_page
from mqtick.analysis.report.write import write_report
from mqtick.analysis.results.result import Result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]
needs_pdftotext = pytest.mark.skipif(
    shutil.which("pdftotext") is None,
    reason="pdftotext is not installed (Debian: apt install poppler-utils)",
)
SAMPLES = {
    "skew": lambda: [mixed_result()],
    "compare": compare_results,
    "latency": lambda: [latency_result()],
    "clock": lambda: [clock_result()],
    "hostile": lambda: [hostile_result()],
}
VIEWS = [
    (width, height, dark, printed)
    for width, height in ((390, 844), (1440, 900))
    for dark, printed in ((False, False), (True, False), (False, True))
]
PAPER = (680, 960)
"""A4 without its margins, in CSS pixels."""

TOO_WIDE = """
const wide = document.documentElement.clientWidth;
return [document.documentElement.scrollWidth - wide].concat(
  [...document.querySelectorAll('body *')].filter(
    e => !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > wide + 1
  ).map(e => e.tagName + '.' + e.className));
"""
HEADINGS = """
return [...document.querySelectorAll('h1, h2, h3')].filter(
  e => { e.scrollIntoView(); const box = e.getBoundingClientRect();
         return !(box.width > 0 && box.height > 0 && box.top >= -1 && box.top < innerHeight); }
).map(e => e.textContent);
"""
CONTRAST = """
const parse = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = c => c.map(v => v / 255).map(
  v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const paper = light(parse(getComputedStyle(document.body).backgroundColor));
return [...document.querySelectorAll('body *:not(svg):not(svg *)')].filter(
  e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())
).filter(e => {
  const ink = light(parse(getComputedStyle(e).color));
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5;
}).map(e => e.tagName + '.' + e.className);
"""
FIRST = """
return ['.answer', '.numbers', '.verdicts', 'figure svg'].map(
  name => document.querySelector(name).getBoundingClientRect().top);
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as window:
        yield window


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("a report with spaces")
    made: dict[str, Path] = {}
    for name, sample in SAMPLES.items():
        results: list[Result] = sample()
        made[name] = write_report(results, folder / name, "mqtick-report runs/today").html
    return made


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_quiet_and_asks_for_nothing_but_itself(
    window: Browser, pages: dict[str, Path], name: str
) -> None:
    window.show(1440, 900)
    window.requests()
    window.log("browser")
    window.open(pages[name])
    assert window.log("browser") == []
    asked = [address for address in window.requests() if not address.startswith("data:")]
    assert asked == [pages[name].resolve().as_uri()]


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_sticks_out_sideways_on_a_phone_a_screen_or_paper(
    window: Browser, pages: dict[str, Path], name: str
) -> None:
    for width, height, dark, printed in VIEWS:
        size = PAPER if printed else (width, height)
        window.show(*size, dark=dark, printed=printed)
        window.open(pages[name])
        assert window.run(TOO_WIDE) == [0], (size, dark, printed)


def test_every_heading_can_be_reached_and_read(window: Browser, pages: dict[str, Path]) -> None:
    for width, height in ((390, 844), (1440, 900)):
        window.show(width, height)
        window.open(pages["compare"])
        assert window.run(HEADINGS) == []


def test_words_stand_out_from_the_paper_in_light_and_dark(
    window: Browser, pages: dict[str, Path]
) -> None:
    for dark in (False, True):
        window.show(1440, 900, dark=dark)
        window.open(pages["skew"])
        assert window.run(CONTRAST) == []


def test_answer_numbers_verdicts_and_the_figures_begin_are_on_the_first_screen(
    window: Browser, pages: dict[str, Path]
) -> None:
    for name in ("skew", "compare", "latency", "clock"):
        window.show(1440, 900)
        window.open(pages[name])
        tops = window.run(FIRST)
        assert tops == sorted(tops)
        assert tops[-1] < 750, name


def test_each_width_has_its_own_figures(window: Browser, pages: dict[str, Path]) -> None:
    shown = "return getComputedStyle(document.querySelector('.%s')).display"
    for width, wide, phone in ((390, "none", "block"), (1440, "block", "none")):
        window.show(width, 800)
        window.open(pages["skew"])
        assert window.run(shown % "wide") == wide
        assert window.run(shown % "phone") == phone


# ---- on paper -----------------------------------------------------------------------------------

HEADING = r"Figures|Verdicts|Statistics|Pairs of nodes|Clocks|Shots and edges|Method|Provenance"


def sheets_of(page: Path, how: str = "-layout") -> list[str]:
    """Return the words of each sheet of the PDF next to a page."""
    command = [str(shutil.which("pdftotext")), how, str(page.with_suffix(".pdf")), "-"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().replace("\xa0", " ").split("\f")


@needs_pdftotext
@pytest.mark.parametrize("name", SAMPLES)
def test_on_paper_no_heading_is_alone_and_no_word_cut_off(
    pages: dict[str, Path], name: str
) -> None:
    sheets = sheets_of(pages[name])[:-1]
    for place, sheet in enumerate(sheets, 1):
        *lines, foot = sheet.strip().split("\n")
        assert foot.split() == ["mqtick-report", str(place), "of", str(len(sheets))]
        assert not re.fullmatch(rf" *({HEADING})(: .*)?", lines[-1].rstrip() if lines else "")
    (boxes,) = sheets_of(pages[name], "-bbox")
    assert {round(float(size)) for size in re.findall(r'<page width="([\d.]+)"', boxes)} == {595}
    words = re.findall(r'<word xMin="([\d.-]+)" yMin="([\d.-]+)" xMax="([\d.]+)"', boxes)
    assert len(words) > 300
    assert min(float(left) for left, _, _ in words) >= 30
    assert max(float(right) for _, _, right in words) <= 595 - 30


@needs_pdftotext
def test_the_pdf_says_what_the_page_says(pages: dict[str, Path]) -> None:
    sheets = [" ".join(sheet.split()) for sheet in sheets_of(pages["compare"], "-raw")]
    assert "SIMULATED: Mosquitto 2.0 beside Hardware broker" in sheets[0]
    assert sheets[0].count("first and the last to subscribe get a message") == 2
    assert "mqtick-report runs/today" in sheets[-2]
    assert "Figure 1." in sheets[0] + sheets[1]


@needs_pdftotext
def test_a_long_table_goes_on_on_the_next_sheet_with_its_head(tmp_path: Path) -> None:
    result = skew_result(3, tuple(range(2, 82)), latency=False)
    (tmp_path / "report.html").write_text(page_of([result], []))
    assert print_page(tmp_path / "report.html", tmp_path / "report.pdf") == ""
    sheets = [sheet for sheet in sheets_of(tmp_path / "report.html") if "p99" in sheet]
    words = "\n".join(sheets)
    assert all(re.search(rf"(?m)^ *{n} ", words) for n in range(2, 82))
    assert len([sheet for sheet in sheets if "missed" in sheet]) > 2
