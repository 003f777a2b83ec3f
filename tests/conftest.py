"""Fixtures of the tests that run our programs as processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accelerate_rig import kernel, launch, launch_sn, proxy
from rig import Rig

__all__ = ["kernel", "launch", "launch_sn", "proxy"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what moves the clock of this machine last."""
    items.sort(key=lambda item: item.get_closest_marker("steers_clock") is not None)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    try:
        yield rig
    finally:
        rig.close()
