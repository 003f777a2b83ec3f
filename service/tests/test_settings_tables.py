"""Tables whose names the user chooses."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.settings.load import load
from mqtick.service.settings.schema import SettingsError, key, table, tables
from mqtick.service.settings.text import add_flags, commented_example, overrides_from, render


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel."""

    input: int = key(1, "Its number.", minimum=1, maximum=4)
    node: str = key("", "Whose it is.")
    delay_ns: float = key(0.0, "Delay of its cable.")


@dataclass(frozen=True, slots=True)
class Other:
    """Another table."""

    name: str = key("x", "A name.")

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise ValueError("name is bad")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole configuration."""

    title: str = key("", "A title.")
    channel: Mapping[str, Channel] = tables(Channel, "Channels.")
    more: Mapping[str, Other] = tables(Other, "More.")
    other: Other = table(Other, "Another table.")


def read(tmp_path: Path, text: str) -> Whole:
    file = tmp_path / "whole.toml"
    file.write_text(text)
    return load(Whole, file)


def test_each_table_is_an_object_under_its_name(tmp_path: Path) -> None:
    found = read(tmp_path, '[channel.left]\ninput = 2\n[channel.right]\n[other]\nname = "y"\n')
    assert found.channel == {"left": Channel(input=2), "right": Channel()}
    assert (found.more, found.other.name) == ({}, "y")


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True),
        st.builds(Channel, input=st.integers(1, 4), node=st.text("abc\"'#\n", max_size=5)),
        max_size=5,
    )
)
def test_what_is_printed_reads_back(
    tmp_path_factory: pytest.TempPathFactory, channels: dict[str, Channel]
) -> None:
    whole = Whole("t", channels, {"a": Other("b")})
    assert read(tmp_path_factory.mktemp("printed"), render(whole)) == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[channel.left]\ninptu = 2", "unknown key inptu in table [channel.left]; did you mean in"),
        (
            "[channel.left]\ndelay_us = 2",
            "unknown key delay_us in table [channel.left]; did you mean de",
        ),
        ("[channel.left]\ninput = 5", "channel.left.input is 5, but at most 4 is allowed"),
        ("[channel]\ninput = 2", "holds tables with names of your own"),
        ("channel = 3", "holds tables with names of your own"),
        ('[channel."a b"]', "a name is 1 to 32 of"),
        ("[chanel.left]", "unknown key chanel; did you mean channel?"),
        ('[more.a]\nname = "bad"', "name is bad"),
    ],
)
def test_mistakes_name_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_they_have_no_flags_and_no_place_in_the_commented_example(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Whole)
    assert "--channel" not in parser.format_help()
    assert overrides_from(parser.parse_args(["--title", "t"])) == {"title": "t"}
    assert read(tmp_path, commented_example(Whole)) == Whole()
