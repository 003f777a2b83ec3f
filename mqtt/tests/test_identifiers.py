"""Client identifiers: nobody can guess them, nothing shows them; a setting names one."""

from __future__ import annotations

import logging
import re

import pytest
from live import Node, scripted

CONNACK = b"\x20\x03\x00\x00\x00"


def identifiers(count: int, **broker: str) -> list[str]:
    """Connect several nodes of one name, each twice; returns what they call themselves."""
    heard: list[str] = []

    def answer(connect: bytes) -> bytes:
        heard.append(re.findall(rb"[ -~]{5,}", connect)[-1].decode())
        return CONNACK + (b"\xe0\x00" if len(heard) % 2 else b"")

    with scripted(answer) as address:
        for _ in range(count):
            with Node(f"mqtt://{address}", **broker) as node:
                node.until(lambda node=node: node.connection.connects == 2)  # type: ignore[misc]
    return heard


def test_an_identifier_has_64_random_bits_that_stay_for_one_program_and_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="mqtick")
    first, again, other, _ = identifiers(2)
    assert first == again != other
    assert re.fullmatch("node-[0-9a-f]{16}", first)
    assert "node: connected" in caplog.text
    assert first.removeprefix("node-") not in caplog.text


def test_the_identifier_of_the_settings_is_used_as_it_is() -> None:
    assert set(identifiers(1, client_id="account-7")) == {"account-7"}
