"""Certificates, memory, and libraries that stand before the system's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest


def certificate(folder: Path, name: str = "localhost") -> str:
    """Make one for 127.0.0.1, in the place of an earlier one; how a listener names it."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    files = ["-subj", f"/CN={name}", "-keyout", "key.pem", "-out", "new.pem"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1"]
    folder.mkdir(exist_ok=True)
    subprocess.run(command.split() + files + more, cwd=folder, check=True, capture_output=True)
    (folder / "new.pem").rename(folder / "certificate.pem")
    return f'tls = {{ certificate = "{folder}/certificate.pem", key = "{folder}/key.pem" }}'


def memory(process: subprocess.Popen[bytes] | None, field: str = "VmHWM") -> int:
    """The most memory that a process ever had, or what else its status says, octets."""
    assert process is not None
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def stand_in(source: Path, folder: Path) -> str:
    """Compile a library that stands before the system's own; what to set LD_PRELOAD to."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    library = folder / f"{source.stem}.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return str(library)
