"""How often clients are answered: each its share, all together theirs, and bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.timeserver.rate import Bucket, RateLimit

S = 1_000_000_000


def limit(**values: float) -> RateLimit:
    settings = {"client_rate": 4.0, "client_burst": 40, "total_rate": 1000.0, **values}
    return RateLimit(**settings)  # type: ignore[arg-type]


def allowed(made: RateLimit, client: str, now_ns: int) -> bool:
    return made.allow_client(client, now_ns) and made.allow_total(now_ns)


def test_a_client_may_ask_a_burst_at_once_and_then_its_rate() -> None:
    made = limit()
    assert [allowed(made, "kitchen", 0) for _ in range(41)] == [True] * 40 + [False]
    assert sum(allowed(made, "kitchen", n * S // 10) for n in range(1, 101)) == 40


def test_a_client_that_asks_too_often_takes_nothing_from_the_others() -> None:
    made = limit()
    for _ in range(5000):
        allowed(made, "loud", 0)
    assert allowed(made, "quiet", 0)


def test_all_clients_together_have_a_limit_too() -> None:
    made = limit(total_rate=100)
    assert sum(allowed(made, f"client-{n}", 0) for n in range(300)) == 100
    assert sum(allowed(made, f"client-{n}", S // 2) for n in range(300)) == 50


def test_asking_in_vain_costs_the_total_nothing() -> None:
    made = limit(total_rate=100)
    for _ in range(1000):
        made.allow_client("stranger", 0)
    assert sum(made.allow_total(0) for _ in range(200)) == 100


def test_only_so_many_clients_are_remembered_and_the_one_unheard_for_longest_goes() -> None:
    made = limit(client_burst=1, clients=3)
    for name in ("a", "b", "c", "a", "d"):  # d takes the place of b
        allowed(made, name, 0)
    assert [made.allow_client(name, 0) for name in ("a", "c", "d")] == [False] * 3
    assert made.allow_client("b", 0)
    assert len(made._clients) == 3


@given(
    st.floats(0.1, 100),
    st.integers(1, 50),
    st.lists(st.integers(0, 2 * S), min_size=1, max_size=200),
)
def test_nobody_gets_more_than_a_burst_and_the_rate_since(
    rate: float, burst: int, waits: list[int]
) -> None:
    bucket, now, taken = Bucket(rate, burst, 0), 0, 0
    for wait in waits:
        now += wait
        taken += bucket.take(now)
    assert taken <= burst + rate * now / 1e9 + 1e-6


@pytest.mark.parametrize("pause_s", [10, 10_000])
def test_a_pause_gives_back_a_burst_and_no_more(pause_s: int) -> None:
    made = limit()
    while allowed(made, "kitchen", 0):
        pass
    assert sum(allowed(made, "kitchen", pause_s * S) for _ in range(100)) == 40
