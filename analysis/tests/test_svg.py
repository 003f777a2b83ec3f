from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from analysis.tests.report_samples import skew_result
from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.style import CSS, INK, INKS, PAPER
from mqtick.analysis.report.svg import svg_file, svg_of

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def drawn() -> list[str]:
    pictures = pictures_of([skew_result(n=10, latency=False)])
    return [svg_of(picture.draw(3.7), picture.alt, picture.name) for picture in pictures]


def test_figures_are_well_formed_and_say_in_words_what_they_show(drawn: list[str]) -> None:
    for text in drawn:
        root = ET.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"].endswith(".")
        assert root.attrib["class"] == "figure"


def test_figures_refer_to_nothing_outside_themselves(drawn: list[str]) -> None:
    for text in drawn:
        body = text.replace("http://www.w3.org/2000/svg", "", 1)
        assert "http" not in body
        assert "<style" not in text
        assert "<!" not in text
        assert "<?" not in text
        own = set(re.findall(r'\sid="([^"]+)"', text))
        referred = re.findall(r'href="([^"]+)"', text) + re.findall(r"url\(([^)]+)\)", text)
        for reference in referred:
            assert reference[1:] in own or reference.startswith("data:image/png;base64,")


def test_no_two_figures_of_a_page_share_an_id(drawn: list[str]) -> None:
    ids = [name for text in drawn for name in re.findall(r'\sid="([^"]+)"', text)]
    assert ids
    assert len(ids) == len(set(ids))


def test_inks_follow_the_page_and_none_is_fixed(drawn: list[str]) -> None:
    for text in drawn:
        bare = re.sub(r"var\(--figure-[a-z]+,#[0-9a-f]{6}\)", "", text)
        for ink in INKS:
            assert ink.light not in bare


def test_text_is_text_in_the_font_of_the_page(drawn: list[str]) -> None:
    for text in drawn:
        assert "<text" in text
        assert "DejaVu" not in text
        assert "font-family" not in text
    assert any("Skew in µs" in text for text in drawn)


def test_the_page_defines_every_ink_for_light_dark_and_print() -> None:
    for ink in INKS:
        assert CSS.count(f"--figure-{ink.name}:") == 3
        assert f"--figure-{ink.name}:{ink.dark};" in CSS


def test_what_a_title_says_cannot_leave_its_place() -> None:
    result = skew_result(nodes=("publisher", '<script>"&', "last</text>\x1b\ud800"))
    picture = next(p for p in pictures_of([result]) if p.name == "waveforms")
    text = svg_of(picture.draw(7.6), '"><script>')
    assert "<script" not in text
    ET.fromstring(text)


def test_a_file_has_light_paper_and_inks_that_every_program_knows(drawn: list[str]) -> None:
    text = svg_file(drawn[0])
    ET.fromstring(text)
    assert "var(" not in text
    assert "currentColor" not in text
    assert INK.light in text
    assert f'fill="{PAPER.light}"' in text
