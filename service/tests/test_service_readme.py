from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOM = Path(__file__).parents[1]
TEXT = (ROOM / "README.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block("python"))
    done = subprocess.run(
        [sys.executable, tmp_path / "example.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == block("toml")


def test_every_file_of_the_room_is_named() -> None:
    files = {file.name for file in (ROOM / "mqtick" / "service").glob("*.py")} - {"__init__.py"}
    assert {name for name in files if f"`{name}`" not in TEXT} == set()
