"""mqtick-timeserver as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqtick.service import StatusFile

PROGRAM = [sys.executable, "-m", "mqtick.timeserver.cli"]


@pytest.mark.parametrize("words", [["status", "--json"], ["--help-settings"]])
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, words: list[str]) -> None:
    StatusFile(tmp_path / "status.json", "mqtick-timeserver").write({"state": "synchronised"})
    folder = ["--state-folder", str(tmp_path)] if words[0] == "status" else []
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, *words, *folder],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 0)
