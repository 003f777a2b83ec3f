"""The experiment file: what it holds, and each mistake a sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from mqtick.lab.runner.experiment import example, flat
from mqtick.lab.runner.experiment_check import load_experiment
from mqtick.service.settings.load import SettingsError, render


def load(tmp_path: Path, text: str):  # type: ignore[no-untyped-def]
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    return load_experiment(file)


def test_the_example_is_good_and_explains_every_key(tmp_path: Path) -> None:
    experiment = load(tmp_path, example())
    assert experiment.measured() == {"publisher": "publisher", "first": "near", "last": "far"}
    assert set(tomllib.loads(example())) >= {"instrument", "channel", "order", "crowd", "timeouts"}
    lines = example().splitlines()
    for number, line in enumerate(lines):
        if " = " in line and not line.startswith("#") and "[channel.near]" not in lines[:number]:
            assert lines[number - 1].startswith("#"), line


def test_what_is_printed_reads_back_as_the_same(tmp_path: Path) -> None:
    experiment = load(tmp_path, example())
    assert load(tmp_path, render(experiment)) == experiment
    assert flat(load(tmp_path, render(experiment))) == flat(experiment)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('trigger = "publisher"', 'triger = "publisher"', "did you mean trigger?"),
        ('trigger = "publisher"', 'trigger = "publishr"', "did you mean 'publisher'?"),
        ('trigger = "publisher"', 'trigger = ""', "has no trigger; name one of its channels"),
        ('instrument = "scope"', 'instrument = "scop"', "did you mean 'scope'?"),
        ("input = 2", "input = 1", "are both on input 1 of scope"),
        ('first = "near"', 'first = "nearr"', "did you mean 'near'?"),
        ('first = "near"', 'first = "far"', "order.first and order.last are both of client:pi2"),
        ('first = "near"', 'first = "publisher"', "is not the pin arrival of a client"),
        ('last = "far"', 'last = ""', "kind skew needs order.last"),
        ('publisher = "publisher"', 'publisher = "near"', "is not the pin time of a server"),
        ("[2, 10, 50, 100]", "[1, 10]", "are already 2"),
        ("[2, 10, 50, 100]", "[10, 10]", "names a number twice"),
        ("[2, 10, 50, 100]", "[]", "nothing to measure"),
        ("[2, 10, 50, 100]", "[0]", "at least 1 is needed"),
        ("processes = 2", "processes = 0", "there is no crowd"),
        ("nodes = []", 'nodes = ["crow:x"]', 'write "crowd:NAME"'),
        ("rounds = 2", "rounds = 21", "more than the 20 shots"),
        ('kind = "skew"', 'kind = "clock"', "order.first has no meaning for kind clock"),
        ('kind = "skew"', 'kind = "jitter"', "must be one of: latency, skew, clock"),
        ("interval_s = 1.0", "interval_s = 5.0", "would be given up before the message comes"),
        ("interval_s = 1.0", "interval_ms = 500", "did you mean interval_s?"),
        ('node = "client:pi1"', 'node = "pi1"', 'write "server:0" or "client:NAME"'),
        ('node = "server:0"', 'node = "server:256"', 'write "server:0" or "client:NAME"'),
        ('pin = "time"', 'pin = "arrival"', "it has time and pps"),
        ('resource = "TCPIP', 'dialect = "TCPIP', "Cannot overwrite a value"),
        ("[channel.near]", '[channel."ne ar"]', "a name is 1 to 32 of"),
        ("[channel.near]", "[chanel.near]", "did you mean channel?"),
        ("[instrument.scope]", "[instrument]", "holds tables with names of your own"),
        ('prefix = "mqtick"', 'prefix = "a/#"', "is not a topic prefix"),
        ('dialect = "auto"', 'dialect = "keysigth"', "did you mean 'keysight'?"),
    ],
)
def test_each_mistake_is_a_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in example()
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, example().replace(old, new))
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_an_instrument_needs_a_resource_and_channels(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no instrument"):
        load(tmp_path, "")
    with pytest.raises(SettingsError, match=r"instrument.a has no resource"):
        load(tmp_path, "[instrument.a]\n")
    with pytest.raises(SettingsError, match=r"instrument.a has no channel"):
        load(tmp_path, '[instrument.a]\nresource = "X"\n')


def test_one_instrument_has_one_name(tmp_path: Path) -> None:
    text = example() + '[instrument.other]\nresource = "TCPIP::192.168.1.5::5025::SOCKET"\n'
    with pytest.raises(SettingsError, match="have the same resource"):
        load(tmp_path, text)


def test_instruments_that_are_compared_trigger_on_one_pin(tmp_path: Path) -> None:
    text = example().replace('instrument = "scope"\ninput = 3', 'instrument = "other"\ninput = 1')
    other = '[instrument.other]\nresource = "Y"\ntrigger = "{0}"\n'
    with pytest.raises(SettingsError, match="trigger on different pins"):
        load(tmp_path, text + other.format("far"))
    again = '[channel.again]\ninstrument = "other"\ninput = 2\nnode = "server:0"\npin = "time"\n'
    assert load(tmp_path, text + other.format("again") + again)


def test_latency_of_one_subscriber_needs_no_crowd(tmp_path: Path) -> None:
    text = (
        example()
        .replace('kind = "skew"', 'kind = "latency"')
        .replace("[2, 10, 50, 100]", "[1]")
        .replace('last = "far"', 'last = ""')
        .replace("processes = 2", "processes = 0")
    )
    assert load(tmp_path, text).subscribers == (1,)
