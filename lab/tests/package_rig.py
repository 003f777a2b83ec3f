"""A package of another author, which provides a family through an entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def provide(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    source: str,
    entries: str = "acme = acme:Acme",
    group: str = "mqtick.oscilloscopes",
    module: str = "acme",
) -> None:
    """Install a module in a folder that is found, for the length of a test."""
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(folder)
    (folder / f"{module}.py").write_text(source)
    about = folder / f"{module}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
