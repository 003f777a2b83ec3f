"""The simulated instrument's commands: short and long forms, chains, an error queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.lab.scope.simulator.scpi import Scpi


def takes_a_number(*found: object) -> None:
    float(str(found[-1]))


WORDS = st.from_regex(r"[A-Z]{2,4}[a-z]{1,5}", fullmatch=True)


def spelled(draw: st.DrawFn, word: str) -> str:
    """A mnemonic in its long or its short form, in any case."""
    short = "".join(character for character in word if character.isupper())
    chosen = draw(st.sampled_from([word, short]))
    return "".join(draw(st.sampled_from([c.lower(), c.upper()])) for c in chosen)


@given(st.data())
def test_short_and_long_forms_in_any_case_are_the_same_command(data: st.DataObject) -> None:
    words = data.draw(st.lists(WORDS, min_size=1, max_size=4))
    scpi = Scpi()
    scpi.on(":" + ":".join(words) + "?", lambda text: f"[{text}]")
    written = ":".join(spelled(data.draw, word) for word in words)
    colon = data.draw(st.sampled_from(["", ":"]))
    assert scpi.execute(f"{colon}{written}? 1,2") == ["[1,2]"]


@given(WORDS, st.data())
def test_any_other_length_of_a_mnemonic_is_none(word: str, data: st.DataObject) -> None:
    scpi = Scpi()
    scpi.on(f":{word}?", lambda _: "found")
    short = sum(character.isupper() for character in word)
    length = data.draw(st.integers(1, len(word) - 1).filter(lambda length: length != short))
    assert scpi.execute(f":{word[:length]}?") == []
    assert scpi.next_error().startswith("-113")


@given(st.text(max_size=200))
def test_no_line_upsets_it(line: str) -> None:
    scpi = Scpi()
    scpi.on(":CHANnel<n>:SCALe", takes_a_number)
    assert scpi.execute(line) == []
    while (error := scpi.next_error()) != '0,"No error"':
        assert error.startswith(('-113,"', '-224,"'))
        assert error.count('"') == 2
        assert error.isprintable()


def echo(*names: str) -> Scpi:
    scpi = Scpi()
    for name in names:
        scpi.on(name, lambda *found, name=name: f"{name} {found[-1]}".strip())
    return scpi


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        (":CHANnel1:SCALe 1;OFFSet 2", [":CHANnel<n>:SCALe 1", ":CHANnel<n>:OFFSet 2"]),
        (":CHAN1:SCAL 1;:ACQ:TYPE 2", [":CHANnel<n>:SCALe 1", ":ACQuire:TYPE 2"]),
        (":CHAN1:SCAL 1;*OPC?;OFFS 2", [":CHANnel<n>:SCALe 1", "*OPC?", ":CHANnel<n>:OFFSet 2"]),
        (":CHAN1:SCAL 1;ACQ:TYPE 2", [":CHANnel<n>:SCALe 1", ":ACQuire:TYPE 2"]),  # lenient
        (":ACQ:TYPE 'a;b' ; TYPE \"c;d\"", [":ACQuire:TYPE 'a;b'", ':ACQuire:TYPE "c;d"']),
        (" ; ;*OPC?; ", ["*OPC?"]),
        (":ACQuire:TYPE\t7", [":ACQuire:TYPE 7"]),
    ],
)
def test_a_command_stands_where_the_one_before_it_stood(line: str, answers: list[str]) -> None:
    scpi = echo(":CHANnel<n>:SCALe", ":CHANnel<n>:OFFSet", ":ACQuire:TYPE", "*OPC?")
    assert scpi.execute(line) == answers
    assert scpi.next_error() == '0,"No error"'


def test_a_part_in_brackets_may_be_left_out() -> None:
    scpi = echo(":TRIGger[:EDGE]:LEVel")
    for line in (":TRIG:EDGE:LEV 1", ":TRIGGER:LEVEL 1", "trig:lev 1"):
        assert scpi.execute(line) == [":TRIGger[:EDGE]:LEVel 1"]


def test_numbers_of_a_command_reach_its_handler() -> None:
    scpi = Scpi()
    scpi.on(":CHANnel<n>:PROBe<n>?", lambda *found: str(found))
    assert scpi.execute(":CHAN3:PROB12? x") == ["(3, 12, 'x')"]


def test_a_command_that_was_added_later_goes_first() -> None:
    scpi = echo("*OPC?")
    scpi.on("*OPC?", lambda _: "replaced")
    assert scpi.execute("*OPC?") == ["replaced"]


def test_what_is_wrong_lands_in_the_error_queue_the_oldest_first() -> None:
    scpi = Scpi()
    scpi.on(":SCALe", takes_a_number)
    assert scpi.execute(':NOPE 1;:SCALe much;:AL"SO') == []
    assert scpi.next_error() == '-113,"Undefined header;:NOPE 1"'
    assert scpi.next_error() == '-224,"Illegal parameter value;:SCALe much"'
    assert scpi.next_error().startswith('-113,"Undefined header;')
    assert scpi.next_error() == '0,"No error"'
    for _ in range(1000):
        scpi.execute(":NOPE")
    assert len(scpi.errors) == 32
