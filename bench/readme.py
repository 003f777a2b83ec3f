"""Writes bench/results/*.md and tables of three READMEs from the results (JSON).

python -m bench.readme            write
python -m bench.readme --check    say which page is out of date (exit code 1 if there is one)

The text of a page of bench/results above `<!-- results -->` is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.harness import RESULTS

README = Path(__file__).resolve().parent / "README.md"
FRONT = README.parent.parent / "README.md"
HARDWARE = FRONT.parent / "broker" / "rtl" / "README.md"
FEW = 20
"""With fewer values than these, there is no p5, p95 or p99."""
_MARK = "<!-- results -->\n"
_END = "<!-- end -->\n"
_NTP = "NTP between two chronyd (floor)"
_ONE_WAY = "one-way (published method, its common delay removed)"
_FLOOR = "exact samples at the same instants (floor)"
_FIGURES: tuple[tuple[str, tuple[str, str, str, str], dict[str, str]], ...] = (
    # description; results file; quantity; contestant; which value; other contestants to show
    (
        "error of 100 clients' time, median (clocks simulated)",
        ("time-error", "100 clients: |time error|", "best combination", "median"),
        {"the published method": _ONE_WAY, "NTP": _NTP},
    ),
    (
        "intervals of these clients that missed the truth",
        ("time-error", "100 clients: outside the bound", "best combination", "median"),
        {},
    ),
    (
        "error of the clock that chrony steers, p99 (true time simulated)",
        ("disciplined", "|steered clock - truth|", "mqtick-client", "p99"),
        {"exact samples": _FLOOR},
    ),
    (
        "from a message's arrival to the edge of a pin in memory, median",
        ("arrival", "arrival to pin, alone", "mqtick-client", "median"),
        {"paho-mqtt": "paho-mqtt on_message"},
    ),
    (
        "processor time of a client at one message a second",
        ("cost", "a client, 1 Hz: processor", "mqtick-client", "median"),
        {"a plain subscriber": "plain paho-mqtt subscriber"},
    ),
)
_RATIO = "ratio | ours | peer | ratio | goal, at most |"


def table(content: dict[str, Any]) -> str:
    """Return the Markdown of one results file."""
    lines = [
        f"{content['machine']}; commit `{content['commit']}`.",
        "",
        "| quantity | who | unit | n | median | p5 | p95 | p99 | max |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in content["rows"]:
        simulated = " (simulated)" if row["simulated"] else ""
        spread = [row[name] if row["n"] >= FEW else "" for name in ("p5", "p95", "p99")]
        most = row["max"] if row["n"] > 1 else ""
        cells = (row["who"], row["unit"], row["n"], row["median"], *spread, most)
        lines.append(_row(row["quantity"] + simulated, *cells))
    if content["ratios"]:
        lines += ["", f"| {_RATIO} met |", "|---|--:|--:|--:|--:|---|"]
    for ratio in content["ratios"]:
        met = {None: "", True: "yes", False: "**no**"}[ratio["met"]]
        lines.append(_row(*_ratio(ratio), met))
    return "\n".join(lines)


def _row(*cells: object) -> str:
    """Return a line of a table; bars in cells are escaped."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _ratio(ratio: dict[str, Any]) -> list[object]:
    goal = "none" if ratio["goal"] is None else ratio["goal"]
    return [*(ratio[name] for name in ("quantity", "ours", "peer", "ratio")), goal]


def _nearest(ratio: dict[str, Any]) -> tuple[bool, bool, float]:
    """Sort key of ratios: the last is the furthest beyond its goal, or the nearest to it."""
    return ratio["met"] is False, ratio["goal"] is not None, ratio["ratio"] / (ratio["goal"] or 1)


def _summary(content: dict[str, Any] | None) -> list[object]:
    """Return the cells of one benchmark's line in bench/README.md."""
    if not content or not content["ratios"]:
        return ["no peer" if content else "not measured yet", *[""] * 5]
    met = [ratio["met"] for ratio in content["ratios"] if ratio["met"] is not None]
    share = f"{sum(met)} of {len(met)}" if met else ""
    nearest = max(content["ratios"], key=_nearest)
    return [*_ratio(nearest), share if all(met) else f"**{share}**"]


def _figures() -> str:
    """Return the figures that the front page shows."""
    lines = ["| measured | mqtick | beside it, in the same run | command |", "|---|--:|---|---|"]
    for what, (name, quantity, ours, column), others in _FIGURES:
        content = json.loads((RESULTS / f"{name}.json").read_text())
        rows = {row["who"]: row for row in content["rows"] if row["quantity"] == quantity}
        beside = [f"{label} {_value(rows[who], column)}" for label, who in others.items()]
        command = f"[`make bench-{name}`](bench/results/{name}.md)"
        lines.append(_row(what, _value(rows[ours], column), ", ".join(beside), command))
    return "\n".join(lines) + "\n"


def _resources(content: dict[str, Any] | None) -> str:
    """Return the hardware broker's resources: a line for each of its modules, and the board."""
    if not content:
        return "Not measured yet.\n"
    kinds = ("flip-flops", "LUTs", "RAMB36", "UltraRAM")
    modules: dict[str, dict[str, float]] = {}
    board = ["| on the board | |", "|---|--:|"]
    for row in content["rows"]:
        place, _, quantity = row["quantity"].partition(": ")
        if place == "board":
            board.append(_row(quantity, f"{row['median']:g} {row['unit']}".strip()))
        else:
            modules.setdefault(place.removeprefix("published size, "), {})[quantity] = row["median"]
    lines = [_row("published size", *kinds), "|---|--:|--:|--:|--:|"]
    for name, found in modules.items():
        lines.append(_row(name, *(f"{found.get(kind, 0):g}" for kind in kinds)))
    return "\n".join([*lines, "", *board]) + "\n"


def _value(row: dict[str, Any], column: str) -> str:
    return f"{row[column]:g} {row['unit']}"


def _filled(page: Path, text: str) -> str:
    """Return the page with the text between its two marks."""
    above, _, rest = page.read_text().partition(_MARK)
    return f"{above}{_MARK}\n{text}\n{_END}{rest.partition(_END)[2]}"


def pages() -> dict[Path, str]:
    """Return every page, made from the results files."""
    made = {}
    lines = [f"| benchmark | {_RATIO} goals met |", "|---|---|--:|--:|--:|--:|---|"]
    for name in sorted({file.stem for file in RESULTS.iterdir()}):
        page, file = RESULTS / f"{name}.md", RESULTS / f"{name}.json"
        by_hand = page.read_text().partition(_MARK)[0] if page.exists() else f"# {name}\n\n"
        content = json.loads(file.read_text()) if file.exists() else None
        text = table(content) if content else "Not measured yet."
        made[page] = f"{by_hand}{_MARK}\n{text}\n"
        title = by_hand.splitlines()[0].removeprefix("# ")
        lines.append(_row(f"[{title}](results/{name}.md)", *_summary(content)))
    made[README] = _filled(README, "\n".join(lines) + "\n")
    synth = RESULTS / "synth.json"
    made[HARDWARE] = _filled(
        HARDWARE, _resources(json.loads(synth.read_text()) if synth.exists() else None)
    )
    made[FRONT] = _filled(FRONT, _figures())
    return made


def main() -> int:
    """Write the pages, or check them."""
    check = "--check" in sys.argv[1:]
    made = pages()
    stale = [page for page in made if not page.exists() or page.read_text() != made[page]]
    for page in stale:
        if check:
            print(f"{page} differs from the results: run python -m bench.readme")
        else:
            page.write_text(made[page])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
