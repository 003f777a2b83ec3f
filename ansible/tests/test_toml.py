"""What is written as TOML is read back as it was."""

from __future__ import annotations

import tomllib

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.toml import dumps
from hypothesis import given
from hypothesis import strategies as st

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))

TABLES = st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES))


@given(
    st.dictionaries(
        KEYS,
        st.one_of(VALUES, TABLES, st.lists(TABLES, max_size=3)),
        max_size=5,
    )
)
def test_tomllib_reads_what_was_written(settings: dict[str, object]) -> None:
    assert tomllib.loads(dumps(settings)) == settings


def test_keys_of_the_file_come_before_its_tables() -> None:
    assert dumps({"chrony": {"port": 323}, "broker": "mqtt://b", "fast": True}) == (
        'broker = "mqtt://b"\nfast = true\n\n[chrony]\nport = 323\n'
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"a": None}, r"^a is None, and TOML has no such value"),
        ({"pin": {"line": [None]}}, r"^pin\.line is None"),
        ({"pins": [{"line": 4}, 5]}, r"^pins is \{'line': 4\}"),
        ({7: "x"}, r"^a key is text, but 7 is not"),
        (["broker"], r"^settings are a dictionary"),
    ],
)
def test_what_cannot_be_written_is_named(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dumps(settings)
