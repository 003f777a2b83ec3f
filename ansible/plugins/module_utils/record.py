"""Which Debian packages this collection brought to a host, and which had to go for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.mqtick.fleet.plugins.module_utils.placing import write_whole


class Record:
    """Which packages came and which had to go since the collection has known this host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _read(self, name: str) -> set[str]:
        path = self.folder / name
        return set(path.read_text().split()) if path.exists() else set()

    def _write(self, name: str, packages: Iterable[str]) -> None:
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        text = "".join(f"{one}\n" for one in sorted(packages))
        write_whole(self.folder / name, text.encode(), lambda draft: os.chmod(draft, 0o644))

    @property
    def added(self) -> set[str]:
        """The packages that were not there before."""
        return self._read("packages-added")

    @property
    def removed(self) -> set[str]:
        """The packages that were there before and are not now."""
        return self._read("packages-removed")

    @property
    def is_half_finished(self) -> bool:
        """Whether a run was interrupted between its beginning and its end."""
        return (self.folder / "packages-before").exists()

    def begin(self, names: set[str], coming: list[str], going: list[str]) -> None:
        """Keep what is there now, and what is going to come and to go."""
        self._write("packages-coming", coming)
        self._write("packages-going", going)
        self._write("packages-before", names)

    def end(self, names: set[str]) -> None:
        """Add the difference to the record, without what others did meanwhile."""
        before = self._read("packages-before")
        came = (names - before) & self._read("packages-coming")
        gone = (before - names) & self._read("packages-going")
        added, removed = self.added, self.removed
        self._write("packages-added", (added - gone) | (came - removed))
        self._write("packages-removed", (removed - came) | (gone - added))
        for name in ("before", "coming", "going"):
            (self.folder / f"packages-{name}").unlink()
