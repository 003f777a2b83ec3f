"""Debian packages that a blank host of a test has before anything of ours."""

from __future__ import annotations

from pathlib import Path

from blank_tree import CACHE
from fleet import RELEASE

from scripts.wheelhouse import deb_cache


def debian_packages(name: str, wanted: list[str]) -> list[Path]:
    """Fetch Debian packages and what they need; once, as the wheelhouse does."""
    folder = CACHE / f"{name}-{RELEASE}"
    if not folder.is_dir():
        deb_cache.PACKAGES = wanted
        deb_cache.fetch(f"{RELEASE}-amd64", folder, False, folder, print)
    return sorted(folder.iterdir())
