"""`make fuzz` without the patience: what takes octets of others reads or refuses them."""

from __future__ import annotations

import fuzz_rooms
import pytest


@pytest.mark.slow
def test_whatever_is_well_formed_for_one_is_read_or_refused_by_all() -> None:
    throw = fuzz_rooms.Thrower()
    for octets in throw.corpus:
        throw(octets)


@pytest.mark.slow
def test_so_is_what_was_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    fuzz_rooms.by_hypothesis(2.0, fuzz_rooms.Thrower())
    assert "nothing found in" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_not_refused_in_the_agreed_way_is_found() -> None:
    def careless(data: bytes) -> None:
        data[100]

    throw = fuzz_rooms.Thrower()
    throw.targets = [careless]
    with pytest.raises(IndexError):
        fuzz_rooms.by_hypothesis(2.0, throw)
