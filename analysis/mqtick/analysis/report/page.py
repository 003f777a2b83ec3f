"""The report as one HTML file that needs nothing else: no script, no further request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Final

from mqtick.analysis.report.blocks import (
    MARKS,
    Block,
    Cell,
    Formula,
    Listing,
    Paragraph,
    Section,
    Table,
)
from mqtick.analysis.report.headline import Headline, Number, headlines_of
from mqtick.analysis.report.numbers import plain, printed
from mqtick.analysis.report.sections import sections_of
from mqtick.analysis.report.style import CSS
from mqtick.analysis.report.titles import level, title_of_all
from mqtick.analysis.results.result import Result
from mqtick.analysis.statistics.limit import Verdict

__all__ = ["Drawn", "page_of", "page_of_parts"]

_LONG: Final = 60
"""From this many characters on, a cell of words asks for a wider column."""
_BROKEN: Final = 16
"""From this many characters on, a word may be broken on paper, which nobody can scroll."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Whatever a page contains, it requests nothing."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as it stands in the page: for a wide page and for a phone, as `<svg>`."""

    title: str
    caption: str
    wide: str
    phone: str


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
    first = f"<header><h1>{_text(headline.title)}</h1>{_answer(headline, '')}</header>"
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
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>\n{CSS}\n{_css()}</style>\n</head>\n<body>\n"
        "<main>\n" + "\n".join(main) + "\n</main>\n"
        f"<footer>{f'Made by mqtick-report. {footer}'.strip()}</footer>\n"
        "</body>\n</html>\n"
    )


@lru_cache(1)
def _css() -> str:
    return resources.files("mqtick.analysis.report").joinpath("page.css").read_text("utf-8")


def _text(text: str) -> str:
    return escape(printed(text))


def _first_screen(results: Sequence[Result], title: str) -> str:
    simulated = title.startswith("SIMULATED")
    shown = _text(title)
    if simulated:
        head, _, tail = shown.partition(":")
        shown = f'<span class="simulated">{head}:</span>{tail}'
    heading = f"<h1>{shown}</h1>"
    headlines, sure = headlines_of(results), level(results[0])
    if len(results) == 1:
        return f"<header>{heading}{_answer(headlines[0], sure)}{_left_out(results)}</header>"
    runs = "".join(
        f"<article><h2>{_text(headline.title)}</h2>{_answer(headline, sure)}</article>"
        for headline in headlines
    )
    return f'<header>{heading}<div class="runs">{runs}</div>{_left_out(results)}</header>'


def _answer(headline: Headline, confidence: str) -> str:
    numbers = "".join(_number(number, confidence) for number in headline.numbers)
    verdicts = "".join(map(_verdict, headline.verdicts))
    listed = f'<ul class="verdicts">{verdicts}</ul>' if verdicts else ""
    sentence = f'<p class="answer">{_text(headline.sentence)}</p>'
    return f'{sentence}<dl class="numbers">{numbers}</dl>{listed}'


def _number(number: Number, confidence: str) -> str:
    unit = f" <small>{_text(number.unit)}</small>" if number.unit else ""
    interval = f"<dd>{confidence}: {_text(number.interval)}</dd>" if number.interval else ""
    state = _state(number.state) + (" " if number.note else "") if number.state else ""
    note = f"<dd>{state}{_text(number.note)}</dd>" if state or number.note else ""
    return (
        f"<div><dt>{_text(number.label)}</dt>"
        f'<dd class="value">{_text(number.value)}{unit}</dd>{interval}{note}</div>'
    )


def _verdict(verdict: Verdict) -> str:
    return f"<li>{_state(verdict.state)}<span>{_text(verdict.sentence)}</span></li>"


def _state(state: str) -> str:
    name = state.replace(" ", "-")
    return f'<span class="state {name}">{MARKS.get(state, "")} {_text(state)}</span>'


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
    items = "".join(f'<li><a href="#{name}">{_text(title)}</a></li>' for name, title in entries)
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _figure(picture: Drawn, place: int, heading: str) -> str:
    title = f"<{heading}>{_text(picture.title)}</{heading}>" if heading else ""
    caption = _text(picture.caption)
    lead = f"Figure {place}. " + ("" if heading else f"{_text(picture.title)}. ")
    return (
        f'<figure>{title}<div class="wide">{picture.wide}</div>'
        f'<div class="phone">{picture.phone}</div><figcaption>{lead}{caption}</figcaption></figure>'
    )


def _section(section: Section, place: int) -> str:
    blocks = "\n".join(
        _block(block, f"table-{place}-{index}") for index, block in enumerate(section.blocks)
    )
    return f'<section><h2 id="section-{place}">{_text(section.title)}</h2>\n{blocks}</section>'


def _block(block: Block, name: str) -> str:
    match block:
        case Table():
            return _table(block, name)
        case Paragraph(text, code):
            return f"<pre>{escape(plain(text))}</pre>" if code else f"<p>{_lead(_text(text))}</p>"
        case Formula(text):
            return f'<p class="formula">{_text(text)}</p>'
        case Listing(items):
            return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"


def _lead(text: str) -> str:
    """Set one or two first words that name the paragraph in bold: "Edges. The low ..."."""
    return re.sub(r"^(\w+( \w+)?\.) ", r"<strong>\1</strong> ", text)


def _table(table: Table, name: str) -> str:
    heads = "".join(
        f'<th scope="col"{_class(head, place in table.words)}>{_text(head)}</th>'
        for place, head in enumerate(table.headings)
    )
    rows = "".join(_row(table, row) for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}"><table>'
        f'<caption id="{name}"><span>{_text(table.caption)}</span></caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(table: Table, row: Sequence[Cell]) -> str:
    cells = "".join(
        _cell(cell, place in table.words, head=table.head and place == 0)
        for place, cell in enumerate(row)
    )
    return f"<tr>{cells}</tr>"


def _cell(cell: Cell, words: bool, *, head: bool) -> str:
    text = _state(cell.state) if cell.state else _text(cell.text)
    below = f"<small>{_text(cell.below)}</small>" if cell.below else ""
    kind = _class(cell.text, words, warns=cell.warns)
    return f'<th scope="row"{kind}>{text}{below}</th>' if head else f"<td{kind}>{text}{below}</td>"


def _class(text: str, words: bool, *, warns: bool = False) -> str:
    longest = max(map(len, text.split()), default=0)
    wanted = {
        "words": words,
        "long": len(text) > _LONG,
        "broken": longest > _BROKEN,
        "warns": warns,
    }
    names = [name for name, is_so in wanted.items() if is_so]
    return f' class="{" ".join(names)}"' if names else ""
