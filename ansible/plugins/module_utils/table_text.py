"""The fleet's table as text: a sentence, what to do, and the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.mqtick.fleet.plugins.module_utils.durations import figure
from ansible_collections.mqtick.fleet.plugins.module_utils.host_row import Row
from ansible_collections.mqtick.fleet.plugins.module_utils.table import Table

HEADINGS = ("host", "state", "offset", "bound", "delay", "server", "chrony", "version")
_RIGHT = frozenset(("offset", "bound", "delay"))
Line = dict[str, str]
"""`text` and `level`: good, bad, warning or plain."""


def cells(row: Row) -> tuple[str, ...]:
    """Return what stands below the headings; also in the page."""
    state = row.state + (", over the limit" if row.over_limit else "")
    if row.role == "timeserver":
        stratum = f", stratum {row.stratum}" if row.stratum is not None else ""
        server = f"is server {row.server}{stratum}" if row.server else "is a server"
    else:
        server = row.server
    return (
        row.host,
        state,
        figure(row.offset_ns, "+"),
        figure(row.root_distance_ns if row.role == "timeserver" else row.bound_ns),
        figure(row.delay_ns),
        server,
        str(row.chrony.get("text", "")),
        row.version,
    )


def table_lines(table: Table, most: int) -> list[Line]:
    """Return the lines: every host that is not good, and good ones up to `most` rows in all."""
    said = [_line(table.summary, "good" if table.is_good else "bad"), _line("")]
    for sentence in table.disagreements:
        said += [_line(sentence, "bad"), _line("")]
    told = [row for row in table.rows if row.reason]
    for row in told[:20]:
        said.append(_line(f"{row.host}: {row.reason}", "warning" if row.good else "bad"))
        said += [_line(f"  -> {row.remedy}")] if row.remedy else []
    if told[20:]:
        said.append(
            _line(f"and {len(told) - 20} more, each with its reason in the JSON and the page")
        )
    said += [_line("")] if told else []
    faulty = sum(not row.good for row in table.rows)
    shown = table.rows[: max(faulty, most)] if most else table.rows
    said += _grid(shown)
    if table.rows[len(shown) :]:
        rest = len(table.rows) - len(shown)
        said.append(_line(f"and {rest} more that are good; -e status_rows=0 shows all"))
    if table.certificate:
        level = "plain" if table.certificate.lasts else "bad"
        said += [_line(""), _line(table.certificate.sentence, level)]
    return said


def _grid(rows: Sequence[Row]) -> Iterator[Line]:
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for place, line in enumerate(lines):
        text = "  ".join(
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for name, cell, width in zip(HEADINGS, line, widths, strict=True)
        )
        row = rows[place - 1] if place else None
        yield _line(text.rstrip(), _level(row))


def _level(row: Row | None) -> str:
    if row is None or (row.good and not row.reason):
        return "plain"
    return "warning" if row.good else "bad"


def _line(text: str, level: str = "plain") -> Line:
    return {"text": text, "level": level}
