"""Figures and tables for a paper, verdicts for a pipeline."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from analysis.tests.report_hostile import hostile_result
from analysis.tests.report_samples import (
    clock_result,
    compare_results,
    latency_result,
    skew_result,
)
from mqtick.analysis import figure, write_paper
from mqtick.analysis.cli import main
from mqtick.analysis.report import style
from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.paper import UnknownFigureError
from mqtick.analysis.report.pipeline import junit_of, markdown_of
from mqtick.analysis.report.statistics_tables import short_tables
from mqtick.analysis.report.writers import latex_table, md, tex
from mqtick.analysis.results.result import Result

COLUMN = 88 / 25.4
# What TeX sees as a command, a group or a sign of its own.
COMMAND = re.compile(r"\\([a-zA-Z@]+|.)", re.DOTALL)
ALLOWED = {
    *("begin", "end", "caption", "label", "centering", "small", "scriptsize", "includegraphics"),
    *("footnotesize", "setlength", "tabcolsep"),
    *("providecommand", "toprule", "midrule", "bottomrule", "hline", "ensuremath", "mu", "dots"),
    *("textbar", "textless", "textgreater", "textbackslash", "textasciicircum"),
    *("textasciitilde", "pm", "cdot", "tau", "le", "ge", "times"),
    *("{", "}", "$", "&", "#", "%", "_", "\\"),
}


def drawn(result: Result, folder: Path, *names: str) -> dict[str, bytes]:
    files = write_paper([result], folder, names, COLUMN)
    return {path.name: path.read_bytes() for path in files}


def test_a_figure_is_as_wide_as_the_column(tmp_path: Path) -> None:
    files = drawn(skew_result(), tmp_path, "growth-skew")
    for ending, pattern in (
        ("pdf", r"/MediaBox \[ 0 0 ([\d.]+)"),
        ("svg", r'<svg[^>]*\bwidth="([\d.]+)pt"'),
    ):
        found = re.search(pattern, files[f"growth-skew.{ending}"].decode("latin-1"))
        assert found is not None
        assert float(found[1]) / 72 == pytest.approx(COLUMN, abs=0.01)


@pytest.mark.parametrize(("font", "family"), [("serif", "STIXGeneral"), ("sans", "DejaVu Sans")])
def test_letters_are_those_of_the_paper(tmp_path: Path, font: str, family: str) -> None:
    write_paper([skew_result()], tmp_path, ["growth-skew"], COLUMN, font)
    drawing = (tmp_path / "growth-skew.svg").read_text()
    families = set(re.findall(r"font-family: ([^;\"]+)", drawing))
    assert families
    assert all(one.replace("'", "").startswith(family) for one in families)


@pytest.mark.parametrize("font", ["serif", "sans"])
def test_a_title_takes_one_line_and_a_short_legend_stands_inside(font: str) -> None:
    # Those of the names of our own samples are whole, too.
    for result in (skew_result(), clock_result()):
        for picture in pictures_of([result]):
            with style.for_paper(font):
                drawing = picture.draw(COLUMN)
            assert not re.search("[\n…]", drawing.get_suptitle()), picture.name
            labels = {x for axes in drawing.axes for x in axes.get_legend_handles_labels()[1]}
            assert len(labels) > 5 or not drawing.legends, picture.name


def test_a_table_takes_the_columns_that_it_needs() -> None:
    (table,) = short_tables([latency_result()]).values()
    assert r"\begin{table}" in latex_table(table, "x", 600.0)
    assert r"\begin{table*}" in latex_table(table, "x", 252.0)
    assert r"\footnotesize" in latex_table(table, "x", 450.0)


def test_the_paper_names_its_sources(tmp_path: Path) -> None:
    known = drawn(skew_result(), tmp_path, "growth-skew")["references.bib"].decode()
    cited = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    (title,) = re.findall(r"title *= \{(Hardware.*)\},", known)
    assert f"title: {re.sub('[{}]', '', title)}\n" in cited
    assert f"version: {metadata.version('mqtick')}\n" in cited
    assert known.count("{") == known.count("}")


def test_figures_are_there_without_more_imports() -> None:
    assert figure(skew_result(), "growth-skew").caption.startswith("Skew against")


def test_the_same_result_makes_the_same_octets(tmp_path: Path) -> None:
    assert drawn(skew_result(), tmp_path / "a", "skew") == drawn(
        skew_result(), tmp_path / "b", "skew"
    )


def test_a_part_of_a_name_chooses_all_that_have_it(tmp_path: Path) -> None:
    files = drawn(skew_result(), tmp_path, "skew", "pairs")
    names = {name for name in files if name.endswith(".pdf")}
    assert names == {"growth-skew.pdf", "ecdf-skew.pdf", "over-time-skew.pdf", "pairs.pdf"}
    floats = files["figures.tex"].decode()
    assert floats.count(r"\begin{figure}") == floats.count(r"\caption{") == 4
    assert r"\caption{Skew against the number of" in floats


def test_a_figure_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownFigureError, match=r"no figure 'ske'.*growth-skew, ecdf-skew"):
        drawn(skew_result(), tmp_path / "new", "ske")
    assert not (tmp_path / "new").exists()


def test_no_name_of_a_node_is_a_command_of_latex(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # LaTeX is not needed
    files = drawn(hostile_result(), tmp_path, "all")
    assert len([name for name in files if name.endswith(".pdf")]) > 4
    for name, octets in files.items():
        if name.endswith(".tex"):
            text = octets.decode()
            assert set(COMMAND.findall(text)) <= ALLOWED, name
            assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("50 % of $x_1^2$ & #3~", r"50 \% of \$x\_1\textasciicircum{}2\$ \& \#3\textasciitilde{}"),
        ("3.2·10⁻⁷ µs", r"3.2\ensuremath{\cdot}10\ensuremath{^{-7}} \ensuremath{\mu}s"),
        ("max|TE| < 1", r"max\textbar{}TE\textbar{} \textless{} 1"),
    ],
)
def test_signs_that_latex_would_read_are_escaped(text: str, escaped: str) -> None:
    assert tex(text) == escaped


def test_tables_have_a_cell_for_each_heading() -> None:
    tables = {
        **short_tables([skew_result()]),
        **short_tables([clock_result()]),
        **short_tables([hostile_result()]),
        **short_tables(compare_results()),
    }
    assert {"statistics-skew", "statistics-latency", "clocks", "compare-1"} <= set(tables)
    for name, table in tables.items():
        text = latex_table(table, name)
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        ands = {len(re.findall(r"(?<!\\)&", row)) for row in rows}
        assert ands == {len(table.columns) - 1}, name
        assert rf"\label{{tab:{name}}}" in text


def test_markdown_has_no_name_that_is_a_link_a_tag_or_somebody() -> None:
    text = markdown_of([hostile_result()])
    assert "<script" not in text.replace(r"\<", "")
    assert "[" not in text.replace(r"\[", "")
    assert md("@everyone [a](b) |") == "@\u200beveryone \\[a\\](b) \\|"
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows
    assert all("\\|" in row or row.count("|") > 2 for row in rows)


def test_markdown_says_the_answer_and_the_verdicts_first() -> None:
    lines = markdown_of([skew_result()]).splitlines()
    assert lines[0].startswith("## SIMULATED: ")
    assert any(line.startswith("- ✗ **fails**: ") for line in lines[:8])


def test_junit_has_a_test_for_each_verdict() -> None:
    result = skew_result()
    (suite,) = ET.fromstring(junit_of([result]))
    bad = [verdict for verdict in result.verdicts if verdict.state != "holds"]
    assert suite.get("tests") == str(len(result.verdicts))
    assert suite.get("failures") == str(len(bad))
    assert [case.find("failure") is not None for case in suite] == [
        verdict.state != "holds" for verdict in result.verdicts
    ]
    hostile = ET.fromstring(junit_of([hostile_result()]))
    assert len(hostile[0]) == len(hostile_result().verdicts)


# ---- the command


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "clock.csv"
    rows = [f"{second},{second % 5 / 10}" for second in range(200)]
    path.write_text("\n".join(["time [s],offset [us]", *rows]) + "\n")
    return path


def test_one_command_makes_what_a_pipeline_and_a_paper_want(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [str(log), "--out", str(out), "--quiet", "--no-pdf", "--no-limits"]
    words += ["--figure", "stability-clock", "--width", "252pt", "--junit"]
    words += [str(tmp_path / "j.xml")]
    assert main([*words, "--markdown", str(tmp_path / "m.md")]) == 0
    assert {path.name for path in (out / "paper").iterdir()} == {
        *("stability-clock.pdf", "stability-clock.svg", "figures.tex", "clocks.tex"),
        "references.bib",
    }
    assert r"\includegraphics{stability-clock}" in (out / "paper/figures.tex").read_text()
    assert [path.name for path in out.iterdir()] == ["paper"]
    assert (tmp_path / "m.md").read_text().startswith("## clock")
    assert ET.parse(tmp_path / "j.xml").getroot()[0].get("tests") == "0"


def test_tables_alone_leave_no_page_of_another_report(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [str(log), "--out", str(out), "--quiet", "--no-pdf", "--no-limits"]
    assert main(words) == 0
    (out / "figures/mine.svg").write_text("kept")
    assert main([*words, "--tables-only"]) == 0
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert files == {
        "figures/mine.svg", "report.json", "tables/statistics.csv", "tables/stability.csv",
    }  # fmt: skip


def test_tables_alone_draw_nothing(log: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from mqtick.analysis.cli import main; code = main(sys.argv[1:]);"
        "sys.exit(code or 'matplotlib' in sys.modules)"
    )
    words = [str(log), "--out", str(tmp_path / "out"), "--quiet", "--no-limits", "--tables-only"]
    assert subprocess.run([sys.executable, "-c", program, *words], check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--figure", "nothing"], "there is no figure 'nothing' of this measurement"),
        (["--junit", "/nonexistent/a.xml"], "/nonexistent/a.xml cannot be written"),
        (["--markdown", "."], ". cannot be written"),
        (["--width", "8m"], "'8m' is not a width"),
        (["--width", "1mm"], "'1mm' is not a width"),
        (["--figure", "skew,"], "'skew,' is not NAME,NAME"),
    ],
)
def test_what_cannot_be_is_said(
    log: Path, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: int | str | None = main([str(log), "--no-pdf", "--out", str(tmp_path / "o"), *words])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--tables-only", "--junit=j.xml", "--figure=skew"])
def test_a_listing_is_not_taken_for_what_a_pipeline_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{n}e-6,{3 * (n > 50)},{3 * (n > 60)}" for n in range(100)]
    Path("a.csv").write_text("\n".join(["time [s],CH1,CH2", *rows]) + "\n")
    assert main(["a.csv", word]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
