"""Who installed too little is told which extra is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from {module} import main
main(["--version"])
"""


@pytest.mark.parametrize(
    ("module", "extra"), [("mqtick.report_program", "analysis"), ("mqtick.lab.cli", "lab")]
)
def test_a_program_names_the_extra_that_is_missing(module: str, extra: str) -> None:
    program = WITHOUT_NUMPY.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    said = f"error: the Python package numpy is not installed; mqtick[{extra}] brings it\n"
    assert (done.returncode, done.stderr) == (1, said)
