"""The fleet's table as one HTML file that needs nothing beside itself, and asks nobody."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from html import escape
from pathlib import Path

from ansible_collections.mqtick.fleet.plugins.module_utils.durations import duration
from ansible_collections.mqtick.fleet.plugins.module_utils.host_row import Row
from ansible_collections.mqtick.fleet.plugins.module_utils.table import Table
from ansible_collections.mqtick.fleet.plugins.module_utils.table_text import HEADINGS, cells

_NUMBERS = ("offset", "bound", "delay")
_TOLD = 12
"""So many reasons stand above the table; all of them stand in it."""


def page_of(table: Table, at: str = "") -> str:
    """Return the page. It is complete without its script, which sorts and filters."""
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = "\n".join(
        (
            f"<header><h1>Time of the fleet{f', {escape(at)}' if at else ''}</h1>",
            f'<p class="answer">{escape(table.summary)}</p>',
            _numbers(table),
            *(
                f'<p><span class="state fails">✗ disagreement</span> {escape(sentence)}</p>'
                for sentence in table.disagreements
            ),
            _certificate(table),
            "</header>",
            _told(table),
            _table(table),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(table.summary)}</title>\n<style>\n{_file('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<footer>Offset: server minus clock of the host, so "
        "positive means that the host is behind. Bound: the most by which this offset can be "
        "wrong; for a time server, its root distance. Over the limit: the clock may be off by "
        f"more than {escape(duration(table.limit_us * 1000))}, root distance included. Made "
        f"by mqtick.fleet.status.</footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


@lru_cache(2)
def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def _numbers(table: Table) -> str:
    errors = sorted(row.error_ns for row in table.rows if row.error_ns is not None)
    good = table.counts.get("good", 0)
    tiles = [(f"{good} of {len(table.rows)}", "good")]
    if errors:
        place = min(len(errors) - 1, len(errors) * 95 // 100)
        tiles += [
            (duration(errors[place]), "95 % may be off by at most"),
            (duration(errors[-1]), "the worst may be off by"),
        ]
    shown = "".join(
        f'<div><dt>{escape(name)}</dt><dd class="value">{escape(value)}</dd></div>'
        for value, name in tiles
    )
    return f'<dl class="numbers">{shown}</dl>'


def _certificate(table: Table) -> str:
    if table.certificate is None:
        return ""
    mark = "" if table.certificate.lasts else '<span class="state warns">! certificate</span> '
    return f'<p class="certificate">{mark}{escape(table.certificate.sentence)}</p>'


def _told(table: Table) -> str:
    told = [row for row in table.rows if row.reason]
    if not told:
        return ""
    items = "".join(
        f"<li>{_state(row)}<div><strong>{escape(row.host)}</strong>: {escape(row.reason)}"
        f"{_remedy(row)}</div></li>"
        for row in told[:_TOLD]
    )
    rest = f"<p>And {len(told) - _TOLD} more, in the table.</p>" if told[_TOLD:] else ""
    return f'<section><h2>What to do</h2><ul class="verdicts">{items}</ul>{rest}</section>'


def _remedy(row: Row) -> str:
    return f'<span class="remedy">{escape(row.remedy)}</span>' if row.remedy else ""


def _state(row: Row) -> str:
    text = row.fault or ("good" if not row.reason else "good, but")
    kind = _kind(row)
    mark = {"fails": "✗", "warns": "!", "holds": "✓"}[kind]
    return f'<span class="state {kind}">{mark} {escape(text)}</span>'


def _kind(row: Row) -> str:
    return "fails" if row.fault else "warns" if row.reason else "holds"


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col"{_class(name)} data-sort="{"number" if name in _NUMBERS else "text"}">'
        f"{escape(name)}</th>"
        for name in HEADINGS
    )
    rows = "\n".join(_row(row, place) for place, row in enumerate(table.rows))
    counts = "".join(
        f'<option value="{escape(name)}">{escape(name)} ({count})</option>'
        for name, count in table.counts.items()
    )
    return (
        "<section><h2>All hosts</h2>\n"
        '<form class="tools" hidden><label>Filter <input type="search" autocomplete="off" '
        'placeholder="host, server, version"></label> <label>Show <select name="fault">'
        f'<option value="">all ({len(table.rows)})</option>{counts}</select></label> '
        '<label class="order">Sort <select name="sort"><option value="">worst first</option>'
        + "".join(f'<option value="{place}">{name}</option>' for place, name in enumerate(HEADINGS))
        + '</select></label> <output aria-live="polite"></output></form>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="All hosts"><table>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div></section>"
    )


def _class(name: str) -> str:
    return ' class="number"' if name in _NUMBERS else ""


def _row(row: Row, place: int) -> str:
    texts = dict(zip(HEADINGS, cells(row), strict=True))
    values = {"offset": row.offset_ns, "bound": row.bound_ns, "delay": row.delay_ns}
    if row.role == "timeserver":
        values["bound"] = row.root_distance_ns
    shown = [f'<th scope="row">{escape(texts["host"])}</th>']
    for name in HEADINGS[1:]:
        value = f' data-value="{values[name]}"' if values.get(name) is not None else ""
        text = escape(texts[name])
        if name == "state":
            text = _state_cell(row, text)
        empty = " empty" if not text else ""
        kind = f' class="{"number" if name in _NUMBERS else "words"}{empty}"'
        shown.append(f'<td{kind}{value} data-name="{name}">{text}</td>')
    return (
        f'<tr data-place="{place}" data-fault="{escape(row.fault or "good")}">{"".join(shown)}</tr>'
    )


def _state_cell(row: Row, text: str) -> str:
    reason = f"<small>{escape(row.reason)}</small>" if row.reason else ""
    return f'<span class="state {_kind(row)}">{text}</span>{reason}'
