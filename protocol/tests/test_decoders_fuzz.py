"""Whatever arrives, a decoder returns or raises DecodeError; `make fuzz` goes deeper."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "fuzz_decoders", HERE / "fuzz" / "fuzz_decoders.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUZZ = load()
DECODERS = FUZZ.targets()


SEEDS = FUZZ.seeds()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Take a good message and change, cut or lengthen it a little."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["set", "insert", "cut"]))
        if change == "cut":
            del data[at : at + draw(st.integers(1, 4))]
        elif change == "insert" or at == len(data):
            data[at:at] = draw(st.binary(max_size=4))
        else:
            data[at] = draw(st.integers(0, 255))
    return bytes(data)


@given(st.binary(max_size=300))
def test_any_octets_are_read_or_refused(data: bytes) -> None:
    FUZZ.throw(data, DECODERS)


@settings(max_examples=500)
@given(mutated())
def test_any_damage_to_a_good_message_is_read_or_refused(data: bytes) -> None:
    FUZZ.throw(data, DECODERS)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    FUZZ.throw(text.encode("utf-8", "surrogatepass"), DECODERS)


def test_a_decoder_that_raises_something_else_is_caught() -> None:
    def careless(_data: bytes) -> None:
        raise IndexError("index out of range")

    with pytest.raises(IndexError):
        FUZZ.throw(b"", [careless])
