"""Fills the tables of bench/README.md from the results files.

python -m bench.readme            write
python -m bench.readme --check    say whether it is written already (exit code 1 if not)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.harness import RESULTS

README = Path(__file__).resolve().parent / "README.md"
_QUANTILES = ("median", "p5", "p95", "p99", "max")
_MARK = re.compile(r"(<!-- results: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(content: dict[str, Any]) -> str:
    """Return the Markdown of one results file."""
    lines = [
        f"{content['machine']}; commit `{content['commit']}`.",
        "",
        f"| quantity | who | unit | n | {' | '.join(_QUANTILES)} |",
        f"|---|---|---|--:|{'--:|' * len(_QUANTILES)}",
    ]
    for row in content["rows"]:
        simulated = " (simulated)" if row["simulated"] else ""
        # One value has no spread.
        cells = [str(row[name]) if row["n"] > 1 or name == "median" else "" for name in _QUANTILES]
        lines.append(
            f"| {_plain(row['quantity'])}{simulated} | {_plain(row['who'])} | {row['unit']} | "
            f"{row['n']} | {' | '.join(cells)} |"
        )
    if content["ratios"]:
        lines += [
            "",
            "| ratio | ours | peer | ratio | goal, at most | met |",
            "|---|--:|--:|--:|--:|---|",
        ]
    for ratio in content["ratios"]:
        goal = "none" if ratio["goal"] is None else ratio["goal"]
        met = {None: "", True: "yes", False: "**no**"}[ratio["met"]]
        numbers = f"{ratio['ours']} | {ratio['peer']} | {ratio['ratio']}"
        lines.append(f"| {_plain(ratio['quantity'])} | {numbers} | {goal} | {met} |")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Keep a bar from ending the cell."""
    return text.replace("|", "\\|")


def filled(text: str) -> str:
    """Return the page with every table as the results files have it."""

    def fill(mark: re.Match[str]) -> str:
        file = RESULTS / f"{mark[2]}.json"
        body = table(json.loads(file.read_text())) if file.exists() else "Not measured yet."
        return f"{mark[1]}\n{body}\n\n{mark[3]}"

    return _MARK.sub(fill, text)


def main() -> int:
    """Write the page, or check it."""
    text = README.read_text()
    wanted = filled(text)
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print("bench/README.md differs from the results: run python -m bench.readme")
        return int(text != wanted)
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
