"""Without a browser there is no PDF, and a sentence says so (printed: test_page_in_browser)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqtick.analysis.report import pdf


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page beside the PDF of an earlier one."""
    (tmp_path / "report.pdf").write_bytes(b"an earlier one")
    (tmp_path / "report.html").write_text("<!doctype html><title>A page</title><p>words")
    return tmp_path / "report.html"


def no_pdf_of(page: Path) -> str:
    """Return why there is no PDF; nothing but the page is left."""
    said = pdf.print_page(page, page.with_name("report.pdf"))
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    assert said.startswith("no report.pdf: ")
    assert said.endswith("; any browser prints report.html")
    return said


def test_without_a_browser_there_is_no_pdf_and_a_sentence_says_so(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert "neither Chromium nor Chrome is installed" in no_pdf_of(page)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "chromium did not print the page"),
        ("exit 0", "chromium did not print the page"),
        ("exec sleep 60", "did not print the page within 1 s"),
        ('for word; do case "$word" in --print-to-pdf=*) : > "${word#*=}";; esac; done', "empty"),
    ],
)
def test_a_browser_that_does_not_print_is_told_and_leaves_nothing_behind(
    page: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    why: str,
) -> None:
    browser = tmp_path_factory.mktemp("bin") / "chromium"
    browser.write_text(f"#!/bin/sh\n{script}\n")
    browser.chmod(0o700)
    monkeypatch.setenv("PATH", f"{browser.parent}:/usr/bin:/bin")
    monkeypatch.setattr(pdf, "_PATIENCE_S", 1.0)
    assert why in no_pdf_of(page)
