"""On paper what belongs together stays together, and figures stay as they were drawn."""

from __future__ import annotations

import io
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from analysis.tests.report_samples import skew_result
from mqtick.analysis.report.blocks import Cell, Paragraph, Section, Table
from mqtick.analysis.report.figures import pictures_of
from mqtick.analysis.report.paper import HEIGHT, MARGIN, ROOM, WIDTH, Paper
from mqtick.analysis.report.pdf import pdf_of, put_section
from mqtick.analysis.report.style import drawing

pytestmark = pytest.mark.skipif(
    shutil.which("pdftotext") is None,
    reason="pdftotext is not installed (Debian: apt install poppler-utils)",
)

ROWS = 12


def a_table() -> Table:
    rows = tuple((Cell(f"row {place}"), Cell(f"{place}")) for place in range(ROWS))
    return Table("What was counted", ("what", "count"), rows)


def sheets_of(paper: Paper) -> list[str]:
    octets = io.BytesIO()
    with drawing(), PdfPages(octets) as pages:
        paper.save(pages, "footer")
    return words_of(octets.getvalue())


def words_of(octets: bytes) -> list[str]:
    command = [str(shutil.which("pdftotext")), "-layout", "-", "-"]
    done = subprocess.run(command, input=octets, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().replace("\xa0", " ").split("\f")[:-1]


def paper_with(free: float) -> Paper:
    """Return paper on whose sheet so many inches are free."""
    paper = Paper()
    paper.write("begin")
    paper.step(paper.left - free)
    return paper


@pytest.mark.parametrize("free", [0.2, 0.5, 0.8, 1.2, 2.0, 3.0, 9.0])
def test_a_heading_stands_with_what_it_is_of_and_a_table_is_whole(free: float) -> None:
    paper = paper_with(free)
    put_section(paper, Section("Counts", (Paragraph("These were seen:"), a_table())))
    (sheet,) = [each for each in sheets_of(paper) if "Counts" in each]
    assert "These were seen:" in sheet
    assert "What was counted" in sheet
    assert all(f"row {place}" in sheet for place in range(ROWS))


def test_what_is_longer_than_a_sheet_goes_on_on_the_next() -> None:
    paper = paper_with(5.0)
    rows = tuple((Cell(f"row {place}"), Cell("")) for place in range(100))
    put_section(paper, Section("Counts", (Table("All of them", ("what", "count"), rows),)))
    sheets = [each for each in sheets_of(paper) if "row" in each]
    assert len(sheets) > 1
    assert all("what" in sheet for sheet in sheets)
    assert re.findall(r"row (\d+)", "".join(sheets)) == [str(place) for place in range(100)]


def test_figures_share_a_sheet_while_they_fit() -> None:
    paper = Paper()
    for place in range(3):
        with drawing():
            figure = Figure(figsize=(ROOM, 4.0))
            figure.text(0.1, 0.5, f"figure {place}")
        paper.picture(figure, f"caption {place}")
    shown = [re.findall(r"(figure|caption) (\d)", sheet) for sheet in sheets_of(paper)]
    both = [[(what, str(each)) for what in ("figure", "caption")] for each in range(3)]
    assert shown == [both[0] + both[1], both[2]]


@pytest.mark.parametrize("rasterized", [True, False])
def test_a_figure_is_drawn_at_its_place_also_where_it_is_of_dots(rasterized: bool) -> None:
    """The second figure of a sheet is black from side to side, at half its height."""
    paper = Paper()
    for height, ink in ((2.0, "white"), (4.0, "black")):
        with drawing():
            figure = Figure(figsize=(ROOM, height))
            axes = figure.add_axes((0.0, 0.25, 1.0, 0.5))
            axes.axis("off")
            axes.axhspan(0, 1, color=ink, linewidth=0, rasterized=rasterized)
            axes.set_ylim(0, 1)
        paper.picture(figure, "caption")
    octets = io.BytesIO()
    with drawing(), PdfPages(octets) as pages:
        paper.save(pages, "footer")
    assert (b"/Subtype /Image" in octets.getvalue()) is rasterized
    dots = 50
    command = [str(shutil.which("pdftoppm")), "-r", str(dots), "-gray", "-"]
    done = subprocess.run(
        command, input=octets.getvalue(), capture_output=True, check=True, timeout=60
    )
    head, size, _, pixels = done.stdout.split(b"\n", 3)
    assert head == b"P5"
    wide, high = map(int, size.split())
    image = np.frombuffer(pixels, np.uint8)[: wide * high].reshape(high, wide)
    black = np.argwhere(image < 60) / dots
    # Letters are black too; the band is where more than half of a row is.
    rows = np.flatnonzero((image < 60).mean(axis=1) > 0.5) / dots
    first = MARGIN + 2.0 + 0.05 + 8.0 * 1.35 / 72 + 0.3 + 0.1
    assert rows.min() == pytest.approx(first + 1.0, abs=0.06)
    assert rows.max() == pytest.approx(first + 3.0, abs=0.06)
    assert black[:, 1].min() == pytest.approx(MARGIN, abs=0.06)
    assert black[:, 1].max() == pytest.approx(WIDTH - MARGIN, abs=0.06)
    assert image.shape[0] / dots == pytest.approx(HEIGHT, abs=0.06)


def test_a_figure_is_after_the_pdf_as_it_was_before() -> None:
    with drawing():
        figure = Figure(figsize=(ROOM, 3.0), dpi=100)
    pictures = [("A figure", "With a caption.", figure)]
    assert pdf_of([skew_result(3)], pictures) == pdf_of([skew_result(3)], pictures)
    assert figure.get_size_inches().tolist() == [ROOM, 3.0]
    assert figure.patch.get_visible()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(2,), (2, 100), tuple(range(2, 14))])
def test_in_a_report_no_heading_is_alone_and_no_figure_among_other_text(
    numbers: tuple[int, ...],
) -> None:
    results = [skew_result(6, numbers, pairs=True)]
    draw = [(each.title, each.caption, each.draw) for each in pictures_of(results)]
    sheets = words_of(pdf_of(results, [(name, said, of(ROOM)) for name, said, of in draw]))
    ends = [sheet.split("mqtick-report: ")[0].strip().split("\n")[-1].strip() for sheet in sheets]
    titles = {"Verdicts", "Statistics", "Pairs of nodes", "Shots and edges", "Method", "Provenance"}
    assert not titles & set(ends)
    figures = [place for place, sheet in enumerate(sheets) if re.search(r"Figure [2-9]\.", sheet)]
    assert max(figures) <= min(
        p for p, sheet in enumerate(sheets) if re.search("(?m)^Statistics", sheet)
    )
