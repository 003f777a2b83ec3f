"""Two programs under one name are noticed, and what only looks like that is not."""

from __future__ import annotations

from collections.abc import Iterable

from mqtick.protocol.namesakes import Lasting, Namesakes, is_same_count

S = 1_000_000_000


def heard(*requests: tuple[int, int]) -> list[str]:
    """Return the names used twice after requests of `pi7`: (second, number)."""
    known = Namesakes()
    for at_s, sequence in requests:
        known.note("pi7", sequence, at_s * S)
        known.note("pi8", at_s, at_s * S)
    return known.names(requests[-1][0] * S)


def bursts(starts: Iterable[int], seconds: int) -> list[tuple[int, int]]:
    """Return the requests of clients that begin to count there and ask every 16 s in turn."""
    return [
        (at_s + place, start + at_s // 16)
        for at_s in range(0, seconds, 16)
        for place, start in enumerate(starts)
    ]


def test_two_clients_with_one_name_are_noticed_after_a_minute() -> None:
    assert heard(*bursts((5_000_000, 2_000_000_000), 64)) == []
    assert heard(*bursts((5_000_000, 2_000_000_000), 100)) == ["pi7"]


def test_one_client_is_not_two_however_often_it_is_restarted() -> None:
    assert heard(*bursts((2**32 - 3,), 300)) == []
    assert heard(*((at_s, at_s * 10_000_000) for at_s in range(300))) == []


def test_a_doctor_who_visits_a_client_for_some_seconds_is_not_a_second_client() -> None:
    visit = bursts((5_000_000, 2_000_000_000), 32)
    assert heard(*visit, *((200 + at_s, 5_000_010 + at_s) for at_s in range(200))) == []


def test_it_is_forgotten_when_the_second_client_has_gone() -> None:
    known = Namesakes()
    for at_s, sequence in bursts((5_000_000, 2_000_000_000), 100):
        known.note("pi7", sequence, at_s * S)
    assert known.names(600 * S) == ["pi7"]
    assert known.names(700 * S) == []


def test_strangers_names_take_no_more_than_their_room() -> None:
    known = Namesakes()
    for number in range(10_000):
        known.note(f"pi{number}", number, 0)
    assert len(known._heard) == 4096


def test_what_is_seen_once_does_not_last() -> None:
    seen = Lasting()
    for at_s in (*range(15), 30, 60, 90):
        seen.note(at_s * S)
        assert not seen.holds(at_s * S)
    seen.note(120 * S)
    assert seen.holds(120 * S)


def test_a_count_goes_on_after_its_highest_number() -> None:
    assert is_same_count(3, 2**32 - 3)
    assert not is_same_count(3, 2**31)
