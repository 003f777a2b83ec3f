#!/usr/bin/env python3
"""Writes the variables of every role into ansible/README.md, from the roles' argument specs.

.venv/bin/python scripts/collection_readme.py
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

COLLECTION = Path(__file__).parent.parent / "ansible"
# What everybody needs first.
ROLES = (
    *("fleet", "broker", "join", "timeserver", "client"),
    *("gpio", "tuning", "bench", "monitoring"),
)
BEGIN = "<!-- from the roles' argument specs, by scripts/collection_readme.py -->"
END = "<!-- end of what is generated -->"


def specs_of(role: str) -> dict[str, Any]:
    """The specs of a role's main entry point: its short description and its options."""
    file = COLLECTION / "roles" / role / "meta" / "argument_specs.yml"
    specs: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"][
        "main"
    ]
    return specs


def prose(text: str | list[str]) -> str:
    """A description on one line, fit for a table cell."""
    whole = " ".join(text) if isinstance(text, list) else text
    whole = re.sub(r"\b[VOCI]\(((?:[^()]|\([^()]*\))*)\)", r"`\1`", whole)
    whole = re.sub(r"`[a-z_]+\[\]\.([a-z_]+)`", r"`\1`", whole)  # a field of the same variable
    return re.sub(r"\s+", " ", whole).strip().replace("|", "\\|")


def default_of(option: dict[str, Any]) -> str:
    """What the second column says."""
    if option.get("required"):
        return "**required**"
    default = option.get("default")
    if default is None:
        return ""
    if isinstance(default, str) and "{{" in default:
        return f"`{default}`" if len(default) < 40 else "computed"
    return "`" + json.dumps(default).replace("|", "\\|") + "`"


def meaning_of(option: dict[str, Any]) -> str:
    """What the third column says."""
    said = prose(option["description"])
    if choices := option.get("choices"):
        said += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    return said


def table(heading: str, options: dict[str, Any]) -> str:
    """A table of variables, or of the fields of one."""
    rows = [
        f"| `{name}` | {default_of(option)} | {meaning_of(option)} |"
        for name, option in options.items()
    ]
    return "\n".join([f"| {heading} | default | meaning |", "|---|---|---|", *rows]) + "\n"


def variables() -> str:
    """The generated part: a section with a table for each role."""
    parts = []
    for role in ROLES:
        specs = specs_of(role)
        options = specs.get("options", {})
        parts.append(f"### Role {role}\n\n{prose(specs['short_description'])}.\n")
        if options:
            parts.append(table("variable", options))
        for name, option in options.items():
            if fields := option.get("options"):
                parts.append(f"Each entry of `{name}`:\n\n" + table("field", fields))
    return "\n".join(parts)


def readme_with_variables(text: str) -> str:
    """The README with that part in its place."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README lacks the line {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{variables()}\n{END}{after}"


def main() -> int:
    """Write it."""
    readme = COLLECTION / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(readme_with_variables(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
