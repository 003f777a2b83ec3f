"""The model in docs/security: the protocol keeps its claims, and without a rule of it one falls."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs/security"
sys.path.insert(0, str(FOLDER))
from exchange_model import CONFIGURATIONS, INTERVAL, PROTOCOL, Configuration, search  # noqa: E402


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("given", "claim"), CONFIGURATIONS, ids=[given.name for given, _ in CONFIGURATIONS]
)
def test_the_protocol_keeps_every_claim_and_what_it_was_does_not(
    given: Configuration, claim: str
) -> None:
    found = search(replace(given, ticks=2), claim)
    assert found.claim == claim
    assert bool(found.steps) == bool(claim)


def test_the_search_finds_nothing_in_the_protocol() -> None:
    found = search(replace(PROTOCOL, may_restart=False, ticks=2))
    assert found.claim == ""
    assert found.states > 100


def test_the_search_finds_the_follow_up_of_another_reply_in_what_it_was() -> None:
    was = replace(PROTOCOL, context="nonce", answers_once=False, may_restart=False, ticks=2)
    found = search(was)
    assert found.claim == INTERVAL
    steps = "\n".join(found.steps)
    assert "writes reply 1" in steps
    assert "the follow-up of reply 0" in steps
    assert "the client takes reply 1" in steps


@pytest.mark.parametrize(
    ("stamp", "step"),
    [
        ("T1", "the end of nonce 0: T1 = 1"),
        ("T2", "writes reply 0: T2 = 0, T3 = 1"),
        ("T3", "the follow-up of reply 0 says + 1"),
        ("T4", "the client takes reply 0: T4 = 0"),
    ],
)
def test_the_search_finds_how_each_stamp_is_moved_if_it_counts(stamp: str, step: str) -> None:
    was = replace(PROTOCOL, moved=frozenset({stamp}), may_restart=False, ticks=2)
    found = search(was, INTERVAL)
    assert found.claim == INTERVAL
    assert step in "\n".join(found.steps)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readme_says_what_the_search_says() -> None:
    model = [sys.executable, str(FOLDER / "exchange_model.py")]
    done = subprocess.run(model, capture_output=True, text=True, timeout=800, check=True)
    said = "".join(line for line in done.stdout.splitlines(True) if not line.startswith(" "))
    assert said in (FOLDER / "README.md").read_text(encoding="utf-8")
