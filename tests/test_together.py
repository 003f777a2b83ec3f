"""What one room takes for granted of another."""

from __future__ import annotations

import dataclasses

from mqtick.client.config import Settings
from mqtick.timeserver import echo


def test_a_client_that_asks_as_rarely_as_it_may_keeps_its_place_in_the_echo() -> None:
    (field,) = (f for f in dataclasses.fields(Settings) if f.name == "exchange_interval_s")
    (declared,) = field.metadata.values()
    # A server notes that a client asked only when half of the time is over.
    pauses = echo._IDLE_NS / 2 / (declared["maximum"] * 1e9)
    assert pauses >= 3
