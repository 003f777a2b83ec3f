from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.settings.load import load
from mqtick.service.settings.schema import key, table
from mqtick.service.settings.text import add_flags, commented_example, overrides_from, render

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
) | st.sampled_from(['"', "\\", "\r\n\t", "\x7f\x85", "#", "'''", '"""', "\u2028"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Inner:
    """The innermost keys."""

    rate_ppm: float = key(0.5, "A rate.")
    names: tuple[str, ...] = key(("a", "b"), "Names.")


@dataclass(frozen=True, slots=True)
class Middle:
    """Keys in the middle."""

    poll: int = key(2, "A poll.", minimum=-6)
    is_on: bool = key(True, "Whether it is on: 100 % of the time.")
    inner: Inner = table(Inner, "The innermost keys.")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole configuration."""

    interval_s: float = key(1.0, "Between two messages. " + "Long sentence, wrapped. " * 9)
    name: str = key("pi", "A name.")
    mode: str = key("auto", "A mode.", choices=("auto", "user"))
    numbers: tuple[int, ...] = key((1,), "Numbers.")
    rates: tuple[float, ...] = key((), "Rates.")
    bits: tuple[bool, ...] = key((True, False), "Bits.")
    middle: Middle = table(Middle, "Keys in the middle.")


WHOLE = st.builds(
    Whole,
    interval_s=FLOATS,
    name=TEXT,
    mode=st.sampled_from(["auto", "user"]),
    numbers=st.lists(INTEGERS, max_size=3).map(tuple),
    rates=st.lists(FLOATS, max_size=3).map(tuple),
    bits=st.lists(st.booleans(), max_size=3).map(tuple),
    middle=st.builds(
        Middle,
        poll=st.integers(-6, 1 << 62),
        is_on=st.booleans(),
        inner=st.builds(Inner, rate_ppm=FLOATS, names=st.lists(TEXT, max_size=3).map(tuple)),
    ),
)


@given(WHOLE)
def test_rendered_settings_load_back_to_the_same_value(
    tmp_path_factory: pytest.TempPathFactory, settings: Whole
) -> None:
    file = tmp_path_factory.getbasetemp() / "rendered.toml"
    file.write_text(render(settings), encoding="utf-8", newline="")
    assert load(Whole, file) == settings


def test_rendered_settings_are_complete_and_explained() -> None:
    text = render(Whole())
    parsed = tomllib.loads(text)
    assert set(parsed) == {*("interval_s", "name", "mode", "numbers", "rates", "bits", "middle")}, (
        "every key that is set, and no other"
    )
    assert parsed["middle"] == {
        "poll": 2,
        "is_on": True,
        "inner": {"rate_ppm": 0.5, "names": ["a", "b"]},
    }
    assert "# A poll. (at least -6)\npoll = 2\n" in text
    assert '# A mode. (one of: auto, user)\nmode = "auto"\n' in text
    assert "# Keys in the middle.\n[middle]\n" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_shipped_example_sets_nothing(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(commented_example(Whole))
    assert load(Whole, file) == Whole()


def test_every_commented_key_of_the_shipped_example_is_real(tmp_path: Path) -> None:
    # The comment mark of each key is removed, as a person would: a key that was renamed in the
    # program but not in the file would be refused here.
    file = tmp_path / "example.toml"
    text, count = re.subn(r"(?m)^#(?=\S)", "", commented_example(Whole))
    file.write_text(text)
    assert count == 10
    assert load(Whole, file) == Whole()


def with_flags(command_line: str) -> Whole:
    parser = argparse.ArgumentParser(prog="example")
    parser.add_argument("--config")
    add_flags(parser, Whole)
    return load(Whole, None, overrides_from(parser.parse_args(shlex.split(command_line))))


def test_without_flags_nothing_is_overridden() -> None:
    assert with_flags("--config x") == Whole()


def test_every_key_has_a_flag_of_its_name() -> None:
    assert with_flags(
        "--interval-s 2.5 --name 'a b' --mode user --numbers 1,-2 --rates 0.5 --bits true,false "
        "--middle-poll -3 --no-middle-is-on --middle-inner-rate-ppm 1e-3 "
        "--middle-inner-names=x,y"
    ) == Whole(
        interval_s=2.5,
        name="a b",
        mode="user",
        numbers=(1, -2),
        rates=(0.5,),
        bits=(True, False),
        middle=Middle(poll=-3, is_on=False, inner=Inner(rate_ppm=0.001, names=("x", "y"))),
    )


def test_an_array_can_be_emptied() -> None:
    assert with_flags("--numbers ''").numbers == ()


@pytest.mark.parametrize(
    ("command_line", "said"),
    [
        (
            "--middle-poll -7",
            "argument --middle-poll: middle.poll is -7, but at least -6 is needed",
        ),
        ("--interval-s soon", 'interval_s must be a number, not the string "soon"'),
        ("--interval-s nan", "interval_s must be finite, not nan"),
        (
            "--numbers 1,x",
            'numbers has an element 1 that must be a whole number, not the string "x"',
        ),
        ("--bits 1", 'bits has an element 0 that must be a boolean, not the string "1"'),
        ("--mode best", 'mode is the string "best", but must be one of: auto, user'),
        ("--interval-ms 5", "unrecognized arguments: --interval-ms"),
    ],
)
def test_a_wrong_flag_ends_the_program_with_two_and_a_sentence(
    capsys: pytest.CaptureFixture[str], command_line: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        with_flags(command_line)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_unit_limits_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        with_flags("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "--middle-poll NUMBER A poll. (at least -6) [default 2]" in shown
    assert "100 % of the time." in shown
    assert "settings [middle.inner]:" in shown
