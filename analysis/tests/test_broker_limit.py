"""A broker's limit as a page: what mqtick-load found is seen, and what is no such is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.tests.figure_parts import misplaced, texts_of
from mqtick.analysis.broker_limit import BrokerLimit
from mqtick.analysis.cli import main
from mqtick.analysis.report.figures.broker_limit import limit_pictures

PERCENTS = [100 * (1 - 10 ** (-step / 20)) for step in range(61)]
LEVELS = {"at 50 %": 1.0, "at 90 %": 3.0, "at the limit": 40.0}


def printed(**changed: Any) -> dict[str, Any]:
    """What `mqtick-load limit --json` prints."""
    rates = {"": 12_345.0, "_low": 11_000.0, "_high": 14_000.0}
    values = {f"limit_ingress{end}": rate for end, rate in rates.items()}
    values["limit_egress"] = 123_450.0
    lists: dict[str, list[float]] = {
        "percentiles": PERCENTS,
        "trial_ingress": [10_000.0, 20_000.0, 12_000.0],
        "trial_ratio": [1.0, 0.6, 2.5],
        "trial_held": [1.0, 0.0, 1.0],
    }
    for name, slow in LEVELS.items():
        for what in ("wire", "skew"):
            lists[f"{what}_us {name}"] = [slow * (30 + step) for step in range(60)]
            lists[f"{what}_count {name}"] = [999.0]
    rows = [
        {"key": key, "quantity": key, "unit": "1/s", "who": "broker"}
        | dict.fromkeys(("min", "median", "max"), value)
        for key, value in values.items()
    ]
    result = {"command": "limit", "complete": True, "version": "0.1.0", "rows": rows}
    result |= {"parameters": {"broker": '<script>"&'}, "ended_unix_s": 1_709_210_096}
    return result | {"lists": lists, "notes": ["stamps: the kernel's."]} | changed


def test_a_page_shows_the_limit_and_executes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "limit.json"
    file.write_text(json.dumps(printed()))
    assert main(["limit", str(file)]) == 0
    assert capsys.readouterr().out == f"page: {tmp_path / 'limit.html'}\n"
    page = (tmp_path / "limit.html").read_text()
    for text in (
        "12,345 messages in and 123,450 out a second.",
        "between 11,000 and 14,000 messages in.",
        "&lt;script&gt;",
        "2024-02-29 12:34 UTC by mqtick-load 0.1.0",
        "limit_ingress_high",
        "0.6000",
        "stamps: the kernel",
    ):
        assert text in page, text
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "NaN" not in page
    assert page.count("<figure>") == 3


@pytest.mark.parametrize("width", [7.0, 3.7])
def test_each_figure_can_be_read(width: float) -> None:
    search, latency, skew = (
        picture.draw(width) for picture in limit_pictures(BrokerLimit.of(printed()))
    )
    for figure in (search, latency, skew):
        assert misplaced(figure) == []
    assert {"held", "did not hold", "limit"} <= set(texts_of(search))
    for figure in (latency, skew):
        labels = " ".join(texts_of(figure)).replace("\N{NO-BREAK SPACE}", " ")
        for name in LEVELS:
            assert f"{name}, n = 999" in labels.replace("\n", " ")


def test_a_page_without_latency_says_so_and_so_does_one_of_the_load_tools_limit(
    tmp_path: Path,
) -> None:
    file, page = tmp_path / "limit.json", tmp_path / "page.html"
    notes = ["THE LOAD TOOL, NOT THE BROKER, WAS THE LIMIT."]
    lists = {key: each for key, each in printed()["lists"].items() if "_us " not in key}
    file.write_text(json.dumps(printed(lists=lists, notes=notes)))
    assert main(["limit", str(file), "--out", str(page)]) == 0
    assert "no percentiles of latency or skew to draw" in page.read_text()
    # What spoils the figure stands beside it.
    assert f"14,000 messages in. {notes[0]}" in page.read_text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not what `mqtick-load limit --json` printed"),
        ("[]", "is not what"),
        ("[" * 100_000, "is not what"),
        ("7", "is not what"),
        (json.dumps(printed(command="run")), "it is of `mqtick-load run`"),
        (json.dumps(printed(complete=False)), "the search ended before it found a limit"),
        (json.dumps(printed(rows=[])), "limit_ingress"),
        (json.dumps(printed(ended_unix_s=10**30)), "is not what"),
        (json.dumps(printed()).replace("12345.0", "0"), "0 is not above 0"),
        (json.dumps(printed()).replace("20000.0", "NaN"), "nan is not above 0"),
        (json.dumps(printed(lists=printed()["lists"] | {"percentiles": [100.0]})), "below 100"),
    ],
)
def test_what_is_no_limit_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    file = tmp_path / "limit.json"
    file.write_text(text)
    assert main(["limit", str(file)]) == 1
    said = capsys.readouterr().err
    assert str(file) in said
    assert why in said


def test_files_that_cannot_be_read_or_written_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "limit.json"
    assert main(["limit", str(file)]) == 1
    assert "cannot be read (No such file" in capsys.readouterr().err
    file.write_text(json.dumps(printed()))
    assert main(["limit", str(file), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert "name another by --out" in capsys.readouterr().err
