"""A source of Debian packages on the control machine, for hosts that fetch their own."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def apt_source(address: str, packages: Path, folder: Path) -> Iterator[str]:
    """Serve a folder's packages from an address; give the line for sources.list."""
    entries = []
    for number, file in enumerate(sorted(packages.glob("*.deb"))):
        (folder / f"{number}.deb").symlink_to(file)  # an epoch's %3a would be quoted once more
        fields = subprocess.run(
            ["dpkg-deb", "--field", file], capture_output=True, text=True, check=True
        ).stdout.strip()
        octets = file.read_bytes()
        entries.append(
            f"{fields}\nFilename: ./{number}.deb\nSize: {len(octets)}\n"
            f"SHA256: {hashlib.sha256(octets).hexdigest()}\n"
        )
    (folder / "Packages").write_text("\n".join(entries))
    handler = functools.partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"deb [trusted=yes] http://{address}:{server.server_port} ./"
        finally:
            server.shutdown()
            thread.join()
