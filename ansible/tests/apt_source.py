"""A source of Debian packages on the control machine, for hosts that fetch their own."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ansible_collections.mqtick.fleet.plugins.module_utils.wheelhouse_index import (
    debs,
    packages_file,
)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def apt_source(address: str, house: Path, target: str, folder: Path) -> Iterator[str]:
    """Serve a wheelhouse's packages from an address; give the line for sources.list."""
    entries = []
    for number, deb in enumerate(debs(house, target)):
        name = f"{number}.deb"  # an epoch's %3a would be quoted once more
        (folder / name).symlink_to(house / "debs" / target / deb["file"])
        entries.append(deb | {"file": name})
    (folder / "Packages").write_text(packages_file(entries))
    handler = functools.partial(_Silent, directory=str(folder))
    with ThreadingHTTPServer((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"deb [trusted=yes] http://{address}:{server.server_port} ./"
        finally:
            server.shutdown()
            thread.join()
