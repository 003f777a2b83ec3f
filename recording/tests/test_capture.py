"""Channels are found by the names that a user would give them."""

from __future__ import annotations

import numpy as np
import pytest

from mqtick.recording.capture import find_signal
from mqtick.recording.transitions import Transitions

NOTHING = Transitions("", 0, np.empty(0, np.int64), np.empty(0, np.int8))


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (["CH1", "CH2"], "CH2", "CH2"),
        (["CH1", "CH2"], "ch2", "CH2"),
        (["CH1", "CH2"], "2", "CH2"),
        (["1", "2"], "CH2", "2"),
        (["Channel 1", "Channel 2"], "channel2", "Channel 2"),
        (["Channel 1", "Channel 2"], "1", "Channel 1"),
        (["D0", "D1"], "0", "D0"),
        (["d0", "d1"], "D1", "d1"),
        (["CH1", "D1"], "1", None),
        (["CH1", "D1"], "D1", "D1"),
        (["CH1", "ch1"], "CH1", "CH1"),
        (["CH1", "ch1"], "Ch1", None),
        (["publisher", "first"], "Publisher", "publisher"),
        (["CH1"], "CH11", None),
        (["CH1"], "", None),
        ([], "1", None),
    ],
)
def test_a_channel_is_found_by_name_or_number(
    names: list[str], wanted: str, found: str | None
) -> None:
    assert find_signal(dict.fromkeys(names, NOTHING), wanted) == found
