"""`make fuzz` without the patience: what takes octets of others reads or refuses them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def load() -> ModuleType:
    path = Path(__file__).parent / "fuzz/fuzz_rooms.py"
    spec = importlib.util.spec_from_file_location("fuzz_rooms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUZZ = load()


@pytest.mark.slow
def test_whatever_is_well_formed_for_one_is_read_or_refused_by_all() -> None:
    throw = FUZZ.Thrower()
    for octets in throw.corpus:
        throw(octets)


@pytest.mark.slow
def test_so_is_what_was_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    FUZZ.by_hypothesis(2.0, FUZZ.Thrower())
    assert "nothing found in" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_not_refused_in_the_agreed_way_is_found() -> None:
    def careless(data: bytes) -> None:
        data[100]

    throw = FUZZ.Thrower()
    throw.targets = [careless]
    with pytest.raises(IndexError):
        FUZZ.by_hypothesis(2.0, throw)
