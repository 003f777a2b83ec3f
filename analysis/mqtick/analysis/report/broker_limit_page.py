"""The page that says how much a broker carries."""

from __future__ import annotations

from collections.abc import Sequence

from mqtick.analysis.broker_limit import BrokerLimit
from mqtick.analysis.report.headline import Headline, Number
from mqtick.analysis.report.numbers import number
from mqtick.analysis.report.page import Drawn, page_of_parts
from mqtick.analysis.report.table import (
    Block,
    Listing,
    Paragraph,
    Section,
    number_columns,
    table,
    word_columns,
)

_NO_CURVES = (
    "There are no percentiles of latency or skew to draw: no group of kind latency has more than "
    "one subscriber, or several machines measured, whose figures are bounds."
)


def limit_page(found: BrokerLimit, pictures: Sequence[Drawn]) -> str:
    """Return the page; `pictures` as `limit_pictures` has them."""
    return page_of_parts(_headline(found), pictures, _sections(found))


def _headline(found: BrokerLimit) -> Headline:
    ingress, egress = number(found.ingress, 0), number(found.egress, 0)
    low, high = number(found.low, 0), number(found.high, 0)
    warnings = [note for note in found.notes if note.startswith("THE LOAD TOOL")]
    sentence = f"{ingress} messages in and {egress} out a second. The limit lies between {low} and "
    return Headline(
        f"How much does {found.broker} carry?",
        " ".join([f"{sentence}{high} messages in.", *warnings]),
        (
            Number("limit, in", ingress, "messages a second", note=f"{low} to {high}"),
            Number("limit, out", egress, "copies a second"),
            Number("copies of a message", number(found.egress / found.ingress, 1), ""),
        ),
        (),
    )


def _sections(found: BrokerLimit) -> list[Section]:
    figures = table(
        "Least, median and greatest of the repeats",
        (*word_columns("quantity", "unit", "who"), *number_columns("least", "median", "greatest")),
        [
            [quantity, unit, who, *map(number, values)]
            for quantity, unit, who, *values in found.rows
        ],
    )
    trials = table(
        "The search, in its order",
        (
            *number_columns("messages a second", "copies that came over copies due"),
            *word_columns("held"),
        ),
        [
            (number(each.ingress, 0), number(each.ratio, 4), "yes" if each.held else "no")
            for each in found.trials
        ],
    )
    how: list[Block] = [
        Paragraph(
            "Above its limit, fewer than 99 % of the copies come as fast as messages are "
            f"published. Measured {found.ended:%Y-%m-%d %H:%M} UTC by mqtick-load {found.version}."
        ),
        Listing(found.notes),
    ]
    if not (found.latency or found.skew):
        how.append(Paragraph(_NO_CURVES))
    return [
        Section("How it was measured", tuple(how)),
        Section("All figures", (figures,)),
        Section("Trials", (trials,)),
    ]
