"""The notebook of the documents runs from its first cell to its last, and says what it says there.

Jupyter itself is no part of the tests: it would bring thirty packages. Cells run here as Jupyter
runs them, in one namespace and in their order; the value of a last line is what a cell shows.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs/notebooks/skew.ipynb"
_FOLDERS = re.compile(r"/(?:tmp|home|root|usr|work|private|Users)\b|[A-Z]:\\")


def cells() -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return known


def run_cell(source: str, namespace: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; returns what it prints, and its value."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    value = None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, NOTEBOOK.name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), namespace)
    return said.getvalue(), value


def shown(cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield kind and text of what the notebook shows below a cell."""
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield "stream", "".join(output["text"])
        for kind, text in output.get("data", {}).items():
            yield kind, "".join(text)


@pytest.mark.slow
def test_the_notebook_shows_what_its_cells_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)  # it goes to a folder of its own
    namespace: dict[str, Any] = {}
    pictures = 0
    for number, cell in enumerate(cells()):
        if cell["cell_type"] != "code":
            continue
        said, value = run_cell("".join(cell["source"]), namespace)
        there = dict(shown(cell))
        assert there.get("stream", "") == said, f"cell {number}"
        if "text/plain" in there:
            assert there["text/plain"] == repr(value), f"cell {number}"
        if "image/png" in there:
            pictures += 1
            assert value._repr_png_().startswith(b"\x89PNG"), f"cell {number}"
    assert pictures == 2


def test_the_notebook_has_no_path_of_a_machine() -> None:
    for cell in cells():
        assert not _FOLDERS.search("".join(cell["source"]))
        for kind, text in shown(cell) if cell["cell_type"] == "code" else ():
            assert kind == "image/png" or not _FOLDERS.search(text)
