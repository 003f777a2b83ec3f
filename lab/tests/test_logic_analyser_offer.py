"""What logic analysers offer, how they are named, and where a stream's record begins."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from logic_analyser_rig import FX2LAFW, OLDER

from mqtick.lab.logic.acquisition import StreamAcquisition, first_match
from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.logic.device import Resource, parse_show
from mqtick.lab.scope.conversation import InstrumentError


def test_what_a_real_device_offers_is_understood() -> None:
    offer = parse_show(FX2LAFW, Resource.parse("sigrok:fx2lafw"))
    assert offer.name == "Saleae Logic [S/N: Saleae Logic]"
    assert offer.channels == tuple(f"D{n}" for n in range(8))
    assert offer.rates_hz[0] == 20_000
    assert offer.rates_hz[-1] == 48_000_000
    assert offer.matches == {"0", "1", "r", "f", "e"}
    assert {"continuous", "limit_samples", "captureratio", "samplerate"} <= offer.options


def test_an_older_listing_is_understood() -> None:
    offer = parse_show(OLDER, Resource.parse("sigrok:fx2lafw"))
    assert offer.channels == tuple("01234567")
    assert offer.matches == {"0", "1"}


@pytest.mark.parametrize(
    ("wanted_hz", "wide", "rate_hz"),
    [
        (1e9, False, 24_000_000),  # 48 MHz is offered, but USB 2 does not carry it
        (1e9, True, 12_000_000),  # two octets a sample
        (20e6, False, 16_000_000),
        (24e6 * (1 - 1e-15), False, 24_000_000),
        (1e6, False, 1_000_000),
        (1, False, 20_000),
    ],
)
def test_the_rate_is_one_that_the_device_has(wanted_hz: float, wide: bool, rate_hz: int) -> None:
    offer = parse_show(FX2LAFW, Resource.parse("sigrok:fx2lafw"))
    assert offer.rate_hz(wanted_hz, "fx2lafw", wide=wide) == rate_hz


def test_several_devices_are_told_apart_by_their_place() -> None:
    text = FX2LAFW + FX2LAFW.replace("1.30", "1.31")
    with pytest.raises(InstrumentError, match=r"Say which: sigrok:fx2lafw:conn=1\.30"):
        parse_show(text, Resource.parse("sigrok:fx2lafw"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sigrok:", "names no logic analyser"),
        ("sigrok", "names no logic analyser"),
        ("sigrok:--version", "found no|names no"),
        ("sigrok:demo;ls", "names no logic analyser"),
        ("sigrok:demo:conn", "not an option"),
        ("sigrok:demo:=3", "not an option"),
        ("sigrok:demo:trigger=never", "not one of auto, driver, software"),
    ],
)
def test_a_resource_that_is_none_is_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InstrumentError, match=says):
        LogicAnalyser(text)


def test_options_go_where_sigrok_cli_wants_them() -> None:
    found = Resource.parse("sigrok:fx2lafw:conn=1.30:voltage_threshold=1.5-1.5:trigger=software")
    assert found.arguments == ("--driver", "fx2lafw:conn=1.30")
    assert found.config == ("voltage_threshold=1.5-1.5",)
    assert found.trigger == "software"


@pytest.mark.parametrize(("slope", "at"), [("rising", 2), ("falling", 1), ("either", 1)])
def test_the_first_edge_of_a_slope(slope: str, at: int) -> None:
    levels = np.array([1, 0, 1, 1, 0, 1], np.uint8)
    assert first_match(levels, slope) == at
    assert first_match(levels, slope, 3) == {"rising": 5, "falling": 4, "either": 4}[slope]
    assert first_match(levels[2:4], slope) is None


@pytest.mark.parametrize("unit", [1, 2, 3])
@pytest.mark.parametrize("piece", [1, 2, 7, 64, 5000])
def test_a_stream_is_cut_around_its_first_edge_however_it_arrives(unit: int, piece: int) -> None:
    # An edge at 40, before there are 100 samples; one at 300; the stream breaks off anywhere.
    bits = np.zeros((900, unit), np.uint8)
    bits[40:120, -1] = bits[300:, -1] = 0x80
    bits[:, 0] |= np.arange(900, dtype=np.uint8) & 0x7F
    data = bits.tobytes()

    class Stream:
        at = 0

        def read1(self, _most: int) -> bytes:
            self.at += piece
            return data[self.at - piece : self.at]

    acquisition = object.__new__(StreamAcquisition)
    acquisition.armed = threading.Event()
    acquisition._bit, acquisition._slope = 8 * unit - 1, "rising"
    acquisition._before, acquisition._samples = 100, 500
    acquisition._unitsize, acquisition._record = unit, None
    acquisition._collect(Stream())  # type: ignore[arg-type]
    levels, trigger = acquisition.read({8 * unit: "last", 1: "first"})
    assert acquisition.armed.is_set()
    assert trigger == 100
    assert levels[8 * unit].tolist() == [0] * 100 + [1] * 400
    assert np.array_equal(levels[1], np.arange(200, 700) & 1)
