"""Finds mqtick-broker-model, the program around the broker's RTL, and runs it on a batch."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mqtick.lab.hardware.datagrams import Datagram, as_line, read_lines

PROGRAM: Final = "mqtick-broker-model"
_BUILT: Final = Path("build/rtl/model") / PROGRAM
"""Where `make model-rtl` puts it, from the top of the checkout."""


class ModelError(RuntimeError):
    """The model cannot be run, or behaves wrongly; the text says what to do."""


def find_model(named: str = "") -> Path:
    """Return the program: the named one, else that in PATH, else that built here; ModelError."""
    for candidate in (named,) if named else (shutil.which(PROGRAM) or "", str(_BUILT)):
        if os.access(candidate, os.X_OK) and Path(candidate).is_file():
            return Path(candidate)
    raise ModelError(
        f"{named or PROGRAM} is not there or is no program: run `make model-rtl`, or name it with "
        "--model."
    )


def run_batch(
    model: Path, datagrams: Iterable[Datagram], *, link_gbps: int, prove: bool = True
) -> list[Datagram]:
    """Return what the broker sends when it receives these, exact to the cycle; ModelError.

    With `prove` every receiver of a challenge answers it. A `link_gbps` of 0 takes a word in every
    cycle. DatagramError if the program's output cannot be read.
    """
    with _ran(model, datagrams, link_gbps, prove) as lines:
        return list(read_lines(lines, "what the model sent"))


def count_batch(
    model: Path, datagrams: Iterable[Datagram], *, link_gbps: int, prove: bool = True
) -> dict[str, int]:
    """Return only the counts at the end of such a batch: cycles, received, lost, sent."""
    with _ran(model, datagrams, link_gbps, prove) as lines:
        words = (line.split() for line in lines if line.startswith("# "))
        return {name: int(value) for _, name, value in words}


@contextlib.contextmanager
def _ran(
    model: Path, datagrams: Iterable[Datagram], link_gbps: int, prove: bool
) -> Iterator[Iterable[str]]:
    with tempfile.TemporaryDirectory(prefix="mqtick-model-") as folder:
        come, gone = Path(folder) / "in", Path(folder) / "out"
        with come.open("w") as file:
            file.writelines(map(as_line, datagrams))
        # An absolute path, because a bare name would be searched in PATH.
        call = [str(model.absolute()), "batch", str(come), str(gone), "--link-gbps", str(link_gbps)]
        try:
            done = subprocess.run(
                [*call, *(["--prove"] if prove else [])],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise ModelError(f"{model} cannot be run ({error.strerror}).") from error
        if done.returncode:
            said = done.stderr.strip().removeprefix("error: ").partition("\n")[0]
            raise ModelError(f"{model} failed: {said or f'exit code {done.returncode}'}")
        if not gone.is_file():
            raise ModelError(f"{model} wrote nothing: is it {PROGRAM}?")
        with gone.open(errors="replace") as lines:
            yield lines
