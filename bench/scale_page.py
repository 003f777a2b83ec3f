"""Makes docs/scale.md from bench/scale.template and the figures of bench/results/scale.json.

A field is `{{quantity @ who @ format}}`, or `{{quantity @ format}}` for a ratio. The format may
have a statistic before it (`p99 .1f`, else the median) and a divisor after it (`.1f /1000`).
`{{plan 417 5000}}` is the output of bench.scale_plan for these numbers of hosts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bench.scale_plan import table

__all__ = ["PAGE", "filled"]

_TEMPLATE = Path(__file__).resolve().parent / "scale.template"
PAGE = _TEMPLATE.parent.parent / "docs" / "scale.md"
_FIELD = re.compile(r"\{\{(.+?) @ (?:([^@}]+) @ )?(?:(\w+) )?(,?\.\df)(?: /(\d+))?\}\}")
_PLAN = re.compile(r"\{\{plan((?: \d+)+)\}\}")


def filled(content: dict[str, Any], template: str | None = None) -> str:
    """Return the page; ValueError if a figure was not measured, or a field is misspelt."""
    rows = {(row["quantity"], row["who"]): row for row in content["rows"]}
    ratios = {one["quantity"]: one for one in content["ratios"]}

    def figure(found: re.Match[str]) -> str:
        quantity, who, statistic, form, divisor = found.groups()
        row = rows.get((quantity, who)) if who else ratios.get(quantity)
        if row is None:
            raise ValueError(f"no figure for {found[0]}: run python -m bench.scale")
        value = row[statistic or "median" if who else "ratio"] / int(divisor or 1)
        return f"{value:{form}}"

    text = _FIELD.sub(figure, _TEMPLATE.read_text() if template is None else template)
    text = _PLAN.sub(lambda found: table(int(hosts) for hosts in found[1].split()), text)
    if "{{" in text:
        raise ValueError(f"not understood: {text[text.index('{{') :].splitlines()[0]}")
    return text
