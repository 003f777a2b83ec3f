"""A page that needs nothing else, and the report as one: no script, no further request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Final

from matplotlib.figure import Figure

from mqtick.analysis.report.figures.picture import Picture
from mqtick.analysis.report.headline import Headline, Number, headlines_of
from mqtick.analysis.report.numbers import plain
from mqtick.analysis.report.sections import sections_of
from mqtick.analysis.report.style import CSS
from mqtick.analysis.report.svg import svg_of
from mqtick.analysis.report.table import Block, Formula, Listing, Paragraph, Section, Table
from mqtick.analysis.report.words import level, title_of_all
from mqtick.analysis.report.writers import html, html_state, html_table
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import Verdict

_WIDE: Final = 7.0
"""Inches: A4 without its margins."""
_PHONE: Final = 3.7
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Whatever a page contains, it requests nothing."""


def html_page(title: str, body: str, *, css: str = "", policy: str = "") -> str:
    """Return a page; `css` and `policy` are added to those of all pages."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{CSS}\n{part('page.css')}{css}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


@lru_cache
def part(name: str) -> str:
    """Return a part of a page that is a file beside this module."""
    return resources.files("mqtick.analysis.report").joinpath(name).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as it stands in the page: for a wide page and for a phone, as `<svg>`."""

    title: str
    caption: str
    wide: str
    phone: str


def drawn_of(picture: Picture, place: int) -> tuple[Drawn, Figure]:
    """Draw the picture at a place of a page; returns it, and the wide one as a figure."""
    wide = picture.draw(_WIDE)
    shown = svg_of(wide, picture.alt, f"w{place}")
    phone = svg_of(picture.draw(_PHONE), picture.alt, f"p{place}")
    return Drawn(picture.title, picture.caption, shown, phone), wide


def page_of(results: Sequence[Result], pictures: Sequence[Drawn], command: str = "") -> str:
    """Return the page; `pictures` as `figures.pictures_of` has them, the main one first."""
    title = title_of_all(results)
    sections = sections_of(results, command)
    footer = f"Intervals have {level(results[0])} confidence."
    return _page(title, _first_screen(results, title), pictures, sections, footer)


def page_of_parts(
    headline: Headline, pictures: Sequence[Drawn], sections: Sequence[Section]
) -> str:
    """Return a page of the same form that shows no `Result`."""
    first = f"<header><h1>{html(headline.title)}</h1>{_answer(headline, '')}</header>"
    return _page(headline.title, first, pictures, sections)


def _page(
    title: str,
    first: str,
    pictures: Sequence[Drawn],
    sections: Sequence[Section],
    footer: str = "",
) -> str:
    main = [first, *(_figure(each, 1, "") for each in pictures[:1])]
    main.append(_contents(sections, bool(pictures[1:])))
    if pictures[1:]:
        main.append('<section><h2 id="figures">Figures</h2>')
        main += [_figure(each, place, "h3") for place, each in enumerate(pictures[1:], 2)]
        main.append("</section>")
    main += [_section(section, place) for place, section in enumerate(sections)]
    return html_page(
        html(title),
        "<main>\n" + "\n".join(main) + "\n</main>\n"
        f"<footer>{f'Made by mqtick-report. {footer}'.strip()}</footer>\n",
    )


def _first_screen(results: Sequence[Result], title: str) -> str:
    simulated = title.startswith("SIMULATED")
    shown = html(title)
    if simulated:
        head, _, tail = shown.partition(":")
        shown = f'<span class="simulated">{head}:</span>{tail}'
    heading = f"<h1>{shown}</h1>"
    headlines, sure = headlines_of(results), level(results[0])
    if len(results) == 1:
        return f"<header>{heading}{_answer(headlines[0], sure)}{_left_out(results)}</header>"
    runs = "".join(
        f"<article><h2>{html(headline.title)}</h2>{_answer(headline, sure)}</article>"
        for headline in headlines
    )
    return f'<header>{heading}<div class="runs">{runs}</div>{_left_out(results)}</header>'


def _answer(headline: Headline, confidence: str) -> str:
    numbers = "".join(_number(number, confidence) for number in headline.numbers)
    verdicts = "".join(map(_verdict, headline.verdicts))
    listed = f'<ul class="verdicts">{verdicts}</ul>' if verdicts else ""
    sentence = f'<p class="answer">{html(headline.sentence)}</p>'
    return f'{sentence}<dl class="numbers">{numbers}</dl>{listed}'


def _number(number: Number, confidence: str) -> str:
    unit = f" <small>{html(number.unit)}</small>" if number.unit else ""
    interval = f"<dd>{confidence}: {html(number.interval)}</dd>" if number.interval else ""
    state = html_state(number.state) + (" " if number.note else "") if number.state else ""
    note = f"<dd>{state}{html(number.note)}</dd>" if state or number.note else ""
    return (
        f"<div><dt>{html(number.label)}</dt>"
        f'<dd class="value">{html(number.value)}{unit}</dd>{interval}{note}</div>'
    )


def _verdict(verdict: Verdict) -> str:
    return f"<li>{html_state(verdict.state)}<span>{html(verdict.sentence)}</span></li>"


def _left_out(results: Sequence[Result]) -> str:
    damaged = sum(len(result.measurement.damaged) for result in results)
    failed = sum(result.counts.missed + result.counts.refused for result in results)
    shots = sum(result.counts.shots for result in results)
    said = [f"Shots missed: {failed:,} of {shots:,}."] if failed else []
    said += [f"Files or shots left out as damaged: {damaged:,}."] if damaged else []
    if not said:
        return ""
    return f'<p class="warning">{" ".join(said)} The reasons are given below.</p>'


def _contents(sections: Iterable[Section], figures: bool) -> str:
    entries = [("figures", "Figures")] if figures else []
    entries += [(f"section-{place}", section.title) for place, section in enumerate(sections)]
    items = "".join(f'<li><a href="#{name}">{html(title)}</a></li>' for name, title in entries)
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _figure(picture: Drawn, place: int, heading: str) -> str:
    title = f"<{heading}>{html(picture.title)}</{heading}>" if heading else ""
    caption = html(picture.caption)
    lead = f"Figure {place}. " + ("" if heading else f"{html(picture.title)}. ")
    return (
        f'<figure>{title}<div class="wide">{picture.wide}</div>'
        f'<div class="phone">{picture.phone}</div><figcaption>{lead}{caption}</figcaption></figure>'
    )


def _section(section: Section, place: int) -> str:
    blocks = "\n".join(
        _block(block, f"table-{place}-{index}") for index, block in enumerate(section.blocks)
    )
    return f'<section><h2 id="section-{place}">{html(section.title)}</h2>\n{blocks}</section>'


def _block(block: Block, name: str) -> str:
    match block:
        case Table():
            return html_table(block, name)
        case Paragraph(text, code):
            return f"<pre>{escape(plain(text))}</pre>" if code else f"<p>{_lead(html(text))}</p>"
        case Formula(text):
            return f'<p class="formula">{html(text)}</p>'
        case Listing(items):
            return "<ul>" + "".join(f"<li>{html(item)}</li>" for item in items) + "</ul>"


def _lead(text: str) -> str:
    """Set one or two first words that name the paragraph in bold: "Edges. The low ..."."""
    return re.sub(r"^(\w+( \w+)?\.) ", r"<strong>\1</strong> ", text)
